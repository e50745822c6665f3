"""Convert what the file or the environment holds to a setting's value, or say why not.

Pure: the only failure is `Wrong`, which carries a sentence, and the index of the item for lists.
"""

from __future__ import annotations

import re
import tomllib
from datetime import datetime
from pathlib import Path

from ackd.config.environment import EnvText
from ackd.config.fields import FieldKind, Spec, Unit
from ackd.config.units import instant_ms, parse_duration, parse_instant, parse_size

_YES = frozenset({"true", "yes", "on", "1"})
_NO = frozenset({"false", "no", "off", "0"})
_INT = re.compile(r"[+-]?[0-9]{1,18}")
TEXT_CHARS_MAX = 65_536


class Wrong(Exception):  # noqa: N818  it never leaves this package
    """Why a value can't be used. `bound`: its kind is right, but it is out of bounds."""

    def __init__(self, problem: str, *, bound: bool = False, index: int | None = None) -> None:
        self.problem = problem
        self.bound = bound
        self.index = index
        super().__init__(problem)


def convert(spec: Spec, raw: object) -> object:
    """Convert the value of a field that is neither section nor options. Raises `Wrong`."""
    if isinstance(raw, EnvText):
        raw = from_env(spec, raw)
        if raw is None:
            return None
    if spec.kind is FieldKind.LIST:
        return _list(spec, raw)
    if spec.kind is FieldKind.TABLE:
        return _table(spec, raw)
    return _single(spec, spec.kind, raw)


def from_env(spec: Spec, text: EnvText) -> object:
    """Convert a text of the environment to the value that the file would have. Empty means "not
    set" where that is possible.
    """
    plain = str(text)
    if spec.optional and plain == "":
        return None
    if spec.kind is FieldKind.LIST:
        if plain.lstrip().startswith("["):
            return _toml(plain, "list")
        items = [item.strip() for item in plain.split(",")] if plain.strip() else []
        return [_env_single(spec.item or FieldKind.TEXT, item) for item in items]
    if spec.kind in (FieldKind.TABLE, FieldKind.SECTION, FieldKind.SECTIONS, FieldKind.OPTIONS):
        if not plain.lstrip().startswith("{"):
            raise Wrong('expected an inline table like {key = "value"}')
        return _toml(plain, "table")
    return _env_single(spec.kind, plain)


def _toml(text: str, what: str) -> object:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise Wrong(f"not a TOML {what}: {error}") from None


def _env_single(kind: FieldKind, text: str) -> object:
    """The text as a number or truth value; other text stays as it is and is checked later."""
    if kind is FieldKind.BOOL:
        word = text.strip().lower()
        if word in _YES or word in _NO:
            return word in _YES
    if kind is FieldKind.INT and _INT.fullmatch(text.strip()):
        return int(text)
    if kind is FieldKind.FLOAT:
        try:
            return float(text)
        except ValueError:
            return text
    return text


def _list(spec: Spec, raw: object) -> tuple[object, ...]:
    if not isinstance(raw, list):
        raise Wrong(f"expected a list, got {_kind_of(raw)}")
    items: list[object] = []
    for index, each in enumerate(raw):
        try:
            items.append(_single(spec, spec.item or FieldKind.TEXT, each))
        except Wrong as wrong:
            raise Wrong(wrong.problem, bound=wrong.bound, index=index) from None
    _check_length(spec, len(items), "item")
    return tuple(items)


def _table(spec: Spec, raw: object) -> dict[str, str]:
    """Convert a table with free keys: numbers and truth values become text."""
    if not isinstance(raw, dict):
        raise Wrong(f"expected a table, got {_kind_of(raw)}")
    table: dict[str, str] = {}
    for key, each in raw.items():
        if isinstance(each, bool):
            table[str(key)] = str(each).lower()
        elif isinstance(each, str | int | float):
            table[str(key)] = str(each)
        else:
            raise Wrong(f"{key}: expected a text, got {_kind_of(each)}")
    _check_length(spec, len(table), "key")
    return table


def _single(spec: Spec, kind: FieldKind, raw: object) -> object:
    if kind is FieldKind.BOOL:
        if not isinstance(raw, bool):
            raise Wrong(f"expected true or false, got {_kind_of(raw)}")
        return raw
    if kind is FieldKind.INT:
        return _bounded(spec, _integer(spec.unit, raw))
    if kind is FieldKind.FLOAT:
        if isinstance(raw, bool) or not isinstance(raw, int | float):
            raise Wrong(f"expected a number, got {_kind_of(raw)}")
        return _bounded(spec, float(raw))
    if not isinstance(raw, str):
        raise Wrong(f"expected a text, got {_kind_of(raw)}")
    return _text(spec, kind, raw)


def _integer(unit: Unit, raw: object) -> int:
    if isinstance(raw, int) and not isinstance(raw, bool):
        return raw
    try:
        if isinstance(raw, str) and unit is Unit.MS:
            return parse_duration(raw)
        if isinstance(raw, str) and unit is Unit.BYTES:
            return parse_size(raw)
        if isinstance(raw, str) and unit is Unit.INSTANT:
            return parse_instant(raw)
        if isinstance(raw, datetime) and unit is Unit.INSTANT:
            return instant_ms(raw)
    except ValueError as error:
        raise Wrong(str(error)) from None
    expected = {
        Unit.NONE: "a whole number",
        Unit.MS: "whole milliseconds or a duration like 10s",
        Unit.BYTES: "whole bytes or a size like 16MiB",
        Unit.INSTANT: "whole Unix milliseconds or a date-time with an offset",
    }[unit]
    raise Wrong(f"expected {expected}, got {_kind_of(raw)}")


def _bounded(spec: Spec, value: float) -> float:
    least, most = spec.facts.get("min"), spec.facts.get("max")
    # Written so that NaN is out of every range.
    if least is not None and not value >= least:
        raise Wrong("too small", bound=True)
    if most is not None and not value <= most:
        raise Wrong("too large", bound=True)
    return value


def _text(spec: Spec, kind: FieldKind, raw: str) -> object:
    if len(raw) > TEXT_CHARS_MAX or "\0" in raw:
        raise Wrong("too long" if "\0" not in raw else "it holds a NUL character")
    if spec.choices and raw not in spec.choices:
        raise Wrong("not one of the choices", bound=True)
    pattern = spec.facts.get("pattern")
    if pattern is not None and not re.fullmatch(str(pattern), raw):
        raise Wrong("not of the right form", bound=True)
    if spec.kind is not FieldKind.LIST:
        _check_length(spec, len(raw), "character")
    elif raw == "":
        raise Wrong("an empty text")
    if kind is FieldKind.PATH:
        if raw == "":
            raise Wrong("an empty path")
        return Path(raw)
    return raw if spec.make is None else spec.make(raw)


def _check_length(spec: Spec, length: int, what: str) -> None:
    least, most = spec.facts.get("len_min"), spec.facts.get("len_max")
    if least is not None and length < least:
        raise Wrong(f"needs at least {least} {what}{'' if least == 1 else 's'}")
    if most is not None and length > most:
        raise Wrong(f"has more than {most} {what}{'' if most == 1 else 's'}")


def _kind_of(raw: object) -> str:
    if isinstance(raw, bool):
        return "a truth value"
    for kind, name in ((int, "a number"), (float, "a number"), (str, "a text")):
        if isinstance(raw, kind):
            return name
    if isinstance(raw, list):
        return "a list"
    return "a table" if isinstance(raw, dict) else "a date or time"
