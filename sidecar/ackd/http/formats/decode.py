"""Read request bodies in one pass. If there is a mistake, a second pass names all of them."""

from __future__ import annotations

from typing import Annotated, Generic, TypeGuard, TypeVar, get_args, get_origin

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import fields

from ackd.errors import BadBodyError, BadParameterError
from ackd.http.formats.problems import field_errors
from ackd.unreadable import UNREADABLE

Body = TypeVar("Body", bound=Struct)

WrongItems = dict[int, BadParameterError]
"""What is wrong with items of a list, by their places."""

# More than this many faults help nobody, and the answer stays small (I8).
FAULTS_MAX = 50


class BodyDecoder(Generic[Body]):
    """Reads JSON into one struct type. If that fails, a second, slow pass finds every mistake."""

    def __init__(self, kind: type[Body]) -> None:
        self.kind = kind
        self._decoder = msgspec.json.Decoder(kind)

    def decode(self, raw: bytes) -> Body:
        """Decode the body. Raises BadBodyError (not JSON), BadParameterError (JSON that does not
        fit).
        """
        try:
            return self._decoder.decode(raw)
        except msgspec.ValidationError as error:
            raise self._faults(_plain(raw), str(error)) from error
        except UNREADABLE as error:
            raise BadBodyError(f"Not JSON: {error}.") from error

    def decode_items(self, raw: bytes, member: str, item: object) -> tuple[Body, WrongItems]:
        """Decode a body whose list `member` has items that are judged one by one.

        Returns the body with the good items only, and why the others are wrong. Raises as `decode`,
        also if no item is good.
        """
        try:
            return self._decoder.decode(raw), {}
        except msgspec.ValidationError as error:
            first = str(error)
        except UNREADABLE as error:
            raise BadBodyError(f"Not JSON: {error}.") from error
        plain = _plain(raw)
        items = plain.get(member) if isinstance(plain, dict) else None
        if not isinstance(plain, dict) or not isinstance(items, list):
            raise self._faults(plain, first)
        wrong: WrongItems = {}
        for place, each in enumerate(items):
            found: list[tuple[str, str]] = []
            _check(each, item, f"/{member}/{place}", found)
            if found:
                wrong[place] = field_errors(found)
        good = [each for place, each in enumerate(items) if place not in wrong]
        try:
            return msgspec.convert(plain | {member: good}, self.kind), wrong
        except msgspec.ValidationError as error:
            raise self._faults(plain, first) from error

    def _faults(self, plain: object, first: str) -> BadParameterError:
        """Make the error of a body that does not fit; `first` says why, in short."""
        found: list[tuple[str, str]] = []
        _check(plain, self.kind, "", found)
        return field_errors(found[:FAULTS_MAX] or [("", first)])


def _plain(raw: bytes) -> object:
    """Decode JSON into plain values. Raises BadBodyError, BadParameterError."""
    try:
        return msgspec.json.decode(raw)
    except msgspec.ValidationError as error:  # 1E400 is JSON, but no number that we can hold
        raise field_errors([("", f"{error}.")]) from error
    except UNREADABLE as error:
        raise BadBodyError(f"Not JSON: {error}.") from error


def _check(value: object, kind: object, at: str, found: list[tuple[str, str]]) -> None:
    """Append (JSON Pointer, why) for everything in `value` that does not fit `kind`."""
    if len(found) >= FAULTS_MAX:
        return
    origin = get_origin(kind)
    if origin is Annotated:
        # A list is looked into item by item; its own bounds are checked when the items are right.
        before = len(found)
        _check(value, get_args(kind)[0], at, found)
        if len(found) == before:
            _convert(value, kind, at, found)
    elif isinstance(kind, type) and issubclass(kind, Struct) and isinstance(value, dict):
        _check_struct(value, kind, at, found)
    elif origin is list and isinstance(value, list):
        for index, item in enumerate(value):
            _check(item, get_args(kind)[0], f"{at}/{index}", found)
    elif (chosen := _by_tag(value, kind)) is not None:
        _check_struct(value, chosen, at, found)
    elif isinstance(value, dict) and (tags := _tags(kind)) is not None:
        tag, names = tags
        found.append((f"{at}/{tag}", f"Expected one of {', '.join(names)}."))
    elif (only := _without_none(kind)) is not None and value is not None:
        _check(value, only, at, found)
    else:
        _convert(value, kind, at, found)


def _check_struct(value: object, kind: type[Struct], at: str, found: list[tuple[str, str]]) -> None:
    if not isinstance(value, dict):
        return
    known = {field.encode_name: field for field in fields(kind)}
    tag = kind.__struct_config__.tag_field
    found.extend(
        (f"{at}/{_escape(str(name))}", "There is no such field here.")
        for name in value
        if name not in known and name != tag
    )
    for name, field in known.items():
        if name in value:
            _check(value[name], field.type, f"{at}/{_escape(name)}", found)
        elif field.required:
            found.append((f"{at}/{_escape(name)}", "This field is required."))


def _by_tag(value: object, kind: object) -> type[Struct] | None:
    """The member of a tagged union that `value` names."""
    if not isinstance(value, dict):
        return None
    for member in get_args(kind):
        if isinstance(member, type) and issubclass(member, Struct):
            config = member.__struct_config__
            if config.tag_field is not None and value.get(config.tag_field) == config.tag:
                return member
    return None


def _tags(kind: object) -> tuple[str, list[str]] | None:
    """The field that tells the members of a tagged union apart, and its values."""
    configs = [each.__struct_config__ for each in get_args(kind) if _is_struct(each)]
    if not configs or configs[0].tag_field is None:
        return None
    return configs[0].tag_field, [str(each.tag) for each in configs]


def _is_struct(kind: object) -> TypeGuard[type[Struct]]:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _without_none(kind: object) -> object | None:
    """`X` of `X | None`; None for anything else."""
    members = [member for member in get_args(kind) if member is not type(None)]
    return members[0] if len(members) == 1 and len(get_args(kind)) > 1 else None


def _convert(value: object, kind: object, at: str, found: list[tuple[str, str]]) -> None:
    if Raw in (kind, *get_args(kind)) or any(Raw in get_args(each) for each in get_args(kind)):
        return
    try:
        msgspec.convert(value, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        why, _, path = str(error).partition(" - at `$")
        found.append((at + _pointer(path.rstrip("`")), f"{why}."))


def _pointer(path: str) -> str:
    """Write msgspec's `.headers[0][1]` as a JSON Pointer; leave out what has no place there."""
    steps = path.replace("[", ".").replace("]", "").split(".")
    return "".join(f"/{step}" for step in steps if step and step != "...")


def _escape(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
