"""The Lua scripts as they are sent: parts joined, names replaced by the core's own numbers.

The transition table and all numbers come from `ackd.core`, so no script can drift from the
record that it implements.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import IntEnum
from hashlib import sha1
from importlib.resources import files

from ackd.core import known_ids, log_generations, sources
from ackd.core.bitmap import CHUNK_BYTES
from ackd.core.record import (
    copies,
    delivery_events,
    maintenance,
    operations,
    protocol,
    slot,
    state,
    texts,
    transitions,
)
from ackd.core.record import decide as record
from ackd.core.record.settles import OF_VERB, Count, Due
from ackd.ports import READY_MAX
from ackd.store import codec, roster

_NUMBERS: dict[str, dict[str, int]] = {
    "Size": {
        "BITS_CHUNK": 8 * CHUNK_BYTES,
        "BYTES_CHUNK": CHUNK_BYTES,
        "SLOTS_CHUNK": 1 << slot.SLOT_CHUNK_SHIFT,
        "SLOT": codec.SLOT_BYTES,
        "OP": codec.OP_BYTES,
    },
    "Record": {"LAYOUT": state.LAYOUT},
    "Members": {
        name: getattr(roster, name)
        for name in ("SUM", "GONE_MAX", "SILENT_US", "CHANGES", "ALL", "UNKNOWN")
    }
    | {"READY_MAX": READY_MAX},
    "Log": {
        name: getattr(log_generations, name)
        for name in ("GENERATION", "GENERATIONS_MAX", "CUTS_MAX", "SAMPLES_MAX", "DENSE")
    },
    "Ids": {
        name: getattr(known_ids, name)
        for name in (
            "BITS_MAX",
            "BUCKET_BYTES",
            "FACTOR",
            "FIRST_BITS",
            "FULL",
            "IN_BUCKET",
            "REMOVED_MAX",
            "SLICES",
            "STEP_MS",
            "UNUSED_S",
        )
    },
    "Source": {
        name: getattr(sources, name) for name in ("BLOCK", "BLOCKS", "COPIES", "SEEN_EACH_MS")
    },
    "Bound": {
        "ATTEMPT_MAX": record.ATTEMPT_MAX,
        "JOURNAL_MAX": record.JOURNAL_MAX,
        "TEXTS_MAX": texts.TEXTS_MAX,
        "DELIVERIES_MAX": texts.DELIVERIES_MAX,
        "EVENTS_MAX": delivery_events.EVENTS_MAX,
        "HISTORY_BYTES_MAX": delivery_events.HISTORY_BYTES_MAX,
        "HOLDER_BYTES_MAX": delivery_events.HOLDER_BYTES_MAX,
        "REASON_BYTES_MAX": delivery_events.REASON_BYTES_MAX,
        "REPAIR_WAIT_MS": record.REPAIR_WAIT_MS,
        "RELEASES_MAX": slot.RELEASES_MAX,
        "EPOCH_MARKS": maintenance.EPOCH_MARKS,
        "EXCEPTIONS_KEEP_MS": maintenance.EXCEPTIONS_KEEP_MS,
        "ORIGIN_KEEP_MS": copies.ORIGIN_KEEP_MS,
        "PRUNE_MAX": copies.PRUNE_MAX,
        "REPEAT_MS": copies.REPEAT_MS,
        "UNKNOWN_AGAIN_MS": copies.UNKNOWN_AGAIN_MS,
        "VOUCH_AGAIN_MS": copies.VOUCH_AGAIN_MS,
    },
}
_SLOT = [each.name.upper() for each in fields(slot.Slot)]
_ORIGIN = [*_SLOT, *state.ORIGIN_FIELDS]

_OUTBOX = {
    "LAST": "n",
    "CLOCK": "c",
    "TERM": "t",
    "OWNER": "o",
    "UNTIL": "u",
    "BYTES": "b",
    "ASKER": "q",
    "ASKED": "z",
    "RUN": "h",
}
"""Fields of an outbox's head, in the order in which `outbox.lua` reads them."""


def _places(names: Iterable[str]) -> dict[str, int]:
    """Number the fields of a Lua array, from 1 on."""
    return {name: place for place, name in enumerate(names, 1)}


_NUMBERS |= {
    "Slot": _places(_SLOT),
    "Origin": _places(_ORIGIN),
    "Line": _places(("FIRST", "LAST", "COUNT")),
    "Outbox": _places(_OUTBOX),
    # Names and values that a call writes, in turn: the head is the first.
    "Fields": _places(("HEAD", "HOT")),
    # Verbs are asked for by their range, in the order of `transitions.Verb`.
    "Verbs": {
        "SETTLE_FIRST": min(OF_VERB),
        "SETTLE_LAST": max(OF_VERB),
        "MOVE_FIRST": transitions.Verb.MOVE_TO_RETRY,
        "MOVE_LAST": transitions.Verb.PLACE_COPY,
        "SLOT_LAST": transitions.Verb.LOOK_UP,
        "ORIGIN_LAST": transitions.Verb.ASK_BLOCKER,
        "UPKEEP_FIRST": transitions.Verb.GAP,
    },
}
_ENUMS: tuple[type[IntEnum], ...] = (
    transitions.State,
    transitions.Phase,
    transitions.Verb,
    transitions.Outcome,
    protocol.CallStatus,
    protocol.Finish,
    operations.ReplayWhat,
    operations.MovedFlag,
)
_NUMBERS |= {enum.__name__: {m.name: int(m) for m in enum} for enum in _ENUMS}
_NAME = re.compile(r"\b(" + "|".join(_NUMBERS) + r")\.([A-Z_]+)\b")
_TABLE = "--[[TABLE]] nil"
_HEAD = "--[[OUTBOX]] nil"

_SETS: dict[str, Iterable[int]] = {
    "JOURNALED": record.JOURNALED,
    "REASONED": texts.REASONED,
    "NOTED": texts.NOTED,
    "EVENTS": delivery_events.EVENTS,
    "DELAYED": [verb for verb, rule in OF_VERB.items() if rule.due is Due.DELAY],
    "AT_ONCE": [verb for verb, rule in OF_VERB.items() if rule.due is Due.NOW],
    "UNCOUNTED": [verb for verb, rule in OF_VERB.items() if rule.count is Count.NEVER],
    "COUNT_ASKED": [verb for verb, rule in OF_VERB.items() if rule.count is Count.ASKED],
}
_AMONG = re.compile(r"\bIn\.([A-Z_]+)\((\w+)\)")


def _among(match: re.Match[str]) -> str:
    """`In.NOTED(outcome)` as comparisons, which cost a script less than a table that it makes."""
    tests = [f"{match[2]} == {number}" for number in sorted(map(int, _SETS[match[1]]))]
    return f"({' or '.join(tests) or 'false'})"


@dataclass(frozen=True, slots=True)
class Script:
    """A script and the SHA-1 by which the server knows it (EVALSHA)."""

    name: str
    source: bytes
    sha: bytes

    @classmethod
    def of(cls, name: str, source: str) -> Script:
        """Make a script of its text."""
        data = source.encode()
        return cls(name, data, sha1(data, usedforsecurity=False).hexdigest().encode())


def source(*parts: str) -> str:
    """Join `.lua` files of this folder and fill in numbers and the table."""
    folder = files("ackd.store")
    text = "\n".join((folder / f"{part}.lua").read_text() for part in parts)
    text = _AMONG.sub(_among, text.replace(_TABLE, transitions.lua_table()))
    text = text.replace(_HEAD, ", ".join(f'"{name}"' for name in _OUTBOX.values()))
    return _NAME.sub(lambda match: str(_NUMBERS[match[1]][match[2]]), text)


APPLY_PARTS = (
    "prelude",
    "tools",
    "state",
    "chunks",
    "origins",
    "decide",
    "upkeep",
    "texts",
    "ledger",
)
APPLY = Script.of("apply", source(*APPLY_PARTS))
OPEN = Script.of("open", source("prelude", "open"))
MEMBERS = Script.of("members", source("members"))
FLOW = Script.of("flow", source("flow"))
FORGET = Script.of("forget", source("forget"))
OUTBOX = Script.of("outbox", source("outbox"))
SEEN = Script.of("seen", source("seen"))
PLACES = Script.of("places", source("ids", "places"))
FORGET_IDS = Script.of("forget-ids", source("ids", "forget_ids"))
SOURCES = Script.of("sources", source("sources"))
ALL = (APPLY, OPEN, MEMBERS, FLOW, FORGET, OUTBOX, SEEN, PLACES, FORGET_IDS, SOURCES)
