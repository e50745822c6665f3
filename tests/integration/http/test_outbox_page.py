"""docs/guides/publish.md: every command on the page runs and answers as it says."""

import json
import re
import subprocess
from typing import Any

from tests.integration.http.conftest import Sidecar, call
from tests.support.paths import REPO
from tests.support.wait import wait_until

PAGE = REPO / "docs" / "guides" / "publish.md"
PAIR = re.compile(r"^```sh\n(.*?)^```\n```json\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def test_commands_of_the_page(sidecar: Sidecar) -> None:
    pairs = PAIR.findall(PAGE.read_text())
    assert len(pairs) == 3
    answers: list[dict[str, Any]] = []
    for command, shown in pairs:
        there = command.replace("localhost:7080", f"127.0.0.1:{sidecar.port}")
        # Other tests may have published here before.
        if answers:
            there = there.replace("/v1/outbox/local/1", answers[0]["status_url"])
        done = subprocess.run(
            ["bash", "-c", there], capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        answers.append(json.loads(done.stdout))
        assert answers[-1].keys() == json.loads(shown).keys(), done.stdout
    accepted, message, outboxes = answers
    assert message["state"] == "waiting"
    assert message["due_ms"] == accepted["due_ms"]
    assert outboxes["outboxes"][0]["broker"] == "local"

    def sent() -> bool:
        _, found = call(sidecar.port, "GET", accepted["status_url"])
        return bool(found["state"] == "sent" and found["message"].startswith("orders/"))

    wait_until(sent, "the message to be sent")
