"""Whatever file a secret is read from, no log line shows it afterwards."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from ackd.engine.cluster.lease_keys import load_keys
from ackd.hidden import SECRETS_MAX, Hidden
from ackd.http.server.auth import TokenFile
from ackd.store.connect import StoreAccess
from ackd.store.memory import MemoryStore
from ackd.telemetry import log
from ackd_adapters.kafka import KafkaOptions
from ackd_adapters.kafka.config import common

Read = Callable[[Path], object]


def sasl_password(file: Path) -> object:
    """As every Kafka client of ours reads it."""
    options = KafkaOptions(
        bootstrap_servers="h:1",
        security_protocol="sasl_ssl",
        sasl_username="me",
        sasl_password_file=file,
    )
    return common(options)


def client_key_password(file: Path) -> object:
    """As every Kafka client of ours reads it."""
    return common(KafkaOptions(bootstrap_servers="h:1", tls_key_password_file=file))


def bearer_token(file: Path) -> object:
    """As a port reads it at its start."""
    return asyncio.run(TokenFile(file).load())


def store_password(file: Path) -> object:
    """As it is read for every connection."""
    return StoreAccess(timeout_ms=1, password_file=file).read_password()


def lease_key(file: Path) -> object:
    """As it is read at the start."""
    return asyncio.run(load_keys(MemoryStore(), file))


@pytest.mark.parametrize(
    "read",
    [sasl_password, client_key_password, bearer_token, store_password, lease_key],
    ids=lambda read: read.__name__,
)
def test_a_secret_is_hidden_from_the_moment_it_is_read(read: Read, tmp_path: Path) -> None:
    secret = f"key-{uuid4().hex}"
    file = tmp_path / "file"
    file.write_text(f"{secret}\n")
    line = f"the server said: {secret} is 0.5"
    assert log.REDACTOR.text(line) == line
    read(file)
    assert log.REDACTOR.text(line) == "the server said: *** is 0.5"


def test_the_generation_before_of_a_lease_key_is_hidden_too(tmp_path: Path) -> None:
    keys = [uuid4().hex, uuid4().hex]
    file = tmp_path / "keys"
    file.write_text("\n".join(keys))
    lease_key(file)
    assert log.REDACTOR.text(" ".join(keys)) == "*** ***"


def test_the_bound_drops_what_was_not_read_for_longest() -> None:
    """I8: a password that every new connection reads again outlives any number of others."""
    hidden = Hidden()
    hidden.add("in-use-for-ever")
    for number in range(3 * SECRETS_MAX):
        hidden.add(f"rotated-{number}")
        if number % 50 == 0:
            hidden.add("in-use-for-ever")
    assert len(hidden.values()) == SECRETS_MAX
    assert "in-use-for-ever" in hidden.values()
    assert "rotated-0" not in hidden.values()


def test_what_is_too_short_to_protect_anything_does_not_blot_out_words() -> None:
    hidden = Hidden()
    hidden.add("the")
    hidden.add(b"")
    assert hidden.values() == ()
