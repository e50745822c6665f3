"""Read request bodies in one pass. If there is a mistake, a second pass names all of them."""

from __future__ import annotations

from typing import Annotated, Generic, TypeVar, get_args, get_origin

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import fields

from ackd.errors import BadBodyError
from ackd.http.formats.problems import field_errors

Body = TypeVar("Body", bound=Struct)

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
            first = str(error)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadBodyError(f"Not JSON: {error}.") from error
        try:
            plain = msgspec.json.decode(raw)
        except msgspec.ValidationError as error:  # 1E400 is JSON, but no number that we can hold
            raise field_errors([("", f"{error}.")]) from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadBodyError(f"Not JSON: {error}.") from error
        found: list[tuple[str, str]] = []
        _check(plain, self.kind, "", found)
        raise field_errors(found[:FAULTS_MAX] or [("", first)])


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
