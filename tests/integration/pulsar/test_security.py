"""Tokens, TLS and OAuth 2.0 on a real Pulsar: what a role needs, and how refusals look."""

import asyncio
import http.server
import json
import random
import threading
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pulsar as client_library
import pytest

from ackd.api.messages import Delivery, ReceiveRequest, SettleItem, SettleVerb, Status
from ackd.config.schema import BrokerSettings, Settings, StoreSettings
from ackd.config.subscription import SubscriptionSettings
from ackd.core.ids import TopicPartition
from ackd.errors import BrokerError
from ackd.ports import Broker, Committed, ConsumerSpec, Outgoing, Stored
from ackd_adapters.pulsar import adapter
from ackd_testing import Reader
from ackd_testing.lab import OptionValue, fill, load, make_options, open_broker
from tests.integration.pulsar.test_handover import NAME, Place
from tests.support.paths import run_dir
from tests.support.pulsar import Pulsar, PulsarOptions, bare, missing
from tests.support.redis import RedisServer
from tests.support.require import require
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.pulsar, pytest.mark.slow, pytest.mark.timeout(240)]

TENANT = "acme"
SPACE = f"{TENANT}/shop"
ADMINS = ["app", "ackd-client"]
"""By token, and by certificate."""


@pytest.fixture(scope="module")
def guarded() -> Iterator[Pulsar]:
    """TLS ports only, tokens demanded; `app` is an admin of the tenant, `user` may only use it."""
    require(missing())
    load("pulsar")  # looks into files, which the event loop must not wait for
    with Pulsar(PulsarOptions(security=True)) as started:
        ask = started.admin.ask
        ask("PUT", f"tenants/{TENANT}", {"allowedClusters": ["standalone"], "adminRoles": ADMINS})
        ask("PUT", f"namespaces/{SPACE}", {})
        ask("POST", f"namespaces/{SPACE}/permissions/user", ["produce", "consume"])
        started.admin.create_topic(f"{SPACE}/orders", 2)
        started.admin.create_topic(f"{SPACE}/fresh", 2)
        started.admin.create_topic(f"{SPACE}/least", 2)
        yield started


def options(guarded: Pulsar, folder: Path, role: str | None = "app") -> dict[str, OptionValue]:
    """A connection as a role; None = without a token."""
    assert guarded.certs is not None
    found: dict[str, OptionValue] = {
        "service_url": guarded.url,
        "admin_url": guarded.web_url,
        "namespace": SPACE,
        "tls_ca_file": str(guarded.certs.ca),
        "request_timeout_ms": 15_000,
    }
    if role is not None:
        assert guarded.secret is not None
        path = folder / f"{role}.token"
        path.write_text(guarded.secret.token(role) + "\n")
        found["token_file"] = str(path)
    return found


async def _look(broker: Broker) -> None:
    await broker.start()
    await broker.partitions("orders")


async def works(found: Mapping[str, OptionValue], topic: str = "orders") -> None:
    """Publish, read, join, commit, and learn when a single message is due."""
    broker = open_broker("pulsar", found)
    part = TopicPartition(topic, 1)
    await broker.start()
    try:
        first = Outgoing(topic, None, b"one", (), 1)

        async def stored() -> bool:
            (said,) = await broker.publish([first])
            return isinstance(said, Stored)

        await wait_until_async(stored, "a first message is stored")
        await fill(broker, part, [b"two"])
        consumer = broker.consumer(ConsumerSpec("workers", (topic,), "app"))
        await consumer.start()
        reader = Reader(consumer)
        reader.fetch_from(part, 0)
        await reader.until(lambda: reader.records[part], "a record", 40)
        assert reader.condition("delays of") is None
        await reader.until(lambda: reader.assigned, "assigned", 40)
        await consumer.commit({part: Committed(1, "first")})
        assert (await consumer.committed([part]))[part] == Committed(1, "first")
    finally:
        await broker.close()


async def test_an_admin_of_the_tenant_is_enough(guarded: Pulsar) -> None:
    """No superuser."""
    folder = await asyncio.to_thread(run_dir, "pulsar-token")
    await works(await asyncio.to_thread(options, guarded, folder))


async def test_a_client_certificate_is_enough(guarded: Pulsar) -> None:
    """Instead of a token."""
    assert guarded.certs is not None
    folder = await asyncio.to_thread(run_dir, "pulsar-certificate")
    found = await asyncio.to_thread(options, guarded, folder, None)
    found["tls_cert_file"] = str(guarded.certs.client_cert)
    found["tls_key_file"] = str(guarded.certs.client_key)
    await works(found)


@dataclass
class Least:
    """A role with few rights, at work on one partition of a topic."""

    guarded: Pulsar
    found: Mapping[str, OptionValue]
    part: ClassVar[TopicPartition] = TopicPartition("least", 1)
    path: ClassVar[str] = f"persistent/{SPACE}/least-partition-1"

    async def ask(self, method: str, path: str, body: object = None) -> Any:
        """The admin interface, as somebody who may do everything."""
        return await asyncio.to_thread(self.guarded.admin.ask, method, path, body)

    async def publish(self, value: bytes) -> None:
        """By a connection of its own."""
        broker = open_broker("pulsar", self.found)
        await broker.start()
        await fill(broker, self.part, [value])
        await broker.close()

    async def read(self, group: str, offset: int, count: int) -> list[tuple[int, bytes | None]]:
        """Join the group anew, read so many from there on, commit all; offsets and values."""
        part, broker = self.part, open_broker("pulsar", self.found)
        await broker.start()
        try:
            consumer = broker.consumer(ConsumerSpec(group, (part.topic,), "user"))
            await consumer.start()
            reader = Reader(consumer)
            await reader.until(lambda: part in reader.assigned, "assigned", 60)
            reader.fetch_from(part, offset)
            await reader.until(lambda: len(reader.records[part]) >= count, "all", 60)
            end = (await consumer.log_range(part))[1]
            await consumer.commit({part: Committed(end, "m" * 50)})
            assert (await consumer.committed([part]))[part].offset == end
            return [(each.offset, each.value) for each in reader.records[part]]
        finally:
            await broker.close()


async def test_the_least_rights_are_to_produce_and_consume_in_the_namespace(
    guarded: Pulsar,
) -> None:
    """The table of offsets is in the group's own subscription then, beside what others keep there.
    Numbers go on over ledgers that come and go, restarts, and when the role gets more rights.
    """
    role = f"user-{time.time_ns()}"
    folder = await asyncio.to_thread(run_dir, "pulsar-user")
    least = Least(guarded, await asyncio.to_thread(options, guarded, folder, role))
    path = least.path
    await least.ask("POST", f"namespaces/{SPACE}/permissions/{role}", ["produce", "consume"])
    await works(least.found, "least")
    earliest = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1, "properties": {"team": "a"}}
    await least.ask("PUT", f"{path}/subscription/plain", earliest)
    seen = await least.read("workers", 0, 2)
    assert [value for _, value in seen] == [b"one", b"two"]
    for turn in range(2):
        await least.ask("PUT", f"{path}/unload")
        await least.publish(b"turn %d" % turn)
        again = await least.read("workers" if turn else "plain", seen[-1][0], 2)
        assert again[0] == seen[-1], "a number does not change, and is one for all groups"
        assert again[1][0] > again[0][0]
        seen.append(again[1])
    kept = await least.ask("GET", f"{path}/subscription/plain/properties")
    assert kept["team"] == "a"
    assert {"ackd.offsets", "ackd.position"} <= kept.keys()
    assert await least.ask("GET", f"{path}/properties") == {}
    # More rights: the same numbers, which are the topic's from now on.
    tenant = {"allowedClusters": ["standalone"], "adminRoles": ["app"]}
    await least.ask("POST", f"tenants/{TENANT}", {**tenant, "adminRoles": ["app", role]})
    try:
        assert await least.read("workers", seen[-1][0], 1) == seen[-1:]
        await least.ask("PUT", f"{path}/unload")
        assert await least.read("workers", seen[-1][0], 1) == seen[-1:]
        text = (await least.ask("GET", f"{path}/properties"))["ackd.offsets"]
        assert text.startswith("1,1024,")
    finally:
        await least.ask("POST", f"tenants/{TENANT}", tenant)


MANY = 20


def plain(guarded: Pulsar, token: str, topic: str, *, fills: bool) -> set[bytes]:
    """What a plain Shared consumer of this role gets. What it `fills` the topic with it acks but
    for every second one, which are returned.
    """
    assert guarded.certs is not None
    with bare.client(
        guarded.url,
        authentication=client_library.AuthenticationToken(token),
        tls_trust_certs_file_path=str(guarded.certs.ca),
    ) as made:
        full = f"persistent://{SPACE}/{topic}"
        consumer = bare.join(made, full, topic)
        if fills:
            bare.produce(made, full, MANY)
        found = bare.drain(consumer, MANY) if fills else bare.drain(consumer, quiet_ms=3_000)
        for each in found[::2] if fills else ():
            consumer.acknowledge(each)
        consumer.close()
    return {each.data() for each in (found[1::2] if fills else found)}


async def test_i1_i2_a_group_is_adopted_and_given_back_with_the_least_rights(
    guarded: Pulsar, valkey: RedisServer, tmp_path: Path
) -> None:
    """Plain consumers, `ackd adopt`, a sidecar, `ackd release-group`, plain consumers: each has
    `produce` and `consume` and nothing else, and nobody gets what another one acked.
    """
    assert guarded.secret is not None
    token, topic = guarded.secret.token("user"), f"handed-{time.time_ns()}"
    found = await asyncio.to_thread(options, guarded, tmp_path, "user")
    await asyncio.to_thread(guarded.admin.create_topic, f"{SPACE}/{topic}")
    subscription = SubscriptionSettings(
        broker="p", topics=(topic,), group=topic, commit_interval_ms=100
    )
    settings = Settings(
        identity="one",
        state_dir=tmp_path / "one",
        store=StoreSettings(url=valkey.url, prefix=topic),
        brokers={"p": BrokerSettings(adapter="pulsar", options=make_options(adapter, found))},
        subscriptions={NAME: subscription},
    )
    place = Place(guarded, settings, topic, random.Random())
    left = await asyncio.to_thread(plain, guarded, token, topic, fills=True)
    assert len(left) == MANY // 2
    plan = await place.adopt()
    assert (plan.blocked, plan.adopted) == ("", True)
    assert plan.partitions[0].acked_above
    runtime = await place.sidecar()
    got: list[Delivery] = []
    while len(got) < len(left):
        request = ReceiveRequest(max=MANY, wait_ms=5_000, lease_ms=300_000)
        got += (await runtime.receive(NAME, request)).messages
    assert {each.record.value for each in got} == left
    done = [SettleItem(each.lease, SettleVerb.ACK) for each in got[::2]]
    assert {each.status for each in await runtime.settle(done)} == {Status.ACKED}
    await runtime.stop()
    leaving = await place.leave()
    assert (leaving.blocked, leaving.left) == ("", True)
    again = await asyncio.to_thread(plain, guarded, token, topic, fills=False)
    assert again == {each.record.value for each in got[1::2]}


async def test_own_topics_are_made_by_use_and_what_a_role_lacks_is_named(guarded: Pulsar) -> None:
    """A dead-letter topic has numbers that stay, though nobody is subscribed to it; whoever is in
    no group is told that they would not.
    """
    folder = await asyncio.to_thread(run_dir, "pulsar-user")
    found = await asyncio.to_thread(options, guarded, folder, "user")
    broker = open_broker("pulsar", found)
    await broker.start()
    dead = TopicPartition(broker.dead_letter_topic(f"g{time.time_ns()}"), 0)
    try:
        await broker.ensure_topic(dead.topic, {"partitions": "4"})
        assert await broker.partitions(dead.topic) == 1, "as the broker makes it"
        await fill(broker, dead, [b"x", b"y"])
        for _ in range(2):
            consumer = broker.consumer(ConsumerSpec("g", (dead.topic,), "user", joins=False))
            await consumer.start()
            reader = Reader(consumer)
            reader.fetch_from(dead, 0)
            await reader.until(lambda: len(reader.offsets(dead)) == 2, "both", 60)  # noqa: B023 -- awaited in this turn
            assert reader.offsets(dead) == [0, 1]
            await consumer.close()
            path = f"persistent/{SPACE}/{dead.topic}/unload"
            await asyncio.to_thread(guarded.admin.ask, "PUT", path)
        alone = broker.consumer(ConsumerSpec("g", ("fresh",), "user", joins=False))
        await alone.start()
        reader = Reader(alone)
        reader.fetch_from(TopicPartition("fresh", 0), 0)
        await reader.until(lambda: reader.condition("reader fresh/0") is not None, "told", 60)
        said = reader.condition("reader fresh/0")
        assert said is not None
        assert "admin of the tenant" in said.detail
    finally:
        await broker.close()


@pytest.mark.parametrize("case", ["no token", "no grant", "foreign authority"])
async def test_refusals_are_errors_in_time(guarded: Pulsar, case: str) -> None:
    folder = await asyncio.to_thread(run_dir, "pulsar-refused")
    role = {"no token": None, "no grant": "stranger"}.get(case, "app")
    found = await asyncio.to_thread(options, guarded, folder, role)
    if case == "foreign authority":
        assert guarded.certs is not None
        found["tls_ca_file"] = str(guarded.certs.foreign_ca)
    broker = open_broker("pulsar", found)
    try:
        with pytest.raises(BrokerError):
            await _look(broker)
    finally:
        await broker.close()


@contextmanager
def issuer(guarded: Pulsar, asked: list[dict[str, str]]) -> Iterator[str]:
    """An OAuth 2.0 issuer that gives out tokens of the role `app` for one pair of credentials."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer({"token_endpoint": f"{url}/token", "issuer": url})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            kind = self.headers.get("content-type", "")
            form = json.loads(body) if "json" in kind else dict(urllib.parse.parse_qsl(body))
            asked.append(form)
            assert guarded.secret is not None
            if form.get("client_secret") != "s3cret":
                self.send_error(401)
                return
            token = guarded.secret.token("app")
            self.answer({"access_token": token, "token_type": "Bearer", "expires_in": 3600})

        def answer(self, body: Mapping[str, object]) -> None:
            data = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield url
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


async def test_oauth2_client_credentials(guarded: Pulsar) -> None:
    """The client and the admin interface each ask the issuer."""
    folder = await asyncio.to_thread(run_dir, "pulsar-oauth2")
    found = await asyncio.to_thread(options, guarded, folder, None)
    key = folder / "key.json"
    asked: list[dict[str, str]] = []
    with issuer(guarded, asked) as url:
        secret = {
            "type": "client_credentials",
            "client_id": "ackd",
            "client_secret": "s3cret",
            "issuer_url": url,
        }
        await asyncio.to_thread(key.write_text, json.dumps(secret))
        more = {"oauth2_issuer_url": url, "oauth2_key_file": str(key), "oauth2_audience": "shop"}
        await works({**found, **more})
    assert {each["audience"] for each in asked} == {"shop"}
    assert len(asked) >= 2
