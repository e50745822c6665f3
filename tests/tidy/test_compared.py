"""The page that compares brokers claims nothing without a test."""

from pathlib import Path

import pytest

from tests.support.paths import REPO
from tests.tidy import compared

CELLS_MIN = 200


def test_each_cell_says_what_is_so_and_names_its_test() -> None:
    found = list(compared.complaints(REPO))
    assert not found, "\n".join(found)
    assert len(list(compared.cells((REPO / compared.PAGE).read_text()))) > CELLS_MIN


TABLE = """| | Kafka | Pulsar | RocketMQ | local queue |
|---|---|---|---|---|
| seek | yes[^a] | differs: slowly[^a] | no: refused | not tested here[^b] |
"""
NOTES = "\n[^a]: Shown by\n    `tests/test_a.py::test_a`.\n\n[^b]: Nobody tried.\n"


@pytest.mark.parametrize(
    ("page", "complaint"),
    [
        (TABLE + NOTES, ""),
        (NOTES, "no table"),
        (TABLE.replace("yes", "sure") + NOTES, "seek, Kafka: none of yes, adapter"),
        (TABLE.replace(" | not tested here[^b]", "") + NOTES, "seek, local queue: none of yes"),
        (TABLE.replace("yes[^a]", "yes") + NOTES, "seek, Kafka: yes, and no test shows it"),
        (TABLE.replace("yes[^a]", "yes[^b]") + NOTES, "seek, Kafka: yes, and no test shows it"),
        (TABLE.replace("slowly[^a]", "slowly") + NOTES, "seek, Pulsar: differs, and no test"),
        (TABLE + NOTES.replace("tests/test_a", "sidecar/ackd/a"), "seek, Kafka: yes, and no test"),
        (TABLE.replace("yes[^a]", "yes[^c]") + NOTES, "there is no note [^c]"),
        (TABLE.replace("[^b]", "") + NOTES, "[^b] is not used"),
        (TABLE + NOTES + NOTES, "[^a] twice"),
    ],
)
def test_a_planted_mistake_is_found(page: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / compared.PAGE
    path.parent.mkdir(parents=True)
    path.write_text(page)
    found = "\n".join(compared.complaints(tmp_path))
    assert complaint in found
    assert bool(found) == bool(complaint)
