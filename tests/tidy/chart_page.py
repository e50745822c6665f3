"""Writes `helm/ackd/README.md`: `python -m tests.tidy.chart_page`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).parents[2] / "helm" / "ackd"
PAGE = CHART / "README.md"
HEAD = """# The chart ackd

{description}.

It needs Kubernetes {kubernetes} and Helm 3 or 4. The repository's page
`docs/operate/kubernetes.md` shows what to do with it, from the first five minutes on.

```text
helm install ackd helm/ackd --namespace ackd-system --create-namespace --values values.yaml
helm test ackd --namespace ackd-system
```

## Values

Drawn from `values.yaml` and `values.schema.json` by `python -m tests.tidy.chart_page`; a test fails
when this page is older than they are. A value that is not here, or does not fit, is refused by its
name.

| value | default | meaning |
|---|---|---|
"""


def page() -> str:
    """The whole page."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    head = HEAD.format(
        description=chart["description"], kubernetes=chart["kubeVersion"].removesuffix("-0")
    )
    rows = [f"| `{name}` | {default} | {text} |" for name, default, text in _rows(schema, values)]
    return head + "\n".join(rows) + "\n"


def _rows(
    schema: Mapping[str, Any], values: Mapping[str, Any], above: str = ""
) -> Iterator[tuple[str, str, str]]:
    """Name, default and meaning of each value, in the order of the file."""
    described = schema["properties"]
    for key, default in values.items():
        below = described[key]
        name = f"{above}{key}"
        if isinstance(default, dict) and default and "properties" in below:
            yield from _rows(below, default, f"{name}.")
        else:
            yield name, f"`{_short(default)}`", _meaning(below)


def _short(default: object) -> str:
    return json.dumps(default, ensure_ascii=False).replace("|", "\\|")


def _meaning(node: Mapping[str, Any]) -> str:
    text = str(node["description"]).replace("|", "\\|").rstrip(".")
    allowed = ", ".join(f"`{each}`" for each in node.get("enum", ()))
    return f"{text} (one of {allowed})" if allowed else text


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
