"""Planted mistakes of a seek; see `mutants`."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from ackd.engine.operations.seek_job import SeekWork
from ackd.engine.ownership.foreign_reset import ForeignResets


async def _nothing(_: SeekWork) -> None:
    """The step is left out."""


def copies_stay() -> Any:
    """Copies of what comes again are not finished."""
    return patch.object(SeekWork, "_finish_copies", _nothing)


def copies_stay_in_a_foreign_reset() -> Any:
    """The same when somebody else's commit moved the group."""

    async def finish(*_: object) -> list[object]:
        return []

    return patch.object(ForeignResets, "finish", finish)
