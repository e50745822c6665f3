"""docs/guides/consume.md: every command on the page runs, and prints what the page shows."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from tests.integration.http.conftest import Sidecar
from tests.support.paths import REPO

PAGE = REPO / "docs" / "guides" / "consume.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
MARK = "--- next ---"
SHORT_S = 110


def examples() -> Iterator[tuple[str, str, str]]:
    """(command, kind and text of what it prints); kind is empty when the page shows nothing."""
    blocks = [(found[1], found[2]) for found in BLOCK.finditer(PAGE.read_text())]
    for (kind, text), (next_kind, next_text) in zip(blocks, [*blocks[1:], ("", "")], strict=True):
        if kind == "sh":
            shown = next_kind in {"json", "text"}
            yield text, next_kind if shown else "", next_text if shown else ""


def values(text: str) -> list[object]:
    """All JSON values that stand one after the other in a text."""
    decoder = json.JSONDecoder()
    found = []
    text = text.strip()
    while text:
        value, end = decoder.raw_decode(text)
        found.append(value)
        text = text[end:].strip()
    return found


def shape(value: object) -> object:
    """The keys of a value, its lists' shapes, and the kinds of everything else."""
    if isinstance(value, dict):
        return {name: shape(inner) for name, inner in cast("dict[str, object]", value).items()}
    if isinstance(value, list):
        return [shape(inner) for inner in cast("list[object]", value)]
    return "number" if isinstance(value, int | float) else type(value).__name__


@pytest.fixture
def printed(sidecar: Sidecar, tmp_path: Path) -> list[str]:
    """What each command prints, run one after the other in one shell."""
    script = f"\necho '{MARK}'\n".join(command for command, _, _ in examples())
    script = script.replace("localhost:7080", f"127.0.0.1:{sidecar.port}")
    script = script.replace("localhost:7081", f"127.0.0.1:{sidecar.admin_port}")
    # Longer waits than this sidecar's bound would be told as cut.
    script = script.replace('"wait_ms": 10000', '"wait_ms": 2000').replace("wait=10", "wait=2")
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SHORT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout.split(f"{MARK}\n")


def test_page_prints_what_it_shows(printed: list[str]) -> None:
    shown = list(examples())
    assert len(printed) == len(shown) > 10
    for (command, kind, expected), output in zip(shown, printed, strict=True):
        if kind == "json":
            found = [shape(value) for value in values(output)]
            assert found == [shape(value) for value in values(expected)], command + output
        elif kind == "text":
            assert output.startswith(expected), command + output


def test_page_names_what_exists() -> None:
    """Every setting, route and problem that the page names is there."""
    text = PAGE.read_text()
    configuration = (REPO / "sidecar/ackd/config/schema.py").read_text()
    for name in re.findall(r"`(?:server\.)?([a-z_]+_(?:ms|max|file))`", text):
        assert name in configuration or name in {
            *("wait_ms", "bytes_max", "delay_ms", "duration_ms", "first_seen_ms", "published_ms")
        }, name
    routes = (REPO / "docs" / "reference" / "routes.md").read_text()
    known = [
        re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(route))
        for route in re.findall(r"### `\w+ (\S+)`", routes)
    ]
    for address in set(re.findall(r"localhost:708\d(/[^\s'\"`?\\]*)", text)):
        assert any(re.fullmatch(each, address) for each in known), address
