"""What the README tells people to type works as it stands, on a real Kafka.

Only addresses are put in: the broker's, free ports, and the lease that came in the answer.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from ackd_torture.child import Child
from ackd_torture.parts import ready
from ackd_torture.ports import free_port
from tests.chaos.world import produce
from tests.support.kafka import Kafka
from tests.support.paths import REPO, remove_run_dir, run_dir
from tests.support.require import require

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.timeout(240)]

README = (REPO / "README.md").read_text()


def blocks(language: str) -> list[str]:
    """The code blocks in one language, in the order of the text."""
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def line_with(text: str) -> str:
    """The one line among the shell blocks that has this in it."""
    found = [line for block in blocks("sh") for line in block.splitlines() if text in line]
    assert len(found) == 1, (text, found)
    return found[0]


@pytest.fixture
def folder() -> Iterator[Path]:
    path = run_dir("readme")
    yield path
    remove_run_dir(path)


def test_commands_of_the_readme(kafka: Kafka, folder: Path) -> None:
    require(
        ""
        if shutil.which("curl")
        else "the README's commands are curl's: tests/support/apt.sh installs it"
    )
    port, admin_port = free_port(), free_port()
    (config,) = blocks("toml")
    topic = "orders"
    assert f'"{topic}"' in config
    kafka.create_topic(topic, partitions=2)
    (folder / "ackd.toml").write_text(
        re.sub(r'bootstrap_servers = ".*"', f'bootstrap_servers = "{kafka.bootstrap}"', config)
    )
    settings = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "ACKD_STATE_DIR": str(folder / "state"),
        "ACKD_SERVER__LISTEN": f"127.0.0.1:{port}",
        "ACKD_SERVER__ADMIN_LISTEN": f"127.0.0.1:{admin_port}",
        "ACKD_SERVER__DRAIN_MS": "500",
        "ACKD_SUBSCRIPTIONS__ORDERS__START": "earliest",
    }

    def type_in(line: str) -> str:
        done = subprocess.run(
            ["sh", "-c", line.replace("localhost:7080", f"127.0.0.1:{port}")],
            cwd=folder,
            env={**os.environ, **settings},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        return done.stdout

    assert "orders" in type_in(line_with("ackd check"))
    words = line_with("ackd serve").split()
    argv = [
        "env",
        "-C",
        str(folder),
        *(f"{name}={value}" for name, value in settings.items()),
        *words,
    ]
    serve = Child("readme", argv, folder / "log")
    try:
        serve.start()
        serve.wait_until(lambda: ready(f"http://127.0.0.1:{admin_port}"), "it is ready", 90)
        produce(kafka, topic, 3)
        came: list[dict[str, object]] = []
        end = time.monotonic() + 90
        while len(came) < 3 and time.monotonic() < end:
            came += json.loads(type_in(line_with("/receive")))["messages"]
        assert len(came) == 3
        for message in came:
            settle = line_with("/settle").replace("v1....", str(message["lease"]))
            assert json.loads(type_in(settle)) == {"results": [{"status": "acked"}]}
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/openapi.json", timeout=60) as answer:
            assert json.load(answer)["openapi"].startswith("3.1"), "as the README says"
    finally:
        serve.stop()
        kafka.delete_topics([topic])
