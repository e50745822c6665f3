"""Everything that a subscription can ask for holds for messages that go through other sidecars."""

from __future__ import annotations

import pytest

from tests.simulation import linked
from tests.simulation.__main__ import rerun
from tests.simulation.plan import Story
from tests.simulation.run import simulate

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize(
    ("story", "found"),
    [
        (linked.TWICE, ()),
        # A request that came again after its answer took a message, and nobody waited for it.
        (linked.AGAIN, (2,)),
        (linked.SENT_BACK, ()),
        (linked.KEYS_IN_ORDER, ()),
        (linked.SAME_KEYS, ()),
        (linked.NOTED, ()),
        (linked.LIMITED, (3, 4)),
        (linked.FEW, ()),
        (linked.FAILING, ()),
    ],
    ids=[
        "twice", "lost answers", "sent back", "order", "same keys", "notes", "rate", "in flight",
        "circuit breaker",
    ],
)  # fmt: skip
def test_whatever_a_subscription_asks_for_holds_through_links(
    story: Story, found: tuple[int, ...]
) -> None:
    """While frames come again; more with `python -m tests.simulation --story linked-...`."""
    for seed in sorted({0, 1, *found}):
        outcome = simulate(seed, story)
        assert outcome.violation is None, rerun(outcome)
        assert len(outcome.served) > 1, "nothing went through a link"


@pytest.mark.parametrize("chunk", range(2))
def test_no_seed_breaks_an_invariant_where_sidecars_are_linked(chunk: int) -> None:
    """Faults of all kinds; more with `make simulate ARGS="--story linked-any"`."""
    for seed in range(chunk * 30, (chunk + 1) * 30):
        outcome = simulate(seed, linked.ANY)
        assert outcome.violation is None, rerun(outcome)
