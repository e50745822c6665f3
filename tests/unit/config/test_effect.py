"""No setting without an effect: each is read by the code somewhere outside the configuration."""

import re

import pytest

from ackd.config.fields import FieldKind, Spec, specs
from ackd.config.schema import Settings
from tests.support.paths import REPO

USERS = ("engine", "http", "store", "cli", "telemetry", "push", "peer", "sqs")


def _every(known: tuple[Spec, ...], path: str) -> list[str]:
    found: list[str] = []
    for spec in known:
        here = f"{path}.{spec.name}" if path else spec.name
        found.append(here)
        if spec.section is not None and spec.kind is not FieldKind.OPTIONS:
            found += _every(specs(spec.section), here)
    return found


@pytest.fixture(scope="module")
def read_names() -> frozenset[str]:
    """Every attribute that the code of the users reads."""
    names: set[str] = set()
    root = REPO / "sidecar" / "ackd"
    files = [root / "serve.py", *(file for user in USERS for file in (root / user).rglob("*.py"))]
    for file in files:
        names.update(re.findall(r"\.([a-z_]+)\b", file.read_text()))
    return frozenset(names)


@pytest.mark.parametrize("path", _every(specs(Settings), ""))
def test_setting_is_read(path: str, read_names: frozenset[str]) -> None:
    assert path.rpartition(".")[2] in read_names
