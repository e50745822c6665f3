"""Signature Version 4 of AWS: who sent a request, and that nobody changed it.

Checked as https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
describes it, for one service, `sqs`. The keys are in a file: a line for each, `access_key secret`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from hmac import compare_digest, digest
from http import HTTPStatus
from pathlib import Path
from urllib.parse import quote

from ackd.errors import ConfigError
from ackd.hidden import HIDDEN
from ackd.http.server.request import Request
from ackd.sqs.fault import Fault

SKEW_S = 15 * 60
"""How far the clocks of client and sidecar may be apart."""
KEYS_MAX = 100
FILE_BYTES_MAX = 64 * 1024
_ALGORITHM = "AWS4-HMAC-SHA256"
_FIELD = re.compile(
    rf"{_ALGORITHM} Credential=([^/, ]+)/(\d{{8}})/([^/, ]+)/sqs/aws4_request,? ?"
    r"SignedHeaders=([a-z0-9;-]+),? ?Signature=([0-9a-f]{64})"
).fullmatch
_WANTED = frozenset({"host", "x-amz-date"})
_SPACES = re.compile(r" +")


class Credentials:
    """The keys that clients sign with. `path` None: nobody has to sign."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._secrets: Mapping[str, str] = {}

    @property
    def open(self) -> bool:
        return self.path is None

    async def load(self) -> None:
        """Read the file. Raises OSError, ConfigError."""
        if self.path is not None:
            self._secrets = _parsed(self.path, await asyncio.to_thread(_read, self.path))

    def check(self, request: Request, body: bytes, now_ms: int) -> None:
        """Return if the request is signed by a key of the file. Raises Fault."""
        if self.open:
            return
        field = request.headers.get("Authorization")
        if field is None:
            raise Fault(
                "MissingAuthenticationToken", "Request is missing Authentication Token.", _DENIED
            )
        found = _FIELD(field)
        if found is None:
            raise Fault(
                "IncompleteSignature",
                f"The Authorization header is not one of {_ALGORITHM} for the service sqs.",
            )
        key, day, region, signed, signature = found.groups()
        secret = self._secrets.get(key)
        if secret is None:
            raise Fault("InvalidClientTokenId", "The security token included is invalid.", _DENIED)
        names = signed.split(";")
        at = request.headers.get("X-Amz-Date", "")
        if not _WANTED.issubset(names) or not at.startswith(day):
            raise Fault("IncompleteSignature", "Host and X-Amz-Date have to be signed.")
        _check_time(at, now_ms / 1000)
        scope = f"{day}/{region}/sqs/aws4_request"
        whole = sha256(_canonical(request, names, body).encode("utf-8", "surrogateescape"))
        text = f"{_ALGORITHM}\n{at}\n{scope}\n{whole.hexdigest()}"
        if not compare_digest(_sign(secret, (day, region, "sqs", "aws4_request"), text), signature):
            raise Fault(
                "SignatureDoesNotMatch",
                "The request signature we calculated does not match the signature you provided.",
                _DENIED,
            )


_DENIED = HTTPStatus.FORBIDDEN


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(FILE_BYTES_MAX + 1)


def _parsed(path: Path, raw: bytes) -> dict[str, str]:
    """Read `access_key secret` lines; empty ones and those that begin with `#` are skipped."""
    found: dict[str, str] = {}
    for number, line in enumerate(raw.decode("utf-8", "replace").splitlines(), 1):
        parts = line.split()
        if not parts or parts[0].startswith("#"):
            continue
        if len(parts) != 2:  # noqa: PLR2004  a key and its secret
            raise ConfigError(f"{path}: line {number} must be an access key, a space, its secret.")
        found[parts[0]] = parts[1]
        HIDDEN.add(parts[1])
    if not found or len(found) > KEYS_MAX or len(raw) > FILE_BYTES_MAX:
        raise ConfigError(
            f"{path}: must have 1 to {KEYS_MAX} lines with an access key and its secret."
        )
    return found


def _check_time(at: str, now_s: float) -> None:
    try:
        sent = datetime.strptime(at, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError as error:
        raise Fault("IncompleteSignature", "X-Amz-Date must be as 20260102T030405Z.") from error
    if abs(sent - now_s) > SKEW_S:
        raise Fault(
            "SignatureDoesNotMatch",
            f"Signature expired: {at} is more than {SKEW_S // 60} minutes from the time here.",
            _DENIED,
        )


def _canonical(request: Request, names: list[str], body: bytes) -> str:
    """The request in the one form that both sides sign."""
    path, _, query = request.path.partition("?")
    pairs = sorted(each.partition("=")[::2] for each in query.split("&") if each)
    fields = "".join(
        f"{name}:{','.join(_trimmed(each) for each in request.headers.getall(name))}\n"
        for name in names
    )
    return "\n".join(
        (
            request.method,
            quote(path, safe="/~"),
            "&".join(f"{name}={value}" for name, value in pairs),
            fields,
            ";".join(names),
            sha256(body).hexdigest(),
        )
    )


def _trimmed(value: str) -> str:
    return _SPACES.sub(" ", value.strip())


def _sign(secret: str, scope: tuple[str, ...], text: str) -> str:
    key = f"AWS4{secret}".encode()
    for each in scope:
        key = digest(key, each.encode(), "sha256")
    return digest(key, text.encode(), "sha256").hex()
