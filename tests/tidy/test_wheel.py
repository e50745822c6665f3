"""What an installation gets is all of the product and nothing of the house."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.paths import REPO
from tests.tidy.sources import ROOTS
from tests.tidy.words import tracked_files


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built as a release builds it."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=REPO, check=True, capture_output=True, timeout=240)
    return zipfile.ZipFile(next(folder.glob("*.whl")))


def test_wheel_holds_every_file_of_the_source_roots(wheel: zipfile.ZipFile) -> None:
    """Scripts for the store and type markers too, not only modules."""
    with wheel:
        packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    roots = {root: packages for root, packages in ROOTS.items() if "examples" not in root}
    expected = {
        str(path.relative_to(REPO / root))
        for path in tracked_files(REPO)
        for root, packages in roots.items()
        if any((REPO / root / package) in path.parents for package in packages)
    }
    made = {f"ackd_adapters/rocketmq/protocol/{name}_pb2" for name in ("definition", "service")}
    expected |= {each + ending for each in made for ending in (".py", ".pyi")}  # `hatch_build.py`
    assert packed == expected
    for packages in roots.values():
        assert {f"{package}/py.typed" for package in packages} <= packed


def test_editable_installation_sees_this_folder() -> None:
    """A changed file counts at once, and the tests do not run another copy."""
    code = "import ackd, ackd_adapters, ackd_reports as r; print(ackd.__file__, r.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=120
    )
    assert all(Path(path).is_relative_to(REPO) for path in done.stdout.split())
