"""An OpenID provider of one client: tokens for its secret, and the key that signs them."""

import base64
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import parse_qs, unquote

from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256

from tests.support.certs import Certs

CLIENT = "ackd-oidc"
SECRET = "oidc-s3cret"
AUDIENCE = "kafka"
SCOPE = "kafka"
KEY_ID = "test"


def _base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _number(value: int) -> str:
    return _base64url(value.to_bytes((value.bit_length() + 7) // 8, "big"))


class _TlsServer(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """Who does not trust the certificate hangs up; the test sees that at the other end."""


class OpenIdProvider:
    """Serves on 127.0.0.1. `lives_s`: how long a token lives; `given`: how many were given."""

    def __init__(self, lives_s: int = 300) -> None:
        self.lives_s = lives_s
        self.given = 0
        self._key = rsa.generate_private_key(65537, 2048)
        provider = self

        class Handler(BaseHTTPRequestHandler):
            """`POST /token` (RFC 6749 section 4.4) and `GET /jwks` (RFC 7517)."""

            def do_POST(self) -> None:
                body = parse_qs(self.rfile.read(int(self.headers["content-length"])).decode())
                asked = body.get("grant_type"), body.get("scope")
                if not provider.knows(self.headers.get("authorization", "")):
                    self.answer(401, {"error": "invalid_client"})
                elif asked != (["client_credentials"], [SCOPE]):
                    self.answer(400, {"error": "invalid_request"})
                else:
                    self.answer(200, provider.give())

            def do_GET(self) -> None:
                self.answer(200, provider.keys())

            def answer(self, status: int, body: object) -> None:
                raw = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- its name
                """Tests ask what was given instead."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """Where it serves, and the issuer's name in its tokens."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(30)

    @contextmanager
    def over_tls(self, certs: Certs) -> Iterator[str]:
        """Serve on another port over TLS too; yields that address."""
        server = _TlsServer(("127.0.0.1", 0), self._server.RequestHandlerClass)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certs.server_cert, certs.server_key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"https://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            server.server_close()
            thread.join(30)

    def knows(self, authorization: str) -> bool:
        """Whether a header holds the client's name and secret."""
        kind, _, encoded = authorization.partition(" ")
        if kind != "Basic":
            return False
        name, _, secret = base64.b64decode(encoded).decode().partition(":")
        return (unquote(name), unquote(secret)) == (CLIENT, SECRET)

    def give(self) -> dict[str, object]:
        """The answer with a new token."""
        self.given += 1
        now_s = int(datetime.now(UTC).timestamp())
        claims = {
            "iss": self.url,
            "sub": CLIENT,
            "aud": AUDIENCE,
            "scope": SCOPE,
            "iat": now_s,
            "exp": now_s + self.lives_s,
            "jti": str(self.given),
        }
        head = {"alg": "RS256", "typ": "JWT", "kid": KEY_ID}
        signed = ".".join(_base64url(json.dumps(part).encode()) for part in (head, claims))
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), SHA256())
        token = f"{signed}.{_base64url(signature)}"
        return {"access_token": token, "token_type": "Bearer", "expires_in": self.lives_s}

    def keys(self) -> dict[str, object]:
        """The public key."""
        public = self._key.public_key().public_numbers()
        key = {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": KEY_ID}
        return {"keys": [key | {"n": _number(public.n), "e": _number(public.e)}]}
