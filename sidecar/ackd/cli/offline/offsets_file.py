"""Reads files of progress: ackd's own export, and `offsets.json` of RocketMQ's clients.

A broadcasting push consumer keeps its offsets in `offsets.json`. The Java client writes a map with
objects as keys, which is not valid JSON:
`{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"t"}:7}}` (class LocalFileOffsetStore of
apache/rocketmq). Members may be in any order and on lines of their own.
"""

from __future__ import annotations

import json
from typing import Any

from ackd.errors import ConfigError

Json = dict[str, Any]
_TABLE = "offsetTable"
_decode = json.JSONDecoder().raw_decode


def read_progress(text: str, broker: str | None = None) -> Json:
    """The body of an import request: `partitions`, and the other fields of an export.

    `broker` selects the queues of one broker from an `offsets.json` that has several. Raises
    ConfigError.
    """
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if isinstance(found, dict) and "partitions" in found:
        return found
    try:
        queues = _queues(text)
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            "the file is neither an export of ackd nor an offsets.json of RocketMQ"
        ) from error
    return {"partitions": _positions(queues, broker)}


def _queues(text: str) -> list[tuple[str, str, int, int]]:
    """(broker, topic, queue, offset) of each entry. Raises ValueError, KeyError, TypeError."""
    at = _after(text, _after(text, 0, "{"), f'"{_TABLE}"')
    at = _after(text, _after(text, at, ":"), "{")
    found: list[tuple[str, str, int, int]] = []
    while text[(at := _skip(text, at)) : at + 1] != "}":
        if found:
            at = _skip(text, _after(text, at, ","))
        key, at = _decode(text, at)
        if isinstance(key, str):  # a newer serializer writes the object as a text
            key = json.loads(key)
        offset, at = _decode(text, _skip(text, _after(text, at, ":")))
        queue = key["queueId"]
        if type(queue) is not int or type(offset) is not int:
            raise ValueError(queue, offset)
        found.append((str(key["brokerName"]), str(key["topic"]), queue, offset))
    return found


def _skip(text: str, at: int) -> int:
    while text[at : at + 1].isspace():
        at += 1
    return at


def _after(text: str, at: int, word: str) -> int:
    at = _skip(text, at)
    if not text.startswith(word, at):
        raise ValueError(f"{word} expected at {at}")
    return at + len(word)


def _positions(queues: list[tuple[str, str, int, int]], broker: str | None) -> list[Json]:
    """A position per queue, a partition here. Offsets below 0 mean no progress: left out."""
    brokers = sorted({name for name, *_ in queues})
    if broker is None and len(brokers) > 1:
        raise ConfigError(f"the file has queues of {', '.join(brokers)}: say --broker NAME")
    positions = [
        {"topic": topic, "partition": queue, "offset": offset}
        for name, topic, queue, offset in sorted(queues)
        if broker in (None, name) and offset >= 0
    ]
    if not positions:
        raise ConfigError("the file holds no progress" + (f" of {broker}" if broker else ""))
    return positions
