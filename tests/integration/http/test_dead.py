"""Dead letters at a real sidecar, by HTTP and by the command line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from base64 import b64encode
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from ackd.http.routes import ROUTES
from tests.integration.http.conftest import Sidecar, call
from tests.support.paths import REPO
from tests.support.wait import wait_until
from tests.tidy.docs import shell_commands

BASE = "/v1/subscriptions/images"
COUNT = 5
PAGE = REPO / "docs" / "guides" / "failures.md"
OPERATION = re.compile(r"9f0c2c1d5e7a8b90")


def ackd(sidecar: Sidecar, *words: str, verb: str = "dead") -> subprocess.CompletedProcess[str]:
    """`ackd dead ...` with the sidecar's configuration, or another verb."""
    config = ("--config", str(sidecar.folder / "ackd.toml"))
    return subprocess.run(
        [sys.executable, "-m", "ackd", verb, *words, *config],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )


def page(sidecar: Sidecar, query: str = "") -> Any:
    """One page of the list."""
    status, answer = call(sidecar.admin_port, "GET", f"{BASE}/dead{query}")
    assert status == HTTPStatus.OK, answer
    return answer


def dead_letter(sidecar: Sidecar) -> None:
    """Give some messages up and wait until they are listed."""
    for number in range(COUNT):
        value = b"\xff%d" % number
        status, _ = call(sidecar.port, "POST", "/v1/topics/images/messages", value, Ackd_Key="k")
        assert status == HTTPStatus.CREATED
    leases = take(sidecar, COUNT)
    items = [{"lease": each["lease"], "do": "dead", "reason": "too blue"} for each in leases]
    status, answer = call(sidecar.port, "POST", "/v1/settle", json.dumps({"items": items}).encode())
    assert [each["status"] for each in answer["results"]] == ["dead"] * COUNT
    wait_until(lambda: len(page(sidecar)["messages"]) == COUNT, "all are listed", timeout_s=60)


def take(sidecar: Sidecar, count: int) -> list[Any]:
    """So many messages under lease."""
    found: list[Any] = []

    def enough() -> bool:
        body = json.dumps({"max": count - len(found), "wait_ms": 1000}).encode()
        found.extend(call(sidecar.port, "POST", f"{BASE}/receive", body)[1]["messages"])
        return len(found) == count

    wait_until(enough, f"{count} messages", timeout_s=60)
    return found


def test_the_whole_way(sidecar: Sidecar) -> None:
    dead_letter(sidecar)
    # Pages follow each other.
    first = page(sidecar, "?max=2")
    rest = page(sidecar, f"?max=1000&cursor={first['cursor']}")
    letters = first["messages"] + rest["messages"]
    assert rest["cursor"] is None
    assert len({each["id"] for each in letters}) == COUNT
    assert {each["reason"] for each in letters} == {"too blue"}
    status, one = call(sidecar.port, "GET", f"{BASE}/dead/{letters[0]['id']}")
    assert status == HTTPStatus.OK
    assert (one["message"], one["key"]) == (letters[0]["message"], "k")
    assert one["base64"].startswith("/z")
    # The same by the command line; a look changes nothing.
    listed = ackd(sidecar, "list", "images", "--json").stdout.splitlines()
    assert [json.loads(line)["id"] for line in listed] == [each["id"] for each in letters]
    assert "too blue" in ackd(sidecar, "list", "images").stdout
    assert json.loads(ackd(sidecar, "peek", "images", letters[0]["id"]).stdout) == one
    dry = ackd(sidecar, "redrive", "images", "--reason", "blue", "--dry-run")
    assert dry.stdout.startswith(f"would take {COUNT} of "), dry.stderr
    # One by its id, with another header.
    moved = ackd(sidecar, "redrive", "images", letters[0]["id"], "--set-header", "try=again")
    assert moved.returncode == 0, moved.stderr
    assert "done: 1 of 1 looked at, 1 moved" in moved.stdout
    (message,) = take(sidecar, 1)
    assert (message["id"], message["attempt"]) == (letters[0]["message"], 1)
    assert ["try", "again"] in message["headers"]
    assert call(sidecar.port, "POST", f"/v1/leases/{message['lease']}/ack")[0] == HTTPStatus.OK
    # What is refused, and how.
    gone = ackd(sidecar, "peek", "images", letters[0]["id"])
    assert (gone.returncode, "no dead letter" in gone.stderr) == (2, True)
    assert ackd(sidecar, "redrive", "images").returncode == 2
    everything = ackd(sidecar, "redrive", "images", "--max", str(COUNT - 1))
    assert (everything.returncode, "--all" in everything.stderr) == (2, True)
    some = ackd(sidecar, "redrive", "images", "--max", "1")
    assert "1 moved" in some.stdout, some.stderr
    (message,) = take(sidecar, 1)
    assert call(sidecar.port, "POST", f"/v1/leases/{message['lease']}/ack")[0] == HTTPStatus.OK
    purging = ackd(sidecar, "purge", "images", "--max", str(COUNT))
    assert (purging.returncode, "confirm must be" in purging.stderr) == (2, True)
    unsure = ackd(sidecar, "purge", "images", "--all", "--confirm", "orders")
    assert (unsure.returncode, "confirm must be" in unsure.stderr) == (2, True)
    purged = ackd(sidecar, "purge", "images", "--all", "--after", "2h", "--confirm", "images")
    assert f"{COUNT - 2} moved" in purged.stdout, purged.stderr
    assert page(sidecar)["messages"] == []


def test_problems(sidecar: Sidecar) -> None:
    def post(verb: str, **body: object) -> tuple[int, Any]:
        raw = json.dumps(body).encode()
        return call(sidecar.admin_port, "POST", f"{BASE}/dead:{verb}", raw)

    status, problem = post("redrive", ids=["7-7"])
    assert (status, problem["type"]) == (404, "/problems/unknown-dead-letter")
    status, problem = post("redrive", ids=["0-0"], max=1)
    assert (status, problem["errors"][0]["pointer"]) == (422, "/ids")
    assert post("redrive", ids=["x"])[0] == 422
    assert post("redrive", set_headers={"ackd-origin": "x"})[0] == 422
    for unsure in ({}, {"confirm": "other"}, {"max": 1}, {"ids": ["0-0"]}):
        status, problem = post("purge", **unsure)
        assert (status, problem["errors"][0]["pointer"]) == (422, "/confirm"), unsure
    assert post("purge", dry_run=True)[0] == 200
    for method in ("GET", "DELETE"):
        status, problem = call(sidecar.admin_port, method, "/v1/operations/none")
        assert (status, problem["type"]) == (404, "/problems/unknown-operation")
    # Changes are the admin port's, and only its.
    assert call(sidecar.port, "POST", f"{BASE}/dead:purge", b"{}")[0] == 404


def test_an_operation_over_http(sidecar: Sidecar) -> None:
    path, sure = f"{BASE}/dead:redrive", b'{"confirm": "images"}'
    for unsure in (
        b"{}",
        b'{"filter": {}}',
        b'{"rate_per_s": 5}',
        b'{"confirm": "orders"}',
        b'{"max": 1000}',
    ):
        status, problem = call(sidecar.admin_port, "POST", path, unsure)
        assert (status, problem["errors"][0]["pointer"]) == (422, "/confirm"), unsure
    assert call(sidecar.admin_port, "POST", path, b'{"dry_run": true}')[0] == HTTPStatus.OK
    status, began = call(sidecar.admin_port, "POST", path, sure)
    assert (status, began["state"]) == (HTTPStatus.ACCEPTED, "running")
    path = f"/v1/operations/{began['id']}"
    wait_until(
        lambda: call(sidecar.admin_port, "GET", path)[1]["state"] == "done", "its end", timeout_s=60
    )
    # What has ended stays as it is.
    status, ended = call(sidecar.admin_port, "DELETE", path)
    assert (status, ended["state"], ended["moved"]) == (HTTPStatus.OK, "done", 0)


def test_operations_by_the_command_line(sidecar: Sidecar) -> None:
    """The list and one of it, whoever began it: here by HTTP."""
    began = call(sidecar.admin_port, "POST", f"{BASE}/dead:redrive", b'{"confirm": "images"}')[1]

    def listed(*words: str) -> list[str]:
        done = ackd(sidecar, *words, verb="operations")
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    followed = listed(began["id"])
    assert followed[-1].startswith("done: "), followed
    [line] = [each for each in listed() if each.startswith(began["id"])]
    assert re.fullmatch(r"[0-9a-f]{16}  \S+ \S+Z  redrive  images  done: .*", line)
    assert line.endswith(followed[-1])
    assert listed(began["id"], "--no-wait") == followed[-1:]
    assert began["id"] in "".join(listed("--subscription", "images", "--state", "done", "--json"))
    for chosen in (["--state", "running"], ["--subscription", "orders"]):
        assert not [each for each in listed(*chosen) if each.startswith(began["id"])]
    assert json.loads("\n".join(listed(began["id"], "--json")))["state"] == "done"
    for wrong in (["none"], ["--subscription", "nothing"], [began["id"], "--state", "done"]):
        refused = ackd(sidecar, *wrong, verb="operations")
        assert (refused.returncode, refused.stdout) == (2, ""), wrong


def some_dead(sidecar: Sidecar) -> list[str]:
    """Ids of at least three dead letters of `orders`; whatever can be received becomes one."""
    base = "/v1/subscriptions/orders"

    def enough() -> list[str]:
        status, _ = call(sidecar.port, "POST", "/v1/topics/orders/messages", b"1", Ackd_Key="k")
        assert status == HTTPStatus.CREATED
        _, got = call(sidecar.port, "POST", f"{base}/receive", b'{"max": 100, "wait_ms": 500}')
        for message in got["messages"]:
            call(sidecar.port, "POST", f"/v1/leases/{message['lease']}/dead", b'{"reason": "no"}')
        _, answer = call(sidecar.admin_port, "GET", f"{base}/dead")
        ids = [str(each["id"]) for each in answer["messages"]]
        return ids if len(ids) >= 3 else []

    return wait_until(enough, "dead letters", timeout_s=60)


def has_ended(sidecar: Sidecar, operation: str) -> bool:
    """Whether an operation is over; one that there never was, is."""
    _, answer = call(sidecar.admin_port, "GET", f"/v1/operations/{operation}")
    return answer.get("state") not in ("running", "cancelling")


def test_every_command_on_the_page_runs(sidecar: Sidecar) -> None:
    """`docs/guides/failures.md`, with ids of here in place of those that it shows."""
    operation, ids = "none", some_dead(sidecar)
    environ = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "ACKD_CONFIG": str(sidecar.folder / "ackd.toml"),
    }
    commands = [c for c in shell_commands(PAGE.read_text()) if " dead " in c or "curl" in c]
    assert len(commands) > 15
    for shown in commands:
        if "redrive" in shown or "purge" in shown or "0-17" in shown:
            wait_until(lambda name=operation: has_ended(sidecar, name), "its end", timeout_s=60)  # type: ignore[misc]
            ids = some_dead(sidecar)
        command = OPERATION.sub(operation, shown.partition("  #")[0])
        command = command.replace("0-16", ids[0]).replace("0-17", ids[1])
        command = command.replace("localhost:7081", f"127.0.0.1:{sidecar.admin_port}")
        done = subprocess.run(
            ["bash", "-c", command.replace("curl", "curl -fsS")],
            env=environ,
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        found = re.search(r"\b[0-9a-f]{16}\b", done.stdout)
        operation = operation if found is None else found[0]


def test_only_the_address_of_a_dead_letter_shows_content_on_the_admin_port(
    sidecar: Sidecar,
) -> None:
    """Of a dead letter, a leased and a waiting message, by every address that takes a GET."""
    path, secret = "/v1/topics/images/messages", b"c4nary"
    sent = {"Ackd_Key": secret.decode(), "Ackd_Header_Own": secret.decode()}
    for _ in range(3):
        assert call(sidecar.port, "POST", path, secret, **sent)[0] == HTTPStatus.CREATED
    before = {each["id"] for each in page(sidecar)["messages"]}
    dead, waits, _leased = take(sidecar, 3)
    assert call(sidecar.port, "POST", f"/v1/leases/{dead['lease']}/dead")[0] == HTTPStatus.OK
    later = b'{"delay_ms": 600000}'
    assert call(sidecar.port, "POST", f"/v1/leases/{waits['lease']}/retry", later)[0] == 200

    def listed() -> list[str]:
        return [each["id"] for each in page(sidecar)["messages"] if each["id"] not in before]

    (letter,) = wait_until(listed, "the dead letter", timeout_s=60)
    values = {"subscription": "images", "dead": letter, "operation": "none", "problem": "bug"}
    values |= {"topic": "images", "partition": dead["id"].split("/")[1]}
    values |= {"offset": dead["id"].split("/")[2]}
    shown = []
    for route in ROUTES:
        if route.method != "GET" or "admin" not in route.ports:
            continue
        address = route.path.format_map(values | {"broker": "local", "number": "1"})
        with closing(HTTPConnection("127.0.0.1", sidecar.admin_port, timeout=60)) as connection:
            connection.request("GET", address)
            text = connection.getresponse().read()
        if secret in text or b64encode(secret) in text:
            shown.append(route.name)
    assert shown == ["dead_peek"]
