"""Asks one sidecar, again and again, even while it is silent."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import aiohttp
import orjson

from ackd.cli.client.endpoint import AdminEndpoint
from ackd.cli.figures import clean
from ackd_top import scrape
from ackd_top.scrape import SubscriptionFigures
from ackd_top.subscription_rows import SeenBefore, SubscriptionReport

TIMEOUT_S = 5.0
ASKED_MAX = 50
"""Subscriptions whose details one look asks for: those with the oldest messages first."""
MESSAGES_MAX = 1000
AT_ONCE = 4
OWN = {"scope": "sidecar"}
"""Each sidecar tells of its own partitions: all of them are asked anyway."""
NOBODY = "something answers there that is no sidecar"

Json = dict[str, Any]


class AwayError(Exception):
    """No answer, or none that a sidecar gives; the message says which, in one line."""


class SidecarRefusedError(Exception):
    """The sidecar answers that it refuses, or can't do it now."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(f"{status} {detail}".strip())
        self.status = status


class SidecarClient:
    """One sidecar and what was seen of it last. To be used within `async with`."""

    def __init__(self, place: AdminEndpoint, *, older_ms: int) -> None:
        self.name = place.name
        self.seen = SeenBefore(self.name, error="not asked yet", since_s=time.monotonic())
        self.before: SeenBefore | None = None
        self._place = place
        self._older_ms = older_ms
        self._session: aiohttp.ClientSession | None = None
        self._metrics = True
        self._now = asyncio.Event()

    async def __aenter__(self) -> Self:
        place = self._place
        connector = (
            aiohttp.UnixConnector(place.unix, limit=AT_ONCE)
            if place.unix
            else aiohttp.TCPConnector(limit=AT_ONCE)
        )
        headers = {"Authorization": f"Bearer {place.token}"} if place.token else {}
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        self._session = aiohttp.ClientSession(connector=connector, headers=headers, timeout=timeout)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()

    # --- looking

    async def look(self) -> None:
        """Ask for everything; `seen` holds the answers, or why there are none."""
        now_s = time.monotonic()
        try:
            seen = await self._ask_all(now_s)
        except (AwayError, SidecarRefusedError, KeyError, TypeError) as error:
            last = self.seen
            since_s = last.since_s if last.error else now_s
            self.seen = SeenBefore(
                self.name,
                at_s=now_s,
                identity=last.identity,
                version=last.version,
                error=NOBODY if isinstance(error, KeyError | TypeError) else str(error),
                since_s=since_s,
                subscriptions=last.subscriptions,
            )
            return
        self.before = None if self.seen.error else self.seen
        self.seen = seen

    def hurry(self) -> None:
        self._now.set()

    async def pause(self, seconds: float) -> None:
        """Sleep until the next look; `hurry` ends it early."""
        self._now.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._now.wait(), seconds)

    async def _ask_all(self, now_s: float) -> SeenBefore:
        views = (await self.get("v1", "subscriptions"))["subscriptions"]
        figures = await self._figures()
        seen = SeenBefore(self.name, at_s=now_s, since_s=now_s)
        for view in views:
            seen.subscriptions[view["name"]] = SubscriptionReport(view, figures.get(view["name"]))
        if self._metrics:
            info, ready = await asyncio.gather(self.get("v1", "info"), self._ready())
            seen.identity, seen.version = clean(info["identity"]), clean(info["version"])
            seen.reasons = [clean(f"{r['name']}: {r['detail']}") for r in ready if not r["ok"]]
        await asyncio.gather(
            *(self._details(name, report) for name, report in _worst_first(seen)[:ASKED_MAX])
        )
        return seen

    async def _figures(self) -> Mapping[str, SubscriptionFigures]:
        if not self._metrics:
            return {}
        try:
            return scrape.read((await self._text("metrics")).decode())
        except SidecarRefusedError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            self._metrics = False  # the data port
            return {}
        except ValueError as error:
            raise AwayError(NOBODY) from error

    async def _details(self, name: str, report: SubscriptionReport) -> None:
        """Limits, and what is in flight for long; a sidecar that is starting knows neither."""
        try:
            report.limits = [clean(each) for each in (await self.explain(name))["limits"]]
            if report.figures is None:
                oldest, lag = await asyncio.gather(self.in_flight(name, 0, 1), self.progress(name))
                since_ms = min((each["since_ms"] for each in oldest), default=None)
                oldest_s = 0 if since_ms is None else time.time_ns() / 1e9 - since_ms / 1000
                report.figures = scrape.of_lag(lag["partitions"], max(oldest_s, 0))
            report.messages = []
            if report.figures.oldest_s * 1000 >= self._older_ms:
                report.messages = await self.in_flight(name, self._older_ms, MESSAGES_MAX)
        except SidecarRefusedError as error:
            report.limits = [str(error)]

    async def explain(self, name: str) -> Json:
        """Raises AwayError, RefusedError, as all of these do."""
        return await self.get("v1", "subscriptions", name, "explain", query=OWN)

    async def progress(self, name: str) -> Json:
        """Ask for a subscription's progress: `partitions`, and what the sidecar does."""
        return await self.get("v1", "subscriptions", name, "lag", query=OWN)

    async def in_flight(self, name: str, older_ms: int, most: int) -> list[Json]:
        """The oldest messages in flight."""
        query = {"older_ms": str(older_ms), "max": str(most), **OWN}
        answer = await self.get("v1", "subscriptions", name, "in-flight", query=query)
        found: list[Json] = answer["messages"]
        return found

    async def dead(self, name: str, most: int) -> list[Json]:
        """Ask for the first `most` dead letters of a subscription."""
        answer = await self.get("v1", "subscriptions", name, "dead", query={"max": str(most)})
        found: list[Json] = answer["messages"]
        return found

    # --- asking

    async def _ready(self) -> list[Json]:
        """Reasons; 503 is an answer here."""
        try:
            found: list[Json] = (await self.get("readyz", also=503))["reasons"]
        except SidecarRefusedError:
            return []
        return found

    async def get(
        self, *path: str, query: Mapping[str, str] | None = None, also: int = 200
    ) -> Json:
        """A JSON object. `also`: a further status that does not mean a refusal."""
        return _object(await self._text(*path, query=query, also=also))

    async def _text(
        self, *path: str, query: Mapping[str, str] | None = None, also: int = 200
    ) -> bytes:
        if self._session is None:
            raise AwayError("closed")
        url = f"{self._place.url}/" + "/".join(quote(part, safe="") for part in path)
        try:
            async with self._session.get(url, params=query) as answer:
                body = await answer.read()
        except TimeoutError as error:
            raise AwayError(f"no answer in {TIMEOUT_S:.0f} s") from error
        except (aiohttp.ClientError, ValueError, OSError) as error:
            raise AwayError(clean(_reason(error), 200)) from error
        if answer.status in (HTTPStatus.OK, also):
            return body
        detail = _object(body).get("detail", "")
        raise SidecarRefusedError(answer.status, clean(detail))


def _reason(error: Exception) -> str:
    """The system's word where there is one: `Connection refused`."""
    number = getattr(error, "errno", None)
    if isinstance(number, int) and number > 0:
        return os.strerror(number)
    return str(error) or type(error).__name__


def _object(body: bytes) -> Json:
    """Raises AwayError: something other than a sidecar answers."""
    try:
        found = orjson.loads(body)
    except ValueError as error:
        raise AwayError(NOBODY) from error
    if not isinstance(found, dict):
        raise AwayError(NOBODY)
    return found


def _worst_first(seen: SeenBefore) -> list[tuple[str, SubscriptionReport]]:
    def oldest(item: tuple[str, SubscriptionReport]) -> float:
        figures = item[1].figures
        return 0 if figures is None else -figures.oldest_s

    return sorted(seen.subscriptions.items(), key=oldest)
