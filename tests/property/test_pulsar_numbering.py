"""Offsets of Pulsar's ids: in order, no repeats, the same for all, whatever is deleted (R1)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackd.errors import BrokerError
from ackd_adapters.pulsar.numbering import JUMP, SLACK, Ledger, Log, Numbering, Position

Lengths = list[tuple[int, int]]
lengths = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 6)), min_size=1, max_size=8)
strides = st.sampled_from([1, 4, 1024])


def log_of(ledgers: list[Ledger]) -> Log:
    return Log(tuple(ledgers), ledgers[-1].number, ledgers[-1].entries - 1)


def ledgers_of(steps: Lengths) -> list[Ledger]:
    number, found = 0, []
    for step, entries in steps:
        number += step
        found.append(Ledger(number, entries))
    return found


@given(lengths, strides)
def test_r1_numbers_are_in_the_order_of_the_log_and_come_back(steps: Lengths, stride: int) -> None:
    ledgers = ledgers_of(steps)
    log = log_of(ledgers)
    table = Numbering.new(log, stride)
    places = [
        Position(each.number, entry, batch)
        for each in ledgers
        for entry in range(each.entries)
        for batch in {0, stride - 1}
    ]
    offsets = [table.offset(place) for place in sorted(places)]
    assert offsets == sorted(set(offsets))
    assert [table.position(offset) for offset in offsets] == sorted(places)
    entries = sum(each.entries for each in ledgers)
    assert table.range(log) == (0, entries * stride)
    assert Numbering.parse(table.text()) == table


@given(lengths, strides, st.data())
def test_r1_a_number_never_changes(steps: Lengths, stride: int, data: st.DataObject) -> None:
    """Ledgers come, ledgers go, sidecars look at moments of their own: one number for a place."""
    ledgers = ledgers_of(steps)
    known: dict[Position, int] = {}
    kept: str | None = None
    low = 0
    for high in range(1, len(ledgers) + 1):
        low = data.draw(st.integers(low, high - 1))
        log = log_of(ledgers[low:high])
        table = Numbering.new(log, stride) if kept is None else Numbering.parse(kept).extended(log)
        again = Numbering.new(log, stride) if kept is None else Numbering.parse(kept).extended(log)
        assert again == table
        kept = table.text()
        for each in log.ledgers:
            for entry in range(each.entries):
                place = Position(each.number, entry, 0)
                offset = table.offset(place)
                assert known.setdefault(place, offset) == offset
    assert len(set(known.values())) == len(known)
    ordered = [known[place] for place in sorted(known)]
    assert ordered == sorted(ordered)


@given(lengths, st.data())
def test_r1_another_room_counts_from_the_next_ledger_on(
    steps: Lengths, data: st.DataObject
) -> None:
    """`batch_messages_max` is changed again and again: no number changes, none is given twice."""
    ledgers = ledgers_of(steps)
    known: dict[Position, int] = {}
    rooms: dict[int, int] = {}
    kept = ""
    for high in range(1, len(ledgers) + 1):
        log, stride = log_of(ledgers[:high]), data.draw(strides)
        table = Numbering.parse(kept).extended(log, stride) if kept else Numbering.new(log, stride)
        kept = table.text()
        assert Numbering.parse(kept) == table
        for each in log.ledgers:
            assert table.room(each.number) == rooms.setdefault(each.number, stride)
            for entry in range(each.entries):
                for batch in {0, rooms[each.number] - 1}:
                    place = Position(each.number, entry, batch)
                    offset = table.offset(place)
                    assert known.setdefault(place, offset) == offset
                    assert table.position(offset) == place
    ordered = [known[place] for place in sorted(known)]
    assert ordered == sorted(set(ordered))


def test_a_group_keeps_its_own_numbers_where_another_tables_contradict_them() -> None:
    log = log_of([Ledger(3, 10), Ledger(7, 2)])
    mine = Numbering.new(log, 4)
    longer = mine.extended(log_of([Ledger(7, 2), Ledger(9, 1)]))
    assert mine.united(longer).bases == (0, 40, 48)
    assert longer.united(mine).numbers == (3, 7, 9)
    assert mine.united(Numbering.new(log, 1)) == mine
    assert mine.united(Numbering.new(log_of([Ledger(7, 2)]), 4)) == mine


def test_a_table_of_an_earlier_version_is_read_and_written_as_it_was() -> None:
    text = "1,4,3,48|3:0,7:40"
    assert Numbering.parse(text).text() == text
    assert Numbering.parse("2,4,3,48|3:0,7:40:1").offset(Position(7, 2, 0)) == 42


def test_r1_when_all_that_was_known_is_gone_the_numbers_go_up() -> None:
    old = Numbering.new(log_of([Ledger(3, 10), Ledger(7, 2)]), 1)
    new = old.extended(log_of([Ledger(40, 5)]))
    assert new.offset(Position(40, 0, 0)) == 12 + JUMP
    assert new.anchor == old.anchor
    assert new.position(0) == Position(40, 0, 0)


def test_r1_a_log_that_has_grown_much_is_written_down() -> None:
    """A jump goes behind every number that was given: they are at most `JUMP` ahead of it."""
    old = Numbering.new(log_of([Ledger(3, 10)]), 1)
    for entries, due in ((10 + SLACK, False), (11 + SLACK, True)):
        assert old.extended(log_of([Ledger(3, entries)])).to_write(old) is due
    assert old.extended(log_of([Ledger(3, 10), Ledger(4, 0)])).to_write(old)


def test_i1_a_batch_larger_than_its_room_is_refused() -> None:
    """Two messages must not share a number: then the ack of one would finish both (I1)."""
    table = Numbering.new(log_of([Ledger(1, 5)]), 4)
    assert table.offset(Position(1, 0, 3)) == 3
    with pytest.raises(BrokerError, match="batch_messages_max"):
        table.offset(Position(1, 0, 4))


@pytest.mark.parametrize(
    "text",
    ["", "1,1,1,0|", "3,1,1,0|1:0", "1,1,1,0|1:0:0", "1,0,1,0|1:0", "1,1,1,0|1", "1,1,1|1:0", "x"],
)
def test_a_table_that_can_not_be_read(text: str) -> None:
    with pytest.raises(BrokerError):
        Numbering.parse(text)
