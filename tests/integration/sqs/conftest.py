"""A sidecar with the port for SQS clients, on each broker, and boto3 for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config

from ackd_torture.ports import free_port, give_back
from tests.integration.engine.linked import TWO
from tests.integration.http.conftest import CONFIG, Sidecar, made_sidecar
from tests.integration.http.linked_processes import EARLIEST
from tests.support.part_of import Server, lines_of, part_of
from tests.support.rocketmq import RocketMQ
from tests.support.wait import wait_until

KEYS = ("AKIAEXAMPLE", "a-secret-of-the-tests")
ACCOUNT = "000000000000"
MORE = """
[sqs]
listen = "127.0.0.1:{port}"
{sqs}

[brokers.b]
{broker}

[subscriptions.plain]
broker = "b"
topics = ["{stamp}-plain"]
group = "{stamp}-plain"
{start}
attempts_max = 3

[subscriptions.lined]
broker = "b"
topics = ["{stamp}-lined"]
group = "{stamp}-lined"
{start}
ordering = "key"
"""


@dataclass
class SqsSidecar:
    """A running one. `stamp`: what its topics' names begin with. `broker`: as in `make`."""

    sidecar: Sidecar
    port: int
    stamp: str
    broker: str = "local"
    keys: tuple[str, str] = ("any", "any")
    clients: list[Any] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, **more: Any) -> Any:
        """A client of boto3 as applications make it, but that it tries nothing again."""
        made = boto3.client(
            "sqs",
            **{
                "endpoint_url": self.url,
                "region_name": "us-east-1",
                "aws_access_key_id": self.keys[0],
                "aws_secret_access_key": self.keys[1],
                "config": Config(retries={"total_max_attempts": 1}),
            }
            | more,
        )
        self.clients.append(made)
        return made

    def queue(self, name: str) -> str:
        return f"{self.url}/{ACCOUNT}/{name}"

    def received(self, client: Any, name: str, count: int = 1, **more: Any) -> list[dict[str, Any]]:
        """So many messages."""
        found: list[dict[str, Any]] = []

        def enough() -> bool:
            asked = {"MaxNumberOfMessages": min(count - len(found), 10), "WaitTimeSeconds": 5}
            answer = client.receive_message(QueueUrl=self.queue(name), **asked | more)
            found.extend(answer.get("Messages", ()))
            return len(found) >= count

        wait_until(enough, f"{count} messages of {name}")
        return found


MakeSidecar = Callable[..., SqsSidecar]


@pytest.fixture
def make(request: pytest.FixtureRequest) -> Iterator[MakeSidecar]:
    """Start one; `broker`: `local`, or a fixture, `sqs`: more settings of the port."""
    with ExitStack() as stack:

        def start(
            broker: str = "local",
            sqs: str = "operator = true",
            keys: tuple[str, str] = ("any", "any"),
        ) -> SqsSidecar:
            port, stamp = free_port(), f"s{time.time_ns()}"
            stack.callback(give_back, port)
            adapter = 'adapter = "local"'
            if broker != "local":
                server: Server = request.getfixturevalue(broker)
                for name in ("plain", "lined"):
                    topic = f"{stamp}-{name}"
                    part = part_of(server, Path(), topic, fifo=name == "lined")
                    part.create_topic(topic, 2)
                    if isinstance(server, RocketMQ):  # which lets no client make one
                        server.admin.topic(f"ackd-dead-{topic}")
                    adapter = lines_of(part)
            start = "" if broker == "rocketmq" else EARLIEST
            more = MORE.format(port=port, sqs=sqs, broker=adapter, stamp=stamp, start=start)
            more = more.replace("{", "{{").replace("}", "}}")
            text = CONFIG.partition("[subscriptions.")[0]
            sidecar = stack.enter_context(made_sidecar(settings=f"{text}{more}"))
            sidecar.start()
            made = SqsSidecar(sidecar, port, stamp, broker, keys)
            stack.callback(lambda: [each.close() for each in made.clients])
            return made

        yield start


@pytest.fixture(params=TWO)
def sqs(request: pytest.FixtureRequest, make: MakeSidecar) -> SqsSidecar:
    """One sidecar for each broker; its clients may change queues."""
    return make(request.param)
