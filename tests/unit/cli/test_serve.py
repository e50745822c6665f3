"""`ackd serve` and `ackd check --connect` as processes: start, drain, and the exit codes."""

import json
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path

import psutil
import pytest

from ackd.cli import exit_codes
from ackd_torture.ports import free_port, give_back
from tests.support.proc import Process
from tests.support.wait import wait_until
from tests.unit.cli.test_command import ackd, plain_environ

TRYING = """\
state_dir = "state"
[server]
listen = "127.0.0.1:{data}"
admin_listen = "127.0.0.1:{admin}"
drain_ms = 500
[store]
url = "memory"
{more}
"""


@contextmanager
def configured(folder: Path, more: str = "") -> Iterator[tuple[Path, int, int]]:
    """A configuration file with free ports and parts that need no server."""
    data, admin = free_port(), free_port()
    file = folder / "ackd.toml"
    file.write_text(TRYING.format(data=data, admin=admin, more=more))
    try:
        yield file, data, admin
    finally:
        give_back(data, admin)


def serving(file: Path) -> Process:
    """The command, its log beside the file."""
    argv = [sys.executable, "-m", "ackd", "serve", "--config", str(file)]
    return Process(argv, log_path=file.with_name("serve.log"), env=plain_environ())


def ready(admin: int) -> bool:
    """Whether the admin port says so."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{admin}/readyz", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def test_serve_starts_and_stops_in_good_order(tmp_path: Path) -> None:
    with configured(tmp_path) as (file, _, admin):
        process = serving(file)
        process.start()
        try:
            wait_until(lambda: ready(admin), "the sidecar is ready", timeout_s=60)
            assert process.terminate() == exit_codes.DONE
        finally:
            process.stop()
        log = [json.loads(line) for line in process.log_path.read_text().splitlines()]
        assert log[-1]["message"] == "ackd has stopped"


def test_a_store_of_its_own_has_nobody_to_link_to(tmp_path: Path) -> None:
    """Links are on by default; here nothing is listened on, and readiness has no line for them."""
    with configured(tmp_path) as (file, data, admin):
        process = serving(file)
        process.start()
        try:
            wait_until(lambda: ready(admin), "the sidecar is ready", timeout_s=60)
            with urllib.request.urlopen(f"http://127.0.0.1:{admin}/readyz", timeout=2) as answer:
                names = {reason["name"] for reason in json.load(answer)["reasons"]}
            assert "peers" not in names
            connections = psutil.Process(process.pid).net_connections("tcp")
            ports = {each.laddr.port for each in connections if each.status == psutil.CONN_LISTEN}
            assert ports == {data, admin}
        finally:
            process.stop()


def test_an_address_in_use_is_told_in_one_line(tmp_path: Path) -> None:
    with configured(tmp_path) as (file, data, _), socket.socket() as taken:
        taken.bind(("127.0.0.1", data))
        taken.listen()
        done = ackd("serve", "--config", str(file))
        assert done.returncode == exit_codes.UNREACHABLE
        assert str(data) in done.stderr
        assert "Traceback" not in done.stderr


def test_connect_tries_store_and_brokers_and_changes_nothing_else(tmp_path: Path) -> None:
    with configured(tmp_path) as (file, _, _):
        done = ackd("check", "--connect", "--quiet", "--config", str(file))
        lines = done.stdout.splitlines()
        assert [line.partition(":")[0] for line in lines if line.startswith("ok")] == [
            "ok     store memory",
            "ok     broker local (local)",
        ]
        assert "warn   subscription default, topic default: is not there yet" in lines
        assert (done.returncode, done.stderr) == (exit_codes.DONE, "")


def test_connect_says_what_cannot_be_reached(tmp_path: Path) -> None:
    port = free_port()
    more = (
        f'[brokers.k]\nadapter = "kafka"\n[brokers.k.options]\n'
        f'bootstrap_servers = "127.0.0.1:{port}"\nrequest_timeout_ms = 1000\n'
    )
    with configured(tmp_path, more) as (file, _, _):
        done = ackd("check", "--connect", "--quiet", "--config", str(file))
    give_back(port)
    (failed,) = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    assert failed.startswith("FAILED broker k (kafka): ")
    assert (done.returncode, done.stderr) == (exit_codes.UNREACHABLE, "")


def test_interrupted_from_the_keyboard() -> None:
    """Ctrl-C before the loop runs, or in a command without one, is no traceback."""
    code = (
        "import sys\nfrom ackd.cli import main\nfrom ackd.cli.commands import version\n"
        "def run(arguments): raise KeyboardInterrupt\nversion.run = run\n"
        "sys.exit(main.main(['version']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (exit_codes.INTERRUPTED, "")


BROKEN = """
import importlib, sys
from pathlib import Path
from ackd.cli.main import main

module, owner, method = sys.argv[1:4]
flag = Path(sys.argv[4])
kind = getattr(importlib.import_module(module), owner)
right = getattr(kind, method)

def wrong(*args):
    if flag.exists():
        raise ValueError("what nobody foresaw")
    return right(*args)

setattr(kind, method, wrong)
sys.exit(main(["serve", "--config", sys.argv[5]]))
"""


@pytest.mark.parametrize(
    ("place", "task"),
    [
        (("ackd.store.flusher", "Flusher", "_take"), "runtime.flusher"),
        (("ackd.engine.cluster.heartbeat", "Heartbeat", "_beat"), "runtime.subscription.default"),
        (
            ("ackd.engine.delivery.deadline_timers", "DeadlineTimers", "_upkeep"),
            "runtime.subscription.default",
        ),
    ],
)
def test_a_process_that_cannot_go_on_ends_with_a_failure(
    tmp_path: Path, place: tuple[str, str, str], task: str
) -> None:
    """Ready for ever with a dead task is worse than a restart: nobody would be told."""
    flag = tmp_path / "broken"
    with configured(tmp_path) as (file, data, admin):
        argv = [sys.executable, "-c", BROKEN, *place, str(flag), str(file)]
        process = Process(argv, log_path=tmp_path / "serve.log", env=plain_environ())
        process.start()
        try:
            wait_until(lambda: ready(admin), "the sidecar is ready", timeout_s=60)
            published = request(data, "/v1/topics/default/messages", b"1")
            flag.touch()
            request(data, "/v1/subscriptions/default/receive", b'{"wait_ms": 5000}')
            assert process.wait(20) == exit_codes.FAILED
        finally:
            process.stop()
        assert published == HTTPStatus.CREATED
        log = process.log_path.read_text()
        assert f"{task} has ended" in log
        assert "what nobody foresaw" in log


RETURNING = """
import asyncio, importlib, sys
from pathlib import Path
from ackd.cli.main import main

module, owner, method = sys.argv[1:4]
flag = Path(sys.argv[4])
kind = getattr(importlib.import_module(module), owner)
right = getattr(kind, method)

async def wrong(*args):
    loop = asyncio.create_task(right(*args))
    while not flag.exists():
        await asyncio.sleep(0.05)
    loop.cancel()

setattr(kind, method, wrong)
sys.exit(main(["serve", "--config", sys.argv[5]]))
"""


@pytest.mark.parametrize(
    ("place", "task"),
    [
        (("ackd.engine.ownership.commit", "Committer", "run"), "runtime.subscription.default"),
        (("ackd.http.server.server", "Server", "sweep"), "http.sweep-"),
    ],
)
def test_a_loop_that_returns_ends_the_process_too(
    tmp_path: Path, place: tuple[str, str, str], task: str
) -> None:
    """A loop that ends by mistake has done no less harm than one that failed."""
    flag = tmp_path / "broken"
    with configured(tmp_path) as (file, _, admin):
        argv = [sys.executable, "-c", RETURNING, *place, str(flag), str(file)]
        process = Process(argv, log_path=tmp_path / "serve.log", env=plain_environ())
        process.start()
        try:
            wait_until(lambda: ready(admin), "the sidecar is ready", timeout_s=60)
            flag.touch()
            assert process.wait(20) == exit_codes.FAILED
        finally:
            process.stop()
        log = process.log_path.read_text()
        assert task in log
        assert "has returned" in log


def request(port: int, path: str, body: bytes) -> int:
    """A POST; its status, 0 if the process ended meanwhile."""
    asked = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, method="POST")
    asked.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(asked, timeout=10) as answer:  # noqa: S310 - http
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0
