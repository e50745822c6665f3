"""The offsets of groups as a broker writes them down every 5 s: a killed one comes up with them."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_NUMBERS = re.compile(r"([{,]\s*)(\d+)(?=:)")
"""Names of queues, which stand there without quotes."""


def written(store: Path, topic: str, group: str) -> dict[int, int]:
    """Of each queue. `store`: the broker's folder. Empty: none are written down."""
    found = _read(store)["offsetTable"].get(f"{topic}@{group}", {})
    return {int(queue): int(offset) for queue, offset in found.items()}


def write(store: Path, topic: str, group: str, offsets: Mapping[int, int]) -> None:
    """While the broker is dead: it comes up with these."""
    held = _read(store)
    held["offsetTable"][f"{topic}@{group}"] = {str(queue): at for queue, at in offsets.items()}
    _file(store).write_text(json.dumps(held))


def _file(store: Path) -> Path:
    return store / "config" / "consumerOffset.json"


def _read(store: Path) -> dict[str, Any]:
    """Empty before the first time, and while the broker writes it anew."""
    try:
        found = json.loads(_NUMBERS.sub(r'\1"\2"', _file(store).read_text()))
    except (OSError, ValueError):
        found = {}
    return {"offsetTable": {}, **found}
