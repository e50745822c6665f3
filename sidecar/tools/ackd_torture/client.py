"""An HTTP client of ackd that writes its history before and after everything it does.

It behaves like a careful application: it repeats a receive whose answer was lost with the same
`attempt_id`, repeats settles that were not answered, publishes under an `Idempotency-Key`, and goes
to another sidecar when one does not answer (any sidecar settles any lease).
"""

from __future__ import annotations

import asyncio
import itertools
import random
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus

import aiohttp
import msgspec

from ackd_torture.history import EventKind, Recorder

# No answer within this time (beyond a receive's own wait): the sidecar is frozen or gone.
ANSWER_MS = 4_000
RECEIVE_TRIES = 2
REFUSED_CLASS = 4
AGAIN = frozenset({HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS})
FINISHED = frozenset({"acked", "already_acked", "dead"})


class SentItem(msgspec.Struct, omit_defaults=True):
    """One settle item as it goes over the wire."""

    lease: str
    do: str
    delay_ms: int | None = None
    lease_ms: int | None = None


class ReceivedMessage(msgspec.Struct):
    """What a message must have to be judged; the rest of the answer is not looked at."""

    id: str
    lease: str
    attempt: int
    deadline_ms: int
    attempts_max: int = 0
    key: str | dict[str, str] | None = None
    json: msgspec.Raw = msgspec.Raw()
    text: str | None = None
    base64: bytes | None = None

    def value(self) -> bytes:
        """The message's content, whichever field carries it."""
        return bytes(self.json) or (self.text or "").encode() or self.base64 or b""


class ItemResult(msgspec.Struct):
    """What became of one item."""

    status: str
    late: bool = False
    deadline_ms: int = 0


class Answer(msgspec.Struct):
    """The answer to a receive."""

    messages: list[ReceivedMessage]
    settled: list[ItemResult] = []


class SettleAnswer(msgspec.Struct):
    """The answer to a settle."""

    results: list[ItemResult]


class PublishAnswer(msgspec.Struct):
    """The answer to a publish."""

    id: str


class _PublishOutcome(msgspec.Struct):
    id: str | None = None


class _BatchAnswer(msgspec.Struct):
    results: list[_PublishOutcome]


class PublishBody(msgspec.Struct):
    """What is published: the message's own name, and something to carry."""

    msg: str
    pad: str = ""


class _SentReceive(msgspec.Struct, omit_defaults=True):
    max: int
    wait_ms: int
    lease_ms: int
    attempt_id: str
    settle: list[SentItem] | None = None


_ENCODER = msgspec.json.Encoder()
_ANSWER = msgspec.json.Decoder(Answer)
_RESULTS = msgspec.json.Decoder(SettleAnswer)
_RESULT = msgspec.json.Decoder(ItemResult)
_BATCH = msgspec.json.Decoder(_BatchAnswer)
_STORED = msgspec.json.Decoder(PublishAnswer)
_BODY = msgspec.json.Decoder(PublishBody)
_AWAY = (aiohttp.ClientError, TimeoutError, OSError)


@dataclass(slots=True)
class Tally:
    """Live figures of all clients in this process; the verdict is the checker's, not this one's.

    A message that a client gave up (`dead`) counts as acked here: it is finished.
    """

    attempted: int = 0
    confirmed: set[str] = field(default_factory=set)
    delivered: int = 0
    seen: set[str] = field(default_factory=set)
    acked: set[str] = field(default_factory=set)
    unsure: set[str] = field(default_factory=set)
    unanswered: int = 0

    def unfinished(self) -> set[str]:
        """Messages that are surely at the broker and for which no ack was even tried in vain."""
        return (self.confirmed | self.seen) - self.acked - self.unsure


class AppClient:
    """One application's connection(s) to the sidecars at `urls`, for one subscription."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        urls: Sequence[str],
        recorder: Recorder,
        *,
        sub: str,
        rng: random.Random,
        tally: Tally,
        token: str = "",
    ) -> None:
        self._session = session
        self._urls = list(urls)
        self._history = recorder
        self._rng = rng
        self._sub = sub
        self._tally = tally
        self._headers = {"content-type": "application/json"}
        if token:
            self._headers["authorization"] = f"Bearer {token}"
        self._calls = 0
        # Another run against the same deployment must not look like a repeat of ours.
        self._run = secrets.token_hex(8)
        self._url = rng.choice(self._urls)
        self._names: dict[str, str] = {}
        self._given_up: set[str] = set()

    def elsewhere(self) -> None:
        """Talk to another sidecar from now on, if there is one."""
        self._url = self._rng.choice(
            [each for each in self._urls if each != self._url] or [self._url]
        )

    async def publish(
        self, topic: str, msg: str, pad: str, key: str = "", tries_max: int = 20
    ) -> bool:
        """Publish until it is stored for sure, refused, or unclear for good. True when stored.

        The key is the message's name if no other one is given.
        """
        self._tally.attempted += 1
        body = _ENCODER.encode(PublishBody(msg, pad))
        headers = {"idempotency-key": msg, "ackd-key": key or msg}
        for attempt in range(tries_max):
            self._history.note(EventKind.PUBLISH, msg=msg)
            status, answer = await self._post(f"/v1/topics/{topic}/messages", body, headers)
            if status in {HTTPStatus.OK, HTTPStatus.CREATED}:
                place = _STORED.decode(answer).id
                self._history.note(EventKind.PUBLISHED, msg=msg, id=place, http=status)
                self._history.flush()
                self._tally.confirmed.add(msg)
                return True
            refused = status // 100 == REFUSED_CLASS and status not in AGAIN
            kind = EventKind.PUBLISH_REFUSED if refused else EventKind.PUBLISH_UNKNOWN
            self._history.note(
                kind, msg=msg, http=status, note=answer[:200].decode(errors="replace")
            )
            if refused or status == HTTPStatus.GATEWAY_TIMEOUT:
                break
            await asyncio.sleep(min(0.05 * 1.6**attempt, 1.0) * self._rng.uniform(0.5, 1.0))
        self._history.flush()
        return False

    async def publish_all(self, topic: str, messages: Sequence[tuple[str, str]], pad: str) -> int:
        """Publish (name, key) pairs in one request, once. Returns how many are stored for sure."""
        self._tally.attempted += len(messages)
        for msg, _ in messages:
            self._history.note(EventKind.PUBLISH, msg=msg)
        batch = [{"json": PublishBody(msg, pad), "key": key or msg} for msg, key in messages]
        body = _ENCODER.encode({"messages": batch})
        status, answer = await self._post(f"/v1/topics/{topic}/messages:batch", body, {})
        stored = _BATCH.decode(answer).results if status == HTTPStatus.OK else []
        for (msg, _), place in itertools.zip_longest(messages, (each.id for each in stored)):
            if place:
                self._history.note(EventKind.PUBLISHED, msg=msg, id=place, http=status)
                self._tally.confirmed.add(msg)
            else:
                self._history.note(EventKind.PUBLISH_UNKNOWN, msg=msg, http=status)
        self._history.flush()
        return sum(each.id is not None for each in stored)

    async def receive(
        self, most: int, wait_ms: int, lease_ms: int, settle: Sequence[SentItem] = ()
    ) -> tuple[list[ReceivedMessage], list[ItemResult] | None]:
        """Messages, and the results of `settle` (None: not answered). Repeats a lost answer."""
        call = self._next_call()
        asked = _SentReceive(most, wait_ms, lease_ms, f"{self._run}-{call}")
        asked.settle = list(settle) or None
        body = _ENCODER.encode(asked)
        status = 0
        for _ in range(RECEIVE_TRIES):
            self._history.note(EventKind.ASK, sub=self._sub, call=call)
            self._note_settles(call, settle)
            path = f"/v1/subscriptions/{self._sub}/receive"
            status, raw = await self._post(path, body, {}, wait_ms)
            if status == HTTPStatus.OK:
                answer = _ANSWER.decode(raw)
                for message in answer.messages:
                    self._delivered(call, message, lease_ms)
                count = len(answer.messages)
                self._history.note(
                    EventKind.ANSWERED, sub=self._sub, call=call, count=count, http=status
                )
                self._note_results(call, settle, answer.settled)
                self._history.flush()
                return answer.messages, answer.settled
            self._note_unknown(call, settle, status)
            if status != 0:
                break
            # The same sidecar may come back and remember the attempt; else the leases run out.
            await asyncio.sleep(0.1 * self._rng.uniform(0.5, 1.5))
        self._history.note(EventKind.ANSWERED, sub=self._sub, call=call, count=-1, http=status)
        self._history.flush()
        await self._note_refusal(status)
        return [], None

    async def settle(self, items: Sequence[SentItem]) -> list[ItemResult] | None:
        """Settle in one request; None when it was not answered."""
        call = self._next_call()
        self._note_settles(call, items)
        status, raw = await self._post("/v1/settle", _ENCODER.encode({"items": list(items)}), {})
        if status == HTTPStatus.OK:
            results = _RESULTS.decode(raw).results
            self._note_results(call, items, results)
            self._history.flush()
            return results
        self._note_unknown(call, items, status)
        self._history.flush()
        await self._note_refusal(status)
        return None

    async def settle_one(self, item: SentItem) -> ItemResult | None:
        """Settle by the single form; None when it was not answered."""
        call = self._next_call()
        self._note_settles(call, [item])
        body: dict[str, int] = {}
        if item.delay_ms is not None:
            body["delay_ms"] = item.delay_ms
        if item.lease_ms is not None:
            body["lease_ms"] = item.lease_ms
        path = f"/v1/leases/{item.lease}/{item.do}"
        status, raw = await self._post(path, _ENCODER.encode(body), {})
        result = None
        if status == HTTPStatus.OK:
            result = _RESULT.decode(raw)
        elif status == HTTPStatus.GONE:
            result = ItemResult("lost")
        if result is not None:
            self._note_results(call, [item], [result])
        else:
            self._note_unknown(call, [item], status)
            await self._note_refusal(status)
        self._history.flush()
        return result

    def forget(self, messages: Sequence[ReceivedMessage]) -> None:
        """Note that this client will never settle these: its worker has crashed."""
        for message in messages:
            self._history.note(EventKind.FORGOT, sub=self._sub, id=message.id, lease=message.lease)

    # --- one request

    async def _post(
        self, path: str, body: bytes, headers: Mapping[str, str], wait_ms: int = 0
    ) -> tuple[int, bytes]:
        """(status, body); status 0 when there was no whole answer. The history is flushed first."""
        self._history.flush()
        try:
            async with asyncio.timeout((wait_ms + ANSWER_MS) / 1000):
                async with self._session.post(
                    self._url + path, data=body, headers={**self._headers, **headers}
                ) as answer:
                    return answer.status, await answer.read()
        except _AWAY:
            self._tally.unanswered += 1
            return 0, b""

    async def _note_refusal(self, status: int) -> None:
        """After an answer that helped nothing: somewhere else, a little later."""
        self.elsewhere()
        await asyncio.sleep(self._rng.uniform(0.02, 0.2) if status != 0 else 0.05)

    def _next_call(self) -> int:
        self._calls += 1
        return self._calls

    # --- history

    def _delivered(self, call: int, message: ReceivedMessage, lease_ms: int) -> None:
        try:
            msg = _BODY.decode(message.value()).msg
        except msgspec.DecodeError:
            msg = f"unreadable:{message.id}"
        self._names[message.lease] = msg
        self._tally.delivered += 1
        self._tally.seen.add(msg)
        self._history.note(
            EventKind.DELIVERED,
            sub=self._sub,
            call=call,
            msg=msg,
            id=message.id,
            lease=message.lease,
            attempt=message.attempt,
            attempts_max=message.attempts_max,
            key=message.key if isinstance(message.key, str) else str(message.key or ""),
            lease_ms=lease_ms,
            deadline_ms=message.deadline_ms,
        )

    def _note_settles(self, call: int, items: Sequence[SentItem]) -> None:
        for item in items:
            lease_ms = item.lease_ms or 0
            self._history.note(
                EventKind.SETTLE,
                sub=self._sub,
                call=call,
                lease=item.lease,
                do=item.do,
                lease_ms=lease_ms,
            )

    def _note_results(
        self, call: int, items: Sequence[SentItem], results: Sequence[ItemResult]
    ) -> None:
        for item, result in zip(items, results, strict=True):
            self._history.note(
                EventKind.SETTLED,
                sub=self._sub,
                call=call,
                lease=item.lease,
                do=item.do,
                status=result.status,
                late=result.late,
                deadline_ms=result.deadline_ms,
            )
            if result.status in FINISHED and item.lease in self._names:
                self._tally.acked.add(self._names.pop(item.lease))
            elif result.status == "lost" and item.lease in self._names:
                msg = self._names.pop(item.lease)
                if item.lease not in self._given_up:
                    self._tally.unsure.discard(msg)

    def _note_unknown(self, call: int, items: Sequence[SentItem], status: int) -> None:
        for item in items:
            if item.do in {"ack", "dead"} and item.lease in self._names:
                self._tally.unsure.add(self._names[item.lease])
                if item.do == "dead":  # one that counted is `lost` when it is repeated
                    self._given_up.add(item.lease)
            self._history.note(
                EventKind.SETTLE_UNKNOWN,
                sub=self._sub,
                call=call,
                lease=item.lease,
                do=item.do,
                http=status,
            )
