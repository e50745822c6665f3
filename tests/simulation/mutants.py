"""Planted mistakes: each breaks one rule, and the simulator has to notice.

A simulator that finds nothing proves little unless it is known what it would find. No mistake is
planted by changing the inside of a class: see `mutant`, and `inside` for the exceptions.
"""

from __future__ import annotations

from ackd.core.record.transitions import Outcome, Phase, State, TransitionStep, Verb
from tests.simulation import mutants_of_cancels as cancels
from tests.simulation import mutants_of_copies as copies
from tests.simulation import mutants_of_engine as engine
from tests.simulation import mutants_of_foreign_delays as foreign_delays
from tests.simulation import mutants_of_forgers as forgers
from tests.simulation import mutants_of_linked as linked
from tests.simulation import mutants_of_notes as notes
from tests.simulation import mutants_of_order as order
from tests.simulation import mutants_of_outbox as outbox
from tests.simulation import mutants_of_progress as progress
from tests.simulation import mutants_of_push as push
from tests.simulation import mutants_of_record as record
from tests.simulation import mutants_of_redrive as redrive
from tests.simulation import mutants_of_repeats as repeats
from tests.simulation import mutants_of_rollback as rollback
from tests.simulation import mutants_of_shares as shares
from tests.simulation.mutant import Mutant
from tests.simulation.plan import Story

MUTANTS = (
    Mutant(
        "an ack counts after dead",
        "R2",
        story=Story(("kill", "broker_net"), style="dead"),
        rows={(Phase.DEAD, Verb.ACK): TransitionStep(Outcome.ACKED, State.FINISHED)},
    ),
    *copies.MUTANTS,
    *forgers.MUTANTS,
    *progress.MUTANTS,
    *rollback.MUTANTS,
    *record.MUTANTS,
    *engine.MUTANTS,
    *repeats.MUTANTS,
    *redrive.MUTANTS,
    *foreign_delays.MUTANTS,
    *outbox.MUTANTS,
    *notes.MUTANTS,
    *cancels.MUTANTS,
    *order.MUTANTS,
    *shares.MUTANTS,
    *linked.MUTANTS,
    *push.MUTANTS,
)
"""The list to which every rule that the simulator guards adds at least one."""
