"""Go is fetched where there is none: only the archive whose hash is known, and it can run."""

import os
import re
import zipfile
from pathlib import Path

import pytest

from tests.support.golang import go

NAMES = {"bin/go": b"#!/bin/sh\n", "VERSION": b"go1.26.8\n", "pkg/tool/linux_amd64/link": b"x"}
SUM = "h1:FNcdDATm0Qp2lpHNA2+UXtA8x/OL5Ik8W5Ml3FKWthE="


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "go.zip"
    with zipfile.ZipFile(path, "w") as made:
        for name, content in NAMES.items():
            made.writestr(f"golang.org/toolchain@v0.0.1-go1.26.8.linux-amd64/{name}", content)
    return path


def test_the_known_archive_is_unpacked_and_can_run(archive: Path, tmp_path: Path) -> None:
    """The hash is the one that `go mod download -json` writes for such files."""
    go.unpack(archive, tmp_path / "go", SUM)
    for name, content in NAMES.items():
        path = tmp_path / "go" / name
        assert path.read_bytes() == content
        assert os.access(path, os.X_OK) == (name != "VERSION")


def test_another_archive_is_refused_before_a_file_is_written(archive: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(archive, "a") as made:
        made.writestr("golang.org/toolchain@v0.0.1-go1.26.8.linux-amd64/more", b"")
    with pytest.raises(go.GoError, match=re.escape(SUM)):
        go.unpack(archive, tmp_path / "go", SUM)
    assert not (tmp_path / "go").exists()


def test_an_old_go_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian's: it would not fetch the release that is asked for."""
    for name, version in (("old", "go1.19.8"), ("new", "go1.26.8")):
        path = tmp_path / name / "go"
        path.parent.mkdir()
        path.write_text(f"#!/bin/sh\necho {version}\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'old'}:{os.environ['PATH']}")
    monkeypatch.setattr(go, "FOLDER", str(tmp_path / "new"))
    go.program.cache_clear()
    try:
        assert go.program() == str(tmp_path / "new" / "go")
    finally:
        go.program.cache_clear()


def test_an_old_go_knows_where_to_fetch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GOPROXY counts first; without either it is said what is needed."""
    monkeypatch.setattr(go, "FOLDER", str(tmp_path / "none"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("GOPROXY", raising=False)
    with pytest.raises(go.GoError, match="GOPROXY"):
        go._address("linux-amd64")
    old = tmp_path / "go"
    old.write_text("#!/bin/sh\necho https://old.example/,direct\n")
    old.chmod(0o755)
    assert go._address("linux-amd64").startswith("https://old.example/golang.org/toolchain/")
    monkeypatch.setenv("GOPROXY", "off|https://new.example")
    assert go._address("linux-amd64").startswith("https://new.example/golang.org/toolchain/")
