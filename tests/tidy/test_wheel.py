"""What an installation gets is all of the product and nothing of the house."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.paths import REPO
from tests.tidy.sources import PACKAGES, ROOTS
from tests.tidy.words import tracked_files

TOOLS = "sidecar/tools"
EXAMPLES = "adapters/examples"


def built(project: Path, folder: Path) -> zipfile.ZipFile:
    """A wheel, built as a release builds it."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=project, check=True, capture_output=True, timeout=240)
    (wheel,) = folder.glob("*.whl")
    return zipfile.ZipFile(wheel)


def packed(wheel: zipfile.ZipFile) -> set[str]:
    """Its files, but for those about the distribution."""
    return {name for name in wheel.namelist() if ".dist-info/" not in name}


def tracked(roots: dict[str, tuple[str, ...]]) -> set[str]:
    """The files of packages, from their source roots on."""
    return {
        str(path.relative_to(REPO / root))
        for path in tracked_files(REPO)
        for root, packages in roots.items()
        if any((REPO / root / package) in path.parents for package in packages)
    }


def test_the_wheel_holds_every_file_of_its_source_roots(tmp_path: Path) -> None:
    """Scripts for the store and type markers too, not only modules; nothing of the tools."""
    roots = {
        root: packages
        for root, packages in ROOTS.items()
        if root != TOOLS and not root.startswith(EXAMPLES)
    }
    with built(REPO, tmp_path) as wheel:
        found = packed(wheel)
    made = {f"ackd_adapters/rocketmq/protocol/{name}_pb2" for name in ("definition", "service")}
    generated = {each + ending for each in made for ending in (".py", ".pyi")}  # `hatch_build.py`
    assert found == tracked(roots) | generated
    for packages in roots.values():
        assert {f"{package}/py.typed" for package in packages} <= found


def test_the_tools_have_a_wheel_of_their_own(tmp_path: Path) -> None:
    with built(REPO / TOOLS, tmp_path) as wheel:
        found = packed(wheel)
        assert [name for name in wheel.namelist() if name.endswith("/licenses/LICENSE")]
    assert found == tracked({TOOLS: ROOTS[TOOLS]})
    assert {f"{package}/py.typed" for package in ROOTS[TOOLS]} <= found


@pytest.mark.parametrize("package", [name for name in PACKAGES if name != "ackd_redis_stream"])
def test_editable_installation_sees_this_folder(package: str) -> None:
    """A changed file counts at once, and the tests do not run another copy."""
    code = f"import {package}; print({package}.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=120
    )
    assert all(Path(path).is_relative_to(REPO) for path in done.stdout.split())
