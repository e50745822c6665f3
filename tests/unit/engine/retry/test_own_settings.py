"""Whether copies are safe in a topic as somebody has configured it (R25)."""

from __future__ import annotations

import pytest

from ackd.config.rules import RETENTION_MARGIN_MS
from ackd.engine.retry.own_settings import ADDED_BYTES, refusal, warnings


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_compaction_would_eat_copies_of_one_key(policy: str) -> None:
    assert policy in refusal("dead", {"cleanup.policy": policy})


@pytest.mark.parametrize("actual", [{}, {"cleanup.policy": "delete"}])
def test_what_deletes_by_age_is_fit(actual: dict[str, str]) -> None:
    assert refusal("dead", actual) == ""


@pytest.mark.parametrize(
    ("kept_ms", "waits_ms", "warned"),
    [
        (RETENTION_MARGIN_MS + 999, 1_000, True),
        (RETENTION_MARGIN_MS + 1_000, 1_000, False),
        (0, 1_000, True),
        (-1, 1_000, False),  # for ever
        (1, 0, False),  # nothing waits in a dead-letter topic
    ],
)
def test_a_copy_must_outlive_its_wait(kept_ms: int, waits_ms: int, *, warned: bool) -> None:
    found = warnings("retry", {"retention.ms": str(kept_ms)}, waits_ms, 0)
    assert bool(found) == warned


def test_a_bound_in_bytes_takes_what_waits() -> None:
    assert len(warnings("retry", {"retention.bytes": "0"}, 1_000, 0)) == 1
    assert warnings("retry", {"retention.bytes": "-1"}, 1_000, 0) == []


@pytest.mark.parametrize(
    ("size", "origin_bytes", "warned"),
    [
        (100 + ADDED_BYTES - 1, 100, True),
        (100 + ADDED_BYTES, 100, False),
        (10, 0, False),  # not known
        (0, 100, False),
    ],
)
def test_a_copy_is_larger_than_its_message(size: int, origin_bytes: int, *, warned: bool) -> None:
    found = warnings("retry", {"max.message.bytes": str(size)}, 0, origin_bytes)
    assert bool(found) == warned
