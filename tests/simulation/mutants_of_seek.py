"""Planted mistakes of a seek; see `mutants`."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from ackd.engine.operations.seek_job import SeekWork


async def _nothing(_: SeekWork) -> None:
    """The step is left out."""


def copies_stay() -> Any:
    """Copies of what comes again are not finished."""
    return patch.object(SeekWork, "_finish_copies", _nothing)
