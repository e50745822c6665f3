"""The stories by name, for whoever repeats a seed."""

from __future__ import annotations

from typing import Final

from tests.simulation import (
    cancels,
    foreign_delays,
    forgers,
    handovers,
    linked,
    notes,
    outboxes,
    plan,
    shares,
)
from tests.simulation.plan import Story

STORIES: Final = {
    "general": plan.GENERAL,
    "any": plan.ANY,
    "keys": plan.KEYS,
    "send-back": plan.SEND_BACK,
    "failover": plan.FAILOVER,
    "promoted": plan.PROMOTED,
    "promoted-keys": plan.PROMOTED_KEYS,
    "blocked": plan.BLOCKED,
    "drained": plan.DRAINED,
    "redrive": plan.REDRIVE,
    "seek": plan.SEEK,
    "reset": plan.RESET,
    "reset-lost": plan.RESET_LOST,
    "outgrown": plan.OUTGROWN,
    "moves": handovers.MOVES,
    "foreign-delays": foreign_delays.AWAY,
    "foreign-delays-forgotten": foreign_delays.FORGOTTEN,
    "outbox": outboxes.AWAY,
    "outbox-cut": outboxes.CUT,
    "outbox-full": outboxes.FULL,
    "outbox-forgotten": outboxes.FORGOTTEN,
    "notes": notes.WORK,
    "cancels": cancels.WORK,
    "cancels-forgotten": cancels.AWAY,
    "forgers": forgers.PLAIN,
    "forgers-promoted": forgers.PROMOTED,
    "forgers-reset": forgers.RESET,
    "forgers-order": forgers.IN_ORDER,
    "forgers-keys": forgers.KEYS_LOST,
    "forgers-flushed": forgers.FLUSHED,
    "shares": shares.PLAIN,
    "shares-cut": shares.CUT,
    "shares-away": shares.AWAY,
    "shares-killed": shares.KILLED,
    "shares-late": shares.LATE,
    "linked-any": linked.ANY,
    "linked-twice": linked.TWICE,
    "linked-again": linked.AGAIN,
    "linked-sent-back": linked.SENT_BACK,
    "linked-order": linked.KEYS_IN_ORDER,
    "linked-keys": linked.SAME_KEYS,
    "linked-notes": linked.NOTED,
    "linked-rate": linked.LIMITED,
    "linked-few": linked.FEW,
    "linked-failing": linked.FAILING,
}


def arguments(story: Story) -> list[str]:
    """What `python -m tests.simulation` needs to tell this story: its name, if it has one."""
    for name, each in STORIES.items():
        if each == story:
            return ["--story", name]
    general = story.settings[:1] == plan.GENERAL.settings
    told = ["--story", "general" if general else "any"]
    told += ["--only", ",".join(story.faults)] if story.faults else []
    for setting, value in story.settings[general:]:
        told += ["--set", f"{setting}={value}"]
    told += ["--style", story.style] if story.style else []
    return told if story.keep is None else [*told, "--keep", ",".join(map(str, story.keep))]
