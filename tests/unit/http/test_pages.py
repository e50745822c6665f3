"""What a web page can send to a port without a token, and what it gets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ackd.config.schema import ServerSettings
from tests.unit.http.conftest import Dial, Running, Start
from tests.unit.http.test_flow import publish

STREAM = "/v1/subscriptions/orders/stream?in_flight=1000&lease_ms=43200000&duration_ms=100"
NAMED = {"Ackd-Worker": "reader"}
SETTINGS = ServerSettings(listen="127.0.0.1:0", admin_listen="127.0.0.1:0")


async def call(session: Any, path: str, **headers: str) -> tuple[int, str]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with session.get(path, headers=named) as answer:
        if answer.content_type != "application/problem+json":
            return answer.status, ""
        return answer.status, str((await answer.json())["type"]).removeprefix("/problems/")


async def test_an_image_tag_takes_no_lease(server: Running) -> None:
    """It sends no `Origin`; an old browser not even `Sec-Fetch-Site`."""
    await publish(server, b"1")
    image = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
    assert await call(server.data, STREAM, **image) == (403, "forbidden")
    assert await call(server.data, STREAM) == (422, "bad-parameter")
    assert await call(server.data, STREAM, Ackd_Worker="") == (422, "bad-parameter")
    assert await server.engine.in_flight("orders", 0, 10) == []
    assert await call(server.data, STREAM, **NAMED) == (200, "")
    assert len(await server.engine.in_flight("orders", 0, 10)) == 1


@pytest.mark.parametrize("site", ["cross-site", "same-site", "", "None"])
async def test_pages_of_other_places_are_refused(server: Running, site: str) -> None:
    for session in (server.data, server.admin):
        refused = await call(session, "/v1/subscriptions", Sec_Fetch_Site=site)
        assert refused == (403, "forbidden")
        assert (await call(session, "/openapi.json", Sec_Fetch_Site=site))[0] == 200
    for path in ("/metrics", "/livez", "/v1/info"):
        assert (await call(server.admin, path, Sec_Fetch_Site=site))[0] == 200


@pytest.mark.parametrize("site", ["none", "same-origin"])
async def test_a_typed_address_is_served(server: Running, site: str) -> None:
    assert await call(server.data, "/v1/subscriptions", Sec_Fetch_Site=site) == (200, "")


OURS = (
    *("127.0.0.1:7080", "localhost", "LOCALHOST:7080", "localhost.", "a.localhost:1", "[::1]:7080"),
    *("10.1.2.3:7080", "[fd00::1]", "sidecar.internal", "Sidecar.Internal:9"),
)
FOREIGN = (
    *("evil.example", "evil.example:7080", "x", "127.0.0.1.evil.example", "localhost.evil.example"),
    *("evillocalhost", "2130706433", "0x7f.1", "127.1", "", "[evil]", "::1", "@localhost"),
)


@pytest.mark.parametrize("host", OURS)
async def test_addresses_and_known_names_are_served(start: Start, host: str) -> None:
    """Probes of Kubernetes call the pod's address."""
    server = await start(replace(SETTINGS, hosts=("sidecar.internal",)))
    for session in (server.data, server.admin):
        assert await call(session, "/v1/subscriptions", Host=host) == (200, "")


@pytest.mark.parametrize("host", FOREIGN)
async def test_a_foreign_name_is_refused(server: Running, host: str, dial: Dial) -> None:
    """A page whose name was turned to this address reads nothing, not even whether we live."""
    for port, path in ((server.port, STREAM), (server.admin_port, "/livez")):
        wire = await dial(port)
        await wire.send(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAckd-Worker: x\r\n\r\n")
        answer = await wire.answer()
        assert (answer.status, answer.problem) == (421, "foreign-host")
    assert await server.engine.in_flight("orders", 0, 10) == []


async def test_of_two_hosts_each_counts(server: Running, dial: Dial) -> None:
    for hosts in (("localhost", "evil.example"), ("evil.example", "localhost")):
        lines = "".join(f"Host: {each}\r\n" for each in hosts)
        wire = await dial(server.port)
        await wire.send(f"GET /v1/subscriptions HTTP/1.1\r\n{lines}\r\n")
        assert (await wire.answer()).status in {400, 421}


async def test_a_client_of_http_1_0_needs_no_host(server: Running, dial: Dial) -> None:
    wire = await dial(server.port)
    await wire.send("GET /v1/subscriptions HTTP/1.0\r\n\r\n")
    assert (await wire.answer()).status == 200


async def test_with_a_token_the_token_alone_decides(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("secret\n")
    server = await start(replace(SETTINGS, token_file=path))
    given = {
        "Authorization": "Bearer secret",
        "Host": "ackd.example",
        "Origin": "https://a.example",
    }
    assert await call(server.data, STREAM, Sec_Fetch_Site="cross-site", **given) == (200, "")
