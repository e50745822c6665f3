"""`docs/reference/configuration.md`, made from the schema. A test fails when it is out of date."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ackd.config.adapters import find_adapter
from ackd.config.environment import variable
from ackd.config.fields import FieldKind, Spec, Unit, specs
from ackd.config.schema import Settings

INTRO = """\
# Configuration

This page is made from the schema: `ackd docs configuration`.

Settings come from one TOML file (`ackd serve --config ackd.toml`, or the variable `ACKD_CONFIG`)
and from environment variables, which win. Without any of them ackd runs: an embedded store, a local
broker, and the subscription `default` on the topic `default`. `ackd check` prints what is in
effect, with sources, and every mistake at once with its place; `ackd check --connect` also tries
the store and the brokers.

```toml
[brokers.main]
adapter = "kafka"

[brokers.main.options]
bootstrap_servers = "kafka-1:9092,kafka-2:9092"

[subscriptions.orders]
topics = ["orders"]
lease_ms = "45s"
```

* Durations (`..._ms`) are integer milliseconds, or texts like `"500ms"`, `"10s"`, `"1m30s"`.
* Sizes (`..._bytes...`) are integer bytes, or texts like `"64KiB"`, `"16MiB"`.
* Paths may be relative to the folder of the file; in variables, to the working directory.
* Secrets stand in files of their own (`..._file`), never in this one.
* *live*: can be changed [while sidecars run](../guides/flow.md#change-settings-while-it-runs).
  *shared*: all sidecars of a subscription must have the same; a difference shows in `/readyz`.
* Variables: the key path in capitals with `__` between its parts, for example
  `ACKD_SUBSCRIPTIONS__ORDERS__LEASE_MS=45s`. Lists: `a,b` or `["a", "b"]`. Tables and whole
  sections: `{key = "value"}`. `ACKD_DEFAULT__SERVER__STOP=release` counts where neither the file
  nor another variable says anything; an empty one says nothing. An unknown `ACKD_` variable is a
  mistake, but for `ACKD_TEST_...` and those that Kubernetes sets for a Service named `ackd`.
"""


def page(adapters: Sequence[str]) -> str:
    """The whole page, with the options of these adapters."""
    lines = [INTRO, "## Top level", ""]
    lines += _table(Settings, ())
    for spec in specs(Settings):
        if spec.kind is FieldKind.SECTION and spec.section is not None:
            lines += ["", f"## `[{spec.name}]`", "", *_section(spec.section, (spec.name,))]
        if spec.kind is FieldKind.SECTIONS and spec.section is not None:
            name = f"{spec.name}.<name>"
            default = spec.default_text()
            lines += ["", f"## `[{name}]`", "", f"{spec.doc} Default: {default}.", ""]
            lines += _section(spec.section, (spec.name, "<name>"))
            for inner in specs(spec.section):
                if inner.kind is FieldKind.SECTION and inner.section is not None:
                    lines += ["", f"## `[{name}.{inner.name}]`", ""]
                    lines += ["All of it is *shared*.", ""] if inner.shared else []
                    lines += _section(inner.section, (spec.name, "<name>", inner.name))
    for adapter in adapters:
        path = ("brokers", "<name>", "options")
        lines += ["", f'## `[brokers.<name>.options]` with `adapter = "{adapter}"`', ""]
        lines += _section(find_adapter(adapter).options, path)
    return "\n".join(lines) + "\n"


def _section(cls: type[Any], path: tuple[str, ...]) -> Iterator[str]:
    doc = (cls.__doc__ or "").strip()
    # A dataclass without a docstring of its own has its signature there.
    if doc and not doc.startswith(f"{cls.__name__}("):
        yield from (doc, "")
    yield from _table(cls, path)


def _table(cls: type[Any], path: tuple[str, ...]) -> Iterator[str]:
    example = variable((*path, "key"))
    yield f"Variables: `{example.removesuffix('KEY')}...`"
    yield ""
    yield "| key | kind | default | allowed | meaning |"
    yield "|---|---|---|---|---|"
    for spec in specs(cls):
        if spec.kind in (FieldKind.SECTION, FieldKind.SECTIONS, FieldKind.OPTIONS):
            continue
        cells = (
            f"`{spec.name}`",
            _kind(spec),
            _default(spec),
            spec.allowed() or "",
            _meaning(spec),
        )
        yield f"| {' | '.join(_cell(cell) for cell in cells)} |"


def _meaning(spec: Spec) -> str:
    marks = [word for word, holds in (("live", spec.live), ("shared", spec.shared)) if holds]
    return f"{spec.doc} *{', '.join(marks)}*" if marks else spec.doc


def _kind(spec: Spec) -> str:
    words = {
        FieldKind.BOOL: "true or false",
        FieldKind.INT: "number",
        FieldKind.FLOAT: "number",
        FieldKind.TEXT: "text",
        FieldKind.PATH: "path",
        FieldKind.LIST: "list",
        FieldKind.TABLE: "table of texts",
    }
    units = {Unit.MS: "duration", Unit.BYTES: "size", Unit.INSTANT: "point in time"}
    if spec.kind is FieldKind.LIST and spec.item is not None:
        item = units.get(spec.unit, words[spec.item])
        return f"list of {item}s" if item != "true or false" else "list"
    return units.get(spec.unit, words[spec.kind])


def _default(spec: Spec) -> str:
    text = spec.default_text()
    if spec.required or text == "not set" or "default_doc" in spec.facts:
        return text
    return "empty" if text in ('""', "[]", "{}") else f"`{text}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
