"""`ackd top` on a running sidecar: its keys by Textual's own pilot, and a user's terminal."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from http import HTTPStatus
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, Static

from ackd.cli.client.endpoint import of_url
from ackd_top.app import BoardScreen, TopApp
from ackd_top.screens import DeadScreen, MessageScreen, SubscriptionScreen
from ackd_torture.ports import free_port, give_back
from tests.integration.http.conftest import Sidecar, call, made_sidecar, sidecar_in
from tests.support import command
from tests.support.command import Done
from tests.support.paths import remove_run_dir, run_dir
from tests.support.terminal import Terminal
from tests.support.wait import wait_until, wait_until_async

EVERY_S = 0.2
COUNT = 6
COLOUR = re.compile(rb"\x1b\[[0-9;]*\b(3[0-7]|4[0-7]|38|48|9[0-7]|10[0-7])\b[0-9;]*m")
Find = Callable[[], bool]


@pytest.fixture(scope="module")
def busy() -> Iterator[Sidecar]:
    """`orders` has leased, waiting and dead messages; `images` has nothing."""
    with made_sidecar() as sidecar:
        sidecar.start()
        fill(sidecar)
        yield sidecar


def fill(sidecar: Sidecar) -> None:
    """Six of `orders`: one dead, one to be retried, four leased by `worker-7` for ten minutes.

    Nothing is sent back meanwhile, however slow the machine is.
    """
    for name in ("orders", "images"):
        raw = json.dumps({"stuck_after_ms": "1h"}).encode()
        path = f"/v1/subscriptions/{name}"
        assert call(sidecar.admin_port, "PATCH", path, raw)[0] == HTTPStatus.OK
    for number in range(COUNT):
        status, _ = call(sidecar.port, "POST", "/v1/topics/orders/messages", b"%d" % number)
        assert status == HTTPStatus.CREATED
    found: list[Any] = []

    def enough() -> bool:
        body = {"max": COUNT - len(found), "wait_ms": 1000, "lease_ms": 600_000}
        _, answer = call(
            sidecar.port,
            "POST",
            "/v1/subscriptions/orders/receive",
            json.dumps(body).encode(),
            Ackd_Worker="worker-7",
        )
        found.extend(answer["messages"])
        return len(found) == COUNT

    wait_until(enough, "all are leased")
    items = [
        {"lease": found[0]["lease"], "do": "dead", "reason": "too blue"},
        {"lease": found[1]["lease"], "do": "retry", "delay_ms": 600_000},
    ]
    raw = json.dumps({"items": items}).encode()
    _, answer = call(sidecar.port, "POST", "/v1/settle", raw)
    assert [each["status"] for each in answer["results"]] == ["dead", "retrying"]
    wait_until(
        lambda: call(sidecar.port, "GET", "/v1/subscriptions/orders/dead")[1]["messages"],
        "the dead letter is stored",
    )


# --- by the pilot


def text_of(app: TopApp, name: str) -> str:
    """What a text widget of the screen on top shows."""
    return str(app.screen.query_one(name, Static).render())


def table_of(app: TopApp, name: str) -> list[list[str]]:
    """The cells of a table of the screen on top."""
    table = app.screen.query_one(name, DataTable)
    return [
        [cell.plain.strip() for cell in table.get_row_at(row)] for row in range(table.row_count)
    ]


def top(*urls: str, older_ms: int = 0) -> TopApp:
    """The view of these sidecars."""
    return TopApp([of_url(url) for url in urls], every_s=EVERY_S, older_ms=older_ms)


async def until(condition: Find, what: str) -> None:
    """Wait on the view."""

    async def asked() -> bool:
        return condition()

    await wait_until_async(asked, what, ignoring=(LookupError,))


async def press(pilot: Pilot[None], *keys: str) -> None:
    """Press keys, one after the other."""
    await pilot.press(*keys)


async def test_a_screen_that_is_taken_down_meanwhile_ends_nothing(busy: Sidecar) -> None:
    """On a slow machine a look ends while its screen loses its widgets."""
    app = top(busy.admin_url)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(lambda: len(table_of(app, "#board")) == 2, "both subscriptions")
        await press(pilot, "enter")
        await until(lambda: isinstance(app.screen, SubscriptionScreen), "one of them")
        await app.screen.remove_children()
        app.action_look()
        await app.board.remove_children()
        await press(pilot, "escape")
        app.show()
        assert app.screen is app.board


async def test_the_keys(busy: Sidecar) -> None:
    app = top(busy.admin_url)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(lambda: len(table_of(app, "#board")) == 2, "both subscriptions")
        await until(
            lambda: dict(zip(*_titled(app), strict=True))["stuck"] == "5", "five are in flight"
        )
        row = dict(zip(*_titled(app), strict=True))
        assert (row["subscription"], row["state"]) == ("orders", "running")
        assert (row["leased"], row["waiting"], row["dead"]) == ("4", "1", "1")
        assert "nothing stuck in images" in text_of(app, "#stuck")
        await press(pilot, "down")
        await until(lambda: "stuck in orders" in text_of(app, "#stuck"), "the other one's panel")
        assert "worker-7" in text_of(app, "#stuck") or "orders/" in text_of(app, "#stuck")
        await pilot.resize_terminal(160, 40)
        await until(lambda: "in retry topic" in _titled(app)[0], "more columns")
        assert app.screen.query_one("#board", DataTable).cursor_row == 1
        await pilot.resize_terminal(80, 24)
        await until(lambda: "in retry topic" not in _titled(app)[0], "fewer columns")
        await _filter(app, pilot)
        await _inside(app, pilot, busy)
        await press(pilot, "q")
    assert app.return_code == 0


def _titled(app: TopApp) -> tuple[list[str], list[str]]:
    """Titles, and the row of `orders`."""
    table = app.screen.query_one("#board", DataTable)
    titles = [str(column.label).strip() for column in table.ordered_columns]
    return titles, table_of(app, "#board")[1]


async def _filter(app: TopApp, pilot: Pilot[None]) -> None:
    await press(pilot, "slash", "m", "a", "g")
    await until(lambda: [row[0] for row in table_of(app, "#board")] == ["images"], "one row")
    await press(pilot, "x")
    await until(lambda: "nothing fits" in text_of(app, "#stuck"), "no row")
    await press(pilot, "escape")
    await until(lambda: len(table_of(app, "#board")) == 2, "all rows")


async def _inside(app: TopApp, pilot: Pilot[None], busy: Sidecar) -> None:
    """A subscription, a message in it whose state changes meanwhile, the dead letters, and back."""
    await until(lambda: isinstance(app.screen, BoardScreen), "the first screen")
    app.screen.query_one("#board", DataTable).move_cursor(row=1)
    await press(pilot, "enter")
    await until(lambda: len(table_of(app, "#messages")) == 5, "five messages")
    assert isinstance(app.screen, SubscriptionScreen)
    assert "5 in flight" in text_of(app, "#head")
    owned = {row[0]: row for row in table_of(app, "#partitions")}
    [share] = table_of(app, "#sidecars")
    assert int(share[1]) == sum(name.startswith("orders/") for name in owned)
    assert int(share[4]) >= COUNT, "each of them, at least once"
    assert share[5:] == ["0", "0"], "there is no other sidecar"
    held = next(row for name, row in owned.items() if name.startswith("orders/") and row[1] != "0")
    assert held[2].startswith("orders/")
    leased = [row[0] for row in table_of(app, "#messages") if row[1] == "leased"]
    await press(pilot, *["down"] * [r[0] for r in table_of(app, "#messages")].index(leased[0]))
    await press(pilot, "enter")
    await until(lambda: isinstance(app.screen, MessageScreen), "the message's screen")
    await until(lambda: "held by      worker-7" in text_of(app, "#facts"), "its holder")
    facts = text_of(app, "#facts")
    assert f"message      {leased[0]}" in facts
    assert "lease ends" in facts
    assert "released by: an ack, or the end of its lease" in facts or "does not hold" in facts
    assert call(busy.admin_port, "POST", "/v1/subscriptions/orders/pause", b'{"reason":"why"}')[0]
    await until(lambda: "paused (group)" in text_of(app, "#facts"), "the pause is explained")
    assert call(busy.admin_port, "POST", "/v1/subscriptions/orders/resume", b"{}")[0] == 200
    await press(pilot, "escape", "d")
    await until(lambda: isinstance(app.screen, DeadScreen), "the dead letters")
    await until(lambda: len(table_of(app, "#dead")) == 1, "the dead letter")
    assert table_of(app, "#dead")[0][4] == "too blue"
    await press(pilot, "escape", "escape")
    await until(lambda: isinstance(app.screen, BoardScreen), "back at the first screen")


async def test_a_change_of_a_message_is_seen(busy: Sidecar) -> None:
    _, answer = call(busy.port, "POST", "/v1/topics/images/messages", b"\xff")
    name = str(answer["id"])
    app = top(busy.admin_url)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(lambda: table_of(app, "#board")[0][0] == "images", "the subscription")
        lease = await _lease(busy)
        await press(pilot, "enter")
        await until(lambda: [row[0] for row in table_of(app, "#messages")] == [name], "it is out")
        await press(pilot, "enter")
        await until(lambda: "leased, attempt 1" in text_of(app, "#facts"), "its history begins")
        path = f"/v1/leases/{lease}/retry"
        assert call(busy.port, "POST", path, b'{"delay_ms": 600000}')[0] == HTTPStatus.OK
        await until(lambda: "retrying, attempt 1" in text_of(app, "#facts"), "the change")
        assert "out again" in text_of(app, "#facts")


async def _lease(busy: Sidecar) -> str:
    """The one message of `images`."""
    found: list[str] = []

    async def there() -> bool:
        path = "/v1/subscriptions/images/receive"
        _, answer = call(busy.port, "POST", path, b'{"lease_ms": 600000}')
        found.extend(each["lease"] for each in answer["messages"])
        return bool(found)

    await wait_until_async(there, "a message of images")
    return found[0]


@pytest.mark.slow
async def test_a_lost_sidecar_is_named_and_tried_on() -> None:
    folder = run_dir("top-lost")
    sidecar = sidecar_in(folder)
    nobody = free_port()
    app = top(sidecar.admin_url, f"http://127.0.0.1:{nobody}")
    try:
        async with app.run_test(size=(80, 24)):
            await until(lambda: "0 of 2 sidecars" in text_of(app, "#head"), "nobody is there")
            assert text_of(app, "#trouble").count("NO ANSWER") == 2
            assert "Connection refused" in text_of(app, "#trouble")
            await _in_thread(sidecar.start)
            await until(lambda: "1 of 2 sidecars" in text_of(app, "#head"), "one has come")
            await until(
                lambda: {row[1] for row in table_of(app, "#board")} <= {"running", "idle"},
                "it runs",
            )
            await _in_thread(sidecar.process.kill)
            await until(
                lambda: {row[1] for row in table_of(app, "#board")} == {"lost"}, "it is lost"
            )
            await _in_thread(sidecar.start)
            await until(
                lambda: {row[1] for row in table_of(app, "#board")} <= {"running", "idle"},
                "it is there again",
            )
    finally:
        sidecar.process.stop()
        give_back(sidecar.port, sidecar.admin_port, nobody)
        remove_run_dir(folder)


async def _in_thread(work: Callable[[], object]) -> None:
    import asyncio  # noqa: PLC0415

    awaited: Awaitable[object] = asyncio.to_thread(work)
    await awaited


# --- as a user


def ackd(busy: Sidecar, *words: str) -> Done:
    """The command; its output is no terminal."""
    return command.ackd(busy.folder / "ackd.toml", "top", *words)


@pytest.mark.parametrize("colour", [True, False], ids=["colour", "no-color"])
def test_in_a_real_terminal(busy: Sidecar, colour: bool) -> None:  # noqa: FBT001
    env = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    env |= {"TERM": "xterm-256color", "ACKD_CONFIG": str(busy.folder / "ackd.toml")}
    if not colour:
        env["NO_COLOR"] = "1"
    argv = [sys.executable, "-m", "ackd", "top", "--older", "0s", "--every", "200ms"]
    with Terminal(argv, env=env) as terminal:
        board = terminal.shows(
            lambda lines: any(re.match(r"orders +running .* 4 ", line) for line in lines),
            "the board",
        )
        assert board[0].startswith("ackd top  ")
        assert board[1].split()[:3] == ["subscription", "state", "lag"]
        assert board[1].split()[-1] == "fail/s"
        assert "q quit" in board[-1]
        assert "enter open" in board[-1]
        terminal.press("\x1b[B")
        terminal.shows(lambda lines: "stuck in orders:" in lines, "what is stuck in orders")
        terminal.press("\r")
        # The title may be painted a moment before the rows.
        terminal.shows(
            lambda lines: (
                lines[0].startswith("orders: 5 in flight")
                and any("worker-7" in line for line in lines)
            ),
            "the messages and who holds them",
        )
        terminal.press("\r")
        terminal.shows(lambda lines: lines[0].startswith("message      orders/"), "one message")
        terminal.press("\x1b")
        terminal.shows(lambda lines: lines[0].startswith("orders: 5 in flight"), "back")
        terminal.press("q")
        assert terminal.exit_code() == 0
        assert bool(COLOUR.search(terminal.raw)) is colour


def test_text_for_a_pipe(busy: Sidecar) -> None:
    script = f"{sys.executable} -m ackd top --every 200ms --older 0s | head -n 30"
    done = subprocess.run(
        ["bash", "-c", script],
        env={**os.environ, "ACKD_CONFIG": str(busy.folder / "ackd.toml")},
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    # Look after look, until the reader has seen enough; nobody complains then.
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    lines = done.stdout.splitlines()
    assert lines[1].startswith("subscription ")
    assert sum(line.startswith("ackd top ") for line in lines) > 1
    assert any(re.match(r"orders +running ", line) for line in lines)
    assert any(line.startswith("  stuck: orders/") for line in lines)
    only = ackd(busy, "--once", "--only", "imag").stdout
    assert ("images " in only, "orders" in only) == (True, False)


def test_json_for_a_program(busy: Sidecar) -> None:
    done = ackd(busy, "--once", "--json", "--older", "0s")
    found = json.loads(done.stdout)
    row = next(each for each in found["subscriptions"] if each["name"] == "orders")
    assert row["gauges"]["in_flight"] == 4
    assert len(row["messages"]) == 5
    assert row["out_s"] is not None
    assert found["sidecars"][0]["error"] is None


def test_the_data_port_tells_less(busy: Sidecar) -> None:
    done = ackd(busy, "--once", "--json", "--url", busy.url)
    row = next(
        each for each in json.loads(done.stdout)["subscriptions"] if each["name"] == "orders"
    )
    assert (row["gauges"]["in_flight"], row["dead"], row["out_s"]) == (4, None, None)


def test_nobody_answers(busy: Sidecar) -> None:
    port = free_port()
    done = ackd(busy, "--once", "--url", f"http://127.0.0.1:{port}")
    give_back(port)
    assert done.returncode == 3
    assert "NO ANSWER" in done.stdout
    assert "Connection refused" in done.stdout


def test_without_textual_it_says_what_to_install(busy: Sidecar) -> None:
    """The extra is not installed here: importlib does not find it."""
    script = (
        "import importlib.util as util\n"
        "real = util.find_spec\n"
        "util.find_spec = lambda name, *more: None if name == 'textual' else real(name, *more)\n"
        "from ackd.cli.main import main\n"
        "raise SystemExit(main(['top']))"
    )
    env = {**os.environ, "TERM": "xterm", "ACKD_CONFIG": str(busy.folder / "ackd.toml")}
    with Terminal([sys.executable, "-c", script], env=env) as terminal:
        assert terminal.exit_code() == 2
        assert b"pip install 'ackd[top]'" in terminal.raw
