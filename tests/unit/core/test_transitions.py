"""The transition table is complete and means what the rules say (R15, R17)."""

from __future__ import annotations

import pytest

from ackd.core.record import transitions
from ackd.core.record.settles import OF_VERB
from ackd.core.record.transitions import TABLE, Outcome, Phase, State, Verb, step


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize(
    "verb", [*OF_VERB, Verb.GRANT, Verb.FINISH, Verb.MOVE_TO_RETRY, Verb.MARK_DEAD, Verb.PLACE_COPY]
)
def test_every_phase_answers_every_verb(phase: Phase, verb: Verb) -> None:
    """Nothing is undefined; what changes nothing leaves the state as it looks."""
    row = step(phase, verb)
    if row == transitions.LOST:
        assert (phase, verb) not in TABLE
        assert not row.changes
    elif not row.changes:
        over = phase in (Phase.ACKED, Phase.GONE)
        if phase is Phase.EXPIRED:
            assert row.state is State.LEASED
        elif phase is Phase.FORGOTTEN:
            assert row.state is State.READY
        else:
            assert row.state == (State.FINISHED if over else State(phase))


@pytest.mark.parametrize("phase", Phase)
def test_only_a_free_message_is_granted(phase: Phase) -> None:
    """I3: the record asks a WAITING one for its time before it looks here."""
    granted = step(phase, Verb.GRANT).outcome is Outcome.GRANTED
    free = (Phase.READY, Phase.RELEASED, Phase.EXPIRED, Phase.WAITING)
    assert granted == (phase in free)


def test_only_acks_and_durable_copies_finish() -> None:
    """I1: a message leaves the unfinished set by an ack or after its copy, in no other way."""
    finishing = {(p, v) for (p, v), s in TABLE.items() if s.changes and s.state is State.FINISHED}
    assert finishing == {
        (Phase.LEASED, Verb.ACK),
        (Phase.EXPIRED, Verb.ACK),
        (Phase.FORGOTTEN, Verb.ACK),
        (Phase.DEAD, Verb.FINISH),
        (Phase.MOVING, Verb.FINISH),
    }


def test_a_finished_message_never_changes() -> None:
    """I2: no verb leads out of ACKED and GONE."""
    for phase in (Phase.ACKED, Phase.GONE):
        assert not any(step(phase, verb).changes for verb in Verb)


def test_after_dead_no_ack_counts() -> None:
    """R2: `dead` is the commit point of a send back."""
    assert step(Phase.DEAD, Verb.ACK) == transitions.LOST
    assert step(Phase.DEAD, Verb.EXTEND) == transitions.LOST


def test_whoever_works_on_a_message_is_not_disturbed_by_its_budget() -> None:
    """A late ack that is first wins, and a live lease is never given up."""
    assert step(Phase.LEASED, Verb.MARK_DEAD).outcome is Outcome.HELD
    assert step(Phase.ACKED, Verb.MARK_DEAD).outcome is Outcome.FINISHED


def test_what_is_unfinished_and_not_given_up_is_sent_back() -> None:
    """R2: MOVING is the commit point, there is no second one. READY only with its key (R19)."""
    sent = {p for p in Phase if step(p, Verb.MOVE_TO_RETRY).changes}
    assert sent == {Phase.READY, Phase.LEASED, Phase.EXPIRED, Phase.WAITING, Phase.RELEASED}
    assert not step(Phase.MOVING, Verb.MOVE_TO_RETRY).changes


def test_late_settles_are_exactly_ack_and_extend() -> None:
    """R17: past the deadline retry, dead and release are lost."""
    late = {verb for verb in OF_VERB if step(Phase.EXPIRED, verb) != transitions.LOST}
    assert late == {Verb.ACK, Verb.EXTEND}


def test_no_settle_of_a_forgotten_lease_is_answered_lost() -> None:
    """I7, R10: before the repair nobody knows whether it lives."""
    said = {verb: step(Phase.FORGOTTEN, verb).outcome for verb in OF_VERB}
    assert said[Verb.ACK] is Outcome.ACKED
    assert said[Verb.EXTEND] is Outcome.EXTENDED
    waiting = (Verb.RETRY, Verb.DEAD, Verb.RELEASE)
    assert {said[verb] for verb in waiting} == {Outcome.UNREPAIRED}


def test_the_script_gets_every_row() -> None:
    """The Lua text carries the same table."""
    cells = [int(cell) for cell in transitions.lua_table().strip('"').split("\\")[1:]]
    assert len(cells) == 2 * 16 * len(Phase)
    for phase in Phase:
        for verb in range(16):
            row = (
                TABLE.get((phase, Verb(verb)), transitions.LOST)
                if verb in set(Verb)
                else transitions.LOST
            )
            at = 2 * (phase * 16 + verb)
            assert cells[at : at + 2] == [row.outcome, row.state * 2 + row.changes]


def test_states_and_phases_share_their_numbers() -> None:
    """`Phase(state)` is used where a state is looked at."""
    for state in State:
        if state is not State.FINISHED:
            assert Phase(state).name == state.name


def test_the_ranges_that_the_scripts_ask_for_are_what_they_are_called() -> None:
    """Settles, then what an owner does with a message; a look is the last of a slot's verbs."""
    settles = range(min(OF_VERB), max(OF_VERB) + 1)
    assert sorted(OF_VERB) == [Verb(each) for each in settles]
    assert [Verb(each) for each in range(Verb.MOVE_TO_RETRY, Verb.LOOK_UP)] == [
        Verb.MOVE_TO_RETRY,
        Verb.MARK_DEAD,
        Verb.PLACE_COPY,
    ]
    origin_records = range(Verb.LOOK_UP + 1, Verb.GAP)
    assert [Verb(each) for each in origin_records] == [
        Verb.CLAIM,
        Verb.CLOSE,
        Verb.NAME_COPY,
        Verb.VOUCH,
        Verb.ASK_BLOCKER,
    ]
