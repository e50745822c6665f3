"""Keeps the API server's trust: makes sure that our authority is in the webhook's caBundle.

Each replica has its own authority and adds it to those of the other replicas. The chart renders no
caBundle, so upgrades and GitOps tools leave it alone; if somebody removes it, the injector adds it
again.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ackd.certificates import load
from ackd.errors import AckdError
from ackd.inject import certs
from ackd.inject.api import Api, ApiError
from ackd.inject.settings import Json

LOG = logging.getLogger("ackd.inject")

PATH = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
LOOK_S = 5.0
SPREAD_S = 5.0
"""Within this time after a change of the bundle every API server has read it."""
AUTHORITIES_MAX = 16
TRIES = 5
CONFLICT = (409, 422)


class Trust:
    """Our identity, which this renews before it expires, and its place in the bundle."""

    def __init__(self, api: Api, webhook: str, hosts: list[str], life: timedelta) -> None:
        self._api = api
        self._webhook = webhook
        self._hosts = hosts
        self._life = life
        self.identity = certs.make(hosts, life)
        self._before: certs.Identity | None = None
        self.established = False
        self.errors = 0
        self.tls = server_context()
        load(self.tls, self.identity.key, self.identity.cert)

    async def run(self) -> None:
        """Renew the identity and keep the bundle, until cancelled."""
        while True:
            try:
                if datetime.now(UTC) >= self.identity.renew_at():
                    await self.renew()
                await self.keep()
            except AckdError as error:
                self.errors += 1
                LOG.warning(
                    "ackd can't write the webhook's caBundle, which the API server trusts, and "
                    "tries again: %s",
                    error,
                )
            await asyncio.sleep(LOOK_S)

    async def renew(self) -> None:
        """Make a new identity: publish it to the API server, then use it. Raises ApiError,
        ConfigError.
        """
        before, after = self.identity, certs.make(self._hosts, self._life)
        await self._ensure([before.ca, after.ca])
        await asyncio.sleep(SPREAD_S)
        load(self.tls, after.key, after.cert)
        self.identity, self._before = after, before
        LOG.info(
            "the webhook has a new certificate, valid until %s",
            after.end.isoformat(timespec="seconds"),
        )

    async def keep(self) -> None:
        """Add our authority to every caBundle that lacks it. Raises ApiError, ConfigError."""
        await self._ensure([self.identity.ca])
        if not self.established:
            LOG.info("the API server has this webhook's authority, for %s", self._hosts[0])
        self.established = True

    async def _ensure(self, authorities: list[str]) -> None:
        for _ in range(TRIES):
            found = await self._api.get(f"{PATH}/{self._webhook}")
            changes = bundle_changes(found, authorities, datetime.now(UTC))
            if not changes:
                return
            version = found["metadata"]["resourceVersion"]
            test = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
            try:
                await self._api.patch(f"{PATH}/{self._webhook}", [test, *changes])
            except ApiError as error:
                if error.code not in CONFLICT:
                    raise
                continue  # Another replica changed it first.
            return
        raise ApiError(f"{self._webhook} is being changed by others all the time")


def bundle_changes(configuration: Json, authorities: list[str], now: datetime) -> list[Json]:
    """A JSON patch that adds the authorities to each webhook's bundle; empty if all have them."""
    changes: list[Json] = []
    for index, each in enumerate(configuration.get("webhooks") or []):
        there = each["clientConfig"].get("caBundle") or ""
        try:
            bundle = base64.b64decode(there).decode("ascii", "replace")
        except binascii.Error:
            bundle = ""
        wanted = certs.merged(bundle, authorities, now, AUTHORITIES_MAX)
        if wanted != bundle:
            path = f"/webhooks/{index}/clientConfig/caBundle"
            value = base64.b64encode(wanted.encode()).decode()
            changes.append({"op": "add", "path": path, "value": value})
    return changes


class Files:
    """An identity in files that somebody else (cert-manager) writes and renews, in place of
    `Trust`.
    """

    def __init__(self, cert: Path, key: Path) -> None:
        """Raises OSError, ssl.SSLError for unusable files."""
        self._cert, self._key = cert, key
        self.tls = server_context()
        self.tls.load_cert_chain(cert, key)
        self.established = True
        self.errors = 0
        self._seen = self._mark()

    def _mark(self) -> tuple[int, int]:
        return self._cert.stat().st_mtime_ns, self._key.stat().st_mtime_ns

    async def run(self) -> None:
        """Load the files again when they change, until cancelled. If they are broken, the old
        identity stays.
        """
        while True:
            await asyncio.sleep(LOOK_S)
            await asyncio.to_thread(self.look)

    def look(self) -> None:
        """Load the files if they have changed since the last time."""
        try:
            mark = self._mark()
            if mark == self._seen:
                return
            # Try in another context first: half of a new pair must not replace the old pair.
            server_context().load_cert_chain(self._cert, self._key)
            self.tls.load_cert_chain(self._cert, self._key)
        except OSError as error:  # SSLError is an OSError.
            self.errors += 1
            LOG.warning("ackd can't read the changed certificate, and keeps the old one: %s", error)
            return
        self._seen = mark
        LOG.info("the certificate's files changed: the webhook uses the new one")


def server_context() -> ssl.SSLContext:
    """A server's context for TLS 1.2 and newer, which API servers use."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.minimum_version = ssl.TLSVersion.TLSv1_2
    return tls


Source = Trust | Files
Started = Callable[[int, int], None]
