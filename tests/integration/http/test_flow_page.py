"""docs/guides/flow.md: every command on the page runs and does what it says."""

import json
import re
import subprocess

from tests.integration.http.conftest import Sidecar, call
from tests.support.paths import REPO

PAGE = REPO / "docs" / "guides" / "flow.md"
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def test_commands_of_the_page(sidecar: Sidecar) -> None:
    commands = [line for block in BLOCK.findall(PAGE.read_text()) for line in block.splitlines()]
    answers = []
    for command in commands:
        there = command.replace("localhost:7081", f"127.0.0.1:{sidecar.admin_port}")
        done = subprocess.run(
            ["bash", "-c", f"{there} -s"], capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        answers.append(json.loads(done.stdout))
    paused, resumed, longer, back, explained = answers
    assert (paused["state"], paused["pauses"][0]["reason"]) == ("paused", "database upgrade")
    assert (resumed["state"] != "paused", resumed["pauses"]) == (True, [])
    assert (longer["settings"]["lease_ms"], longer["sources"]["lease_ms"]) == (120_000, "live")
    assert back["settings"]["lease_ms"] == 30_000
    assert explained["limits"] == []


def test_a_wrong_change_names_every_key(sidecar: Sidecar) -> None:
    body = json.dumps({"lease_ms": "13h", "rate_per_s": -1, "rate_burts": 1})
    path = "/v1/subscriptions/orders"
    status, answer = call(
        sidecar.admin_port, "PATCH", path, body.encode(), Content_Type="application/json"
    )
    assert status == 422
    assert {each["pointer"] for each in answer["errors"]} == {
        "/lease_ms",
        "/rate_per_s",
        "/rate_burts",
    }
