"""Signatures as AWS's own library makes them, and all that may be wrong with one."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as BotoCredentials

from ackd.errors import ConfigError
from ackd.hidden import HIDDEN
from ackd.http.server.request import Request
from ackd.sqs.aws_signature import Credentials
from ackd.sqs.fault import Fault

KEY, SECRET = "AKIAEXAMPLE", "wJalrXUtnFEMI/K7MDENG"
BODY = '{"QueueUrl": "ü & +"}'.encode()


async def known(tmp_path: Path) -> Credentials:
    path = tmp_path / "keys"
    path.write_text(f"{KEY} {SECRET}\n\n# another\nAKIAOTHER another-secret\n")
    credentials = Credentials(path)
    await credentials.load()
    return credentials


def signed(path: str = "/", body: bytes = BODY, region: str = "eu-central-1") -> list[str]:
    """The lines of a request that botocore has signed."""
    request = AWSRequest("POST", f"http://127.0.0.1:9324{path}", data=body)
    request.headers["X-Amz-Target"] = "AmazonSQS.SendMessage"
    request.headers["Host"] = "127.0.0.1:9324"
    SigV4Auth(BotoCredentials(KEY, SECRET), "sqs", region).add_auth(request)
    fields = (f"{name}: {value}" for name, value in request.headers.items())
    return [f"POST {path} HTTP/1.1", *fields]


def read(lines: list[str]) -> Request:
    connection: Any = SimpleNamespace()
    return Request("".join(f"{line}\r\n" for line in [*lines, ""]).encode(), connection)


def now_ms() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)


@pytest.mark.parametrize("path", ["/", "/000000000000/orders", "/a%20b/c?b=2&a=1%2F+x&a=0&e="])
async def test_a_request_of_awss_own_library_passes(tmp_path: Path, path: str) -> None:
    credentials = await known(tmp_path)
    credentials.check(read(signed(path)), BODY, now_ms())


async def test_whatever_was_changed_is_refused(tmp_path: Path) -> None:
    credentials = await known(tmp_path)
    good = signed()
    at = now_ms()

    def refused(lines: list[str], code: str, body: bytes = BODY, ms: int = at) -> None:
        with pytest.raises(Fault) as found:
            credentials.check(read(lines), body, ms)
        assert found.value.code == code, found.value.message

    def changed(old: str, new: str) -> list[str]:
        lines = [line.replace(old, new) for line in good]
        assert lines != good
        return lines

    refused(good, "SignatureDoesNotMatch", BODY + b" ")
    refused(changed("SendMessage", "PurgeQueue"), "SignatureDoesNotMatch")
    refused(changed("POST /", "POST /other"), "SignatureDoesNotMatch")
    refused(changed("eu-central-1", "eu-central-2"), "SignatureDoesNotMatch")
    refused(changed(KEY, "AKIAOTHER"), "SignatureDoesNotMatch")
    refused(changed(KEY, "AKIANOBODY"), "InvalidClientTokenId")
    refused(changed("AWS4-HMAC-SHA256", "AWS4-HMAC-SHA1"), "IncompleteSignature")
    refused(changed("/sqs/", "/sns/"), "IncompleteSignature")
    refused(changed("host;", ""), "IncompleteSignature")
    refused([line for line in good if not line.startswith("X-Amz-Date")], "IncompleteSignature")
    bare = [line for line in good if not line.startswith("Authorization")]
    refused(bare, "MissingAuthenticationToken")
    for shift_ms in (-16 * 60_000, 16 * 60_000):
        refused(good, "SignatureDoesNotMatch", ms=at + shift_ms)
    for shift_ms in (-14 * 60_000, 14 * 60_000):
        credentials.check(read(good), BODY, at + shift_ms)


async def test_without_keys_nobody_has_to_sign() -> None:
    credentials = Credentials(None)
    await credentials.load()
    credentials.check(read(["POST / HTTP/1.1", "Host: h"]), b"", 0)
    assert credentials.open


MANY = "".join(f"k{n} s\n" for n in range(101))


@pytest.mark.parametrize("text", ["", "# a remark\n", "a key too much\n", "alone\n", MANY])
async def test_a_file_without_keys_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys"
    path.write_text(text)
    with pytest.raises(ConfigError, match="key"):
        await Credentials(path).load()


async def test_secrets_never_show_up(tmp_path: Path) -> None:
    await known(tmp_path)
    assert SECRET in HIDDEN.values()
