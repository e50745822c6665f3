"""Show the configuration in effect, to people and programs: with sources, without secrets."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path as FilePath
from typing import Any

from ackd.config.fields import FieldKind, Spec, Unit, specs
from ackd.config.mistakes import HIDDEN, Path, dotted, without_user_info
from ackd.config.schema import Settings

_SECRET_KEY = re.compile(
    r"pass|secret|token|jaas|credential|\.key$|private|api.?key", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting in effect, as `ackd check` prints it: key, value, and where it comes from."""

    path: Path
    spec: Spec
    value: object
    source: str


def rows(settings: Settings) -> Iterator[SettingRow]:
    """List every setting, in the order of the schema."""
    yield from _rows(settings, (), settings.sources)


def public(spec: Spec, value: object) -> object:
    """A value in JSON's types, secrets hidden."""
    if value is None:
        return None
    if spec.secret:
        return HIDDEN
    if isinstance(value, Mapping):
        return {
            str(key): HIDDEN if _SECRET_KEY.search(str(key)) else without_user_info(str(each))
            for key, each in value.items()
        }
    if isinstance(value, tuple | list):
        return [public(spec, each) for each in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, FilePath):
        return str(value)
    return without_user_info(value) if isinstance(value, str) else value


def as_toml(settings: Settings, *, sources: bool = True) -> str:
    """Write all settings as a TOML file that can be loaded again, except for hidden secrets
    (`***`).
    """
    lines: list[str] = []
    head: Path = ()
    for row in rows(settings):
        if row.path[:-1] != head:
            head = row.path[:-1]
            lines += ["", f"[{dotted(head)}]"]
        key = dotted(row.path[-1:])
        text = f"# {key} is not set" if row.value is None else f"{key} = {_toml(row)}"
        if sources and row.value is not None:
            text = f"{text}  # {row.source}"
        lines.append(text)
    return "\n".join(lines) + "\n"


def _toml(row: SettingRow) -> str:
    value = public(row.spec, row.value)
    unit = row.spec.unit
    if isinstance(value, list):
        return f"[{', '.join(_literal(row.spec, unit, each) for each in value)}]"
    if isinstance(value, dict):
        pairs = (f"{dotted((key,))} = {_string(each)}" for key, each in value.items())
        return f"{{{', '.join(pairs)}}}"
    return _literal(row.spec, unit, value)


def _literal(spec: Spec, unit: Unit, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and unit in (Unit.MS, Unit.BYTES):
        return _string(spec.text(value))
    return _string(value) if isinstance(value, str) else str(value)


def _string(value: object) -> str:
    """A TOML basic string: JSON's escapes are a part of TOML's, but for DEL and lone surrogates."""
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007F")


def _rows(section: Any, path: Path, sources: Mapping[str, str]) -> Iterator[SettingRow]:
    nested: list[tuple[Path, object]] = []
    for spec in specs(type(section)):
        value = getattr(section, spec.name)
        here = (*path, spec.name)
        if spec.kind in (FieldKind.SECTION, FieldKind.OPTIONS):
            if value is not None:
                nested.append((here, value))
        elif spec.kind is FieldKind.SECTIONS:
            nested += [((*here, name), each) for name, each in value.items()]
        else:
            yield SettingRow(here, spec, value, sources.get(dotted(here), "default"))
    for here, each in nested:
        yield from _rows(each, here, sources)
