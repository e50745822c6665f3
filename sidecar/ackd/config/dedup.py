"""Settings of deduplication: a message whose deduplication key was acked is not delivered again."""

from __future__ import annotations

from dataclasses import dataclass

from ackd.config.units import DAY_MS, HOUR_MS, SECOND_MS
from ackd.options import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class DedupSettings:
    """Deduplication by a key: off without `key`. See docs/guides/publish.md."""

    key: str = setting(
        "",
        "The deduplication key of a message: `key` (its own key), `header:<name>`, or "
        "`pointer:<JSON pointer>` into a JSON value. A message without it is never a repeat. "
        "Empty: off.",
        pattern=r"(key|header:[^\s].{0,254}|pointer:(/[^/]{0,255}){1,16})?",
        pattern_doc="`key`, `header:` and a name, or `pointer:` and one to sixteen `/` steps",
    )
    window_ms: int = setting(
        HOUR_MS,
        "For how long after an ack ackd settles other messages with the same key without delivery.",
        min=SECOND_MS,
        max=7 * DAY_MS,
    )
    entries_max: int = setting(
        1_000_000,
        "Most keys in the store, of all sidecars together; beyond it the store drops the oldest "
        "eighth of the window.",
        min=1000,
        max=100_000_000,
    )
