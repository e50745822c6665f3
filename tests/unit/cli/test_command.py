"""The command as a process: exit codes, helpful errors, no traceback for a user's mistake."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from ackd import __version__
from ackd.cli import exit_codes
from ackd.cli.main import COMMANDS, build_parser, main


def plain_environ() -> dict[str, str]:
    """The environment without settings of ours."""
    return {name: value for name, value in os.environ.items() if not name.startswith("ACKD_")}


def ackd(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "ackd", *words],
        env=plain_environ() | environ,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_version() -> None:
    assert ackd("version").stdout == f"ackd {__version__}\n"
    assert ackd("--version").stdout == f"ackd {__version__}\n"
    adapters = next(
        line for line in ackd("version", "--all").stdout.splitlines() if line.startswith("adapters")
    )
    assert {"kafka", "local"} <= set(adapters.removeprefix("adapters ").split(", "))


@pytest.mark.parametrize(("word", "ended"), [("serve", ""), ("version", "taken down\n")])
def test_the_interpreter_outlives_serve(word: str, ended: str) -> None:
    """Threads of native clients may still be ending when it returns."""
    script = (
        "import atexit, ackd.__main__ as process\n"
        "atexit.register(print, 'taken down')\n"
        "process.main = lambda: print('told') or 7\n"
        "process.command()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, word],
        env=plain_environ(),
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout, done.stderr) == (7, f"told\n{ended}", "")


def test_help_names_every_command_and_the_exit_codes() -> None:
    shown = ackd("--help")
    assert shown.returncode == exit_codes.DONE
    words = {line.split()[0] for line in shown.stdout.splitlines() if line.startswith("    ")}
    for each in COMMANDS:
        assert each.name in words
    for code, text in exit_codes.EXITS.items():
        assert f"  {code:<4} {text}" in shown.stdout


@pytest.mark.parametrize("name", [each.name for each in COMMANDS])
def test_every_command_is_there_and_explains_its_arguments(name: str) -> None:
    assert f"usage: ackd {name}" in build_parser(name).format_help() + ackd(name, "--help").stdout


@pytest.mark.parametrize("name", ["top", "torture", "demo"])
@pytest.mark.parametrize("more", [(), ("--help",), ("--plain", "--wrong")])
def test_a_command_that_is_not_installed_says_what_to_install(
    name: str,
    more: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As in the image, which has no `ackd-tools`."""
    monkeypatch.setattr("ackd.cli.main.entry_points", lambda **_asked: ())
    assert main([name, *more]) == exit_codes.CONFIG
    told = capsys.readouterr()
    assert told.err.startswith(f"ackd: `ackd {name}` is not installed here: ")
    assert f"pip install 'ackd[{name}]'" in told.err
    assert told.out == ""


@pytest.mark.parametrize("words", [(), ("surve",), ("check", "--conf", "x"), ("docs", "nothing")])
def test_wrong_usage(words: tuple[str, ...]) -> None:
    done = ackd(*words)
    assert done.returncode == exit_codes.CONFIG
    assert "usage: ackd" in done.stderr
    assert "Traceback" not in done.stderr


def test_check_prints_what_is_in_effect_with_sources(tmp_path: Path) -> None:
    file = tmp_path / "ackd.toml"
    file.write_text('[subscriptions.orders]\ntopics = ["orders"]\nlease_ms = "45s"\n')
    done = ackd("check", ACKD_CONFIG=str(file), ACKD_SERVER__DRAIN_MS="3s")
    assert done.returncode == exit_codes.DONE, done.stderr
    settings = tomllib.loads(done.stdout)
    assert settings["subscriptions"]["orders"]["lease_ms"] == "45s"
    lines = done.stdout.splitlines()
    assert 'lease_ms = "45s"  # file' in lines
    assert 'drain_ms = "3s"  # env' in lines
    assert "attempts_max = 17  # default" in lines
    # What was printed is a configuration with the same meaning.
    again = tmp_path / "again.toml"
    again.write_text(done.stdout)
    assert tomllib.loads(ackd("check", "--config", str(again)).stdout) == settings


def test_check_hides_secrets(tmp_path: Path) -> None:
    file = tmp_path / "ackd.toml"
    file.write_text(
        '[brokers.k]\nadapter = "kafka"\n[brokers.k.options]\nbootstrap_servers = "h:9092"\n'
        'properties = {"oauthbearer.config" = "hush"}\n'
    )
    done = ackd("check", "--config", str(file))
    assert done.returncode == exit_codes.DONE, done.stderr
    assert "hush" not in done.stdout
    assert "***" in done.stdout


@pytest.mark.parametrize("command", ["check", "serve"])
def test_every_mistake_is_told_at_once_without_a_traceback(command: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_text('[server]\nwait_ms_max = "2m"\n[store]\nurl = "redis://me:hush@h"\nulr = 1\n')
    done = ackd(command, "--config", str(file), ACKD_PUBLISH__RETRIES_MAX="11")
    assert done.returncode == exit_codes.CONFIG
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert lines[0] == "ackd: The configuration has 4 mistakes:"
    assert [line.strip().split(": ")[0] for line in lines[1:]] == [
        f"{file}:2:1",
        f"{file}:4:1",
        f"{file}:5:1",
        "$ACKD_PUBLISH__RETRIES_MAX",
    ]
    assert "hush" not in done.stderr
    assert "Traceback" not in done.stderr


def test_a_reader_that_has_seen_enough_is_no_failure() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as out:
        done = subprocess.run(
            [sys.executable, "-m", "ackd", "check"],
            env=plain_environ(),
            check=False,
            stdout=out,
            stderr=subprocess.PIPE,
            timeout=120,
        )
    assert (done.returncode, done.stderr) == (exit_codes.DONE, b"")


def test_openapi_is_a_document() -> None:
    done = ackd("openapi")
    assert done.returncode == exit_codes.DONE, done.stderr
    document = json.loads(done.stdout)
    assert document["openapi"].startswith("3.1")
    assert "/v1/settle" in document["paths"]


def test_the_old_name_of_a_command_tells_the_new_one() -> None:
    done = ackd("exit", "orders", "--plan")
    assert done.returncode == exit_codes.CONFIG
    assert done.stderr.endswith("ackd: error: `ackd exit` is now `ackd release-group`\n")
