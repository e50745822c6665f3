"""What consumers of Pulsar write into a dead letter, in the ways of several clients."""

import pytest

from ackd.ports import Headers, Record
from ackd_adapters.pulsar.dead import Written, written
from ackd_adapters.pulsar.names import Names
from ackd_adapters.pulsar.numbering import Position

NAMES = Names("public/default")
PLAIN = b"persistent://public/default/orders"


def dead(*headers: tuple[str, bytes | None]) -> Written | None:
    given: Headers = headers
    return written(Record(0, None, b"", given, 0), NAMES)


@pytest.mark.parametrize(
    ("topic", "place", "expected"),
    [
        (PLAIN, b"(12,3,-1,-1)", Written("orders", 0, Position(12, 3, 0), 0)),
        (PLAIN, b"12:3:-1", Written("orders", 0, Position(12, 3, 0), 0)),
        (PLAIN + b"-partition-2", b"12:3:2:7", Written("orders", 2, Position(12, 3, 7), 0)),
        (b"persistent://a/b/c", b"1:0:-1", Written("a/b/c", 0, Position(1, 0, 0), 0)),
    ],
)
def test_ids_of_several_clients(topic: bytes, place: bytes, expected: Written) -> None:
    assert dead(("REAL_TOPIC", topic), ("ORIGIN_MESSAGE_ID", place)) == expected


def test_javas_count_of_deliveries() -> None:
    found = dead(("REAL_TOPIC", PLAIN), ("ORIGIN_MESSAGE_ID", b"1:2:-1"), ("RECONSUMETIMES", b"16"))
    assert found is not None
    assert found.attempts == 17


@pytest.mark.parametrize("place", [b"", b"x", b"12", b"(-1,-1,-1,-1)"])
def test_what_is_no_dead_letter_is_left_alone(place: bytes) -> None:
    assert dead(("REAL_TOPIC", PLAIN), ("ORIGIN_MESSAGE_ID", place)) is None
    assert dead(("REAL_TOPIC", PLAIN)) is None
    assert dead(("ORIGIN_MESSAGE_ID", b"1:2:-1")) is None


@pytest.mark.parametrize(
    "topic",
    [
        b"",
        b"a b",
        b"a/b/c/d",
        PLAIN + b"-partition-" + b"9" * 5_000,
        b"\xff/\x00",
    ],
)
@pytest.mark.parametrize("place", [b"12:3", b"9" * 5_000 + b":1:2", b"1:" + b"9" * 30])
def test_no_text_stops_the_reader(topic: bytes, place: bytes) -> None:
    """One record that anybody can write must not make the whole list unreadable."""
    assert dead(("REAL_TOPIC", topic), ("ORIGIN_MESSAGE_ID", place)) is None
