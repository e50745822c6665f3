"""Somebody else's page in a real browser, with a sidecar without a token on the same machine."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from tests.integration.http.conftest import Sidecar, call
from tests.support import chromium
from tests.support.require import require
from tests.support.serving import serving
from tests.support.wait import wait_until_async

EVIL = "evil.example"
STREAM = "/v1/subscriptions/orders/stream?in_flight=10&lease_ms=600000&duration_ms=2000"
PAGE = """<!doctype html><title>page</title><script>
const sidecar = "%s", stream = sidecar + "%s";
const tried = {};
const image = new Image();
image.onload = image.onerror = () => { tried.image = true; };
image.src = stream + "&by=image";
const told = name => [answer => { tried[name] = answer.type; }, () => { tried[name] = "failed"; }];
fetch(stream, {mode: "no-cors"}).then(...told("get"));
fetch(sidecar + "/v1/subscriptions/orders/receive", {mode: "no-cors", method: "POST"})
  .then(...told("post"));
fetch(stream, {headers: {"Ackd-Worker": "page"}}).then(...told("header"));
const events = new EventSource(stream);
events.onmessage = () => { tried.events = "message"; };
events.onerror = () => { tried.events = "error"; events.close(); };
</script>"""


@asynccontextmanager
async def site(text: str) -> AsyncIterator[int]:
    """Serves one page to everybody; the port."""
    body = text.encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.readline():  # a browser also connects without asking for anything
            writer.write(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()

    async with serving(answer) as port:
        yield port


async def in_flight(sidecar: Sidecar) -> list[Any]:
    address = "/v1/subscriptions/orders/in-flight"
    _, found = await asyncio.to_thread(call, sidecar.port, "GET", address)
    messages: list[Any] = found["messages"]
    return messages


async def refused(sidecar: Sidecar, path: str, status: int) -> int:
    """How often an address answered so, on the data port."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{sidecar.admin_url}/metrics") as answer,
    ):
        text = await answer.text()
    found = re.findall(
        rf'^ackd_http_requests_total{{.*route="{re.escape(path)}".*status="{status}"}} (\S+)',
        text,
        re.MULTILINE,
    )
    return int(sum(float(each) for each in found))


async def test_a_foreign_page_takes_no_message(sidecar: Sidecar) -> None:
    """Image, fetch and EventSource arrive at the sidecar, and each is refused."""
    require(chromium.missing())
    await asyncio.to_thread(call, sidecar.port, "POST", "/v1/topics/orders/messages", b"1")
    await asyncio.to_thread(call, sidecar.port, "GET", "/v1/subscriptions/orders/lag")
    rules = f"--host-resolver-rules=MAP {EVIL} 127.0.0.1"
    async with site(PAGE % (sidecar.url, STREAM)) as port, chromium.page(rules) as page:
        await page.open(f"http://{EVIL}:{port}/")

        async def all_tried() -> dict[str, Any]:
            found: dict[str, Any] = json.loads(await page.value("JSON.stringify(tried)"))
            return found if len(found) == 5 else {}

        tried = await wait_until_async(all_tried, "the page has tried everything")
        assert tried["events"] == "error"
        assert tried["header"] == "failed"
        path = "/v1/subscriptions/{subscription}/stream"
        assert await refused(sidecar, path, 403) >= 3
        assert await refused(sidecar, "/v1/subscriptions/{subscription}/receive", 403) >= 1
        assert await in_flight(sidecar) == []
        await page.open(f"http://{EVIL}:{sidecar.port}/v1/subscriptions")
        shown = await page.value("document.body.innerText")
        assert json.loads(shown)["type"] == "/problems/foreign-host"
        await page.open(f"{sidecar.url}/v1/subscriptions")
        shown = await page.value("document.body.innerText")
        assert len(json.loads(shown)["subscriptions"]) == 2
