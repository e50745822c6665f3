"""Which scenarios are for which brokers: decided by what an adapter declares, never by its name."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

import pytest

from ackd.ports import Capabilities
from ackd_testing.lab import Lab, load

T = TypeVar("T")
Test = Callable[[Any, Lab], Awaitable[None]]

ABILITIES: Final[Mapping[str, Callable[[Capabilities], bool]]] = {
    # A log that is read by offsets, with commits, members that share it, and readers beside them.
    "positions": lambda can: not can.broker_side_acks,
    # A log that can be read by offset, whoever keeps what was acked there.
    "offsets": lambda can: can.reads_offsets,
    "explicit_partition": lambda can: can.explicit_partition,
    "broker_side_acks": lambda can: can.broker_side_acks,
    "makes_topics": lambda can: can.makes_topics,
    "delays": lambda can: can.delayed_publish,
}


DROPS: Final = "drops_records"
"""What a lab can do, not the adapter: `Lab.truncate`."""


def lacking(lab: Lab, can: Capabilities, needed: tuple[str, ...]) -> list[str]:
    """Those of the needed abilities that are not declared."""
    drops = type(lab).truncate is not Lab.truncate
    return [each for each in needed if not (drops if each == DROPS else ABILITIES[each](can))]


def abilities_of(test: Test) -> tuple[str, ...]:
    """What a scenario needs; empty when it is for every broker."""
    return tuple(getattr(test, "abilities", ()))


def needs(*abilities: str) -> Callable[[Test], Test]:
    """A test method that is skipped unless the adapter declares all of these."""
    unknown = set(abilities) - {*ABILITIES, DROPS}
    assert not unknown, f"no such abilities: {unknown}"

    def wrap(test: Test) -> Test:
        @functools.wraps(test)
        async def checked(self: object, lab: Lab) -> None:
            await asyncio.to_thread(load, lab.adapter)
            missing = lacking(lab, lab.open().capabilities, abilities)
            if missing:
                pytest.skip(f"{lab.adapter} declares that it has not: {', '.join(missing)}")
            await test(self, lab)

        checked.abilities = (*abilities, *abilities_of(test))  # type: ignore[attr-defined]
        return checked

    return wrap


def all_need(*abilities: str) -> Callable[[type[T]], type[T]]:
    """As `needs`, for every test of a class."""

    def wrap(cls: type[T]) -> type[T]:
        for name, test in list(vars(cls).items()):
            if name.startswith("test_"):
                setattr(cls, name, needs(*abilities)(test))
        return cls

    return wrap
