"""The options of a RocketMQ connection. The secret key is read from a file when it is needed."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from ackd.errors import ConfigError
from ackd.hidden import HIDDEN
from ackd.options import about, setting

KIB = 1024
MIB = 1024 * KIB
SECOND_MS = 1_000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RocketMQOptions:
    """A connection to the gRPC proxies of a RocketMQ 5 cluster."""

    endpoints: str = dataclasses.field(
        metadata=about(
            "The proxies, `host:port`, separated by `;`. All must be proxies of one cluster; when "
            "one can't be reached the next is used.",
            len_min=1,
        )
    )
    cluster: str = setting(
        "rocketmq",
        "Name of the cluster in the store. A RocketMQ cluster has no id that ackd could read, so "
        "two clusters whose sidecars share a store need different names.",
        len_min=1,
        len_max=100,
    )
    name_servers: str = setting(
        "",
        "Name servers, `host:port`, separated by `;`. With them ackd asks the brokers themselves "
        "for what the proxies do not offer, and makes the topics and groups that it needs and does "
        "not find. Empty: no such questions; topics and groups must exist. `tls` and the access "
        "key are used there, too.",
        len_max=2_000,
    )
    namespace: str = setting("", "Namespace of all topics and groups.", len_max=200)
    access_key: str | None = setting(None, "Access key, for a cluster that demands one.")
    secret_key_file: Path | None = setting(
        None, "File with the secret key (its first line); needs `access_key`."
    )
    tls: bool = setting(
        default=False, doc="Whether connections use TLS. The port is the same with and without."
    )
    tls_ca_file: Path | None = setting(
        None, "Certificate authorities to trust (PEM); default: the system's."
    )
    invisible_duration_ms: int = setting(
        15 * SECOND_MS,
        "How long the broker hides a message that it gave to this sidecar. ackd renews that "
        "while the message is unfinished, independent of the application's lease. If the sidecar "
        "dies, the broker delivers the message again after this time. The broker's own minimum "
        "is 10 s by default.",
        min=1 * SECOND_MS,
        max=600 * SECOND_MS,
    )
    poll_ms: int = setting(
        2 * SECOND_MS,
        "How long one poll waits at the broker for messages. A sidecar that stops waits for its "
        "polls, and what they draw after it gave its partitions away comes later by seconds.",
        min=1 * SECOND_MS,
        max=20 * SECOND_MS,
    )
    request_timeout_ms: int = setting(
        5 * SECOND_MS, "How long a question to the broker may take.", min=100, max=120_000
    )
    message_bytes_max: int = setting(
        4 * MIB,
        "Largest message, its body unpacked; the broker's own limit may be smaller.",
        min=KIB,
        max=64 * MIB,
    )


def addresses(options: RocketMQOptions) -> list[str]:
    """The endpoints one by one."""
    return [each.strip() for each in options.endpoints.split(";") if each.strip()]


def name_servers(options: RocketMQOptions) -> list[str]:
    """The name servers one by one."""
    return [each.strip() for each in options.name_servers.split(";") if each.strip()]


def check(options: RocketMQOptions) -> None:
    """What needs no broker and no file. Raises `ConfigError` with all mistakes in one text."""
    wrong = []
    found = addresses(options)
    if not found:
        wrong.append("endpoints names no proxy")
    wrong += [f"endpoints: {each} is not host:port" for each in found if not _is_address(each)]
    wrong += [
        f"name_servers: {each} is not host:port"
        for each in name_servers(options)
        if not _is_address(each)
    ]
    if (options.access_key is None) != (options.secret_key_file is None):
        wrong.append("access_key and secret_key_file go together")
    if options.tls_ca_file is not None and not options.tls:
        wrong.append("tls_ca_file has no effect without tls")
    if wrong:
        raise ConfigError("; ".join(wrong))


def _is_address(text: str) -> bool:
    host, colon, port = text.rpartition(":")
    return bool(colon and host and port.isdecimal() and 0 < int(port) < 1 << 16)


@dataclasses.dataclass(frozen=True, slots=True)
class Secrets:
    """The contents of the files: the secret key, and the authorities in PEM (None = system's)."""

    key: str = dataclasses.field(default="", repr=False)
    authorities: bytes | None = None


def read_secrets(options: RocketMQOptions) -> Secrets:
    """Read the files; not for the event loop's thread. Raises `ConfigError`."""
    key, authorities = "", None
    try:
        if options.secret_key_file is not None:
            text = options.secret_key_file.read_text(encoding="utf-8")
            key = text.split("\n", 1)[0].rstrip("\r")
            HIDDEN.add(key)
        if options.tls_ca_file is not None:
            authorities = options.tls_ca_file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{error.filename} can't be read: {error.strerror}") from None
    return Secrets(key, authorities)
