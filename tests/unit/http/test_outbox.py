"""Publishing later over HTTP: 202, where to ask, and what may be asked."""

from __future__ import annotations

import aiohttp
import pytest

from ackd.http.formats.negotiation import prefers_async
from tests.support.wait import wait_until_async
from tests.unit.http.conftest import Running

TOPIC = "/v1/topics/orders/messages"
LATER = {"Prefer": "respond-async"}
NOW_MS = 2_000_000_000_000


async def asked(server: Running, url: str, member: str, expected: object) -> None:
    """Wait until the answer has this."""

    async def told() -> bool:
        async with server.data.get(url) as answer:
            return bool((await answer.json())[member] == expected)

    await wait_until_async(told, f"{member} of {url} to be {expected}")


async def test_one_message_is_accepted_and_can_be_asked_for(server: Running) -> None:
    server.sidecar.clock.stop(NOW_MS)
    headers = {**LATER, "Ackd-Delay-Ms": "250"}
    async with server.data.post(TOPIC, data=b"x", headers=headers) as answer:
        assert answer.status == 202
        url = answer.headers["Location"]
        assert await answer.json() == {
            "outbox_id": "main/1",
            "due_ms": NOW_MS + 250,
            "status_url": "/v1/outbox/main/1",
        }
    for port in (server.data, server.admin):
        async with port.get(url) as answer:
            found = await answer.json()
        assert found == {
            "id": "main/1",
            "state": "waiting",
            "due_ms": NOW_MS + 250,
            "in_doubt": False,
        }

        async def kept(port: aiohttp.ClientSession = port) -> bool:
            async with port.get("/v1/outbox") as answer:
                (view,) = (await answer.json())["outboxes"]
            return (view["broker"], view["waiting"]) == ("main", 1)

        await wait_until_async(kept, "the outbox to show it")


async def test_a_batch_says_for_each(server: Running) -> None:
    """The broker refuses the last one: there is no such partition."""
    body = {"messages": [{"text": "a"}, {"text": "b"}, {"text": "c", "partition": 7}]}
    async with server.data.post(f"{TOPIC}:batch", json=body, headers=LATER) as answer:
        assert answer.status == 202
        results = (await answer.json())["results"]
    assert [each["status"] for each in results] == ["accepted"] * 3
    assert results[2]["outbox_id"] == "main/3"
    await asked(server, results[2]["status_url"], "state", "failed")
    async with server.admin.post(f"{results[2]['status_url']}/retry") as answer:
        assert (await answer.json())["state"] == "waiting"
    async with server.admin.post(f"{results[0]['status_url']}/retry") as answer:
        assert (answer.status, (await answer.json())["type"].rsplit("/")[-1]) == (409, "not-failed")
    async with server.data.post(f"{results[2]['status_url']}/retry") as answer:
        assert answer.status == 404, "for operators only"


@pytest.mark.parametrize("path", ["main/99", "main/x", "other/1", "main/-1"])
async def test_what_is_not_there_is_404(server: Running, path: str) -> None:
    async with server.data.get(f"/v1/outbox/{path}") as answer:
        assert answer.status == 404
        assert (await answer.json())["type"].endswith("unknown-outbox-message")


@pytest.mark.parametrize(
    ("prefer", "wanted"),
    [
        (None, False),
        ("respond-async", True),
        ("Respond-Async, wait=5", True),
        ("wait=5,respond-async; x=1", True),
        ("respond-asynchronously", False),
        ("return=minimal", False),
    ],
)
def test_the_preference_as_rfc_7240_writes_it(prefer: str | None, *, wanted: bool) -> None:
    assert prefers_async(prefer) is wanted
