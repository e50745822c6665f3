"""What the store keeps of a seek: it comes back whole, and is told from other documents."""

from __future__ import annotations

import msgspec
import pytest

from ackd.api.dead_letters import Progress
from ackd.core.ids import LedgerKey
from ackd.engine.operations.seek_document import (
    SeekDocument,
    SeekTarget,
    Stage,
    is_seek,
    read_seek,
)
from ackd.errors import StoreDataError
from tests.unit.engine.world import NAME, TOPIC, TOPIC_ID


def document(*done: bool) -> SeekDocument:
    """A seek of a partition for each of `done`."""
    targets = [
        SeekTarget(TOPIC, TOPIC_ID.hex(), number, 40 + number, done=each)
        for number, each in enumerate(done)
    ]
    return SeekDocument(
        kind="seek",
        id="op-1",
        subscription=NAME,
        to="earliest",
        increase_only=False,
        targets=targets,
        created_ms=1_000,
    )


def test_all_of_it_comes_back() -> None:
    """A sidecar that takes it over goes on where the last one stopped."""
    written = document(True, False)
    written.stage, written.keep = Stage.FINISH, [(0, 7), (3, 9)]
    written.targets[1] = SeekTarget(
        TOPIC, TOPIC_ID.hex(), 1, 41, finished=[(50, 60)], held=[45], epoch=3
    )
    written.moved, written.skipped, written.copies, written.cancelled = 1, 2, 3, True
    assert read_seek(written.text()) == written


def test_a_new_one_begins_with_the_first_stage() -> None:
    begun = document(False)
    assert (begun.state, begun.stage, begun.topic_id) == (Progress.RUNNING, Stage.HALT, "")
    assert begun.targets[0].epoch is None


def test_a_target_names_the_record_of_its_partition() -> None:
    target = document(False, False).targets[1]
    assert target.key("cluster", NAME) == LedgerKey("cluster", NAME, TOPIC_ID, 1)


@pytest.mark.parametrize(
    ("raw", "seek"),
    [
        (document(False).text(), True),
        (b'{"kind": "redrive", "topic_id": "00"}', False),
        (b'{"seek": false}', False),
        (b'{"seek": "yes"}', False),
        (b"[]", False),
        (b"{", False),
        (b"", False),
    ],
)
def test_a_seek_is_told_from_other_documents(raw: bytes, *, seek: bool) -> None:
    assert is_seek(raw) is seek


@pytest.mark.parametrize("raw", [b"{", b"", b'{"seek": true}', b"\xff"])
def test_what_can_not_be_read_is_an_error_of_the_store(raw: bytes) -> None:
    with pytest.raises(StoreDataError, match="can't be read"):
        read_seek(raw)


def test_a_document_of_a_later_version_may_have_more() -> None:
    more = {**msgspec.json.decode(document(False).text()), "tomorrow": [1]}
    assert read_seek(msgspec.json.encode(more)) == document(False)


def test_progress_is_counted_in_partitions() -> None:
    running = document(True, False, True)
    running.moved, running.skipped, running.updated_ms = 1, 1, 2_000
    shown = running.view()
    assert (shown.total, shown.scanned, shown.moved, shown.skipped, shown.failed) == (3, 2, 1, 1, 0)
    assert (shown.kind, shown.to, shown.state) == ("seek", "earliest", "running")
    assert (shown.created_ms, shown.updated_ms) == (1_000, 2_000)


@pytest.mark.parametrize("state", list(Progress))
def test_only_a_running_one_is_shown_as_cancelling(state: Progress) -> None:
    asked = document(False)
    asked.state = state
    expected = Progress.CANCELLING if state is Progress.RUNNING else state
    assert asked.view(cancelling=True).state == expected.value
    assert asked.view().state == state.value
