"""Dead letters of other consumers are shown like ackd's own, if any message can be behind them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ackd.api.dead_letters import DeadFilter
from ackd.engine.partition.copy_headers import ORIGIN, RetryCopy
from ackd.engine.retry.dead_letter_reader import Letter
from ackd.engine.retry.external_dead_letters import REASON, ExternalDeadLetters
from ackd.ports import DeadOrigin, Record

ID = b"\7" * 16


class Other:
    """`ackd.ports.DeadLetterOrigins`: what the broker's own consumers say of a letter."""

    def __init__(self, **origins: DeadOrigin) -> None:
        self.origins = origins
        self.asked: list[bytes | None] = []

    async def dead_origins(self, records: Sequence[Record]) -> list[DeadOrigin | None]:
        self.asked += [each.value for each in records]
        return [self.origins.get((each.value or b"").decode()) for each in records]


def letter(value: bytes, *headers: tuple[str, bytes]) -> Record:
    return Record(0, b"k", value, headers, 1_234)


async def copies(other: Other, *records: Record) -> list[RetryCopy | None]:
    reader = ExternalDeadLetters(other, "cluster", "work")
    return await reader.retry_copies(records, [None] * len(records))


async def test_a_letter_of_another_consumer_says_where_it_came_from() -> None:
    other = Other(known=DeadOrigin("orders", ID, 3, 77, 5))
    found, unknown = await copies(other, letter(b"known"), letter(b"stranger"))
    assert unknown is None
    assert found is not None
    assert (found.origin.id, found.attempt, found.reason) == ("orders/3/77", 5, REASON)
    assert (found.first_ms, found.published_ms) == (1_234, 1_234)


async def test_letters_of_ackd_are_not_asked_about() -> None:
    """Whether they are this subscription's or another's."""
    other = Other(known=DeadOrigin("orders", ID, 3, 77, 5))
    [mine] = await copies(other, letter(b"known"))
    reader = ExternalDeadLetters(other, "cluster", "work")
    other.asked.clear()
    records = [letter(b"a"), letter(b"b", (ORIGIN, b"x")), letter(b"known")]
    found = await reader.retry_copies(records, [mine, None, None])
    assert found[:2] == [mine, None]
    assert found[2] is not None
    assert other.asked == [b"known"]


async def test_without_letters_of_others_the_broker_is_not_asked() -> None:
    other = Other()
    assert await copies(other, letter(b"b", (ORIGIN, b"x"))) == [None]
    assert other.asked == []


@pytest.mark.parametrize("bad", [{"partition": -1}, {"offset": -1}, {"offset": 1 << 53}])
async def test_an_origin_that_no_message_can_have_is_none(bad: dict[str, object]) -> None:
    """Anybody may write such headers; they would become the name of a record."""
    origin = DeadOrigin("orders", ID, 3, 77, 5)._replace(**bad)  # type: ignore[arg-type]
    assert await copies(Other(known=origin), letter(b"known")) == [None]


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        (DeadFilter(), True),
        (DeadFilter(topic="orders", key="k", reason="another", after_ms=1_234), True),
        (DeadFilter(topic="order"), False),
        (DeadFilter(key="K"), False),
        (DeadFilter(reason="nothing of it"), False),
        (DeadFilter(error="x"), False),
        (DeadFilter(after_ms=1_235), False),
        (DeadFilter(before_ms=1_234), False),
        (DeadFilter(before_ms=1_235), True),
    ],
)
async def test_all_that_a_filter_says_must_hold(wanted: DeadFilter, *, fits: bool) -> None:
    record = letter(b"known")
    [found] = await copies(Other(known=DeadOrigin("orders", ID, 3, 77, 5)), record)
    assert found is not None
    assert Letter(0, record, found).fits(wanted) is fits
