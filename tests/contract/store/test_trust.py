"""A store that is not the right one, or does not know us, gets no progress to keep."""

from pathlib import Path

import pytest

from ackd.config.schema import StoreSettings
from ackd.errors import StoreError
from ackd.store.build import open_store
from tests.support.redis import RedisServer

pytestmark = [pytest.mark.redis, pytest.mark.timeout(240)]


async def refusal(redis_tls: RedisServer, folder: Path, authority: Path, password: str) -> str:
    """What a start against a server with TLS and users says when it fails."""
    secret = folder / "password"
    secret.write_text(f"{password}\n")
    store = open_store(
        StoreSettings(
            url=redis_tls.url,
            username="ackd",
            password_file=secret,
            tls_ca_file=authority,
            timeout_ms=2_000,
        ),
        folder,
    )
    try:
        with pytest.raises(StoreError) as caught:
            await store.start()
    finally:
        await store.close()
    return caught.value.detail


async def test_a_store_of_a_foreign_authority_is_refused(
    redis_tls: RedisServer, tmp_path: Path
) -> None:
    assert redis_tls.certs is not None
    told = await refusal(redis_tls, tmp_path, redis_tls.certs.foreign_ca, "ackd-secret")
    assert "certificate" in told.lower()
    assert "ackd-secret" not in told


async def test_a_wrong_password_of_the_store_is_told_and_never_shown(
    redis_tls: RedisServer, tmp_path: Path
) -> None:
    assert redis_tls.certs is not None
    told = await refusal(redis_tls, tmp_path, redis_tls.certs.ca, "wr0ng-passw0rd")
    assert "wr0ng" not in told
    assert "WRONGPASS" in told or "password" in told.lower()
