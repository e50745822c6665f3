"""Settings of the port for SQS clients."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ackd.options import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class SqsSettings:
    """A port for unmodified SQS clients, off by default: subscriptions and topics are queues."""

    listen: str = setting(
        "",
        "Where SQS clients connect: `host:port`, `[v6]:port` or `unix:/path`. Empty: there is no "
        "such port. An address that others can reach needs `credentials_file`.",
    )
    credentials_file: Path | None = setting(
        None,
        "File with the keys that clients sign with (Signature Version 4): a line for each, access "
        "key and secret with a space between. Without it the signature is not looked at.",
    )
    account: str = setting(
        "000000000000",
        "The account in queues' URLs and ARNs.",
        pattern=r"\d{12}",
        pattern_doc="12 digits",
    )
    region: str = setting(
        "us-east-1",
        "The region in queues' ARNs.",
        pattern=r"[a-z0-9-]{1,32}",
        pattern_doc="1 to 32 lower-case letters, digits or `-`",
    )
    operator: bool = setting(
        False,
        "Whether clients of this port may do what is else for the admin port: "
        "`SetQueueAttributes`, `StartMessageMoveTask` and `CancelMessageMoveTask`.",
    )
