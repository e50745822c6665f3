"""Tokens, TLS and OAuth 2.0 on a real Pulsar: what a role needs, and how refusals look."""

import asyncio
import http.server
import json
import threading
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from ackd.core.ids import TopicPartition
from ackd.errors import BrokerError
from ackd.ports import Broker, Committed, ConsumerSpec, Outgoing, Stored
from ackd_testing import Reader
from ackd_testing.lab import OptionValue, fill, load, open_broker
from tests.support.paths import run_dir
from tests.support.pulsar import Pulsar, PulsarOptions, missing
from tests.support.require import require
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.pulsar, pytest.mark.slow, pytest.mark.timeout(240)]

TENANT = "acme"
SPACE = f"{TENANT}/shop"


@pytest.fixture(scope="module")
def guarded() -> Iterator[Pulsar]:
    """TLS ports only, tokens demanded; `app` is an admin of the tenant, `user` may only use it."""
    require(missing())
    load("pulsar")  # looks into files, which the event loop must not wait for
    with Pulsar(PulsarOptions(security=True)) as started:
        ask = started.admin.ask
        ask("PUT", f"tenants/{TENANT}", {"allowedClusters": ["standalone"], "adminRoles": ["app"]})
        ask("PUT", f"namespaces/{SPACE}", {})
        ask("POST", f"namespaces/{SPACE}/permissions/user", ["produce", "consume"])
        started.admin.create_topic(f"{SPACE}/orders", 2)
        started.admin.create_topic(f"{SPACE}/fresh", 2)
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


async def works(found: Mapping[str, OptionValue]) -> None:
    """Publish, read, join, commit, and ask about a single message."""
    broker = open_broker("pulsar", found)
    part = TopicPartition("orders", 1)
    await broker.start()
    try:
        first = Outgoing("orders", None, b"one", (), 1)

        async def stored() -> bool:
            (said,) = await broker.publish([first])
            return isinstance(said, Stored)

        await wait_until_async(stored, "a first message is stored")
        await fill(broker, part, [b"two"])
        consumer = broker.consumer(ConsumerSpec("workers", ("orders",), "app"))
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


async def test_a_role_that_may_only_use_topics_is_told_what_it_lacks(guarded: Pulsar) -> None:
    folder = await asyncio.to_thread(run_dir, "pulsar-user")
    broker = open_broker("pulsar", await asyncio.to_thread(options, guarded, folder, "user"))
    fresh = TopicPartition("fresh", 0)
    await broker.start()
    try:
        consumer = broker.consumer(ConsumerSpec("g", ("fresh",), "user", joins=False))
        with pytest.raises(BrokerError, match="admin of the tenant"):
            await consumer.log_range(fresh)
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
