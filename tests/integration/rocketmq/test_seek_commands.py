"""A group on RocketMQ is moved over HTTP and by `ackd seek`, at a sidecar as it is run (R8)."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from ackd_torture.parts import Sidecar
from tests.chaos.test_redrive import ask
from tests.chaos.world import Http, World, ready, world
from tests.support.paths import remove_run_dir, run_dir
from tests.support.rocketmq import RocketMQ
from tests.support.rocketmq.part import RocketMQAt
from tests.support.wait import wait_until

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(240)]

COUNT = 20
BASE = "/v1/subscriptions/orders"
QUIET_S = 6.0
DAY_MS = 86_400_000


class WithoutNameServers(RocketMQAt):
    """ackd can't ask the brokers themselves."""

    def options(self) -> dict[str, str | int]:
        """How to connect."""
        return {**super().options(), "name_servers": ""}


@pytest.fixture
def folder() -> Iterator[Path]:
    """Of a sidecar and its store."""
    path = run_dir("seek")
    yield path
    remove_run_dir(path)


class Operator:
    """Who moves the group, and the application."""

    def __init__(self, deployment: World) -> None:
        self.sidecar: Sidecar = deployment.sidecar()
        self.client = Http(self.sidecar)
        self.topic = deployment.topic

    def ackd(self, *words: str) -> subprocess.CompletedProcess[str]:
        """`ackd seek orders ...`."""
        config = str(self.sidecar.config)
        return subprocess.run(
            [sys.executable, "-m", "ackd", "seek", "orders", *words, "--config", config],
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def moves(self, *words: str) -> None:
        """By the command, which pauses and waits."""
        moved = self.ackd(*words, "--pause")
        assert moved.returncode == 0, moved.stdout + moved.stderr
        assert "done: " in moved.stdout

    def asks(self, **body: object) -> Any:
        """Over HTTP; the answer."""
        return ask(self.sidecar, "POST", f"{BASE}/seek", body)

    def seeks(self, to: object) -> None:
        """Over HTTP, to its end."""
        assert ask(self.sidecar, "POST", f"{BASE}/pause", {})["state"] == "paused"
        path = f"/v1/operations/{self.asks(to=to)['id']}"

        def over() -> bool:
            state = ask(self.sidecar, "GET", path)["state"]
            assert state in ("running", "done")
            return bool(state == "done")

        wait_until(over, "the seek to end", timeout_s=90)
        ask(self.sidecar, "POST", f"{BASE}/resume", {})

    def acks(self, count: int) -> set[str]:
        """So many come, and no more; their ids. What comes late shows in the next step."""
        found = self.client.receive_until(lambda got: len(got) >= count, 90)
        assert set(self.client.settle([str(each["lease"]) for each in found])) == {"acked"}
        late = self.client.quiet(1.0)
        ids = [str(each["id"]) for each in (*found, *late)]
        assert len(ids) == len({*ids}) == count
        return {*ids}

    def publishes(self, first: int) -> None:
        """COUNT messages."""
        self.client.publish(self.topic, COUNT, first=first)


def test_r8_every_way_over_http_and_by_the_command(rocketmq: RocketMQ, folder: Path) -> None:
    """To the beginning, to a time, to a position, to the end and undone, with a look before."""
    with world(RocketMQAt(rocketmq), folder, partitions=2) as deployment:
        it = Operator(deployment)
        it.publishes(0)
        early = it.acks(COUNT)
        time.sleep(0.01)
        since_ms = time.time_ns() // 1_000_000
        time.sleep(0.01)
        it.publishes(COUNT)
        late = it.acks(COUNT)
        assert it.asks(to="earliest")["type"] == "/problems/not-paused"
        refused = it.ackd("--to", "earliest")
        assert (refused.returncode, "not paused" in refused.stderr) == (2, True)
        assert it.asks(to="earliest", dry_run=True)["again"] == 2 * COUNT
        it.seeks("earliest")
        assert it.acks(2 * COUNT) == early | late
        dry = it.ackd("--time", str(since_ms), "--dry-run")
        assert f"in all: {COUNT} again, 0 skipped, 0 leases kept" in dry.stdout, dry.stderr
        it.moves("--time", str(since_ms))
        assert it.acks(COUNT) == late
        topic, queue, at = min(early).split("/")
        to = {"topic": topic, "partition": int(queue), "offset": int(at) + 1}
        own = {each for each in early | late if each.startswith(f"{topic}/{queue}/")}
        again = {each for each in own if int(each.rpartition("/")[2]) > int(at)}
        assert it.asks(to={"positions": [to]}, dry_run=True)["again"] == len(again)
        it.seeks({"positions": [to]})
        assert it.acks(len(again)) == again
        # What nobody wants is skipped, and wanted after all.
        assert ask(it.sidecar, "POST", f"{BASE}/pause", {})["state"] == "paused"
        it.publishes(2 * COUNT)
        wait_until(  # the broker tells an end when it has filed what is before
            lambda: it.asks(to="latest", dry_run=True)["skipped"] == COUNT, "all are skipped"
        )
        dry = it.ackd("--to", "latest", "--dry-run")
        assert f"in all: 0 again, {COUNT} skipped, 0 leases kept" in dry.stdout, dry.stderr
        it.moves("--to", "latest")
        assert it.client.quiet(QUIET_S) == []
        assert it.asks(to="before_reset", dry_run=True)["again"] == COUNT
        it.moves("--undo")
        assert not it.acks(COUNT) & (early | late)
        assert it.client.quiet(QUIET_S) == []


def test_r8_what_is_out_of_the_log_or_wrong(rocketmq: RocketMQ, folder: Path) -> None:
    """A place outside of the log means its nearest end; a queue that is none is refused."""
    with world(RocketMQAt(rocketmq), folder, partitions=1) as deployment:
        it = Operator(deployment)
        it.publishes(0)
        all_of_them = it.acks(COUNT)
        tomorrow = time.time_ns() // 1_000_000 + DAY_MS
        for to in (
            {"time": tomorrow},
            {"positions": [{"topic": it.topic, "partition": 0, "offset": 10 * COUNT}]},
        ):
            plan = it.asks(to=to, dry_run=True)
            assert (plan["again"], plan["skipped"]) == (0, 0)
            assert [each["to_offset"] for each in plan["partitions"]] == [COUNT]
        it.moves("--position", f"{it.topic}/0={10 * COUNT}")
        it.moves("--time", str(tomorrow))
        it.publishes(COUNT)
        assert not it.acks(COUNT) & all_of_them
        unknown = it.ackd("--position", f"{it.topic}/7=1", "--dry-run")
        assert (unknown.returncode, "not of this subscription" in unknown.stderr) == (2, True)
        wrong = it.asks(to={"positions": [{"topic": it.topic, "partition": 0, "offset": -1}]})
        assert wrong["status"] == HTTPStatus.UNPROCESSABLE_ENTITY


def test_r8_without_name_servers(rocketmq: RocketMQ, folder: Path) -> None:
    """What only the broker knows is refused, and says what helps; for the rest readiness names the
    command.
    """
    with world(WithoutNameServers(rocketmq), folder, partitions=1) as deployment:
        it = Operator(deployment)
        it.publishes(0)
        it.acks(COUNT)
        for words in (("--to", "latest"), ("--time", "1"), ("--position", f"{it.topic}/0=100")):
            refused = it.ackd(*words, "--dry-run")
            assert (refused.returncode, "set `name_servers`" in refused.stderr) == (2, True)
        refused = it.asks(to="latest")
        assert (refused["status"], refused["type"]) == (422, "/problems/not-supported")
        it.moves("--to", "earliest")
        wanted = f"mqadmin resetOffsetByTime -n <name servers> -g {it.topic}-group -t {it.topic}"
        wait_until(lambda: wanted in ready(it.sidecar), "readiness names the command")
        assert it.client.quiet(2.0) == []
        it.moves("--undo")
        wait_until(lambda: wanted not in ready(it.sidecar), "nothing is waited for")
