"""A listening post: stands between any application and a sidecar, and writes the history of both.

So a program that knows nothing of histories, a shell script with curl say, can be judged as well.
It forwards each request as it is; its notes are as good as a client's own, only the intervals are
a little shorter than the client sees them, which never makes a blameless run look guilty: what is
noted here did pass here.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus

import aiohttp
import msgspec
from aiohttp import web

from ackd_torture.client import (
    Answer,
    ItemResult,
    PublishAnswer,
    ReceivedMessage,
    SentItem,
    SettleAnswer,
)
from ackd_torture.history import EventKind, Recorder

HOP_BY_HOP = frozenset({"connection", "host", "keep-alive", "transfer-encoding", "content-length"})
AWAY = (aiohttp.ClientError, TimeoutError, OSError)
ANSWER_S = 40.0


class _Receive(msgspec.Struct):
    lease_ms: int = 0
    settle: list[SentItem] = []


class _SettleItems(msgspec.Struct):
    items: list[SentItem] = []


class ListeningPost:
    """`http://127.0.0.1:{port}` forwards to `target`. `name_of` finds a message's own name."""

    def __init__(
        self,
        target: str,
        recorder: Recorder,
        lease_ms: int,
        name_of: Callable[[bytes], str],
        tell: Callable[[EventKind, Mapping[str, str | int]], None],
    ) -> None:
        self.target = target
        self.port = 0
        self._history = recorder
        self._lease_ms = lease_ms
        self._name_of = name_of
        self._tell = tell
        self._calls = itertools.count(1)
        self._session: aiohttp.ClientSession | None = None
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        """Address at which the application is called."""
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Listen on a free port."""
        limit = aiohttp.TCPConnector(force_close=True)
        self._session = aiohttp.ClientSession(connector=limit, auto_decompress=False)
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._serve)
        # A worker that dies during a long poll must take its poll with it, as without us.
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, shutdown_timeout=0.5)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
        if self._session is not None:
            await self._session.close()

    async def _serve(self, request: web.Request) -> web.Response:
        body = await request.read()
        call = next(self._calls)
        client = request.headers.get("user-agent", "")[:40]
        settles = self._before(request.path, body, call, client)
        self._history.flush()
        headers = {k: v for k, v in request.headers.items() if k.lower() not in HOP_BY_HOP}
        status, answer_headers, answer = await self._forward(request, headers, body)
        self._after(request.path, body, call, client, (status, answer_headers, answer), settles)
        self._history.flush()
        kept = {k: v for k, v in answer_headers.items() if k.lower() not in HOP_BY_HOP}
        return web.Response(status=status, headers=kept, body=answer)

    async def _forward(
        self, request: web.Request, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, Mapping[str, str], bytes]:
        if self._session is None:
            raise RuntimeError("not started")
        try:
            async with (
                asyncio.timeout(ANSWER_S),
                self._session.request(
                    request.method, self.target + request.path_qs, data=body, headers=headers
                ) as answer,
            ):
                return answer.status, answer.headers, await answer.read()
        except AWAY:
            return HTTPStatus.BAD_GATEWAY, {}, b'{"title":"the sidecar does not answer"}'

    # --- what is written down

    def _note(self, kind: EventKind, **facts: str | int) -> None:
        self._history.note(kind, **facts)
        self._tell(kind, facts)

    def _before(self, path: str, body: bytes, call: int, client: str) -> Sequence[SentItem]:
        words = path.strip("/").split("/")
        match words:
            case ["v1", "topics", _, "messages"]:
                self._note(EventKind.PUBLISH, msg=self._name_of(body))
                return []
            case ["v1", "subscriptions", sub, "receive"]:
                asked = msgspec.json.decode(body or b"{}", type=_Receive)
                self._note(EventKind.ASK, sub=sub, call=call, note=client)
                items = asked.settle
            case ["v1", "settle"]:
                items = msgspec.json.decode(body, type=_SettleItems).items
            case ["v1", "leases", lease, do]:
                options = msgspec.json.decode(body or b"{}", type=dict[str, object])
                lease_ms = options.get("lease_ms")
                items = [
                    SentItem(lease, do, lease_ms=lease_ms if isinstance(lease_ms, int) else None)
                ]
            case _:
                return []
        for item in items:
            lease_ms = item.lease_ms or 0
            self._note(EventKind.SETTLE, call=call, lease=item.lease, do=item.do, lease_ms=lease_ms)
        return items

    def _after(
        self,
        path: str,
        body: bytes,
        call: int,
        client: str,
        answer: tuple[int, Mapping[str, str], bytes],
        settles: Sequence[SentItem],
    ) -> None:
        status, headers, raw = answer
        words = path.strip("/").split("/")
        results: list[ItemResult] = []
        match words:
            case ["v1", "topics", _, "messages"]:
                self._published(status, body, raw)
            case ["v1", "subscriptions", sub, "receive"]:
                asked = msgspec.json.decode(body or b"{}", type=_Receive)
                messages: list[ReceivedMessage] = []
                if status == HTTPStatus.OK and "ackd-lease" in headers:
                    messages = [_from_headers(headers, raw)]
                elif status == HTTPStatus.OK:
                    decoded = msgspec.json.decode(raw, type=Answer)
                    messages, results = decoded.messages, decoded.settled
                for message in messages:
                    self._delivered(sub, call, client, message, asked.lease_ms or self._lease_ms)
                self._note(EventKind.ANSWERED, sub=sub, call=call, count=len(messages), http=status)
            case ["v1", "settle"] if status == HTTPStatus.OK:
                results = msgspec.json.decode(raw, type=SettleAnswer).results
            case ["v1", "leases", _, _] if status == HTTPStatus.OK:
                results = [msgspec.json.decode(raw, type=ItemResult)]
            case ["v1", "leases", _, _] if status == HTTPStatus.GONE:
                results = [ItemResult("lost")]
            case _:
                pass
        for item, result in zip(settles, results, strict=False):
            self._note(
                EventKind.SETTLED,
                call=call,
                lease=item.lease,
                do=item.do,
                status=result.status,
                late=result.late,
                deadline_ms=result.deadline_ms,
            )
        for item in settles[len(results) :]:
            self._note(
                EventKind.SETTLE_UNKNOWN, call=call, lease=item.lease, do=item.do, http=status
            )

    def _published(self, status: int, body: bytes, raw: bytes) -> None:
        msg = self._name_of(body)
        if status in {HTTPStatus.OK, HTTPStatus.CREATED}:
            place = msgspec.json.decode(raw, type=PublishAnswer).id
            self._note(EventKind.PUBLISHED, msg=msg, id=place, http=status)
        else:
            self._note(EventKind.PUBLISH_UNKNOWN, msg=msg, http=status)

    def _delivered(
        self, sub: str, call: int, client: str, message: ReceivedMessage, lease_ms: int
    ) -> None:
        self._note(
            EventKind.DELIVERED,
            sub=sub,
            call=call,
            msg=self._name_of(message.value()),
            id=message.id,
            lease=message.lease,
            attempt=message.attempt,
            lease_ms=lease_ms,
            deadline_ms=message.deadline_ms,
            note=client,
        )


def _from_headers(headers: Mapping[str, str], raw: bytes) -> ReceivedMessage:
    """A message that came as bytes, with its facts in headers."""
    return ReceivedMessage(
        id=headers["ackd-id"],
        lease=headers["ackd-lease"],
        attempt=int(headers["ackd-attempt"]),
        deadline_ms=int(headers.get("ackd-deadline-ms", "0")),
        json=msgspec.Raw(raw),
    )
