"""Push delivery over real sockets: each row of the answer table, leases, bounds, forms, drain."""

from __future__ import annotations

import asyncio
import base64
import json

import pytest
from aiohttp import web
from cloudevents.core.bindings import http as foreign
from standardwebhooks.webhooks import Webhook

from tests.integration.http.conftest import call
from tests.integration.push.conftest import TOPIC, Seen, StartWorld
from tests.support.wait import wait_until_async

CALLS = 'ackd_push_calls_total{{outcome="{}",subscription="orders"}}'


async def test_message_is_posted_with_its_facts_and_2xx_acks_it(start: StartWorld) -> None:
    world = await start()
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await world.publish(
        b'{"n": 1.50}', Ackd_Key="k", traceparent=trace, Content_Type="application/json"
    )
    [seen] = await world.app.called(1)
    await world.finished(1)
    assert seen.body == b'{"n": 1.50}'
    assert seen.headers["Content-Type"] == "application/json"
    assert seen.headers["Ackd-Key"] == "k"
    assert seen.headers["traceparent"] == trace
    assert seen.attempt == 1
    assert await world.metric(CALLS.format("ack")) == 1
    view = await world.ask("GET", "/v1/subscriptions/orders")
    assert view["settings"]["push.url"].endswith("/orders")
    assert view["sources"]["push.url"] == "file"
    assert set(view["sources"]) <= set(view["settings"])


ROWS: list[tuple[int, dict[str, str], int]] = [
    # status, headers, how often it comes
    (404, {}, 2),
    (500, {}, 2),
    (302, {"Location": "/elsewhere"}, 2),
    (503, {}, 2),
    (200, {"Ackd-Do": "retry", "Ackd-Delay-Ms": "50"}, 2),
    (201, {}, 1),
    (500, {"Ackd-Do": "ack"}, 1),
    (200, {"Ackd-Do": "dead"}, 1),
]


async def test_answers_mean_what_the_table_says(start: StartWorld) -> None:
    """Everything but success is retried by the schedule and counts; a word overrides."""

    async def answer(seen: Seen) -> web.Response:
        status, headers, _ = ROWS[int(seen.body)]
        if seen.attempt > 1:
            return web.Response(status=204)
        return web.Response(status=status, headers=headers)

    world = await start(answer)
    await world.publish(*(b"%d" % number for number in range(len(ROWS))))
    await world.finished(len(ROWS))
    for number, (_, _, times) in enumerate(ROWS):
        attempts = [seen.attempt for seen in world.app.calls if int(seen.body) == number]
        assert attempts == [1, 2][:times], ROWS[number]
    assert await world.metric(CALLS.format("dead")) == 1
    assert await world.metric(CALLS.format("retry")) == 5


async def test_202_keeps_the_lease_and_the_bound_holds(start: StartWorld) -> None:
    async def answer(_seen: Seen) -> web.Response:
        return web.Response(status=202)

    world = await start(answer, push="kept_max = 2\nconcurrency = 8\n")
    await world.publish(b"1", b"2", b"3", b"4", b"5")
    seen = await world.app.called(2)
    await asyncio.sleep(1)  # nothing more may come: there is no condition to wait for
    assert len(world.app.calls) == 2
    for number in range(5):
        seen = await world.app.called(number + 1)
        state = await world.ask("GET", f"/v1/leases/{seen[number].lease}")
        assert state["state"] == "leased"
        assert len(world.app.calls) <= number + 2
        await world.ask("POST", f"/v1/leases/{seen[number].lease}/ack")
    await world.finished(5)


async def test_retry_after_is_kept_not_counted_and_slows_all(start: StartWorld) -> None:
    async def answer(_seen: Seen) -> web.Response:
        if len(world.app.calls) == 1:
            return web.Response(status=429, headers={"Retry-After": "5"})
        return web.Response(status=204)

    world = await start(answer, push="concurrency = 1\n")
    await world.publish(b"1")
    await world.app.called(1)
    await world.publish(b"2")
    await world.until_limited("asked for a pause")
    await world.finished(2)
    first, *rest = world.app.calls
    assert [seen.attempt for seen in rest] == [1, 1]
    assert min(seen.at_s for seen in rest) - first.at_s > 4.95
    assert not any("push" in each for each in await world.limits())


async def test_lease_is_extended_while_the_call_lives(start: StartWorld) -> None:
    async def answer(_seen: Seen) -> web.Response:
        await asyncio.sleep(9)
        return web.Response(status=204)

    world = await start(answer, subscription="lease_ms = 4000")
    await world.publish(b"1")
    await world.finished(1)
    assert [seen.attempt for seen in world.app.calls] == [1]
    assert await world.metric('ackd_lease_expiries_total{subscription="orders"}') == 0


@pytest.mark.parametrize(
    "push", ["auto_extend = false\ntimeout_ms = 4000\n", "auto_extend_max_ms = 0\n"]
)
async def test_call_does_not_outlive_its_lease(start: StartWorld, push: str) -> None:
    """Else two would work on one message. What is too slow is retried and counts."""

    async def answer(seen: Seen) -> web.Response:
        if seen.attempt == 1:
            await asyncio.sleep(60)
        return web.Response(status=204)

    world = await start(answer, subscription="lease_ms = 5000", push=push)
    await world.publish(b"1")
    await world.finished(1)
    first, second = world.app.calls
    assert second.attempt == 2
    assert second.at_s - first.at_s > 1
    assert await world.metric(CALLS.format("timeout")) == 1


async def test_concurrency_is_reached_and_never_passed(start: StartWorld) -> None:
    async def answer(_seen: Seen) -> web.Response:
        await asyncio.sleep(0.02)
        return web.Response(status=204)

    world = await start(answer, push="concurrency = 3\n")
    body = json.dumps({"messages": [{"json": n} for n in range(60)]}).encode()
    await world.ask("POST", f"{TOPIC}:batch", body, Content_Type="application/json")
    await world.finished(60)
    assert world.app.most == 3
    assert len({seen.headers["Ackd-Id"] for seen in world.app.calls}) == 60


async def test_batch_is_settled_by_its_items_and_a_missing_one_is_retried(
    start: StartWorld,
) -> None:
    calls: list[list[dict[str, object]]] = []

    async def answer(seen: Seen) -> web.Response:
        messages = json.loads(seen.body)["messages"]
        calls.append(messages)
        assert len(messages) <= 4
        items = [{"lease": each["lease"], "do": "ack"} for each in messages if each["json"] != 3]
        if any(each["json"] == 3 and each["attempt"] > 1 for each in messages):
            items = [{"lease": each["lease"], "do": "ack"} for each in messages]
        return web.json_response({"items": items})

    world = await start(answer, push='mode = "batch"\nbatch_max = 4\n')
    body = json.dumps({"messages": [{"json": n, "partition": 0} for n in range(8)]}).encode()
    await world.ask("POST", f"{TOPIC}:batch", body, Content_Type="application/json")
    await world.finished(8)
    attempts = {each["json"]: each["attempt"] for call in calls for each in call}
    assert attempts == {n: 2 if n == 3 else 1 for n in range(8)}


SECRET = "whsec_" + base64.b64encode(b"a secret of 24 bytes....").decode()


@pytest.mark.parametrize(
    "push", ['format = "cloudevents"\n', 'format = "cloudevents-structured"\n']
)
async def test_foreign_libraries_read_and_verify_what_is_pushed(
    start: StartWorld, push: str
) -> None:
    """CloudEvents as the CNCF's library sends and reads them, signed as Standard Webhooks says."""
    world = await start(push=push, up=False)
    await world.app.start()
    event = foreign.from_http_event(
        foreign.HTTPMessage(
            {
                "ce-id": "e-1",
                "ce-source": "/shop",
                "ce-type": "order.placed",
                "ce-specversion": "1.0",
                "content-type": "application/json",
            },
            b'{"n": 1}',
        )
    )
    sent = foreign.to_binary_event(event)
    await world.publish(sent.body, **{k.replace("-", "_"): v for k, v in sent.headers.items()})
    [seen] = await world.app.called(1)
    await world.finished(1)
    found = foreign.from_http_event(foreign.HTTPMessage(seen.headers, seen.body))
    assert found.get_id() == "e-1"
    assert found.get_data() == {"n": 1}
    assert found.get_extension("ackdlease") == seen.lease


async def test_calls_are_signed(
    start: StartWorld, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("secret") / "webhook"
    file.write_text(f"{SECRET}\nanother secret of plain text\n")
    world = await start(push=f'signature_file = "{file}"\n')
    await world.publish(b'{"n":1}')
    [seen] = await world.app.called(1)
    await world.finished(1)
    assert Webhook(SECRET).verify(seen.body, seen.headers) == {"n": 1}
    other = "whsec_" + base64.b64encode(b"another secret of plain text").decode()
    assert Webhook(other).verify(seen.body, seen.headers) == {"n": 1}
    assert SECRET.removeprefix("whsec_") not in world.sidecar.process.log()


async def test_drain_waits_for_the_running_call(start: StartWorld) -> None:
    drains = asyncio.Event()

    async def answer(_seen: Seen) -> web.Response:
        await drains.wait()
        await asyncio.sleep(1)  # it would have time to end
        return web.Response(status=204)

    world = await start(answer, push="concurrency = 1\n")
    await world.publish(b"1", b"2")
    await world.app.called(1)
    world.sidecar.process.signal(15)
    log = world.sidecar.process
    await asyncio.to_thread(log.wait_for_log, "draining", 60)
    drains.set()
    assert await asyncio.to_thread(world.sidecar.process.wait, 60) == 0
    assert len(world.app.calls) == 1
    await asyncio.to_thread(world.sidecar.start)
    await world.finished(2)
    assert [seen.attempt for seen in world.app.calls] == [1, 1]


async def test_r30_a_lease_time_that_is_changed_during_a_call_leaves_its_lease_alone(
    start: StartWorld,
) -> None:
    """R30: the lease is extended at half of the time that it has, not of the new one."""

    async def answer(_seen: Seen) -> web.Response:
        await asyncio.sleep(7)
        return web.Response(status=204)

    world = await start(answer, subscription='lease_ms = "4s"')
    await world.publish(b"1")
    await world.app.called(1)
    change = b'{"lease_ms": 60000}'
    path = "/v1/subscriptions/orders"
    status, said = await asyncio.to_thread(call, world.sidecar.admin_port, "PATCH", path, change)
    assert status == 200, said
    await world.finished(1)
    assert [seen.attempt for seen in world.app.calls] == [1]


async def test_explain_forgets_a_pause_that_is_over(start: StartWorld) -> None:
    """Also when it ended while the next message was waited for."""

    async def answer(_seen: Seen) -> web.Response:
        if len(world.app.calls) == 1:
            return web.Response(status=503, headers={"Retry-After": "1"})
        return web.Response(status=204)

    world = await start(answer)
    await world.publish(b"1")
    await world.finished(1)

    async def quiet() -> bool:
        return not any(each.startswith("push: ") for each in await world.limits())

    await wait_until_async(quiet, "explain to say nothing of push", timeout_s=20)
    assert len(world.app.calls) == 2
