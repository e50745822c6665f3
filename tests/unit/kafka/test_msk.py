"""Tokens for Amazon MSK against AWS's documents: the signature of each is computed here anew."""

import base64
import hashlib
import hmac
from datetime import UTC, datetime
from urllib.parse import parse_qsl, quote, urlsplit

import pytest

from ackd_adapters.kafka.msk import token_callback

KEY_ID = "AKIDEXAMPLE"
SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
EMPTY = hashlib.sha256(b"").hexdigest()
REGION = "eu-central-1"


def signature(secret: str, scope: str, stamp: str, request: str) -> str:
    """Signature Version 4 of a canonical request; `scope`: date/region/service/aws4_request."""
    key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    digest = hashlib.sha256(request.encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{digest}"
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def canonical(query: list[tuple[str, str]], headers: dict[str, str]) -> str:
    """A canonical request: GET of / without a body."""
    pairs = sorted((quote(name, safe="-_.~"), quote(value, safe="-_.~")) for name, value in query)
    lines = "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()))
    names = ";".join(sorted(headers))
    asked = "&".join(f"{name}={value}" for name, value in pairs)
    return f"GET\n/\n{asked}\n{lines}\n{names}\n{EMPTY}"


def test_the_computation_here_gives_the_documented_signature() -> None:
    """The example of AWS's documents: ListUsers of IAM, on 30 August 2015."""
    headers = {
        "content-type": "application/x-www-form-urlencoded; charset=utf-8",
        "host": "iam.amazonaws.com",
        "x-amz-date": "20150830T123600Z",
    }
    request = canonical([("Action", "ListUsers"), ("Version", "2010-05-08")], headers)
    assert hashlib.sha256(request.encode()).hexdigest() == (
        "f536975d06c0309214f805bb90ccff089219ecd68b2577efef23edd43b7e1a59"
    )
    scope = "20150830/us-east-1/iam/aws4_request"
    assert signature(SECRET, scope, "20150830T123600Z", request) == (
        "5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"
    )


@pytest.mark.parametrize("session", ["", "a/session+token=="])
def test_a_token_is_a_signed_address_that_lives_for_fifteen_minutes(
    monkeypatch: pytest.MonkeyPatch, session: str
) -> None:
    """As Amazon MSK documents it: base64url of a presigned `kafka-cluster:Connect`."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", session)
    before_s = datetime.now(UTC).timestamp()
    token, until_s = token_callback(REGION, None)("")
    assert before_s + 890 <= until_s <= datetime.now(UTC).timestamp() + 900
    address = urlsplit(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    assert (address.scheme, address.path) == ("https", "/")
    assert address.netloc == f"kafka.{REGION}.amazonaws.com"
    query = dict(parse_qsl(address.query, strict_parsing=True))
    assert query.pop("User-Agent")
    signed = query.pop("X-Amz-Signature")
    assert query["Action"] == "kafka-cluster:Connect"
    assert query["X-Amz-Expires"] == "900"
    assert query["X-Amz-SignedHeaders"] == "host"
    assert query.get("X-Amz-Security-Token", "") == session
    key_id, _, scope = query["X-Amz-Credential"].partition("/")
    stamp = query["X-Amz-Date"]
    assert (key_id, scope) == (KEY_ID, f"{stamp[:8]}/{REGION}/kafka-cluster/aws4_request")
    request = canonical(list(query.items()), {"host": address.netloc})
    assert signature(SECRET, scope, stamp, request) == signed
