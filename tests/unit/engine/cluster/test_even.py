"""Things are shared evenly among sidecars, and most stay where they are (R5)."""

import random
from collections import Counter

import pytest

from ackd.engine.cluster.even import even


@pytest.mark.parametrize("things", [0, 1, 2, 3, 7, 40])
@pytest.mark.parametrize("names", [1, 2, 3, 10])
def test_none_has_two_more_than_another(things: int, names: int) -> None:
    rng = random.Random(things * 100 + names)
    each = [f"orders broker-{number}" for number in range(things)]
    who = [f"sidecar-{number}" for number in range(names)]
    found = even(each, who)
    assert found.keys() == {*each}
    count = Counter(found.values())
    assert {count[name] for name in who} <= {things // names, -(-things // names)}
    rng.shuffle(each)
    rng.shuffle(who)
    assert even(each, who) == found, "all compute the same"


def test_what_a_leaver_had_is_shared_and_few_others_move() -> None:
    each = [f"orders broker-{number}" for number in range(40)]
    who = [f"sidecar-{number}" for number in range(5)]
    before, after = even(each, who), even(each, who[:-1])
    stay = [thing for thing in each if before[thing] != who[-1]]
    moved = [thing for thing in stay if before[thing] != after[thing]]
    assert len(moved) <= len(stay) // 4
