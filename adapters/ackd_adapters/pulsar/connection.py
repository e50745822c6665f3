"""One client and the admin interface with the same identity; threads make and close them.

Everything here blocks: the client's calls wait for the broker, and files with secrets are read.
"""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pulsar

from ackd.errors import BrokerError, ConfigError
from ackd.hidden import HIDDEN
from ackd_adapters.pulsar.config import PulsarOptions
from ackd_adapters.pulsar.library_log import client_logger
from ackd_adapters.pulsar.names import Names
from ackd_adapters.pulsar.rest import Admin, Rest
from ackd_adapters.pulsar.wire import ClusterAccess

RENEW_S: Final = 30.0
"""A token that expires within this time is replaced."""


class Connection:
    """The client (its threads are its own) and the admin interface. Safe to use from threads."""

    def __init__(self, options: PulsarOptions) -> None:
        self.options = options
        self.names = Names(options.namespace)
        self._client: Any = None
        self._rest: Rest | None = None
        self._access: ClusterAccess | None = None
        self._lock = threading.Lock()

    def open(self) -> None:
        """Read the files, make the client; it connects when it is used. Raises ConfigError."""
        with self._lock:
            if self._client is not None:
                return
            token, tls = _token_source(self.options), _tls_context(self.options)
            timeout_s = self.options.request_timeout_ms / 1000
            self._rest = Rest(Admin(self.options.admin_url, tls, token, timeout_s))
            credentials = _credentials(self.options, token)
            self._access = ClusterAccess(self.options.service_url, tls, credentials, timeout_s)
            self._client = _client(self.options)

    @property
    def client(self) -> Any:
        """The client (it has no type hints). Raises BrokerError before `open` and after `close`."""
        if self._client is None:
            raise BrokerError("not connected")
        return self._client

    @property
    def rest(self) -> Rest:
        """The admin interface. Raises BrokerError before `open` and after `close`."""
        if self._rest is None:
            raise BrokerError("not connected")
        return self._rest

    @property
    def access(self) -> ClusterAccess:
        """How to reach brokers without the client. Raises as `rest`."""
        if self._access is None:
            raise BrokerError("not connected")
        return self._access

    def close(self) -> None:
        """End the client and everything made from it. Never raises."""
        with self._lock:
            client, rest = self._client, self._rest
            self._client = self._rest = self._access = None
        if rest is not None:
            rest.close()
        if client is not None:
            with contextlib.suppress(pulsar.PulsarException, RuntimeError):
                client.close()


def _client(options: PulsarOptions) -> Any:
    more: dict[str, object] = {}
    if options.tls_ca_file is not None:
        more["tls_trust_certs_file_path"] = str(options.tls_ca_file)
    if options.service_url.startswith("pulsar+ssl://"):
        more["tls_validate_hostname"] = True
    authentication = _authentication(options)
    if authentication is not None:
        more["authentication"] = authentication
    try:
        with client_logger() as logger:
            return pulsar.Client(
                options.service_url,
                operation_timeout_seconds=max(options.request_timeout_ms // 1000, 1),
                logger=logger,
                **more,
            )
    except (pulsar.PulsarException, ValueError, RuntimeError) as error:
        raise ConfigError(f"Pulsar's client refuses its options: {error}") from error


def _authentication(options: PulsarOptions) -> Any:
    if options.token_file is not None:
        path = options.token_file
        return pulsar.AuthenticationToken(lambda: _first_line(path))
    if options.oauth2_issuer_url is not None and options.oauth2_key_file is not None:
        wanted = {
            "type": "client_credentials",
            "issuer_url": options.oauth2_issuer_url,
            "private_key": options.oauth2_key_file.absolute().as_uri(),
            "audience": options.oauth2_audience or "",
        }
        return pulsar.AuthenticationOauth2(json.dumps(wanted))
    if options.tls_cert_file is not None and options.tls_key_file is not None:
        return pulsar.AuthenticationTLS(str(options.tls_cert_file), str(options.tls_key_file))
    return None


def _tls_context(options: PulsarOptions) -> ssl.SSLContext | None:
    if not options.admin_url.startswith("https://"):
        return None
    try:
        context = ssl.create_default_context(
            cafile=None if options.tls_ca_file is None else str(options.tls_ca_file)
        )
        if options.tls_cert_file is not None:
            context.load_cert_chain(options.tls_cert_file, options.tls_key_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"a TLS file can't be used: {error}") from error
    return context


def _token_source(options: PulsarOptions) -> Callable[[], str] | None:
    """For the admin interface; the client authenticates as the same identity in its own ways."""
    if options.token_file is not None:
        path = options.token_file
        _first_line(path)
        return lambda: _first_line(path)
    if options.oauth2_issuer_url is not None and options.oauth2_key_file is not None:
        return Oauth2(options.oauth2_issuer_url, options.oauth2_key_file, options).token
    return None


def _credentials(
    options: PulsarOptions, token: Callable[[], str] | None
) -> Callable[[], tuple[str, str]]:
    """Method and secret of a hand-shake; with a client certificate TLS has both."""
    if token is not None:
        return lambda: ("token", token())
    return lambda: ("none" if options.tls_cert_file is None else "tls", "")


def _first_line(path: Path) -> str:
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}") from error
    if not lines or not lines[0].strip():
        raise ConfigError(f"{path} is empty")
    secret = lines[0].strip()
    HIDDEN.add(secret)
    return secret


class Oauth2:
    """Tokens by client credentials (RFC 6749, 4.4), kept until shortly before they expire."""

    def __init__(self, issuer: str, key_file: Path, options: PulsarOptions) -> None:
        self._issuer = issuer.rstrip("/")
        self._key_file = key_file
        self._audience = options.oauth2_audience
        self._timeout_s = options.request_timeout_ms / 1000
        self._lock = threading.Lock()
        self._kept = ""
        self._until_s = 0.0

    def token(self) -> str:
        """A token that is valid for a while. Raises BrokerError."""
        with self._lock:
            if not self._kept or time.monotonic() > self._until_s - RENEW_S:
                self._fetch()
            return self._kept

    def _fetch(self) -> None:
        try:
            found = json.loads(self._key_file.read_text())
            where = self._ask(f"{self._issuer}/.well-known/openid-configuration", None)
            form = {
                "grant_type": "client_credentials",
                "client_id": found["client_id"],
                "client_secret": found["client_secret"],
                **({"audience": self._audience} if self._audience else {}),
            }
            answer = self._ask(where["token_endpoint"], urllib.parse.urlencode(form).encode())
            token = answer["access_token"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BrokerError(f"no token from {self._issuer}: {type(error).__name__}") from error
        HIDDEN.add(token)
        self._kept = token
        self._until_s = time.monotonic() + float(answer.get("expires_in", RENEW_S))

    def _ask(self, url: str, form: bytes | None) -> Any:
        if not url.startswith(("https://", "http://")):
            raise ValueError(url)
        request = urllib.request.Request(url, form)  # noqa: S310 -- checked above
        with urllib.request.urlopen(request, timeout=self._timeout_s) as answer:  # noqa: S310
            return json.loads(answer.read())
