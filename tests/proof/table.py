"""The transition table of `core/` as a module of TLA+: `proofs/Table.tla`.

`python -m tests.proof.table` writes it.
"""

from ackd.core.record.transitions import TABLE
from tests.support.paths import REPO

PLACE = REPO / "proofs" / "Table.tla"
_HEAD = """---- MODULE Table ----
(* The transition table of sidecar/ackd/core/record/transitions.py, row by row. Written from it by
   `python -m tests.proof.table`; a test compares the two. *)
Rows == {
"""
_TAIL = """}

StepOf == [key \\in {<<r.phase, r.verb>> : r \\in Rows} |->
              CHOOSE r \\in Rows : r.phase = key[1] /\\ r.verb = key[2]]

LostStep == [outcome |-> "LOST", state |-> "READY", changes |-> FALSE]

(* What a verb does to a message in a phase: `transitions.step`. *)
Step(phase, verb) ==
    IF <<phase, verb>> \\in DOMAIN StepOf THEN StepOf[<<phase, verb>>] ELSE LostStep
====
"""


def module() -> str:
    """The module's text."""
    rows = [
        f'    [phase |-> "{phase.name}", verb |-> "{verb.name}", outcome |-> "{step.outcome.name}",'
        f' state |-> "{step.state.name}", changes |-> {str(step.changes).upper()}]'
        for (phase, verb), step in TABLE.items()
    ]
    return _HEAD + ",\n".join(rows) + _TAIL


if __name__ == "__main__":
    PLACE.write_text(module())
