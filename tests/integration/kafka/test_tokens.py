"""Logins by token: of an OpenID provider, checked by a real broker, and of AWS's credentials."""

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ackd.core.ids import TopicPartition
from ackd.errors import ConfigError
from ackd.ports import Outgoing
from ackd_adapters.kafka import KafkaOptions, adapter
from tests.integration.kafka.conftest import Connect, Join
from tests.integration.kafka.test_security import QUICK, works
from tests.integration.kafka.test_security import refused as refused_start
from tests.support import kafka as kafka_support
from tests.support.certs import Certs
from tests.support.kafka import Kafka
from tests.support.kafka import KafkaOptions as BrokerOptions
from tests.support.kafka.fill import store
from tests.support.oidc import CLIENT, SCOPE, SECRET, OpenIdProvider
from tests.support.require import require
from tests.support.wait import wait_until_async

pytestmark = pytest.mark.kafka
LIVES_S = 6


@pytest.fixture(scope="module")
def provider() -> Iterator[OpenIdProvider]:
    """A provider whose tokens live for seconds."""
    with OpenIdProvider(LIVES_S) as started:
        yield started


@pytest.fixture(scope="module")
def secured(provider: OpenIdProvider) -> Iterator[Kafka]:
    """A Kafka that takes the provider's tokens, and proves them anew every three seconds."""
    require(kafka_support.missing())
    with Kafka(BrokerOptions(security=True, issuer=provider.url)) as started:
        started.allow(CLIENT, topics="ours", groups="ours")
        started.create_topic("ours", partitions=1)
        yield started


@pytest.fixture
def options(secured: Kafka, provider: OpenIdProvider, tmp_path: Path) -> dict[str, Any]:
    """Options of a connection that logs in with tokens, without TLS."""
    secret = tmp_path / "secret"
    secret.write_text(f"{SECRET}\n")
    return {
        "bootstrap_servers": secured.secure_bootstrap("sasl_plain"),
        "security_protocol": "sasl_plaintext",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_url": f"{provider.url}/token",
        "sasl_oauth_client_id": CLIENT,
        "sasl_oauth_client_secret_file": secret,
        "sasl_oauth_scope": SCOPE,
    }


def certs(secured: Kafka) -> Certs:
    assert secured.certs is not None
    return secured.certs


async def refused(options: dict[str, Any]) -> tuple[str, set[str]]:
    """What a start that fails says, and the open conditions."""
    return await refused_start(KafkaOptions(**options, properties=QUICK))


async def test_tokens_of_a_provider_work(
    options: dict[str, Any], secured: Kafka, connect: Connect, join: Join
) -> None:
    """Every client of the connection: publishing, fetching, the group, positions."""
    await works(await connect(**options), join)
    tls = {
        "bootstrap_servers": secured.secure_bootstrap("sasl_tls"),
        "security_protocol": "sasl_ssl",
        "tls_ca_file": certs(secured).ca,
    }
    await works(await connect(**(options | tls)), join)


async def test_tokens_that_end_are_renewed_while_messages_flow(
    options: dict[str, Any], provider: OpenIdProvider, connect: Connect, join: Join
) -> None:
    """For three lives of a token, on connections that must prove theirs every three seconds."""
    broker = await connect(**options)
    where = TopicPartition("ours", 0)
    (first,) = await store(broker, Outgoing("ours", None, b"first", (), 0))
    reader = await join(broker, ["ours"], "ours")
    reader.fetch_from(where, first.offset)
    given = provider.given
    stored = 1

    async def renewed() -> bool:
        nonlocal stored
        await store(broker, Outgoing("ours", None, b"x", (), 0))
        stored += 1
        await reader.until(lambda: len(reader.records[where]) == stored, "the message")
        return provider.given >= given + 6  # two clients at least, three times

    await wait_until_async(renewed, "three renewals of each client", timeout_s=90)

    async def well() -> bool:
        """A handshake that meets the next one fails once on a busy machine, and is made again."""
        return not broker.conditions()

    await wait_until_async(well, "every connection is open")


async def test_a_provider_with_a_certificate_of_its_own_is_trusted_by_file(
    options: dict[str, Any], provider: OpenIdProvider, secured: Kafka, connect: Connect, join: Join
) -> None:
    """And not without it."""
    with provider.over_tls(certs(secured)) as url:
        there = options | {"sasl_oauth_token_url": f"{url}/token"}
        await works(await connect(**there, sasl_oauth_ca_file=certs(secured).ca), join)
        foreign = {"sasl_oauth_ca_file": certs(secured).foreign_ca, "request_timeout_ms": 3000}
        await refused(there | foreign)


async def test_a_wrong_secret_is_told_and_never_shown(
    options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secret: Path = options["sasl_oauth_client_secret_file"]
    await asyncio.to_thread(secret.write_text, "wr0ng-s3cret")
    detail, codes = await refused(options | {"request_timeout_ms": 3000})
    assert "publish/connection/authentication" in codes
    shown = f"{detail} {codes} {caplog.text}"
    assert "401" in shown
    assert "wr0ng" not in shown


async def test_a_token_that_aws_credentials_sign_is_what_the_broker_gets(
    secured: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This broker knows no such tokens: it refuses them, as ackd says."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
    detail, codes = await refused(
        {
            "bootstrap_servers": secured.secure_bootstrap("sasl_tls"),
            "security_protocol": "sasl_ssl",
            "tls_ca_file": certs(secured).ca,
            "sasl_mechanism": "AWS_MSK_IAM",
            "sasl_aws_region": "eu-central-1",
            "request_timeout_ms": 3000,
        }
    )
    assert "publish/connection/authentication" in codes
    assert "invalid_token" in detail
    assert "wJalr" not in detail


def test_what_a_login_by_token_lacks_is_told_at_once() -> None:
    for mechanism, parts in (
        ("OAUTHBEARER", ("sasl_oauth_token_url", "client_id", "client_secret_file")),
        ("AWS_MSK_IAM", ("sasl_aws_region", "needs security_protocol = sasl_ssl")),
    ):
        with pytest.raises(ConfigError) as caught:
            adapter.open(
                "wrong",
                KafkaOptions(
                    bootstrap_servers="x:1",
                    security_protocol="sasl_plaintext",
                    sasl_mechanism=mechanism,  # type: ignore[arg-type]
                ),
            )
        for part in parts:
            assert part in caught.value.detail
