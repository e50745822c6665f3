"""Every mistake is a problem document (RFC 9457), and none is hidden behind a 200 (I7, R22)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ackd.config.schema import ServerSettings
from ackd.errors import AckdError, BadParameterError
from ackd.http.formats import problems
from tests.support.wait import wait_until_async
from tests.unit.http.conftest import Dial, Running, Start
from tests.unit.http.test_flow import publish, receive

JSON = {"Content-Type": "application/json"}
RECEIVE = "/v1/subscriptions/orders/receive"
TOPIC = "/v1/topics/orders/messages"


def test_each_error_type_says_what_to_do() -> None:
    kinds = {error.type for error in problems.known()}
    assert kinds == set(problems.ADVICE)
    for kind in kinds:
        page = problems.page(kind)
        assert page is not None
        assert kind in page


def test_error_types_are_url_safe_and_statuses_sane() -> None:
    for error in problems.known():
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", error.type)
        assert 400 <= error.status <= 599


def test_facts_cannot_replace_members_and_odd_facts_do_not_break_it() -> None:
    odd = BadParameterError("x", status=1, type="y", path=Path("p"), text="\udcff", many={1, 2})
    document = problems.encode(odd)
    assert b'"status":422' in document
    assert b'"type":"/problems/bad-parameter"' in document


async def call(server: Running, method: str, path: str, **kwargs: Any) -> tuple[int, Any]:
    async with server.data.request(method, path, **kwargs) as answer:
        if answer.status >= 400:
            assert answer.content_type == "application/problem+json"
        return answer.status, await answer.json()


@pytest.mark.parametrize(
    ("method", "path", "kwargs", "status", "kind"),
    [
        ("GET", "/nothing", {}, 404, "not-found"),
        ("GET", "/v1/subscriptions/orders/", {}, 404, "not-found"),
        ("GET", "/v1/subscriptions/none", {}, 404, "unknown-subscription"),
        ("GET", "/v1/subscriptions/%ff%00", {}, 404, "unknown-subscription"),
        ("POST", "/v1/subscriptions/none/receive", {}, 404, "unknown-subscription"),
        ("GET", RECEIVE, {}, 405, "method-not-allowed"),
        ("POST", RECEIVE, {"data": b"x=1"}, 415, "unsupported-media-type"),
        ("POST", RECEIVE, {"json": []}, 422, "bad-parameter"),
        ("POST", RECEIVE, {"headers": {"Accept": "image/png"}}, 406, "not-acceptable"),
        ("POST", RECEIVE, {"headers": {"Accept": "multipart/mixed"}}, 406, "not-acceptable"),
        ("POST", "/v1/settle", {"json": {"items": []}}, 422, "bad-parameter"),
        ("POST", "/v1/settle", {"data": b"{", "headers": JSON}, 400, "bad-body"),
        ("POST", "/v1/settle", {"headers": JSON}, 400, "bad-body"),
        ("POST", "/v1/topics/none/messages", {"data": b"1"}, 422, "publish-refused"),
        ("POST", TOPIC, {"headers": {"Ackd-Partition": "-1"}}, 422, "bad-parameter"),
        ("POST", TOPIC, {"headers": {"Ackd-Key-Base64": "%"}}, 422, "bad-parameter"),
        ("POST", TOPIC, {"headers": {"Ackd-Headers": "[1"}}, 422, "bad-parameter"),
        ("POST", TOPIC, {"headers": {"Idempotency-Key": "\u00e9"}}, 422, "bad-parameter"),
        ("POST", TOPIC + "?what=1", {}, 422, "bad-parameter"),
        ("GET", "/v1/leases/v1.AAAA", {}, 422, "bad-lease-token"),
        ("GET", "/v1/subscriptions/orders/in-flight?max=0", {}, 422, "bad-parameter"),
        ("GET", "/problems/none", {}, 404, "not-found"),
    ],
)
async def test_mistakes_have_their_problem(
    server: Running, method: str, path: str, kwargs: dict[str, Any], status: int, kind: str
) -> None:
    found, document = await call(server, method, path, **kwargs)
    assert (found, document["type"]) == (status, f"/problems/{kind}")


@pytest.mark.parametrize(
    "number",
    ["1E400", "-1E400", "1e" + "9" * 1000, "1e-400", "1.5", "9" * 400, "9" * 5_000, "-1", "true"],
)
@pytest.mark.parametrize("field", ["max", "wait_ms", "lease_ms", "unknown"])
async def test_numbers_that_can_not_be_are_wrong_fields(
    server: Running, number: str, field: str
) -> None:
    """Valid JSON, so it is not called broken; and no number is rounded into a valid one."""
    body = f'{{"{field}": {number}}}'
    status, document = await call(server, "POST", RECEIVE, data=body, headers=JSON)
    assert (status, document["type"]) == (422, "/problems/bad-parameter")
    assert document["errors"]


async def test_all_wrong_fields_are_named_at_once(server: Running) -> None:
    body = {
        "max": 0,
        "wait": 5,
        "attempt_id": 7,
        "settle": [{"lease": "v1.x", "do": "ack", "delay_ms": 5}, {"do": "retry", "delay_ms": -1}],
    }
    status, document = await call(server, "POST", RECEIVE, json=body)
    assert status == 422
    assert {each["pointer"] for each in document["errors"]} == {
        "/max",
        "/wait",
        "/attempt_id",
        "/settle/0/delay_ms",
        "/settle/1/lease",
        "/settle/1/delay_ms",
    }


async def test_method_not_allowed_lists_the_methods(server: Running) -> None:
    async with server.data.delete("/v1/subscriptions") as answer:
        assert answer.status == 405
        assert answer.headers["Allow"] == "GET, HEAD"
    async with server.data.head("/v1/subscriptions") as answer:
        assert answer.status == 200
        assert await answer.read() == b""
        assert int(answer.headers["Content-Length"]) > 0


async def test_problem_type_leads_to_its_page(server: Running) -> None:
    _, document = await call(server, "GET", "/nothing")
    async with server.data.get(document["type"]) as answer:
        assert answer.status == 200
        assert (await answer.text()).startswith("not-found (404)")


# --- R22: never a yes that is not durable ---------------------------------------------------------


TWO = pytest.mark.parametrize("names", [("notes", "orders")])


async def leases(server: Running) -> list[str]:
    """One of `notes`, one of `orders`."""
    found = []
    for topic in ("notes", "orders"):
        await publish(server, b"1", topic)
        [message] = (await receive(server, topic))["messages"]
        found.append(message["lease"])
    return found


@TWO
async def test_all_unavailable_is_503_and_some_is_200(server: Running) -> None:
    first, second = await leases(server)
    server.sidecar.store.away = True
    items = [{"lease": first, "do": "ack"}, {"lease": second, "do": "ack"}]
    async with server.data.post("/v1/settle", json={"items": items}) as answer:
        assert answer.status == 503
        assert answer.headers["Retry-After"] == "1"
        assert (await answer.json())["type"] == "/problems/store-unavailable"
    server.sidecar.store.away, server.sidecar.store.away_for = False, frozenset({"notes"})
    async with server.data.post("/v1/settle", json={"items": items}) as answer:
        assert answer.status == 200
        assert answer.headers["Retry-After"] == "1"
        results = (await answer.json())["results"]
    assert [each["status"] for each in results] == ["unavailable", "acked"]
    assert results[0]["problem"]["type"] == "/problems/store-unavailable"
    status, document = await call(server, "POST", f"/v1/leases/{first}/ack")
    assert (status, document["type"]) == (503, "/problems/store-unavailable")


@TWO
async def test_joined_call_receives_nothing_while_a_settle_is_unavailable(server: Running) -> None:
    """R21: an unavailable settle part means no receive."""
    first, second = await leases(server)
    await publish(server, b"3")
    server.sidecar.store.away_for = frozenset({"notes"})
    settle = [{"lease": first, "do": "ack"}]
    status, _ = await call(server, "POST", RECEIVE, json={"settle": settle})
    assert status == 503
    settle.append({"lease": second, "do": "ack"})
    async with server.data.post(RECEIVE, json={"settle": settle}) as answer:
        assert answer.status == 200
        assert answer.headers["Retry-After"] == "1"
        document = await answer.json()
    assert document["messages"] == []
    assert document["limited_by"] == "store-unavailable"
    assert [each["status"] for each in document["settled"]] == ["unavailable", "acked"]

    async def ready() -> bool:
        return (await server.sidecar.progress("orders")).ready == 1

    await wait_until_async(ready, "the third to be ready")
    assert await server.sidecar.states("orders") == []
    [third] = (await receive(server))["messages"]
    assert (third["json"], third["attempt"]) == (3, 1)


async def test_batch_of_which_nothing_was_stored_is_no_success(server: Running) -> None:
    body = {"messages": [{"text": "a"}, {"text": "b"}]}
    status, document = await call(server, "POST", "/v1/topics/none/messages:batch", json=body)
    assert status == 422
    assert [each["status"] for each in document["results"]] == ["failed", "failed"]


async def test_bug_is_told_without_its_details(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part of the engine is missing, as only a bug can have it."""
    monkeypatch.setattr(server.engine, "_subscriptions", None)
    status, document = await call(server, "POST", RECEIVE)
    assert (status, document["type"]) == (500, "/problems/bug")
    assert "NoneType" not in str(document)


# --- who may call ---------------------------------------------------------------------------------


async def test_web_pages_may_not_call_a_sidecar_without_token(server: Running) -> None:
    headers = {"Origin": "https://evil.example"}
    status, document = await call(server, "POST", RECEIVE, headers=headers)
    assert (status, document["type"]) == (403, "/problems/forbidden")


async def test_foreign_tokens_are_refused_and_a_new_file_counts(
    start: Start, tmp_path: Path
) -> None:
    path = tmp_path / "token"
    path.write_text("secret-1\n")
    server = await start(
        ServerSettings(listen="127.0.0.1:0", admin_listen="127.0.0.1:0", token_file=path)
    )

    async def status(token: str | None) -> int:
        headers = {} if token is None else {"Authorization": token}
        found, _ = await call(server, "GET", "/v1/subscriptions", headers=headers)
        return found

    assert await status(None) == 401
    assert await status("Bearer secret-2") == 401
    assert await status("Basic secret-1") == 401
    assert await status("Bearer secret-1") == 200
    assert await status("bearer  secret-1 ") == 200
    async with server.data.get("/v1/subscriptions") as answer:
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    async with server.admin.get("/v1/subscriptions") as answer:
        assert answer.status == 200
    path.write_text("secret-2\n")

    async def replaced() -> bool:
        return await status("Bearer secret-2") == 200

    await wait_until_async(replaced, "the new token counts")
    assert await status("Bearer secret-1") == 401
    path.unlink()
    assert await status("Bearer secret-2") == 200


# --- HTTP itself ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nno colon\r\n\r\n",
        b"POST /v1/settle HTTP/1.1\r\nHost: localhost\r\nContent-Length: nine\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
async def test_broken_http_is_a_problem_and_ends_the_connection(
    server: Running, dial: Dial, request_: bytes
) -> None:
    wire = await dial(server.port)
    await wire.send(request_)
    answer = await wire.answer()
    assert answer.status == 400
    assert answer.problem == "bad-request"
    assert await wire.ended()


async def test_broken_chunks_are_a_problem(server: Running, dial: Dial) -> None:
    wire = await dial(server.port)
    await wire.send(
        "POST /v1/settle HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        "Transfer-Encoding: chunked\r\n\r\nzz\r\n"
    )
    answer = await wire.answer()
    assert answer.status == 400
    assert await wire.ended()


async def test_encoded_bodies_are_not_unpacked(server: Running) -> None:
    status, document = await call(
        server, "POST", TOPIC, data=b"\x1f\x8b", headers={"Content-Encoding": "gzip"}
    )
    assert (status, document["type"]) == (415, "/problems/unsupported-media-type")


async def test_http_1_0_gets_an_answer_and_is_closed(server: Running, dial: Dial) -> None:
    wire = await dial(server.port)
    await wire.send("GET /v1/subscriptions HTTP/1.0\r\n\r\n")
    answer = await wire.answer()
    assert answer.status == 200
    assert await wire.ended()


async def test_curl_waits_for_100_continue(server: Running, dial: Dial) -> None:
    wire = await dial(server.port)
    await wire.send(
        f"POST {TOPIC} HTTP/1.1\r\nHost: localhost\r\n"
        "Content-Length: 3\r\nExpect: 100-continue\r\n\r\n"
    )
    assert await wire.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    await wire.send(b"abc")
    assert (await wire.answer()).status == 201


async def test_pipelined_requests_are_answered_in_order(server: Running, dial: Dial) -> None:
    wire = await dial(server.port)
    for number in range(100):
        await wire.post(TOPIC, str(number))
    for number in range(100):
        assert f'"offset":{number}}}'.encode() in (await wire.answer()).body


def test_unknown_error_class_still_becomes_a_problem() -> None:
    class OddError(AckdError):
        """Odd."""

        type = "bug"

    assert problems.problem(OddError())["title"] == "Odd."


async def test_upgrade_is_declined_and_the_connection_goes_on(server: Running, dial: Dial) -> None:
    """What `curl --http2` sends first."""
    wire = await dial(server.port)
    upgrade = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk")
    await wire.post(TOPIC, "1", *upgrade)
    assert (await wire.answer()).status == 201
    await wire.post(TOPIC, "2")
    assert (await wire.answer()).status == 201
    values = [each.value for each in await server.sidecar.published("orders")]
    assert values == [b"1", b"2"]


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("GET http://x/v1/subscriptions HTTP/1.1", 200),
        ("GET /v1/subscriptions? HTTP/1.1", 200),
        ("CONNECT x:80 HTTP/1.1", 404),
        ("OPTIONS * HTTP/1.1", 404),
        ("OPTIONS /v1/settle HTTP/1.1", 405),
        ("GET //v1/subscriptions HTTP/1.1", 404),
        ("GET /v1/subscriptions/%2e%2e%2f HTTP/1.1", 404),
        ("GET /v1/subscriptions/%zz HTTP/1.1", 404),
        ("GET /v1/subscriptions/\x80\xff HTTP/1.1", 400),
    ],
)
async def test_odd_targets(server: Running, dial: Dial, line: str, status: int) -> None:
    wire = await dial(server.port)
    await wire.send(f"{line}\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode("latin-1"))
    answer = await wire.answer()
    assert answer.status == status
    if status >= 400:
        assert answer.problem
