"""The demo as a stranger runs it: it ends well, says so, and leaves nothing behind."""

import os
import subprocess
import sys
import time

import psutil
import pytest

from ackd.cli import exit_codes
from ackd_demo import command as demo
from ackd_demo.board import Board
from ackd_demo.story import HERE, Story
from ackd_torture.checker import Finding, Verdict
from tests.support import kafka as kafka_support
from tests.support.paths import REPO, remove_run_dir, run_dir
from tests.support.require import require

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

MINUTE_S = 60


def play(*arguments: str) -> str:
    """Run it in a folder for temporary files of its own; what it printed."""
    temp = run_dir("demo")
    try:
        done = subprocess.run(
            [sys.executable, "-m", "ackd", "demo", *arguments],
            cwd=REPO,
            env={**os.environ, "TMPDIR": str(temp)},
            capture_output=True,
            text=True,
            timeout=220,
            check=False,
        )
        assert done.returncode == exit_codes.DONE, done.stdout + done.stderr
        assert done.stderr == ""
        assert list(temp.iterdir()) == [], "nothing is left behind"
        left = [p.cmdline() for p in psutil.process_iter() if str(temp) in " ".join(_words(p))]
        assert left == []
        return done.stdout
    finally:
        remove_run_dir(temp)


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def assert_ledger(output: str) -> None:
    facts: dict[str, str] = {}
    for line in output.splitlines():
        if "│" in line:
            name, _, value = line.partition("│")
            facts[name.strip()] = value.strip()
    assert facts["orders published"] == facts["delivered"] == facts["acked"] == "60"
    assert facts["acked again"] == facts["lost"] == "0"
    # The hanging worker's order and the killed worker's, at least.
    assert int(facts["redelivered, as they were not acked"]) >= 2
    assert "Every promise kept." in output
    for word in ("hangs on order-", "kill -9 of python-2", "kill -9 of ackd itself", "is back"):
        assert word in output


@pytest.mark.alone
def test_demo_with_python_alone() -> None:
    """Embedded store and local queue; it takes less than the minute that is promised."""
    began = time.monotonic()
    assert_ledger(play())
    assert time.monotonic() - began < MINUTE_S


@pytest.mark.kafka
def test_demo_on_kafka() -> None:
    """`make demo BROKER=kafka` starts a real one."""
    require(kafka_support.missing())
    assert_ledger(play("--broker", "kafka", "--parts", "tests.support.parts"))


def test_broken_promise_is_told_and_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The verdict decides the exit code: one acked order that came again is enough."""

    async def broken(_: Story) -> Verdict:
        verdict = Verdict(confirmed=60, delivered=60, acked=60, drained=True)
        case = Finding("acked_then_redelivered", "orders", "order-7", "orders/0/6", "attempt 2")
        verdict.findings[case.word].append(case)
        return verdict

    monkeypatch.setattr(Story, "play", broken)
    assert _run_demo() == exit_codes.BROKEN_PROMISE
    assert "A promise was broken." in capsys.readouterr().out


def _run_demo() -> int:
    from ackd.cli.main import build_parser  # noqa: PLC0415

    assert Board().all_done()
    assert (HERE / "worker.sh").exists()
    return demo.run(build_parser("demo").parse_args(["demo", "--plain"]))
