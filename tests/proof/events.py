"""Events of `proofs/Trace.tla`, and the module of TLA+ in which traces of them stand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from tests.simulation.world import START_US

Event: TypeAlias = dict[str, Any]
ORIGIN = 2
"""The number of the partition's record; 0 and 1 are the partitions of the retry topic."""
_BASE_US = START_US - 10_000_000
"""Fences are times in us; TLC's numbers have 31 bits."""


class Token(NamedTuple):
    """A lease, as the model has it. `c`: the copy, 0 = the message itself."""

    m: int
    c: int
    f: int
    rb: int


@dataclass(slots=True)
class Step:
    """Something that happened. `write`: the number of the store's call, 0 = it was none. `reply`:
    its answer, which somebody may have heard.
    """

    event: Event
    write: int = 0
    reply: object = None


@dataclass(frozen=True, slots=True)
class Trace:
    """What happened in the run of `seed`. `holes`: places of the log without a message."""

    seed: int
    holes: frozenset[int]
    events: tuple[Event, ...]


def fence(number: int) -> int:
    """A fence as a number that TLC can hold."""
    return number - _BASE_US if number else 0


def tla(value: object) -> str:
    """A value as TLA+ writes it."""
    match value:
        case bool():
            return str(value).upper()
        case int():
            return str(value)
        case str():
            return f'"{value}"'
        case frozenset():
            return "{" + ", ".join(sorted(map(tla, value))) + "}"
        case Token():
            return tla(value._asdict())
        case tuple():
            return "<<" + ", ".join(map(tla, value)) + ">>"
        case dict():
            return "[" + ", ".join(f"{name} |-> {tla(each)}" for name, each in value.items()) + "]"
        case _:
            raise TypeError(value)


def module(traces: Iterable[Trace]) -> str:
    """The module `Traces`."""
    rows = (tla({"holes": trace.holes, "events": trace.events}) for trace in traces)
    return "---- MODULE Traces ----\nTraces == <<\n" + ",\n".join(rows) + "\n>>\n====\n"
