"""Bodies of requests: a value that can be written and read again, or one of two errors."""

import contextlib
from collections.abc import Iterator
from typing import Any

import msgspec

from ackd.errors import AckdError, BadBodyError, BadParameterError
from ackd.http.formats import model
from ackd.http.formats.decode import FAULTS_MAX, BodyDecoder
from ackd.http.formats.problems import problem
from ackd.http.handlers import control, dead_letters, progress, publish, receive, settle

_DECODERS: tuple[BodyDecoder[Any], ...] = (
    *(publish._BATCH, settle._SETTLE, receive._RECEIVE, progress._SEEK, progress._IMPORT),
    *(dead_letters._REDRIVE, dead_letters._PURGE),
    *(control._PAUSE, control._CANCEL, control._RESUME),
    *(BodyDecoder(kind) for kind in model.OPTIONS.values()),
)


def run(data: bytes) -> None:
    """The first byte says for which address."""
    decoder = _DECODERS[(data[:1] or b"\0")[0] % len(_DECODERS)]
    raw = data[1:]
    body: Any = None
    faults: list[AckdError] = []
    try:
        body = decoder.decode(raw)
    except BadBodyError as error:
        faults = [error]
        assert not _is_json(raw)
    except BadParameterError as error:
        faults = [error]
    for each in faults:
        assert msgspec.json.encode(problem(each), enc_hook=str)
        named = each.facts.get("errors", ())
        assert isinstance(named, list | tuple)
        assert len(named) <= FAULTS_MAX
    if body is not None:
        again = msgspec.json.encode(body)
        assert msgspec.json.encode(decoder.decode(again)) == again


def _is_json(raw: bytes) -> bool:
    with contextlib.suppress(ValueError, RecursionError):
        msgspec.json.decode(raw)
        return True
    return False


def seeds() -> Iterator[bytes]:
    """A good one for each address that takes more than nothing."""
    bodies: tuple[object, ...] = (
        {
            "messages": [
                {"json": {"a": [1, 2.5e3]}, "key": "k", "headers": {"x": "y"}},
                {"text": "t", "key": {"base64": "AA=="}, "partition": 3},
                {"base64": "aGk="},
            ]
        },
        {
            "items": [
                {"lease": "v1.a", "do": "ack"},
                {"lease": "v1.b", "do": "retry", "delay_ms": 5},
                {"lease": "v1.c", "do": "extend", "lease_ms": 10000, "note": "half"},
                {"lease": "v1.d", "do": "dead", "reason": "no"},
                {"lease": "v1.e", "do": "release"},
            ]
        },
        {"max": 10, "wait_ms": 1000, "lease_ms": 30000, "settle": [{"lease": "v1.a", "do": "ack"}]},
        {"to": "earliest"},
        {"partitions": [{"topic": "t", "partition": 0, "watermark": 5}]},
        {"ids": ["a/0/1"]},
        {"ids": ["a/0/1"], "all": True},
        {"reason": "x"},
        {"ids": ["orders/3/2101"]},
        {},
    )
    for number, body in enumerate(bodies):
        yield bytes((number,)) + msgspec.json.encode(body)
    yield b"\x00[1, [[[[[[]]]]]], 1E400]"
