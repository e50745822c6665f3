"""Commit metadata, which any member of a group may write: None, or what is written again alike."""

from collections.abc import Iterator

from ackd.core.commit_metadata import OFFSET_MAX, cluster_mark, decode, encode

_TOPIC = bytes(range(16))


def run(data: bytes) -> None:
    """Read it; what is read has sane ranges and survives a round trip, whole and cut."""
    found = decode(data.decode("utf-8", "surrogateescape"))
    if found is None:
        return
    position = found.base
    for start, end in found.ranges:
        assert position <= start < end <= OFFSET_MAX, found
        position = end
    numbers = found.epoch, found.base, found.version
    text = encode("c", _TOPIC, *numbers, found.ranges, 1 << 30)
    again = decode(text)
    assert again is not None
    assert (again.epoch, again.base, again.version) == numbers
    assert again.ranges == found.ranges
    assert again.fits("c", _TOPIC, found.base)
    room = max(len(text) // 2, len(text.partition("|")[0]))
    cut = decode(encode("c", _TOPIC, *numbers, found.ranges, room))
    assert cut is not None
    assert cut.ranges == found.ranges[: len(cut.ranges)]


def seeds() -> Iterator[bytes]:
    """With and without ranges."""
    yield encode("c", _TOPIC, 2, 2101, 7, [(2103, 2110), (2200, 2201)], 4096).encode()
    yield encode("c", _TOPIC, 0, 0, 0, [], 4096).encode()
    yield f"ackd1 {cluster_mark('c')} {_TOPIC.hex()} 0 {'z' * 13} 0|0.1".encode()
    yield b"consumer-1 committed this"
