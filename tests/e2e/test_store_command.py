"""`ackd store` on an embedded store, beside the sidecar and without one."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ackd.cli import exit_codes
from ackd_torture.ports import free_port, give_back
from tests.support.wait import wait_until
from tests.unit.cli.test_command import ackd
from tests.unit.cli.test_serve import ready, serving

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
CONFIG = """\
state_dir = "state"
identity = "one"
[server]
listen = "127.0.0.1:{data}"
admin_listen = "127.0.0.1:{admin}"
drain_ms = 500
[brokers.queue]
adapter = "local"
options = {{ path = "queue", partitions = 2 }}
[subscriptions.{name}]
topics = ["orders"]
start = "earliest"
"""


def listed(file: Path) -> dict[str, Any]:
    """`ackd store ls`."""
    found: dict[str, Any] = json.loads(done("ls", "--json", file=file).stdout)
    return found


def done(*words: str, file: Path) -> subprocess.CompletedProcess[str]:
    """The command."""
    return ackd("store", *words, "--config", str(file))


def test_beside_the_sidecar_and_without_it(tmp_path: Path) -> None:
    """A living sidecar's records are refused; what no configuration names any more is removed."""
    data, admin = free_port(), free_port()
    file = tmp_path / "ackd.toml"
    file.write_text(CONFIG.format(data=data, admin=admin, name="orders"))
    process = serving(file)
    process.start()
    try:
        wait_until(lambda: ready(admin), "the sidecar to be ready")

        def owned() -> Any:
            seen = listed(file)
            rows = seen["records"]
            return seen if rows and all(row["owner"] == "one" for row in rows) else None

        found = wait_until(owned, "its records")
        assert not any(row["orphan"] for row in found["records"])
        assert [(e["name"], e["state"]) for e in found["sidecars"]] == [("one", "living")]
        refused = done("rm", "--subscription", "orders", "--yes", file=file)
        assert refused.returncode == exit_codes.CONFIG
        assert "the living sidecar one owns it" in refused.stdout
        sizes = json.loads(done("du", "--json", file=file).stdout)
        assert sizes["orders"]["records"] == len(found["records"])
        assert sizes["orders"]["bytes_by_kind"]["head"] > 0
    finally:
        process.terminate()
        give_back(data, admin)
    file.write_text(CONFIG.format(data=data, admin=admin, name="others"))
    left = listed(file)
    assert len(left["records"]) == len(found["records"])
    assert {row["orphan"] for row in left["records"]} == {
        "its subscription is not in this configuration"
    }
    assert left["orphan_subscriptions"] == ["orders"]
    dry = done("rm", "--orphans", file=file)
    assert "nothing was removed; --yes does it" in dry.stdout
    assert done("rm", "--orphans", "--yes", file=file).returncode == exit_codes.DONE
    after = listed(file)
    assert (after["records"], after["sidecars"], after["orphan_subscriptions"]) == ([], [], [])
