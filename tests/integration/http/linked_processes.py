"""Two `ackd serve` processes with links between them: one Valkey, one topic, one partition."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from ackd_torture.ports import free_port, give_back
from tests.integration.http.conftest import Sidecar, call
from tests.support.part_of import Server, lines_of, part_of
from tests.support.paths import remove_run_dir, run_dir
from tests.support.proc import Process
from tests.support.rocketmq import RocketMQ
from tests.support.wait import wait_until

Json = dict[str, Any]
Answer = tuple[int, Json]
CONFIG = """
identity = "{name}"
state_dir = "{folder}/{name}"

[server]
listen = "127.0.0.1:{port}"
admin_listen = "127.0.0.1:{admin_port}"
drain_ms = 1000

[store]
url = "{url}"
prefix = "{prefix}"

[brokers.b]
{broker}

[subscriptions.orders]
topics = ["{topic}"]
group = "{topic}"
{start}
{more}
"""
BASE = "/v1/subscriptions/orders"
EARLIEST = 'start = "earliest"'
BOTH_TOPICS = 1 + 4
"""Partitions of the topic and of its retry topic, where there is one."""


def process(folder: Path, name: str, **named: str) -> Sidecar:
    """Not started yet."""
    port, admin_port = free_port(), free_port()
    config = folder / f"{name}.toml"
    named |= {"name": name, "folder": str(folder), "prefix": folder.name}
    config.write_text(CONFIG.format(port=port, admin_port=admin_port, **named))
    argv: list[str | Path] = [sys.executable, "-m", "ackd", "serve", "--config", config]
    made = Process(argv, log_path=folder / f"{name}.log")
    return Sidecar(made, f"127.0.0.1:{port}", port, admin_port, folder)


@dataclass
class LinkedPair:
    """`owner` has the topic's partition, and `other` knows of it."""

    owner: Sidecar
    other: Sidecar
    topic: str


@contextmanager
def linked_pair(
    store_url: str, server: Server = None, more: tuple[str, str] = ("", "")
) -> Iterator[LinkedPair]:
    """Two running ones on a local queue, or on a broker. `more`: lines for the end of the files of
    `one` and `two`.
    """
    folder = run_dir("linked")
    topic = "orders" if server is None else f"orders-{folder.name}"
    part = part_of(server, folder, topic)
    part.create_topic(topic, 1)
    # RocketMQ decides by itself where a group starts, and has no retry topic.
    start, partitions = ("", 1) if isinstance(server, RocketMQ) else (EARLIEST, BOTH_TOPICS)
    named = {"url": store_url, "broker": lines_of(part), "topic": topic, "start": start}
    one = process(folder, "one", more=more[0], **named)
    two = process(folder, "two", more=more[1], **named)
    try:
        one.process.start()
        if server is None:
            wait_until(
                lambda: publish(one, "first", topic) == HTTPStatus.CREATED,
                "the topic is there",
                ignoring=(OSError,),
            )
        two.start()
        wait_until(one.ready, "the first one is ready", ignoring=(OSError,))
        wait_until(
            lambda: len(owners(two)) == partitions and owners(two) == owners(one),
            "both to know who owns what",
            ignoring=(OSError,),
        )
        pair = (one, two) if owners(one)[f"{topic}/0"] == "one" else (two, one)
        yield LinkedPair(*pair, topic)
    finally:
        for each in (one, two):
            each.process.kill()
            give_back(each.port, each.admin_port)
        remove_run_dir(folder)


def publish(sidecar: Sidecar, text: str, topic: str = "orders") -> int:
    """The status."""
    return call(sidecar.port, "POST", f"/v1/topics/{topic}/messages", json.dumps(text).encode())[0]


def receive(sidecar: Sidecar, wait_ms: int) -> Answer:
    """Status and answer."""
    body = json.dumps({"max": 1, "wait_ms": wait_ms}).encode()
    return call(sidecar.port, "POST", f"{BASE}/receive", body)


def drop(sidecar: Sidecar, text: str) -> None:
    """Take this message, the only one, wherever it is, and ack it."""

    def taken() -> bool:
        status, answer = receive(sidecar, 1_000)
        assert status == HTTPStatus.OK, answer
        for message in answer["messages"]:
            assert message["json"] == text, message
            assert ack(sidecar, message) == HTTPStatus.OK
        return bool(answer["messages"])

    wait_until(taken, f"the message {text!r}")


def ack(sidecar: Sidecar, message: Json) -> int:
    """The status."""
    return call(sidecar.port, "POST", f"/v1/leases/{message['lease']}/ack")[0]


def owners(sidecar: Sidecar) -> dict[str, str]:
    """Who owns which partition, also of the retry topic."""
    rows = call(sidecar.admin_port, "GET", f"{BASE}/lag")[1].get("partitions", ())
    return {f"{row['topic']}/{row['partition']}": row["owner"] for row in rows}
