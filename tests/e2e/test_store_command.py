"""`ackd store` on an embedded store, beside the sidecar and without one."""

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ackd.cli import exit_codes
from ackd.config.schema import StoreSettings
from ackd.ports import AssignedPlace, StoredAt
from ackd.store.build import open_store
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


async def cut_a_log(state: Path, topic_id: str) -> None:
    """The store learns that a log of the topic was cut."""
    store = open_store(StoreSettings(), state, beside=True)
    await store.start()
    for stored_ms in (1_000, 2_000):
        message = StoredAt(b"%d" % stored_ms, AssignedPlace(0, 3), stored_ms)
        await store.places.assign("orders", bytes.fromhex(topic_id), 1, [message])
    await store.close()


def logs(file: Path) -> list[str]:
    return [each["name"] for each in listed(file)["other"] if each["name"].startswith("places:")]


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
    # What is known of a topic's logs goes with its last record: none may be without it (I1).
    topic_id = next(row["topic_id"] for row in left["records"] if row["partition"] == 1)
    asyncio.run(cut_a_log(tmp_path / "state", topic_id))
    only = "--subscription", "orders", "--topic-id", topic_id, "--partition", "0", "--yes"
    assert done("rm", *only, file=file).returncode == exit_codes.DONE
    assert logs(file) == [f"places:orders:{topic_id}"]
    dry = done("rm", "--orphans", file=file)
    assert "nothing was removed; --yes does it" in dry.stdout
    assert done("rm", "--orphans", "--yes", file=file).returncode == exit_codes.DONE
    assert logs(file) == []
    after = listed(file)
    assert (after["records"], after["sidecars"], after["orphan_subscriptions"]) == ([], [], [])
