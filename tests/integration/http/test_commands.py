"""`ackd lease`, `lag`, `inflight` and `explain` against a running sidecar, as a person types."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import pytest

from ackd_torture.ports import free_port, give_back
from tests.integration.http.conftest import Sidecar, call, sidecar_in
from tests.support import command
from tests.support.command import Done
from tests.support.paths import REPO, remove_run_dir, run_dir
from tests.support.wait import wait_until
from tests.tidy.docs import shell_commands

PAGE = REPO / "docs" / "operate" / "top.md"
SHOWN = "v1.8_hRZLyxXkqFfDeL"
OPERATION = "9f0c2c1d5e7a8b90"
SUBSCRIPTION = "/v1/subscriptions/orders"


def ackd(sidecar: Sidecar, *words: str, given: str = "") -> Done:
    """The command with the sidecar's configuration."""
    return command.ackd(sidecar.folder / "ackd.toml", *words, given=given)


def lease(sidecar: Sidecar, count: int = 1) -> list[str]:
    """Leases of messages of `orders` made for it; whatever else there is, is acked."""
    found: list[str] = []
    base = "/v1/subscriptions/orders"

    def enough() -> bool:
        status, _ = call(sidecar.port, "POST", "/v1/topics/orders/messages", b"{}")
        assert status == HTTPStatus.CREATED
        body = json.dumps({"max": count - len(found), "wait_ms": 1000, "lease_ms": 60_000})
        _, answer = call(
            sidecar.port, "POST", f"{base}/receive", body.encode(), Ackd_Worker="worker-7"
        )
        found.extend(each["lease"] for each in answer["messages"])
        return len(found) == count

    wait_until(enough, f"{count} leases")
    return found


def test_a_lease_from_look_to_end(sidecar: Sidecar) -> None:
    """I7, R17: what the sidecar says is what the command says, and how it ends."""
    first, second, third = lease(sidecar, 3)
    shown = ackd(sidecar, "lease", "show", first)
    assert shown.returncode == 0, shown.stderr
    assert re.fullmatch(r"leased, attempt 1, until \S+ \S+Z \(in \d+s\)\n", shown.stdout)
    longer = ackd(sidecar, "lease", "extend", first, "--lease", "1h", "--json")
    deadline_ms = json.loads(longer.stdout)["deadline_ms"]
    status, state = call(sidecar.port, "GET", f"/v1/leases/{first}")
    assert (status, state["deadline_ms"]) == (HTTPStatus.OK, deadline_ms)
    assert ackd(sidecar, "lease", "ack", first, first).stdout == "acked\nalready_acked\n"
    later = ackd(sidecar, "lease", "retry", second, "--delay", "50s", "--reason", "no luck")
    assert re.match(r"retrying, again at .* \(in (50|4\d)s\)", later.stdout), later.stderr
    # A lease that is over is refused, and the rest is done all the same; none stands in `ps`.
    mixed = ackd(sidecar, "lease", "release", "-", given=f"{first}\n\n{third}\n")
    assert (mixed.returncode, mixed.stdout) == (2, "released\n")
    assert first[:15] in mixed.stderr
    assert first not in mixed.stderr
    wrong = ackd(sidecar, "lease", "ack", "v1.nonsense")
    assert (wrong.returncode, "Traceback" in wrong.stderr) == (2, False)
    (again,) = lease(sidecar)
    assert ackd(sidecar, "lease", "dead", again, "--reason", "enough").stdout == "dead\n"


def test_a_message_is_cancelled_by_its_name(sidecar: Sidecar) -> None:
    """I2: it is over at once, and the worker's late settle hears why."""
    held = lease(sidecar, 2)
    found = json.loads(_json(sidecar, "inflight"))["messages"]
    one, two = sorted(each["id"] for each in found if each["state"] == "leased")
    words = ("--then", "ack", "--reason", "sent by hand")
    done = ackd(sidecar, "cancel", "orders", one, "no-such-name", *words)
    assert (done.returncode, done.stdout) == (2, f"{one}  acked\n")
    assert "no-such-name: not a message's id" in done.stderr
    as_json = ackd(sidecar, "cancel", "orders", two, "--json")
    assert json.loads(as_json.stdout) == {"id": two, "state": "dead"}, as_json.stderr
    states = {ackd(sidecar, "lease", "show", each).stdout.split(",")[0].strip() for each in held}
    assert states <= {"acked", "dead", "lost"}, states
    assert "leased" not in ackd(sidecar, "inflight", "orders").stdout
    assert ackd(sidecar, "cancel", "nothing", two).returncode == 2


def test_nobody_there_is_exit_3(sidecar: Sidecar) -> None:
    nobody = free_port()
    for words in (
        ("lease", "ack", "v1.x"),
        ("lag", "orders"),
        ("cancel", "orders", "orders/0/1"),
        ("inflight", "orders"),
        ("explain", "orders"),
        ("messages", "orders"),
        ("operations",),
    ):
        done = ackd(sidecar, *words, "--url", f"http://127.0.0.1:{nobody}")
        assert (done.returncode, "Traceback" in done.stderr) == (3, False), done.stderr
    give_back(nobody)


def test_looking(sidecar: Sidecar) -> None:
    (held,) = lease(sidecar)
    names = [each["id"] for each in json.loads(_json(sidecar, "inflight"))["messages"]]
    shown = ackd(sidecar, "inflight", "orders")
    assert shown.returncode == 0, shown.stderr
    assert {line.split()[0] for line in shown.stdout.splitlines()} >= set(names)
    assert "leased   attempt" in shown.stdout
    assert "worker-7" in shown.stdout
    assert ackd(sidecar, "inflight", "orders", "--older", "10m").stdout == ""
    answer = json.loads(_json(sidecar, "lag"))
    partitions = answer["partitions"]
    told, _, shares = ackd(sidecar, "lag", "orders").stdout.partition("\n\n")
    lines = told.splitlines()
    assert len(lines) == len(partitions) + 1
    [share] = answer["sidecars"]
    [_, line] = shares.splitlines()
    own, copies = (sum(each["retry_topic"] is of for each in partitions) for of in (False, True))
    assert (share["partitions"], share["retry_topic_partitions"]) == (own, copies)
    assert share["served"]["own"] > 0
    assert line.split()[:3] == [share["sidecar"], str(own), str(copies)]
    assert lines[0].split()[:3] == ["partition", "lag", "end"]
    explained = ackd(sidecar, "explain", "orders").stdout
    for name in names:
        if f"held by {name}" in explained:
            break
    else:
        pytest.fail(explained)
    assert "an ack, or the end of its lease" in explained
    unknown = ackd(sidecar, "explain", "nothing")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert ackd(sidecar, "lease", "ack", held).stdout == "acked\n"


def test_messages_and_one_of_them(sidecar: Sidecar) -> None:
    """What is unfinished, and one by its id: leased, failed, acked; without content."""
    (held,) = lease(sidecar)
    found = json.loads(_json(sidecar, "inflight"))["messages"]
    name = max(found, key=lambda each: int(each["id"].rpartition("/")[2]))["id"]
    shown = ackd(sidecar, "messages", "orders", "--state", "leased")
    assert shown.returncode == 0, shown.stderr
    [line] = [each for each in shown.stdout.splitlines() if each.split()[0] == name]
    assert "leased   attempt" in line
    assert name not in ackd(sidecar, "messages", "orders", "--state", "dead").stdout
    listed = ackd(sidecar, "messages", "orders", "--max", "1", "--json").stdout.splitlines()
    assert [json.loads(each)["state"] for each in listed] == [json.loads(listed[0])["state"]]
    first = ackd(sidecar, "messages", "orders", name).stdout
    assert first.startswith(f"{name}: leased, attempt 1\n  held by worker-7\n  lease ends "), first
    assert "  waits for: an ack, or the end of its lease" in first
    words = ("--delay", "50s", "--reason", "no luck")
    assert ackd(sidecar, "lease", "retry", held, *words).returncode == 0
    failed = ackd(sidecar, "messages", "orders", name).stdout
    assert failed.startswith(f"{name}: retrying, attempt 1\n  delivered again "), failed
    assert "  failed with: no luck\n" in failed
    assert re.search(r"\n  attempt 1.*, retrying.*: no luck\n", failed), failed
    status, answer = call(sidecar.port, "GET", f"/v1/subscriptions/orders/messages/{name}")
    assert (status, answer["state"], answer["error"]) == (HTTPStatus.OK, "retrying", "no luck")
    ackd(sidecar, "cancel", "orders", name, "--then", "ack")
    over = ackd(sidecar, "messages", "orders", name, "--json")
    assert json.loads(over.stdout)["state"] == "acked", over.stderr
    for wrong in ("no-such-name", "orders/0/999999", "orders/77/0", "other/0/0"):
        refused = ackd(sidecar, "messages", "orders", wrong)
        assert (refused.returncode, refused.stdout) == (2, ""), refused.stderr
        assert "Traceback" not in refused.stderr
    base = "/v1/subscriptions/orders/messages"
    for query in ("?state=lost", "?max=0", "?max=1001", "?cursor=x", "?scope=all", "?older=1"):
        assert call(sidecar.admin_port, "GET", f"{base}{query}")[0] == 422, query
    for path in ("orders/0/x", "orders/0/999999"):
        status, problem = call(sidecar.admin_port, "GET", f"{base}/{path}")
        assert status == HTTPStatus.NOT_FOUND, problem


def in_flight(sidecar: Sidecar) -> str:
    """The name of a leased message."""
    lease(sidecar)
    found = json.loads(_json(sidecar, "inflight"))["messages"]
    return next(str(each["id"]) for each in found if each["state"] == "leased")


def _json(sidecar: Sidecar, command: str) -> str:
    return ackd(sidecar, command, "orders", "--json").stdout


@pytest.fixture
def by_socket() -> Iterator[Sidecar]:
    """A sidecar whose data port is a socket file."""
    folder: Path = run_dir("s")
    sidecar = sidecar_in(folder, unix=True)
    try:
        sidecar.start()
        yield sidecar
    finally:
        sidecar.process.stop()
        give_back(sidecar.port, sidecar.admin_port)
        remove_run_dir(folder)


def test_a_socket_file(by_socket: Sidecar) -> None:
    done = ackd(by_socket, "lease", "show", "v1.x")
    assert (done.returncode, "lease token" in done.stderr) == (2, True), done.stderr
    url = f"unix:{by_socket.folder}/ackd.sock"
    assert ackd(by_socket, "lag", "orders", "--url", url).returncode == 0
    found = json.loads(ackd(by_socket, "top", "--once", "--json", "--url", url).stdout)
    assert [each["error"] for each in found["sidecars"]] == [None]


def test_commands_of_the_page(sidecar: Sidecar) -> None:
    """`docs/operate/top.md`: what needs no terminal runs as it stands, with leases of here."""
    ran = 0
    for shown in shell_commands(PAGE.read_text()):
        words = shown
        if words == "ackd top" or "--plain" in words or "10.0.0" in words:
            continue
        if words.startswith("ackd lease"):
            words = words.replace(SHOWN, lease(sidecar)[0])
        if "orders/3/2101" in words:
            words = words.replace("orders/3/2101", in_flight(sidecar))
        if OPERATION in words:
            redrive = f"{SUBSCRIPTION}/dead:redrive"
            _, begun = call(sidecar.admin_port, "POST", redrive, b'{"confirm": "orders"}')
            words = words.replace(OPERATION, begun["id"])
        done = ackd(sidecar, *shlex.split(words)[1:])
        assert done.returncode == 0, (words, done)
        ran += 1
    assert ran >= 10
