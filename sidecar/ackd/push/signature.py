"""Signed calls, as Standard Webhooks 1.0 requires: HMAC-SHA256 over id, time and body."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from hashlib import sha256
from hmac import digest
from pathlib import Path

from ackd.errors import ConfigError
from ackd.hidden import HIDDEN

PREFIX = "whsec_"
SECRET_BYTES_MIN = 16
LINES_MAX = 2
FILE_BYTES_MAX = 4096


def read_secrets(path: Path) -> list[bytes]:
    """Read the secrets of a file, the current one first. Raises ConfigError."""
    try:
        with path.open("rb") as file:
            lines = file.read(FILE_BYTES_MAX).decode().split("\n")[:LINES_MAX]
        secrets = [_secret(line.strip()) for line in lines if line.strip()]
    except OSError as error:
        raise ConfigError(f"signature_file: {error}") from error
    except ValueError as error:
        raise ConfigError(f"signature_file {path}: not text, or not base64 after whsec_") from error
    if not secrets or any(len(secret) < SECRET_BYTES_MIN for secret in secrets):
        raise ConfigError(f"signature_file {path}: a secret needs {SECRET_BYTES_MIN} bytes or more")
    return secrets


def _secret(text: str) -> bytes:
    HIDDEN.add(text)
    if text.startswith(PREFIX):
        return b64decode(text.removeprefix(PREFIX), validate=True)
    return text.encode()


def signed(
    secrets: Sequence[bytes], message_id: str, now_s: int, body: bytes
) -> list[tuple[str, str]]:
    """Make the three headers of a signed call; one signature for each secret, so that a receiver
    may know either.
    """
    content = b"%b.%d.%b" % (message_id.encode(), now_s, body)
    signatures = [b64encode(digest(secret, content, sha256)).decode() for secret in secrets]
    return [
        ("webhook-id", message_id),
        ("webhook-timestamp", str(now_s)),
        ("webhook-signature", " ".join(f"v1,{each}" for each in signatures)),
    ]
