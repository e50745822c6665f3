"""Progress at a real sidecar, by HTTP and by the command line; `docs/guides/progress.md` runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from http import HTTPStatus
from pathlib import Path
from typing import Any

from tests.integration.http.conftest import Sidecar, call
from tests.support.paths import REPO
from tests.support.wait import wait_until
from tests.tidy.docs import shell_commands

BASE = "/v1/subscriptions/images"
COUNT = 4
PAGE = REPO / "docs" / "guides" / "progress.md"


def ackd(
    sidecar: Sidecar, *words: str, given: str | None = None
) -> subprocess.CompletedProcess[str]:
    """`ackd ...` with the sidecar's configuration."""
    return subprocess.run(
        [sys.executable, "-m", "ackd", *words, "--config", str(sidecar.folder / "ackd.toml")],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        input=given,
    )


def publish(sidecar: Sidecar, count: int) -> None:
    """Messages of one partition."""
    for number in range(count):
        value = b"%d" % number
        status, _ = call(sidecar.port, "POST", "/v1/topics/images/messages", value, Ackd_Key="k")
        assert status == HTTPStatus.CREATED


def take(sidecar: Sidecar, count: int) -> list[Any]:
    """So many messages, acked."""
    found: list[Any] = []

    def enough() -> bool:
        body = json.dumps({"max": count - len(found), "wait_ms": 1000}).encode()
        got = call(sidecar.port, "POST", f"{BASE}/receive", body)[1]["messages"]
        for message in got:
            status, _ = call(sidecar.port, "POST", f"/v1/leases/{message['lease']}/ack")
            assert status == HTTPStatus.OK
        found.extend(got)
        return len(found) == count

    wait_until(enough, f"{count} messages", timeout_s=60)
    return found


def test_the_whole_way(sidecar: Sidecar) -> None:
    publish(sidecar, COUNT)
    first = take(sidecar, COUNT)
    topic, number, offset = str(first[0]["id"]).split("/")
    where = {"topic": topic, "partition": int(number), "offset": int(offset)}
    raw = json.dumps({"to": {"positions": [where]}}).encode()
    status, problem = call(sidecar.admin_port, "POST", f"{BASE}/seek", raw)
    assert (status, problem["type"]) == (HTTPStatus.CONFLICT, "/problems/not-paused")
    # Only a look, and then for good.
    place = f"{topic}/{number}={offset}"
    dry = ackd(sidecar, "seek", "images", "--position", place, "--dry-run")
    assert f"in all: {COUNT} again, 0 skipped, 0 leases kept" in dry.stdout, dry.stderr
    refused = ackd(sidecar, "seek", "images", "--position", place)
    assert (refused.returncode, "not paused" in refused.stderr) == (2, True)
    exported = ackd(sidecar, "progress", "export", "images")
    assert exported.returncode == 0, exported.stderr
    moved = ackd(sidecar, "seek", "images", "--position", place, "--pause")
    assert "done: 1 of 1 partitions, 1 moved" in moved.stdout, moved.stderr
    assert [each["id"] for each in take(sidecar, COUNT)] == [each["id"] for each in first]
    # Back to the start again, and by the export to the end: nothing comes.
    assert ackd(sidecar, "seek", "images", "--to", "earliest", "--pause").returncode == 0
    taken = ackd(sidecar, "progress", "import", "images", "-", "--pause", given=exported.stdout)
    assert taken.returncode == 0, taken.stderr
    assert "done: " in taken.stdout
    publish(sidecar, 1)
    (new,) = take(sidecar, 1)
    assert new["id"] not in {each["id"] for each in first}
    # An import of what lies behind changes nothing.
    again = ackd(sidecar, "progress", "import", "images", "-", "--pause", given=exported.stdout)
    assert ", 0 moved" in again.stdout, again.stderr


def test_rocketmqs_file_is_read(sidecar: Sidecar, tmp_path: Path) -> None:
    file = tmp_path / "offsets.json"
    file.write_text(
        '{\n\t"offsetTable":{{\n\t\t\t"brokerName":"a",\n\t\t\t"queueId":0,\n\t\t\t"topic":"images"'
        "\n\t\t}:0\n\t}\n}"
    )
    done = ackd(sidecar, "progress", "import", "images", str(file), "--dry-run")
    assert "images/0: " in done.stdout, done.stderr
    file.write_text("no")
    wrong = ackd(sidecar, "progress", "import", "images", str(file), "--dry-run")
    assert (wrong.returncode, "offsets.json" in wrong.stderr) == (2, True)


def test_every_command_on_the_page_runs(sidecar: Sidecar, tmp_path: Path) -> None:
    environ = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "ACKD_CONFIG": str(sidecar.folder / "ackd.toml"),
    }
    text = PAGE.read_text()
    commands = [c for c in shell_commands(text) if c.startswith(("ackd ", "curl ")) and len(c) > 20]
    assert len(commands) > 10
    for shown in commands:
        command = shown.partition("  #")[0]
        command = command.replace("localhost:7081", f"127.0.0.1:{sidecar.admin_port}")
        done = subprocess.run(
            ["bash", "-c", command.replace("curl", "curl -fsS")],
            env=environ,
            cwd=tmp_path,
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        if found := re.search(r'"id":"([0-9a-f]{16})"', done.stdout):
            path = f"/v1/operations/{found[1]}"
            wait_until(lambda at=path: has_ended(sidecar, at), "its end", timeout_s=60)  # type: ignore[misc]


def has_ended(sidecar: Sidecar, path: str) -> bool:
    """An operation."""
    _, answer = call(sidecar.admin_port, "GET", path)
    return bool(answer["state"] == "done")
