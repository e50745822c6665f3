"""What `make image` has built: who it runs as, what is in it, and that it starts and stops."""

import json
import os
import shutil
import struct
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from ackd_torture.ports import free_port
from tests.support.node.install import IMAGE, image_archive
from tests.support.proc import Process
from tests.support.require import require
from tests.support.wait import wait_until

pytestmark = [pytest.mark.node, pytest.mark.slow]
START_S_MAX = 60.0
UNCHECKED_HASH = 0b01
"""Bytecode that is trusted without a look at its source (PEP 552)."""


def buildah(*words: str) -> str:
    """What it says; the store is that of image.sh."""
    folder = image_archive().parent
    store = ["--root", str(folder / "storage"), "--runroot", str(folder / "run")]
    done = subprocess.run(
        ["buildah", *store, *words], check=True, capture_output=True, text=True, timeout=120
    )
    return done.stdout.strip()


@pytest.fixture(scope="module")
def container() -> Iterator[str]:
    """A container of the image, to look into and to run programs in."""
    if os.geteuid() != 0:
        require("looking into an image needs root")
    if shutil.which("buildah") is None or not image_archive().exists():
        require("the image is not built: make image")
    name = buildah("from", "--pull-never", IMAGE)
    yield name
    buildah("rm", name)


@pytest.fixture(scope="module")
def root(container: str) -> Iterator[Path]:
    """Its files."""
    yield Path(buildah("mount", container))
    buildah("umount", container)


def test_it_runs_as_nobody_with_a_number(container: str) -> None:
    """A number, because `runAsNonRoot` can't judge names."""
    config = json.loads(buildah("inspect", container))["OCIv1"]["config"]
    assert config["User"] == "65532:65532"
    assert (config["Entrypoint"], config["Cmd"]) == (["ackd"], ["serve"])
    assert config["Labels"]["org.opencontainers.image.revision"]


def test_what_is_in_it_is_listed(root: Path) -> None:
    found = json.loads((root / "opt/ackd/sbom.cdx.json").read_text())
    names = {each["name"].lower() for each in found["components"]}
    assert {"ackd", "aiohttp", "hiredis", "confluent-kafka", "cryptography"} <= names
    assert not {"ackd-tools", "pyspark", "pip", "pytest", "rich", "textual"} & names


def test_bytecode_is_there_for_a_root_that_can_not_be_written(root: Path) -> None:
    packages = next((root / "opt/ackd/lib").glob("python3*/site-packages"))
    sources = [each for each in packages.rglob("*.py") if "tests" not in each.parts]
    assert sources
    lacking = [each for each in sources if not list(_compiled(each))]
    assert not lacking, lacking[:5]
    (own,) = _compiled(packages / "ackd" / "__init__.py")
    flags = struct.unpack("<I", own.read_bytes()[4:8])[0]
    assert flags == UNCHECKED_HASH


def test_it_starts_answers_and_ends(container: str, tmp_path: Path) -> None:
    """With no configuration but addresses; SIGTERM is an orderly end."""
    ports = [free_port() for _ in range(3)]
    names = ("LISTEN", "ADMIN_LISTEN", "HEALTH_LISTEN")
    env = [f"ACKD_SERVER__{name}=127.0.0.1:{port}" for name, port in zip(names, ports, strict=True)]
    folder = image_archive().parent
    argv = [
        *("buildah", "--root", str(folder / "storage"), "--runroot", str(folder / "run")),
        *("run", "--isolation", "chroot", "--user", "65532:65532"),
        *("--env", "ACKD_STATE_DIR=/tmp/state"),  # tidy: path -- in the container
        *(word for each in env for word in ("--env", each)),
        *(container, "--", "sh", "-c", "id -u; exec ackd serve"),
    ]
    process = Process(argv, log_path=tmp_path / "log")
    process.start()
    try:

        def alive() -> bool:
            assert process.running, process.log()
            address = f"http://127.0.0.1:{ports[2]}/livez"
            with urllib.request.urlopen(address, timeout=5) as answer:
                return bool(answer.status == 200)

        wait_until(alive, "the sidecar answers", timeout_s=START_S_MAX, ignoring=(OSError,))
        assert process.log().splitlines()[0] == "65532"
        # buildah does not hand signals on.
        children = psutil.Process(process.pid).children(recursive=True)
        (sidecar,) = (each for each in children if each.name() == "ackd")
        sidecar.terminate()
        assert process.wait(START_S_MAX) == 0, process.log()
    finally:
        process.kill()


def _compiled(source: Path) -> Iterator[Path]:
    yield from (source.parent / "__pycache__").glob(f"{source.stem}.cpython-*.pyc")
