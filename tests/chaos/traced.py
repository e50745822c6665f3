"""Traces of a fault test, held against the histories of its clients.

Both tell of the same leases. What a killed sidecar lost must be counted by its successor, and may
lack; nothing else may.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ackd_torture.history import Event, EventKind, histories, load
from tests.support.otlp import offsets, spans

ACKED = ("acked", "already_acked")
ENDS = ("ack", "retry", "release", "expire", "dead")


@dataclass
class Traced:
    """What the traces say. `missing`: spans that were dropped or lost, by event, as counted.
    `uncounted`: messages whose ack may lack without being counted.
    """

    acked: set[str] = field(default_factory=set)
    ended: set[tuple[str, int]] = field(default_factory=set)
    dead: set[str] = field(default_factory=set)
    delivered: int = 0
    again: int = 0
    missing: Counter[str] = field(default_factory=Counter)
    came_again: list[str] = field(default_factory=list)
    uncounted: int = 0


def traced(folder: Path) -> Traced:
    """Read all files of a folder."""
    found = Traced()
    dropped: dict[tuple[str, str, str], int] = {}
    batches: list[dict[str, Any]] = []
    for span in spans(folder):
        event, name = span["ackd.event"], str(span.get("messaging.message.id", ""))
        if event in ENDS:
            found.ended.add((name, span["ackd.delivery.attempt"]))
        if event == "ack":
            found.acked.add(name)
        elif event == "dead":
            found.dead.add(name)
        elif event == "receive":
            found.delivered += span["messaging.batch.message_count"]
            found.again += span.get("ackd.again", 0)
        elif event == "status":
            for key, count in span.items():
                if key.startswith(("ackd.spans.lost.", "ackd.spans.dropped.")):
                    place = span["instance"], span["boot"], key.removeprefix("ackd.spans.")
                    dropped[place] = max(count, dropped.get(place, 0))
        if event in ("receive", "settle") and "ackd.offsets" in span:
            batches.append(span)
    for (_, _, key), count in dropped.items():
        found.missing[key.partition(".")[2]] += count
    found.came_again = list(_came_again(batches))
    return found


def _came_again(batches: list[dict[str, Any]]) -> Iterable[str]:
    """Offsets that were acked and then handed out in the same epoch (I2)."""
    acked: dict[tuple[str, str, int, int], int] = {}
    for span in batches:
        if span["ackd.event"] == "settle":
            for offset in offsets(span["ackd.offsets"]):
                place = _place(span, offset)
                acked[place] = min(span["end"], acked.get(place, span["end"]))
    for span in batches:
        if span["ackd.event"] == "receive":
            for offset in offsets(span["ackd.offsets"]):
                # A settle is told of in milliseconds.
                if span["start"] > acked.get(_place(span, offset), 1 << 63) + 1_000_000:
                    yield f"{_place(span, offset)}"


def _place(span: dict[str, Any], offset: int) -> tuple[str, str, int, int]:
    return (
        span["ackd.topic.id"],
        span["messaging.destination.partition.id"],
        span["ackd.reset.epoch"],
        offset,
    )


def assert_traced(folder: Path) -> Traced:
    """Acks, deliveries, redeliveries and dead letters of the histories are in the traces."""
    found = traced(folder / "traces")
    events = load(histories(folder / "history"))
    delivered = {e.lease: e for e in events if e.kind is EventKind.DELIVERED}
    acked = {delivered[e.lease].id for e in events if _acked(e)}
    asked = {e.lease for e in events if e.kind is EventKind.SETTLE and e.do == "ack"}
    unclear = {delivered[lease].id for lease in asked} - acked
    missing = found.missing
    assert found.acked - acked <= unclear, "acks that no client knows of"
    # Who was killed between the store's decision and its answer has counted nothing. Asked again,
    # the next one says "already acked".
    in_doubt = {delivered[e.lease] for e in events if e.kind is EventKind.SETTLE_UNKNOWN}
    unanswered = {each.id for each in in_doubt}
    found.uncounted = len((acked - found.acked) & unanswered)
    lacking = acked - found.acked - unanswered
    assert len(lacking) <= missing["ack"], (len(lacking), missing, sorted(lacking)[:5])
    assert len(delivered) <= found.delivered + missing["receive"], (found.delivered, missing)
    again = sum(each.attempt > 1 for each in delivered.values())
    assert again <= found.again + missing["receive"], (found.again, missing)
    ended = {(each.id, each.attempt) for each in delivered.values()}
    open_ones = ended - found.ended - {(each.id, each.attempt) for each in in_doubt}
    lost = sum(missing[event] for event in ENDS)
    assert len(open_ones) <= lost, (len(open_ones), missing, _told(events, open_ones))
    assert not found.dead, "nothing is given up in these runs"
    assert not found.came_again, found.came_again[:5]
    # What was lost is the last moment of each killed sidecar, not a part of the run.
    assert missing["ack"] <= len(acked) // 2, missing
    return found


def _told(events: list[Event], ones: set[tuple[str, int]]) -> list[Event]:
    """What the clients know of some deliveries."""
    leases = {
        e.lease for e in events if e.kind is EventKind.DELIVERED and (e.id, e.attempt) in ones
    }
    return [e for e in events if e.lease in leases]


def _acked(event: Event) -> bool:
    return event.kind is EventKind.SETTLED and event.do == "ack" and event.status in ACKED
