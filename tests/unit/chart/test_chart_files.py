"""What can be said about chart and Dockerfile without Helm, Docker or a cluster.

What needs Helm or an API server is in tests/k8s.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

from ackd.inject.inject_metrics import InjectMetrics
from ackd.telemetry.metrics import Metrics
from tests.support.paths import REPO

CHART = REPO / "helm" / "ackd"
Json = dict[str, Any]


def schema() -> Json:
    found: Json = json.loads((CHART / "values.schema.json").read_text())
    return found


def values() -> Json:
    found: Json = yaml.safe_load((CHART / "values.yaml").read_text())
    return found


def places(node: Json, path: str = "") -> Iterator[tuple[str, Json]]:
    """Every described place of the schema."""
    yield path, node
    for name, below in node.get("properties", {}).items():
        yield from places(below, f"{path}.{name}")
    for below in node.get("anyOf", ()):
        yield from places(below, path)
    if isinstance(node.get("items"), dict):
        yield from places(node["items"], f"{path}[]")


def test_the_values_fit_their_schema() -> None:
    jsonschema.Draft7Validator.check_schema(schema())
    jsonschema.validate(values(), schema())


def test_the_schema_is_strict_and_says_what_each_value_is() -> None:
    for path, node in places(schema()):
        if "properties" in node:
            assert node["additionalProperties"] is False, path
        for name, below in node.get("properties", {}).items():
            assert below.get("description"), f"{path}.{name} has no description"


def test_every_value_has_a_default_in_the_file() -> None:
    """So that values.yaml is a whole list of what there is."""
    wanted = {path for path, _ in places(schema()) if "[]" not in path and path}
    free = {".global", ".image.pullSecrets"}
    tree = values()
    for path in sorted(wanted - free):
        node: Any = tree
        *parents, last = path.strip(".").split(".")
        for part in parents:
            node = node.get(part, {}) if isinstance(node, dict) else {}
        # Below an empty table nothing can stand (references to Secrets, resources).
        assert not node or last in node or last in ("requests", "limits", "claims"), path


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"injektor": {}}, "injektor"),
        ({"injector": {"mode": "both"}}, "both"),
        ({"injector": {"replicas": 0}}, "0"),
        ({"sidecar": {"cpu": "lots"}}, "lots"),
        ({"sidecar": {"env": [{"name": "PATH", "value": "x"}]}}, "PATH"),
        ({"store": {"url": "redis://user:secret@host"}}, "secret"),
        ({"image": {"digest": "latest"}}, "latest"),
    ],
)
def test_wrong_values_are_refused(change: Json, place: str) -> None:
    with pytest.raises(jsonschema.ValidationError, match=place):
        jsonschema.validate(change, schema())


def test_no_chart_text_looks_things_up_or_makes_secrets() -> None:
    """GitOps tools render `lookup` as empty; a generated secret would change with every sync."""
    for path in (CHART / "templates").rglob("*"):
        if path.is_file():
            text = path.read_text()
            for word in ("lookup ", "genSelfSignedCert", "genCA", "randAlpha", "kind: Secret\n"):
                assert word not in text, f"{path.name}: {word}"
            assert "caBundle:" not in text, path.name


def test_the_dashboard_shows_metrics_that_exist() -> None:
    dashboard = json.loads((CHART / "dashboards" / "ackd.json").read_text())
    known = {family.name for family in Metrics().families}
    known |= {f"{family.name}_bucket" for family in Metrics().families}
    known |= {
        metric.name + ("_total" if metric.type == "counter" else "")
        for metric in InjectMetrics().registry.collect()
    }
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        for target in panel.get("targets", ()):
            named = set(re.findall(r"\backd_[a-z_]+", target["expr"]))
            assert named, panel["title"]
            assert named <= known, f"{panel['title']}: {named - known}"
        if panel["type"] != "row":
            assert panel["description"]


def test_the_injectors_metrics_are_documented() -> None:
    page = (REPO / "docs" / "operate" / "kubernetes.md").read_text()
    for metric in InjectMetrics().registry.collect():
        if metric.name.startswith("ackd_"):
            assert f"`{metric.name}" in page, metric.name


def test_versions_of_chart_and_program_agree() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = (REPO / "pyproject.toml").read_text()
    assert f'version = "{chart["appVersion"]}"' in project
    assert f"ARG VERSION={chart['appVersion']}\n" in (REPO / "Dockerfile").read_text()


def test_dockerfile_is_clean() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run(
        [hadolint, "--failure-threshold", "style", REPO / "Dockerfile"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_has_a_base_that_is_pinned() -> None:
    text = (REPO / "Dockerfile").read_text()
    assert re.search(r"^ARG PYTHON=python:[\d.]+-slim-\w+@sha256:[0-9a-f]{64}$", text, re.MULTILINE)
    bases = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    assert set(bases) == {"${PYTHON}"}


def test_the_image_is_built_from_what_its_build_reads() -> None:
    """`make test-image` builds it, which takes root and minutes; these two broke it before."""
    text = (REPO / "Dockerfile").read_text()
    assert "COPY requirements/rocketmq-protocol.txt " in text  # of hatch_build.py
    # pip has compiled already, by dates of files; without -f that bytecode stays.
    compiled = [line for line in text.splitlines() if "compileall" in line]
    assert compiled
    assert all(" -f " in line for line in compiled)


def test_the_image_has_no_tools_of_reports_and_tests() -> None:
    """Only what the sidecar and the injector run on, with hashes."""
    lock = (REPO / "requirements" / "image.lock").read_text()
    names = set(re.findall(r"^([a-z0-9-]+)==", lock, re.MULTILINE))
    assert {"aiohttp", "hiredis", "confluent-kafka", "cryptography"} <= names
    assert names.isdisjoint({"pyspark", "matplotlib", "pytest", "mypy", "hatchling"})
    assert names.isdisjoint({"ackd-tools", "rich", "textual"})
    assert "sidecar/tools" in (REPO / ".dockerignore").read_text().splitlines()
    assert "://" not in lock
    assert "--hash=sha256:" in lock
