"""`make release`, without the image, which takes root and minutes."""

import hashlib
import json
import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.k8s.release import golden_values
from tests.support.k8s.helm import CHART, Helm
from tests.support.k8s.install import Installation
from tests.support.paths import REPO

pytestmark = [pytest.mark.k8s, pytest.mark.slow]


def released(folder: Path, programs: Installation) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "IMAGE": "no", "HELM": str(programs.program("helm4"))}
    return subprocess.run(
        [str(REPO / ".ci" / "release"), str(folder)],
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.timeout(180)
def test_a_release_is_one_folder_with_checksums(programs: Installation, tmp_path: Path) -> None:
    folder = tmp_path / "dist"
    done = released(folder, programs)
    assert done.returncode == 0, done.stderr
    assert "docker build" in done.stdout  # what the image takes
    names = {path.name: path for path in folder.iterdir()}
    lines = [line.split() for line in names.pop("SHA256SUMS").read_text().splitlines()]
    sums = {name: digest for digest, name in lines}
    assert {path.suffix for path in names.values()} == {".whl", ".tgz", ".json"}
    assert sums == {name: hashlib.sha256(p.read_bytes()).hexdigest() for name, p in names.items()}

    (wheel,) = folder.glob("ackd-*.whl")
    with zipfile.ZipFile(wheel) as files:
        assert {"ackd/__main__.py", "ackd_adapters/kafka/__init__.py"} <= set(files.namelist())
    (tools,) = folder.glob("ackd_tools-*.whl")
    assert tools.stat().st_size > 10_000
    (listed,) = folder.glob("*.cdx.json")
    parts = {each["name"] for each in json.loads(listed.read_text())["components"]}
    assert {"aiohttp", "hiredis", "cryptography"} <= parts
    (chart,) = folder.glob("*.tgz")
    values = tmp_path / "values.json"
    values.write_text(json.dumps(golden_values()))
    rendered = {
        Helm("helm4").run("template", "ackd", str(each), "-n", "ackd-system", "-f", str(values))
        for each in (chart, CHART)
    }
    assert len(rendered) == 1, "the packed chart is another one"


def test_a_folder_with_other_files_is_left_alone(programs: Installation, tmp_path: Path) -> None:
    (tmp_path / "letter").write_text("mine")
    done = released(tmp_path, programs)
    assert done.returncode != 0
    assert "holds something else" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["letter"]
