"""What a settings dataclass says about its fields: kind, unit, bounds, default, doc; read once.

Works for ackd's own schema and for an adapter's options alike (the convention: `ackd.options`).
A field of a type that is not listed here is a bug of whoever wrote the dataclass: `TypeError`.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ackd.config.units import format_duration, format_size


class FieldKind(Enum):
    """How the file represents a field."""

    BOOL = auto()
    INT = auto()
    FLOAT = auto()
    TEXT = auto()
    PATH = auto()
    LIST = auto()
    TABLE = auto()  # free keys with text values
    SECTION = auto()  # a dataclass
    SECTIONS = auto()  # a dataclass per name
    OPTIONS = auto()  # what the adapter says


class Unit(Enum):
    """What an integer counts; the field's name tells."""

    NONE = auto()
    MS = auto()
    BYTES = auto()
    INSTANT = auto()


@dataclass(frozen=True, slots=True)
class Spec:
    """One field. `item` is the kind of a list's items; `section` the dataclass of a section."""

    name: str
    kind: FieldKind
    item: FieldKind | None
    unit: Unit
    optional: bool
    required: bool
    section: type[Any] | None
    make: type[Enum] | None
    facts: Mapping[str, Any]
    _default: Any
    _factory: Any

    @property
    def doc(self) -> str:
        """The setting's documentation: one or two sentences, first letter large."""
        return str(self.facts.get("doc", ""))

    @property
    def secret(self) -> bool:
        """Whether the value must never be shown."""
        return bool(self.facts.get("secret"))

    @property
    def live(self) -> bool:
        """Whether an operator may change the value while sidecars run."""
        return bool(self.facts.get("live"))

    @property
    def shared(self) -> bool:
        """Whether all sidecars of a subscription must have the same value."""
        return bool(self.facts.get("shared"))

    @property
    def choices(self) -> tuple[str, ...]:
        """The allowed texts; empty if any text is allowed."""
        return tuple(self.facts.get("choices") or ())

    def default(self) -> Any:
        """A default value; only for fields that are not required."""
        return self._default if self._factory is MISSING else self._factory()

    def default_text(self) -> str:
        """The default as documentation shows it."""
        if "default_doc" in self.facts:
            return str(self.facts["default_doc"])
        if self.required:
            return "required"
        return "not set" if self.default() is None else self.text(self.default())

    def text(self, value: object) -> str:
        """Write a value as people do, with its unit."""
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, Enum):
            return str(value.value)
        if isinstance(value, tuple | list):
            return f"[{', '.join(self.text(each) for each in value)}]"
        if isinstance(value, int) and self.unit is Unit.MS:
            return format_duration(value)
        if isinstance(value, int) and self.unit is Unit.BYTES:
            return format_size(value)
        return str(value) if value != "" else '""'

    def allowed(self, *, item: bool = False) -> str | None:
        """Say the bounds in words, None if there are none; `item`: those of one item of a list."""
        if self.choices:
            return ", ".join(self.choices)
        if "pattern" in self.facts:
            return str(self.facts.get("pattern_doc") or f"what matches {self.facts['pattern']}")
        parts = [self._range("min", "max", self.text)]
        parts.append(None if item else self._range("len_min", "len_max", str))
        if parts[1] is not None:
            parts[1] += (
                " items"
                if self.kind in (FieldKind.LIST, FieldKind.TABLE, FieldKind.SECTIONS)
                else " characters"
            )
        return ", ".join(part for part in parts if part) or None

    def _range(self, low: str, high: str, text: Callable[[object], str]) -> str | None:
        least, most = self.facts.get(low), self.facts.get(high)
        if least is None and most is None:
            return None
        if most is None:
            return f"at least {text(least)}"
        return f"at most {text(most)}" if least is None else f"{text(least)} to {text(most)}"


_READ: dict[type[Any], tuple[Spec, ...]] = {}


def specs(cls: type[Any]) -> tuple[Spec, ...]:
    """The fields of a settings dataclass that an operator can set, in order."""
    if cls not in _READ:
        _READ[cls] = _specs(cls)
    return _READ[cls]


def _specs(cls: type[Any]) -> tuple[Spec, ...]:
    if not dataclasses.is_dataclass(cls):
        message = f"{cls!r} is not a dataclass of settings"
        raise TypeError(message)
    hints = get_type_hints(cls)
    return tuple(
        _spec(cls, each, hints[each.name])
        for each in dataclasses.fields(cls)
        if each.init and not each.metadata.get("internal")
    )


def _spec(cls: type[Any], each: dataclasses.Field[Any], hint: Any) -> Spec:
    optional, hint = _without_none(hint)
    facts = dict(each.metadata)
    item: FieldKind | None = None
    section: type[Any] | None = None
    make: type[Enum] | None = None
    kind = _scalar(hint, facts)
    if kind is None:
        kind, item, section = _container(hint, facts)
    if isinstance(hint, type) and issubclass(hint, Enum):
        make = hint
    if kind is None:
        message = f"{cls.__name__}.{each.name}: no way to read {hint!r} from a file"
        raise TypeError(message)
    required = each.default is MISSING and each.default_factory is MISSING
    return Spec(
        name=each.name,
        kind=kind,
        item=item,
        unit=_unit(each.name, item or kind),
        optional=optional,
        required=required,
        section=section,
        make=make,
        facts=types.MappingProxyType(facts),
        _default=each.default,
        _factory=each.default_factory,
    )


def _without_none(hint: Any) -> tuple[bool, Any]:
    if get_origin(hint) in (Union, types.UnionType):
        rest = [each for each in get_args(hint) if each is not type(None)]
        if len(rest) == 1:
            return True, rest[0]
    return False, hint


def _scalar(hint: Any, facts: dict[str, Any]) -> FieldKind | None:
    """The kind of a single value; records the choices that its type implies."""
    if get_origin(hint) is Literal:
        facts.setdefault("choices", get_args(hint))
        return FieldKind.TEXT
    if isinstance(hint, type) and issubclass(hint, Enum):
        facts.setdefault("choices", tuple(each.value for each in hint))
        return FieldKind.TEXT
    plain = {
        bool: FieldKind.BOOL,
        int: FieldKind.INT,
        float: FieldKind.FLOAT,
        str: FieldKind.TEXT,
        Path: FieldKind.PATH,
    }
    return plain.get(hint, FieldKind.OPTIONS if hint is object else None)


def _container(
    hint: Any,
    facts: dict[str, Any],
) -> tuple[FieldKind | None, FieldKind | None, type[Any] | None]:
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return FieldKind.SECTION, None, hint
    origin, args = get_origin(hint), get_args(hint)
    if origin in (tuple, list, Sequence) and args:
        return FieldKind.LIST, _scalar(args[0], facts), None
    if origin in (dict, Mapping) and args and args[0] is str:
        if dataclasses.is_dataclass(args[1]) and isinstance(args[1], type):
            return FieldKind.SECTIONS, None, args[1]
        if args[1] is str:
            return FieldKind.TABLE, FieldKind.TEXT, None
    return None, None, None


def _unit(name: str, kind: FieldKind) -> Unit:
    if kind is not FieldKind.INT:
        return Unit.NONE
    parts = name.split("_")
    if "ms" in parts:
        return Unit.INSTANT if "timestamp" in parts else Unit.MS
    return Unit.BYTES if "bytes" in parts else Unit.NONE
