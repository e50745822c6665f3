"""`ackd torture` as a command: against sidecars that run already, and with parts of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ackd.cli import exit_codes
from ackd_torture.parts import LocalQueue, Sidecar, SidecarPlan
from ackd_torture.ports import free_port
from tests.support.paths import REPO, remove_run_dir, run_dir

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def torture(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    return subprocess.run(
        [sys.executable, "-m", "ackd", "torture", *arguments],
        cwd=REPO,
        capture_output=True,
        text=True,
        timeout=220,
        check=False,
    )


def test_against_a_running_sidecar(tmp_path: Path) -> None:
    """By URL: load and a verdict; the sidecar is not hurt."""
    folder = run_dir("torture")
    plan = SidecarPlan(broker=LocalQueue(folder), store_url="embedded", topic="tortured")
    sidecar = Sidecar("s1", plan, folder)
    try:
        sidecar.start()
        done = torture(
            *("--url", sidecar.url, "--topic", "tortured", "--sub", "orders", "--seed", "5"),
            *("--seconds", "4", "--lease-ms", "1000", "--json", str(tmp_path / "verdict.json")),
        )
        assert done.returncode == exit_codes.DONE, done.stdout + done.stderr
        assert sidecar.running
        assert sidecar.starts == 1
    finally:
        sidecar.stop()
        remove_run_dir(folder)
    found = json.loads((tmp_path / "verdict.json").read_text())
    assert found["kept"]
    assert found["about"]["seed"] == 5
    # A worker is killed at the end; an ack of its may be in the air, and nobody reads the answer.
    assert 0 <= found["delivered"] - found["acked"] <= found["acks_unclear"]
    assert found["delivered"] >= found["confirmed"] > 20
    assert "seed 5" in done.stdout


def test_with_a_replica_whose_word_a_settle_waits_for(tmp_path: Path) -> None:
    folder = run_dir("torture-replica")
    try:
        done = torture(
            *("--start", "local", "--durability", "replicated", "--kills", "2", "--seed", "7"),
            *("--seconds", "2", "--keep", str(folder), "--json", str(tmp_path / "verdict.json")),
        )
        assert done.returncode == exit_codes.DONE, done.stdout + done.stderr
        assert "replica of the store" in done.stdout
        for name in ("s1", "s2"):  # nothing is settled without the replica then
            assert 'durability = "replicated"' in (folder / name / "ackd.toml").read_text()
    finally:
        remove_run_dir(folder)
    found = json.loads((tmp_path / "verdict.json").read_text())
    assert found["kept"]
    assert found["acked"] > 20


def test_says_what_it_needs() -> None:
    assert torture().returncode == exit_codes.CONFIG
    done = torture("--start", "kafka")
    assert done.returncode == exit_codes.UNREACHABLE
    assert "--kafka" in done.stderr


def test_where_nobody_answers_nothing_is_shown(tmp_path: Path) -> None:
    """No promise was tested, so none is called kept."""
    nobody = ("--url", f"http://127.0.0.1:{free_port()}", "--topic", "t", "--sub", "orders")
    verdict = tmp_path / "verdict.json"
    done = torture(*nobody, *("--seconds", "1", "--drain-s", "1", "--json", str(verdict)))
    assert done.returncode == exit_codes.UNREACHABLE, done.stdout + done.stderr
    assert "kept" not in done.stdout
    assert not json.loads(verdict.read_text())["kept"]
