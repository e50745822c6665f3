"""Headers of copies that ackd never wrote: each field wrong in each way, or wrong by a seed."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final

from ackd.ports import Headers

Header = tuple[str, bytes | None]
NUMBERS: Final = tuple(
    b"%d" % number
    for edge in (0, 1 << 16, 1 << 31, 1 << 32, 1 << 48, 1 << 53, 1 << 63, 1 << 64, 10**400)
    for number in (-edge - 1, -edge, edge - 1, edge, edge + 1)
)
TEXTS: Final = (
    b"", b" 1", b"+1", b"1_0", b"1.5", b"nan", b"true", b"null", b"{}", b"\xff\xfe", b"\x00",
    "\u0661".encode(), b"x" * 5_000,
)  # fmt: skip
HUGE: Final = b"9" * (900 << 10)
"""Almost the longest message that a broker takes by default."""


def one_by_one(right: Headers, *, huge: bytes = HUGE) -> Iterator[tuple[str, Headers]]:
    """Every way in which one field is wrong, with its name."""
    names = [name for name, _ in right]
    for at, (name, value) in enumerate(right):
        rest = right[:at], right[at + 1 :]
        yield f"{name} missing", (*rest[0], *rest[1])
        yield f"{name} without a value", (*rest[0], (name, None), *rest[1])
        yield f"{name} twice", (*right, (name, b"-1"))
        yield f"{name} twice, the wrong one first", ((name, b"-1"), *right)
        yield f"{name} of 900 KiB", (*rest[0], (name, huge), *rest[1])
        for wrong in (b"-1", b"%d" % (1 << 63), b"true", TEXTS[9]):
            yield f"{name} = {wrong!r}", (*rest[0], (name, wrong), *rest[1])
        if name.endswith(("origin", "redriven")) and value is not None:
            for wrong in _places(value):
                yield f"{name} at {wrong!r}", (*rest[0], (name, wrong), *rest[1])
    yield "all twice", (*right, *right)
    yield "all without values", tuple((name, None) for name in names)


def _places(value: bytes) -> Iterator[bytes]:
    place, partition, offset = value.rsplit(b"/", 2)
    for number in (b"-1", b"%d" % (1 << 63), b"", b"true"):
        yield b"/".join((place, number, offset))
        yield b"/".join((place, partition, number))
    yield b"/".join((partition, offset))


def by_seed(seed: int, right: Headers) -> Headers:
    """One to four changes of any kind."""
    random = Random(seed)
    headers = list(right)
    for _ in range(random.randint(1, 4)):
        _change(random, headers)
    return tuple(headers)


def _change(random: Random, headers: list[Header]) -> None:
    if not headers:
        return
    at = random.randrange(len(headers))
    name, value = headers[at]
    match random.randrange(6):
        case 0:
            del headers[at]
        case 1:
            headers.insert(random.randrange(len(headers) + 1), (name, random.choice(NUMBERS)))
        case 2:
            random.shuffle(headers)
        case 3:
            headers[at] = name, _bent(random, value or b"")
        case 4:
            headers[at] = name, random.choice((None, *TEXTS))
        case _:
            headers[at] = name, random.choice(NUMBERS)


def _bent(random: Random, value: bytes) -> bytes:
    """A byte of it is another, or a part of a place is another number."""
    if b"/" in value and random.random() < 0.7:
        parts = value.split(b"/")
        parts[random.randrange(len(parts))] = random.choice(NUMBERS)
        return b"/".join(parts)
    at = random.randrange(len(value) + 1)
    return value[:at] + random.randbytes(1) + value[at + 1 :]
