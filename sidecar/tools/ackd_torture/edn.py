"""PURE: a history in Jepsen's form, which public checkers read: EDN, one operation's event a line.

`{:index 0, :type :invoke, :process 3, :f :settle, :value {...}, :time 1200}`: `:time` is in
nanoseconds since the first event, by the clock that orders the history. As Jepsen demands, a
process has one operation open at a time, and none after `:info` (nobody knows whether it happened);
so a client of ours, which has many requests open, is many processes.

`:f` is `:publish`, `:receive`, `:settle` (each item of a request by itself), or of `:nemesis`:
`:fault`, `:healed`, `:data-lost` and, of a subscription that was emptied in the end, `:drained`.
Nothing is judged here and nothing is left out that is needed to judge; instants of grants, for
example, are the reader's to conclude from `:deadline` and `:lease-ns`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from ackd_torture.history import Event, EventKind

Value: TypeAlias = "str | int | bool | Mapping[str, Value] | list[Value]"
Key = tuple[str, ...]
_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r", "\t": r"\t"})
_NEMESIS = {
    EventKind.FAULT: "fault",
    EventKind.HEALED: "healed",
    EventKind.DATA_LOST: "data-lost",
    EventKind.DRAINED: "drained",
}
_PUBLISH_ENDS = {
    EventKind.PUBLISHED: "ok",
    EventKind.PUBLISH_REFUSED: "fail",
    EventKind.PUBLISH_UNKNOWN: "info",
}


def export(events: Iterable[Event]) -> Iterator[str]:
    """The lines of a history; `events` come by time (`history.load`)."""
    writer = _EdnWriter()
    for event in events:
        yield from writer.lines(event)
    yield from writer.rest()


@dataclass(slots=True)
class _OpenRequest:
    """An operation without its end."""

    process: int
    f: str
    value: dict[str, Value]
    messages: list[Value] = field(default_factory=list)


class _EdnWriter:
    def __init__(self) -> None:
        self._open: dict[Key, _OpenRequest] = {}
        self._free: list[int] = []
        self._processes = 0
        self._index = 0
        self._first_us: int | None = None
        self._now_us = 0

    def lines(self, event: Event) -> Iterator[str]:
        """What one event of a client adds."""
        if self._first_us is None:
            self._first_us = event.mono_us
        self._now_us = event.mono_us
        match event.kind:
            case EventKind.PUBLISH:
                yield from self._begin(_publish(event), "publish", {"msg": event.msg})
            case EventKind.PUBLISHED | EventKind.PUBLISH_REFUSED | EventKind.PUBLISH_UNKNOWN:
                answered: dict[str, Value] = {"id": event.id} if event.id else {}
                yield from self._end(_publish(event), _PUBLISH_ENDS[event.kind], answered)
            case EventKind.ASK | EventKind.DELIVERED | EventKind.ANSWERED:
                yield from self._received(event)
            case EventKind.SETTLE:
                asked: dict[str, Value] = {"lease": event.lease, "do": event.do}
                asked |= {"lease-ns": event.lease_ms * 1_000_000} if event.lease_ms else {}
                yield from self._begin(_settle(event), "settle", asked)
            case EventKind.SETTLED | EventKind.SETTLE_UNKNOWN:
                yield from self._settled(event)
            case EventKind.FAULT | EventKind.HEALED | EventKind.DATA_LOST | EventKind.DRAINED:
                value = {"sub": event.sub, "note": event.note}
                yield self._line("info", ":nemesis", _NEMESIS[event.kind], value)
            case EventKind.START | EventKind.FORGOT | EventKind.ORDERED:
                pass

    def rest(self) -> Iterator[str]:
        """The ends of what was never answered, as its client was killed or the run was over."""
        for key, open_one in list(self._open.items()):
            yield from self._end(key, "ok" if open_one.messages else "info", {})

    def _received(self, event: Event) -> Iterator[str]:
        key = _receive(event)
        if key not in self._open and event.kind is not EventKind.ANSWERED:
            yield from self._begin(key, "receive", {"sub": event.sub})
        # A second ASK of a call is the same request, repeated as its answer was lost.
        if event.kind is EventKind.DELIVERED:
            self._open[key].messages.append(self._message(event))
        elif event.kind is EventKind.ANSWERED:
            yield from self._end(key, "info" if event.count < 0 else "ok", {})

    def _settled(self, event: Event) -> Iterator[str]:
        if event.kind is EventKind.SETTLE_UNKNOWN or event.status == "unavailable":
            yield from self._end(_settle(event), "info", {})
            return
        answered: dict[str, Value] = {"status": event.status}
        answered |= {"late": True} if event.late else {}
        answered |= {"deadline": self._deadline(event)} if event.deadline_ms else {}
        yield from self._end(_settle(event), "ok", answered)

    def _message(self, event: Event) -> Value:
        message: dict[str, Value] = {"id": event.id, "msg": event.msg, "lease": event.lease}
        message |= {"key": event.key} if event.key else {}
        message |= {"attempt": event.attempt, "deadline": self._deadline(event)}
        return message | {"lease-ns": event.lease_ms * 1_000_000}

    def _deadline(self, event: Event) -> int:
        """The deadline of an event, on the history's clock, ns."""
        return self._ns(event.deadline_ms * 1000 - event.wall_us + event.mono_us)

    def _ns(self, mono_us: int) -> int:
        return (mono_us - (self._first_us or 0)) * 1000

    def _begin(self, key: Key, f: str, value: dict[str, Value]) -> Iterator[str]:
        if key in self._open:
            yield from self._end(key, "info", {})
        if not self._free:
            heapq.heappush(self._free, self._processes)
            self._processes += 1
        opened = self._open[key] = _OpenRequest(heapq.heappop(self._free), f, value)
        yield self._line("invoke", str(opened.process), f, value)

    def _end(self, key: Key, kind: str, answered: Mapping[str, Value]) -> Iterator[str]:
        opened = self._open.pop(key, None)
        if opened is None:
            return
        if kind != "info":
            heapq.heappush(self._free, opened.process)
        value = {**opened.value, **answered}
        if opened.f == "receive" and kind == "ok":
            value["messages"] = opened.messages
        yield self._line(kind, str(opened.process), opened.f, value)

    def _line(self, kind: str, process: str, f: str, value: Mapping[str, Value]) -> str:
        index, self._index = self._index, self._index + 1
        return (
            f"{{:index {index}, :type :{kind}, :process {process}, :f :{f}, "
            f":value {text(value)}, :time {self._ns(self._now_us)}}}\n"
        )


def text(value: Value) -> str:
    """A value as EDN; keys of maps become keywords."""
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case str():
            return f'"{value.translate(_ESCAPED)}"'
        case list():
            return f"[{' '.join(map(text, value))}]"
        case _:
            return f"{{{', '.join(f':{name} {text(each)}' for name, each in value.items())}}}"


def _publish(event: Event) -> Key:
    return ("publish", event.client, event.msg)


def _receive(event: Event) -> Key:
    return ("receive", event.client, str(event.call))


def _settle(event: Event) -> Key:
    return ("settle", event.client, str(event.call), event.lease, event.do)
