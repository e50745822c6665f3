"""A seek on RocketMQ, whose broker has to go back, too: sidecar, broker and store are killed at its
steps. What is to come again comes, all that is new comes, and nothing else (I1-I3, R8).
"""

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from ackd_torture.parts import Sidecar
from tests.chaos.dies import BROKER_MOMENTS, SEEK_MOMENTS
from tests.chaos.test_redrive import DIES, ask, told
from tests.chaos.test_seek import died, dying, leases
from tests.chaos.world import Http, World, world
from tests.support.rocketmq import RocketMQ, offsets
from tests.support.rocketmq.part import RocketMQAt
from tests.support.rocketmq.remote import admin, queues_of, send
from tests.support.rocketmq.timers import judged
from tests.support.wait import wait_until

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(480)]

COUNT = 60
NEW = 10
BASE = "/v1/subscriptions/orders"
WITHIN_S = 120.0
OVER_S = 180.0
"""What a dying sidecar's poll drew may come as a copy, with a place of its own. Where it was stored
is over once ackd has looked for what the broker lost: half a minute after the seek is over, and
that is half a minute after the broker gave the last of it.
"""


def place(message: str) -> tuple[int, int]:
    """Partition and offset of an id."""
    _, partition, offset = message.split("/")
    return int(partition), int(offset)


def middle(messages: Iterable[str]) -> dict[int, int]:
    """Of each partition, an offset with messages on both sides."""
    known: dict[int, list[int]] = {}
    for each in messages:
        partition, offset = place(each)
        known.setdefault(partition, []).append(offset)
    return {partition: sorted(found)[len(found) // 2] for partition, found in known.items()}


def positions(topic: str, to: Mapping[int, int]) -> dict[str, Any]:
    """A seek there."""
    wanted = [
        {"topic": topic, "partition": partition, "offset": offset}
        for partition, offset in to.items()
    ]
    return {"to": {"positions": wanted}}


def within(messages: Iterable[str], to: Mapping[int, int]) -> set[str]:
    """Those that such a seek brings again."""
    return {each for each in messages if place(each)[1] >= to[place(each)[0]]}


def all_acked(deployment: World, client: Http) -> list[str]:
    """So many are published, delivered and acked."""
    client.publish(deployment.topic, COUNT)
    own = leases(client.receive_until(lambda got: len(got) >= COUNT, WITHIN_S))
    assert set(client.settle(list(own.values()))) == {"acked"}
    assert {place(each)[0] for each in own} == {0, 1}, "both queues have some"
    return list(own)


def written_down(rocketmq: RocketMQ, topic: str) -> bool:
    """Whether the broker, when it is killed now, comes up with all acked."""
    found = offsets.written(rocketmq.nodes[0].at.store, topic, f"{topic}-group")
    return sum(found.values()) == COUNT


def come_once(client: Http, broker: RocketMQAt, wanted: set[str], count: int) -> None:
    """Of what is known, these come, and so many more that are new; each once, as first delivery."""
    seen: list[str] = []

    def enough(found: list[dict[str, Any]]) -> bool:
        fresh = found[len(seen) :]
        seen.extend(str(each["id"]) for each in fresh)
        assert {each["attempt"] for each in fresh} <= {1}
        assert set(client.settle([str(each["lease"]) for each in fresh])) <= {"acked"}
        return wanted <= {*seen} and len({*seen}) >= len(wanted) + count

    with judged(broker.rocketmq):
        client.receive_until(enough, WITHIN_S)
    late = client.quiet(broker.hold_ms / 1000 + 4)
    seen += [str(each["id"]) for each in late]
    assert len(seen) == len({*seen}), "a message came twice"
    assert len({*seen} - wanted) == count, "an acked message came again"


def others_publish(rocketmq: RocketMQ, topic: str) -> int:
    """One message into each queue, past ackd; how many."""

    async def stored() -> int:
        async with admin(rocketmq.ports.names) as remote:
            queues = await queues_of(remote, topic)
            for each in queues:
                await send(remote, each, [b'{"msg": "new"}'])
        return len(queues)

    return asyncio.run(stored())


def right_ends(deployment: World) -> None:
    """As it does 10 s after the death of who carries an operation out, so it may have by now."""
    assert deployment.store is not None
    drop = "return redis.call('del', 'none', unpack(redis.call('keys', ARGV[1])))"
    answer = deployment.store.ask("EVAL", drop, "0", "*dead-operation*runner*")
    assert answer in (b":0\r\n", b":1\r\n"), answer


def stopping(deployment: World, *moments: str) -> Sidecar:
    """A sidecar that stops when it comes to these moments."""
    sidecar = deployment.sidecar(start=False)
    sidecar.folder.mkdir(parents=True)
    (sidecar.folder / "stop-at").write_text("\n".join(moments))
    sidecar.start()
    return sidecar


def stopped(sidecar: Sidecar) -> None:
    """Wait for it."""
    process = psutil.Process(sidecar.pid)
    wait_until(
        lambda: process.status() == psutil.STATUS_STOPPED,
        f"{sidecar.name} to stop",
        timeout_s=WITHIN_S,
    )


def began(deployment: World, sidecar: Sidecar, to: Mapping[int, int]) -> str:
    """The operation of a seek there, which holds the group by itself."""
    assert told(sidecar, "POST", f"{BASE}/pause", {})["state"] == "paused"
    operation = ask(sidecar, "POST", f"{BASE}/seek", positions(deployment.topic, to))["id"]
    ask(sidecar, "POST", f"{BASE}/resume", {})  # it may stop before it answers
    return str(operation)


def done(sidecar: Sidecar, operation: str) -> bool:
    """Whether the seek has ended well."""
    state = told(sidecar, "GET", f"/v1/operations/{operation}")["state"]
    assert state in ("running", "done")
    return bool(state == "done")


def ends(sidecar: Sidecar, operation: str) -> None:
    """Wait for the seek's end; the group goes on."""
    told(sidecar, "POST", f"{BASE}/resume", {})
    wait_until(lambda: done(sidecar, operation), "the seek is done", timeout_s=WITHIN_S)


def passed(sidecar: Sidecar) -> int:
    """How many offsets are below the watermarks."""
    progress = told(sidecar, "GET", f"{BASE}/progress")["partitions"]
    assert {each["epoch"] for each in progress} == {1}
    return sum(each["offset"] for each in progress)


def test_r8_killed_at_every_step_of_a_seek_on_rocketmq(rocketmq: RocketMQ, folder: Path) -> None:
    broker = RocketMQAt(rocketmq)
    with world(broker, folder, partitions=2, command=DIES) as deployment:
        moments = [*list(SEEK_MOMENTS)[:3], *BROKER_MOMENTS, *list(SEEK_MOMENTS)[3:]]
        first = dying(deployment, "s0", moments[0])
        client = Http(first)
        client.publish(deployment.topic, COUNT)
        own = leases(client.receive_until(lambda got: len(got) >= COUNT, 90, lease_ms=900_000))
        to = middle(own)
        # Of what comes again: one stays under its lease, one waits for its retry.
        leased, waits, *_ = sorted(within(own, to))
        rest = [own[each] for each in own if each not in (leased, waits)]
        assert client.settle([own[waits]], "retry", delay_ms=600_000) == ["retrying"]
        assert set(client.settle(rest)) == {"acked"}
        assert ask(first, "POST", f"{BASE}/pause", {})["state"] == "paused"
        began = ask(first, "POST", f"{BASE}/seek", positions(deployment.topic, to))
        died(first)
        new = 0
        for number, moment in enumerate(moments[1:], 1):
            right_ends(deployment)
            new += others_publish(rocketmq, deployment.topic)
            died(dying(deployment, f"s{number}", moment, soon=True))
        right_ends(deployment)
        last = deployment.sidecar("last")
        other = Http(last)
        other.publish(deployment.topic, NEW, first=COUNT)
        new += NEW
        # Resumed at once: what is left of the operation holds the group by itself.
        told(last, "POST", f"{BASE}/resume", {})
        # And killed while they come.
        wanted = within(own, to) - {leased}
        half = other.receive_until(lambda got: len(got) >= len(wanted) // 2, WITHIN_S, most=4)
        assert set(other.settle([str(each["lease"]) for each in half])) == {"acked"}
        last.kill()
        last.start()
        came = {str(each["id"]) for each in half}
        assert not came & {*own} - wanted
        come_once(other, broker, wanted - came, new - len(came - wanted))
        assert other.settle([own[leased]]) == ["acked"]
        assert other.quiet(3.0) == []
        done = ask(last, "GET", f"/v1/operations/{began['id']}") if began else None
        assert done is None or (done["state"], done["moved"], done["total"]) == ("done", 2, 2)
        wait_until(lambda: passed(last) == COUNT + new, "nothing is left", timeout_s=OVER_S)


def test_r8_the_broker_is_killed_at_each_of_its_steps_of_a_seek(
    rocketmq: RocketMQ, folder: Path
) -> None:
    """It is away when it is to be moved, and forgets twice that it was; then it is killed while it
    brings the messages again.
    """
    broker = RocketMQAt(rocketmq)
    moments = (
        "copies over, broker not told",
        "one queue of the broker moved, the other not",
        "broker moved, not written down",
    )
    with world(broker, folder, partitions=2, command=DIES) as deployment:
        sidecar = stopping(deployment, *moments)
        client = Http(sidecar)
        own = all_acked(deployment, client)
        to = middle(own)
        wait_until(
            lambda: written_down(rocketmq, deployment.topic),
            "the broker has all acked",
        )
        operation = began(deployment, sidecar, to)
        for _ in moments:
            stopped(sidecar)
            broker.kill()
            sidecar.thaw()
            broker.start()
        ends(sidecar, operation)
        wanted = within(own, to)
        half = client.receive_until(lambda got: len(got) >= len(wanted) // 2, WITHIN_S, most=4)
        assert set(client.settle([str(each["lease"]) for each in half])) == {"acked"}
        client.publish(deployment.topic, NEW, first=COUNT)
        broker.kill()
        broker.start()
        came = {str(each["id"]) for each in half}
        assert came <= wanted
        come_once(client, broker, wanted - came, NEW)


def test_r8_the_store_is_killed_at_steps_of_a_seek(rocketmq: RocketMQ, folder: Path) -> None:
    """And once more while the messages come again."""
    broker = RocketMQAt(rocketmq)
    moments = (
        "moved, not written down",
        "one queue is expected, the other not",
        "one queue of the broker moved, the other not",
        "broker moved, not written down",
    )
    with world(broker, folder, partitions=2, command=DIES) as deployment:
        assert deployment.store is not None
        sidecar = stopping(deployment, *moments)
        client = Http(sidecar)
        own = all_acked(deployment, client)
        to = middle(own)
        operation = began(deployment, sidecar, to)
        for _ in moments:
            stopped(sidecar)
            deployment.store.kill()
            sidecar.thaw()
            deployment.store.start()
        ends(sidecar, operation)
        wanted = within(own, to)
        half = client.receive_until(lambda got: len(got) >= len(wanted) // 2, WITHIN_S, most=4)
        assert set(client.settle([str(each["lease"]) for each in half])) == {"acked"}
        deployment.store.kill()
        deployment.store.start()
        client.publish(deployment.topic, NEW, first=COUNT)
        come_once(client, broker, wanted - {str(each["id"]) for each in half}, NEW)


def test_r8_another_sidecar_ends_a_seek_to_the_end_which_the_broker_forgets(
    rocketmq: RocketMQ, folder: Path
) -> None:
    """What is skipped stays so: one sidecar dies before it moves the broker, the one that lives
    does it, and the broker is killed before it has written that down.
    """
    broker = RocketMQAt(rocketmq)
    with world(broker, folder, partitions=2, command=DIES) as deployment:
        dies = dying(deployment, "s0", "all is expected, broker not moved")
        lives = deployment.sidecar("s1")
        assert told(dies, "POST", f"{BASE}/pause", {})["state"] == "paused"
        client = Http(lives)
        client.publish(deployment.topic, COUNT)
        dry = {"to": "latest", "dry_run": True}
        wait_until(  # the broker tells an end when it has filed what is before
            lambda: told(dies, "POST", f"{BASE}/seek", dry)["skipped"] == COUNT, "all are skipped"
        )
        ask(dies, "POST", f"{BASE}/seek", {"to": "latest"})
        died(dies)
        (operation,) = told(lives, "GET", "/v1/operations?subscription=orders")["operations"]
        ends(lives, operation["id"])
        client.publish(deployment.topic, NEW, first=COUNT)
        broker.kill()
        broker.start()
        come_once(client, broker, set(), NEW)
