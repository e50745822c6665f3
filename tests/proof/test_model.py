"""TLC checks the model in small scopes; `make prove` does it in larger ones."""

import pytest

from tests.proof.tlc import check, missing
from tests.support.require import require

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SECONDS = 540


@pytest.mark.parametrize(("scope", "states"), [("small.cfg", 8_000), ("witness.cfg", 10_000)])
def test_the_model_keeps_its_promises(scope: str, states: int) -> None:
    """In a scope that is large enough to mean something."""
    require(missing())
    found = check(scope, {}, SECONDS)
    assert (found.broken, found.trace) == ("", ())
    assert found.states >= states


def test_two_copies_need_a_clock_that_was_set_back() -> None:
    """And a failover that forgot the move, and the death of the only one who knew."""
    require(missing())
    found = check("clock.cfg", {}, SECONDS)
    assert found.broken == "OneCopy"
    assert {"FallBehind", "Kill", "Failover", "ClaimCopy"} <= set(found.trace)


def test_what_moved_can_be_lost_when_a_failover_gives_an_earlier_owner_its_term_back() -> None:
    """Without the two rules that `Mended` stands for; with them it holds (`make prove`)."""
    require(missing())
    found = check("term.cfg", {}, SECONDS)
    assert found.broken == "NothingLost"
    assert found.trace.count("Take") >= 2
    assert {"Publish", "Failover", "Replay", "ClaimCopy"} <= set(found.trace)


def test_i5_no_message_holds_the_watermark_for_ever() -> None:
    """Whatever applications do; and the broker learns of it."""
    require(missing())
    found = check("live.cfg", {}, SECONDS)
    assert (found.broken, found.trace) == ("", ())
    assert found.states >= 900


@pytest.mark.parametrize("mistake", ["the move waits for the lease", "the journal is not read"])
def test_i5_a_mistake_that_stops_progress_is_found(mistake: str) -> None:
    """A lease that is extended without end, or an ack at another sidecar, holds the watermark."""
    require(missing())
    assert check("live.cfg", {"Mistake": f'"{mistake}"'}, SECONDS).broken == "Temporal properties"


MISTAKES = [
    ("a grant does not ask for the deadline", "OneHolder"),
    ("any token counts", "OneHolder"),
    ("a copy is handed out without a claim", "OneHolder"),
    ("the move ends the lease", "OneHolder"),
    ("a moved message is finished before its copy is stored", "NothingLost"),
    ("an ack is answered before the store has it", "NoAckedAgain"),
    ("below the watermark all is acked", "NoFalseYes"),
]


@pytest.mark.parametrize(("mistake", "broken"), MISTAKES)
def test_a_planted_mistake_is_found(mistake: str, broken: str) -> None:
    """By the promise that it breaks."""
    require(missing())
    found = check("small.cfg", {"Mistake": f'"{mistake}"'}, SECONDS)
    assert found.broken == broken
