"""Rule R21: leases go back exactly when not one byte of the answer was handed to the transport."""

from __future__ import annotations

import asyncio
import json

import pytest

from ackd.api.messages import Received, ReceiveRequest
from tests.support.wait import wait_until_async
from tests.unit.http.conftest import Calls, Dial, Running
from tests.unit.http.test_flow import publish, receive

RECEIVE = "/v1/subscriptions/orders/receive"


async def until_waiting(server: Running, count: int) -> None:
    async def there() -> bool:
        return server.sidecar.waiters("orders") == count

    await wait_until_async(there, f"{count} receives to wait")


async def until_cancelled(server: Running) -> None:
    """One receive was given up, and none waits."""

    async def there() -> bool:
        return server.sidecar.receives("orders", "cancelled") == 1

    await wait_until_async(there, "it to be cancelled")
    await until_waiting(server, 0)


async def test_closed_connection_cancels_the_waiting_receive(server: Running, dial: Dial) -> None:
    wire = await dial(server.port)
    await wire.post(RECEIVE, '{"wait_ms":20000}')
    await until_waiting(server, 1)
    await wire.close()
    await until_cancelled(server)
    await publish(server, b"1")
    [message] = (await receive(server))["messages"]
    assert message["attempt"] == 1


async def test_half_closed_connection_counts_as_closed(server: Running, dial: Dial) -> None:
    wire = await dial(server.port)
    await wire.post(RECEIVE, '{"wait_ms":20000}')
    await until_waiting(server, 1)
    wire.writer.write_eof()
    await until_cancelled(server)
    await wire.close()


async def test_leases_go_back_when_nothing_could_be_written(
    server: Running, dial: Dial, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection dies between the engine's answer and the write: the attempt does not count."""
    await publish(server, b"1")
    original = server.engine.receive
    abandoned = calls(server.engine, "abandon")

    async def receive_then_close(name: str, request: ReceiveRequest) -> Received:
        received = await original(name, request)
        for connection in server.listener.data.server._open:
            assert connection.transport is not None
            connection.transport.abort()
        return received

    monkeypatch.setattr(server.engine, "receive", receive_then_close)
    wire = await dial(server.port)
    await wire.post(RECEIVE, "{}")
    assert await wire.ended()

    async def given_back() -> bool:
        return len(abandoned) == 1 and (await server.sidecar.progress("orders")).ready == 1

    await wait_until_async(given_back, "the leases were given back")
    monkeypatch.undo()
    [message] = (await receive(server))["messages"]
    assert message["attempt"] == 1


async def test_leases_stay_when_the_client_may_have_read_them(
    server: Running, dial: Dial, calls: Calls
) -> None:
    """I4: the client got the answer and only then hung up; a repeat with its id gets it again."""
    abandoned = calls(server.engine, "abandon")
    await publish(server, b"1")
    wire = await dial(server.port)
    await wire.post(RECEIVE, '{"attempt_id":"a"}')
    first = json.loads((await wire.answer()).body)
    await wire.close()
    assert (await receive(server))["messages"] == []
    again = await receive(server, attempt_id="a")
    assert again["messages"] == first["messages"]
    assert abandoned == []


async def test_ack_counts_although_its_sender_hung_up_at_once(server: Running, dial: Dial) -> None:
    await publish(server, b"1")
    [message] = (await receive(server))["messages"]
    wire = await dial(server.port)
    await wire.post(f"/v1/leases/{message['lease']}/ack", "")
    await wire.close()

    async def acked() -> bool:
        return (await server.engine.lease(message["lease"])).state == "acked"

    await wait_until_async(acked, "the ack was decided")


async def test_connection_serves_on_after_a_waiting_receive(server: Running, dial: Dial) -> None:
    """The cancelling of a wait is armed for that wait only."""
    wire = await dial(server.port)
    for number in range(3):
        await wire.post(RECEIVE, '{"wait_ms":5000}')
        await until_waiting(server, 1)
        await publish(server, b"%d" % number)
        answer = await wire.answer()
        assert json.loads(answer.body)["messages"][0]["json"] == number
    await wire.close()
    await asyncio.sleep(0)
    assert server.sidecar.receives("orders", "cancelled") == 0


async def test_draining_refuses_receives_and_serves_settles(server: Running) -> None:
    await publish(server, b"1")
    [message] = (await receive(server))["messages"]
    server.listener.service.draining = True
    async with server.data.post(RECEIVE) as answer:
        assert answer.status == 503
        assert answer.headers["Retry-After"] == "1"
        assert (await answer.json())["type"] == "/problems/draining"
    joined = {"settle": [{"lease": message["lease"], "do": "ack"}]}
    async with server.data.post(RECEIVE, json=joined) as answer:
        assert answer.status == 200
        assert await answer.json() == {
            "messages": [],
            "settled": [{"status": "acked"}],
            "limited_by": "draining",
        }
    async with server.admin.get("/readyz") as answer:
        assert answer.status == 503
        reasons = (await answer.json())["reasons"]
        assert "draining" in [each["name"] for each in reasons if not each["ok"]]
    async with server.admin.get("/livez") as answer:
        assert answer.status == 200
