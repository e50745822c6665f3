"""PURE: what the screens of one subscription and of one message say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ackd.cli.figures import UNKNOWN, age, clean, count, moment, until
from ackd.cli.message_lines import ordered_line

Json = dict[str, Any]
HISTORY_MAX = 50
GONE = "not in flight: acked, dead, or with another sidecar"


@dataclass(slots=True)
class Detail:
    """Everything about one subscription, of all sidecars that answered."""

    partitions: list[Json] = field(default_factory=list)
    heads: dict[tuple[str, int], Json] = field(default_factory=dict)
    ordered: list[Json] = field(default_factory=list)
    limits: list[str] = field(default_factory=list)
    messages: dict[str, Json] = field(default_factory=dict)
    sidecars: list[Json] = field(default_factory=list)

    def find(self, message_id: str) -> Json | None:
        """A message in flight, or one that holds a partition although nobody has it."""
        head = self.held_by(message_id)
        found: Json | None = self.messages.get(message_id, None if head is None else head["head"])
        return found

    def held_by(self, message_id: str) -> Json | None:
        """The partition that it holds; a copy holds one of the retry topic."""
        return next((each for each in self.heads.values() if _is_head(each, message_id)), None)


def detail(answers: Iterable[tuple[Json, Json, Sequence[Json]]]) -> Detail:
    """Out of (explain, lag, in flight) of each sidecar; the owner's row of a partition counts."""
    found = Detail()
    rows: dict[tuple[str, int], Json] = {}
    shares: dict[str, Json] = {}
    for explained, progress, messages in answers:
        found.limits += [each for each in explained["limits"] if each not in found.limits]
        found.ordered += explained.get("ordered", ())
        for head in explained["partitions"]:
            found.heads[head["topic"], head["partition"]] = head
        shares |= {each["sidecar"]: each for each in progress["sidecars"]}
        for row in progress["partitions"]:
            where = (row["topic"], row["partition"])
            if where not in rows or row["watermark"] >= 0:
                rows[where] = row
        found.messages |= {each["id"]: each for each in messages}
    found.partitions = [rows[where] for where in sorted(rows)]
    found.sidecars = [shares[name] for name in sorted(shares)]
    oldest = sorted(found.messages.values(), key=lambda each: (each["since_ms"], each["id"]))
    found.messages = {each["id"]: each for each in oldest}
    return found


def message_cells(message: Json, now_ms: int) -> list[str]:
    """Name, state, attempt, age, end or due time, holder."""
    waits = message["deadline_ms"] or message["due_ms"]
    return [
        clean(message["id"]),
        clean(message["state"]),
        str(message["attempt"]),
        age((now_ms - message["since_ms"]) / 1000) if message["since_ms"] else UNKNOWN,
        UNKNOWN if waits is None else until(waits, now_ms),
        clean(message["holder"]),
    ]


def partition_cells(row: Json, head: Json | None) -> list[str]:
    """Name, lag, what holds it, leased, waiting, ready, done above, first unfinished, owner."""
    name = clean(f"{row['topic']}/{row['partition']}")
    if row["watermark"] < 0:
        return [name, *[UNKNOWN] * 7, clean(row["owner"])]
    lag = max(row["end"] - row["watermark"], 0) if row["end"] >= 0 else None
    numbers = (row["leased"], row["retrying"], row["ready"], row["done_above"], row["watermark"])
    by = UNKNOWN if head is None or head["head"] is None else clean(head["head"]["id"])
    return [name, count(lag), by, *(str(each) for each in numbers), clean(row["owner"])]


def share_cells(share: Json) -> list[str]:
    """Name, partitions of the topics and of the retry topic, lag, messages served by way."""
    lag, served = share["lag"], share.get("served")
    ways = ("own", "for_peers", "through_peers")
    return [
        clean(share["sidecar"]),
        str(share["partitions"]),
        str(share["retry_topic_partitions"]),
        count(None if lag < 0 else lag),
        *(UNKNOWN if served is None else str(served[each]) for each in ways),
    ]


def dead_cells(letter: Json) -> list[str]:
    """Its id, the message, since when, attempts, why."""
    why = letter["reason"] or letter["last_error"]
    return [
        clean(letter["id"]),
        clean(letter["message"]),
        moment(letter["dead_ms"]),
        str(letter["attempts"]),
        clean(why),
    ]


# --- one message


class History:
    """What was seen of one message while somebody looked; at most `HISTORY_MAX` changes."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._last: tuple[object, ...] | None = None

    @property
    def lines(self) -> list[str]:
        """The remembered lines, the oldest first."""
        return list(self._lines)

    def saw(self, message: Json | None, now_ms: int) -> None:
        """Note a change. None: it is not in flight (any more)."""
        if message is None:
            state: tuple[object, ...] = ("gone",)
            text = GONE
        else:
            state = tuple(message[name] for name in ("state", "attempt", "holder", "deadline_ms"))
            text = f"{clean(message['state'])}, attempt {message['attempt']}"
            if message["holder"]:
                text += f", {clean(message['holder'])}"
            if message["deadline_ms"]:
                text += f", until {moment(message['deadline_ms'])}"
        if state != self._last:
            self._last = state
            self._lines.append(f"{moment(now_ms)}  {text}")
            del self._lines[:-HISTORY_MAX]


def parsed_id(message_id: str) -> tuple[str, int, int] | None:
    """(topic, partition, offset) of `orders/3/2101`; None when it has another form."""
    parts = message_id.rsplit("/", 2)
    if len(parts) == 3 and parts[1].isdecimal() and parts[2].isdecimal():  # noqa: PLR2004
        return parts[0], int(parts[1]), int(parts[2])
    return None


def message_lines(
    message_id: str, of: Detail, last: Json | None, history: History, now_ms: int
) -> list[str]:
    """All that is known of one message. `last`: what was seen of it last."""
    now = of.find(message_id)
    message = now or last
    lines = [f"message      {clean(message_id)}"]
    if message is not None:
        lines += _facts(message, now_ms)
    if now is None:
        lines.append(f"now          {GONE}")
    lines += ["", "explain", *(f"  {line}" for line in _explained(message_id, of))]
    lines += ["", "seen since this page was opened", *(f"  {line}" for line in history.lines)]
    return lines


def _facts(message: Json, now_ms: int) -> list[str]:
    first = message["since_ms"]
    lines = [f"state        {clean(message['state'])}", f"attempt      {message['attempt']}"]
    if first:
        lines.append(f"first out    {moment(first)} ({until(first, now_ms)})")
    if message["holder"]:
        lines.append(f"held by      {clean(message['holder'])}")
    for name, text in (("deadline_ms", "lease ends  "), ("due_ms", "out again   ")):
        if message[name] is not None:
            lines.append(f"{text} {moment(message[name])} ({until(message[name], now_ms)})")
    if message["error"]:
        lines.append(f"copy failed  {clean(message['error'])}")
    return lines


def _explained(message_id: str, of: Detail) -> list[str]:
    lines = [f"the whole subscription: {clean(each)}" for each in of.limits]
    lines += [ordered_line(each) for each in of.ordered if each["head"]["id"] == message_id]
    where = parsed_id(message_id)
    if where is None:
        return lines or ["nothing"]
    head = of.held_by(message_id) or of.heads.get(where[:2])
    if head is None:
        return [*lines, "nothing is told of its partition by the sidecars that were asked"]
    partition = f"{clean(head['topic'])}/{head['partition']}"
    if _is_head(head, message_id):
        lines.append(f"holds {partition} at {head['watermark']}{_done_above(head, of.partitions)}")
        lines.append(f"released by: {clean(head['released_by'])}")
    elif head["head"] is not None:
        lines.append(f"does not hold {partition}: that is {clean(head['head']['id'])}")
    else:
        lines.append(f"does not hold {partition}, which is at {head['watermark']}")
    return lines


def _is_head(head: Mapping[str, Any], message_id: str) -> bool:
    return head["head"] is not None and head["head"]["id"] == message_id


def _done_above(head: Json, partitions: Iterable[Json]) -> str:
    for row in partitions:
        if (row["topic"], row["partition"]) == (head["topic"], head["partition"]):
            return f"; {row['done_above']} behind it are done"
    return ""
