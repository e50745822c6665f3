"""How a setting is written down: once, as a dataclass field whose metadata carries doc and bounds.

The same field is the source for validation, the generated documentation, and what `ackd check` and
`GET /v1/subscriptions/{s}` show. The convention is plain data, so an adapter outside this project
needs no import: `dataclasses.field(default=..., metadata={"doc": ..., "min": ...})` is enough.

Metadata keys, all but `doc` optional:

* `doc`: one or two sentences for the operator (required, a test looks for it);
* `min`, `max`: bounds of a number, or of each number in a list;
* `len_min`, `len_max`: bounds of a text's, list's or table's length;
* `choices`: the allowed texts (a `Literal` type says it as well);
* `pattern`, `pattern_doc`: a regular expression that the whole text must match, and it in words;
* `secret`: True when the value must never be shown (passwords; a secret's *path* is no secret);
* `base`: "state_dir" when a relative path is meant below the state directory (else: below the
  folder of the configuration file);
* `default_doc`: the default in words, when it depends on the machine;
* `live`, `shared`: of a subscription's setting only: it can change while sidecars run; all sidecars
  of the subscription must have the same.

The unit is the field's name: a part `ms` makes a duration (integer milliseconds, in the file also
`"1m30s"`), a part `bytes` a size (integer bytes, in the file also `"16MiB"`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field
from typing import TypeVar, cast

T = TypeVar("T")


def about(  # noqa: PLR0913  one keyword per metadata key, all optional
    doc: str,
    *,
    min: float | None = None,  # noqa: A002  the convention's own word
    max: float | None = None,  # noqa: A002  the convention's own word
    len_min: int | None = None,
    len_max: int | None = None,
    choices: Iterable[str] | None = None,
    pattern: str | None = None,
    pattern_doc: str | None = None,
    secret: bool = False,
    base: str | None = None,
    default_doc: str | None = None,
    live: bool = False,
    shared: bool = False,
) -> dict[str, object]:
    """Make a field's metadata; a setting without a default: `field(metadata=about(...))`."""
    facts: dict[str, object] = {
        "doc": doc,
        "min": min,
        "max": max,
        "len_min": len_min,
        "len_max": len_max,
        "choices": None if choices is None else tuple(choices),
        "pattern": pattern,
        "pattern_doc": pattern_doc,
        "secret": secret or None,
        "base": base,
        "default_doc": default_doc,
        "live": live or None,
        "shared": shared or None,
    }
    return {name: fact for name, fact in facts.items() if fact is not None}


def setting(  # noqa: PLR0913  one keyword per metadata key, all optional
    default: T,
    doc: str,
    *,
    min: float | None = None,  # noqa: A002  the convention's own word
    max: float | None = None,  # noqa: A002  the convention's own word
    len_min: int | None = None,
    len_max: int | None = None,
    choices: Iterable[str] | None = None,
    pattern: str | None = None,
    pattern_doc: str | None = None,
    secret: bool = False,
    base: str | None = None,
    live: bool = False,
    shared: bool = False,
) -> T:
    """A dataclass field with a default that is the same on every machine."""
    facts = about(
        doc,
        min=min,
        max=max,
        len_min=len_min,
        len_max=len_max,
        choices=choices,
        pattern=pattern,
        pattern_doc=pattern_doc,
        secret=secret,
        base=base,
        live=live,
        shared=shared,
    )
    if isinstance(default, dict):
        # Dataclasses refuse a shared mutable default; every instance gets its own empty table.
        return cast("T", field(default_factory=dict, metadata=facts))
    return field(default=default, metadata=facts)


def computed(factory: Callable[[], T], facts: dict[str, object]) -> T:
    """A dataclass field whose default is made on this machine; `facts` come from `about`."""
    return field(default_factory=factory, metadata=facts)
