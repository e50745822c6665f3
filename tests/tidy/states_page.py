"""Writes `docs/reference/states.md`: `python -m tests.tidy.states_page`."""

from __future__ import annotations

from pathlib import Path

from ackd.core.record.settles import OF_VERB
from ackd.core.record.transitions import LATE_PHASE, TABLE, Phase, State, Verb, step

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "states.md"
VERBS = (
    Verb.GRANT,
    *OF_VERB,
    Verb.MOVE_TO_RETRY,
    Verb.MARK_DEAD,
    Verb.PLACE_COPY,
    Verb.FINISH,
)

_ENDS = {Verb.ACK: Phase.ACKED.name.lower(), Verb.FINISH: Phase.GONE.name.lower()}
HEAD = """# States of a message

Drawn from the transition table in `sidecar/ackd/core/record/transitions.py` by `python -m
tests.tidy.states_page`; a test fails when this page is older than the table.

A *state* is what the store keeps of a message, a *phase* is how it looks at a moment of the store's
clock. `expired` is a lease whose deadline has passed, and nobody else has got the message; `acked`
and `gone` (finished in another way: its copy is in the dead-letter topic, retention or compaction
removed it) are one bit. `forgotten` is a lease whose grant a rollback of the store took away, until
the owner has repaired the record; *unrepaired* means that the request is tried again, then
`unavailable`.

```mermaid
{diagram}
```

## What each request does in each phase

As the holder of the newest token sees it. With an older token the message looks `gone`, unless it
is acked. `grant` is the owner's request to deliver a message; while a message is `leased`, or
`waiting` and not yet due, it answers *held*. The last four are the owner's too: `move to retry`
moves a message into its origin record on the way to the retry topic, `mark dead` gives it up
because its attempts are used up, `place copy` lets a copy from the retry topic in that has claimed
its origin record, `finish` comes after the copy (dead letter or retry) was stored. *lost* changes
nothing. Settles that count in phase `expired` say `late`.

While a message is `moving`, and after it was sent, its settles are decided by this same table in
the origin record, which holds the lease or the delay as it was. Once a copy has claimed the origin
record, nothing changes there any more: an ack or an extend is *lost*, a repeat gets its old answer.

"""


def mermaid() -> str:
    """The diagram in the docs, drawn from the table."""
    lines = ["stateDiagram-v2"]
    for (phase, verb), s in sorted(TABLE.items()):
        if s.changes:
            target = _ENDS.get(verb, s.state.name.lower())
            lines.append(
                f"    {phase.name.lower()} --> {target}: {verb.name.lower().replace('_', ' ')}"
            )
    lines.append("    leased --> expired: deadline passes")
    lines.append("    leased --> forgotten: the store is rolled back")
    return "\n".join(lines)


def page() -> str:
    """The whole page."""
    names = [verb.name.lower().replace("_", " ") for verb in VERBS]
    lines = ["| phase | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for phase in Phase:
        cells = [_cell(phase, verb) for verb in VERBS]
        lines.append(f"| {phase.name.lower()} | " + " | ".join(cells) + " |")
    return HEAD.format(diagram=mermaid()) + "\n".join(lines) + "\n"


def _cell(phase: Phase, verb: Verb) -> str:
    row = step(phase, verb)
    if (phase, verb) not in TABLE:
        return "lost"
    said = row.outcome.name.lower().replace("_", " ")
    if not row.changes:
        return said
    target = "acked" if verb is Verb.ACK else "gone" if row.state is State.FINISHED else ""
    late = ", late" if phase is LATE_PHASE and verb is not Verb.GRANT else ""
    return f"**{said}**{late} → {target or row.state.name.lower()}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
