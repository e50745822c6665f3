"""A disk that is really full: the commit itself finds no room (section 8 of the design)."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import REPO
from tests.support.require import require

MOUNT = ("unshare", "--user", "--map-root-user", "--mount")
SCRIPT = (
    'mount -t tmpfs -o size=1m none "$1" && exec "$2" -m tests.integration.local.full_disk "$1"'
)


def lack(folder: Path) -> str:
    """Why there can be no small disk here; empty when there can."""
    tried = ["sh", "-c", 'mount -t tmpfs -o size=1m none "$1"', "sh", str(folder)]
    try:
        subprocess.run([*MOUNT, *tried], check=True, capture_output=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        return f"no disk can be mounted in a namespace of its own: {error}"
    return ""


@pytest.mark.timeout(120)
def test_a_commit_without_room_has_stored_nothing(tmp_path: Path) -> None:
    """So it is no unknown outcome (504): a repeat is safe, and the log has what was confirmed."""
    require(lack(tmp_path))
    command = [*MOUNT, "sh", "-c", SCRIPT, "sh", str(tmp_path), sys.executable]
    done = subprocess.run(
        command, cwd=REPO, check=True, capture_output=True, text=True, timeout=100
    )
    stored, kept, failures, went_on = json.loads(done.stdout)
    assert failures == ["NOT_STORED disk-full"]
    assert went_on
    assert stored == kept > 2
