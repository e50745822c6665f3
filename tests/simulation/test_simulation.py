"""The seeded simulator: no seed breaks an invariant, equal seeds are equal, mistakes are found."""

from __future__ import annotations

import inspect
import shlex
import subprocess
import sys
from dataclasses import replace

import pytest

from tests.simulation import (
    cancels,
    foreign_delays,
    forgers,
    handovers,
    inside,
    mutants,
    notes,
    outboxes,
    shares,
)
from tests.simulation.__main__ import rerun, story_of
from tests.simulation.mutant import Mutant
from tests.simulation.mutants import MUTANTS
from tests.simulation.parts import PARTS
from tests.simulation.plan import (
    BLOCKED,
    DRAINED,
    FAILOVER,
    GENERAL,
    KEYS,
    KINDS,
    OUTGROWN,
    PROMOTED,
    PROMOTED_KEYS,
    REDRIVE,
    RESET,
    RESET_LOST,
    SEEK,
    Story,
)
from tests.simulation.run import simulate
from tests.simulation.stories import STORIES, arguments
from tests.support.paths import REPO

SEEDS_PER_TEST = 30
AWAY = Story(("store_failover", "rebalance", "net"), FAILOVER.settings, FAILOVER.style)
IN_ORDER = Story(AWAY.faults, (*FAILOVER.settings, ("ordered", 2)), FAILOVER.style)
SLOW = FAILOVER.settings, FAILOVER.style
CHUNKS = 8
MUTANT_SEEDS = 80


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_seed_breaks_an_invariant(chunk: int) -> None:
    """I1, I2, I3, I4, I5, I7, I8 and R2 under faults of all kinds; more with `make simulate`."""
    for seed in range(chunk * SEEDS_PER_TEST, (chunk + 1) * SEEDS_PER_TEST):
        outcome = simulate(seed)
        assert outcome.violation is None, rerun(outcome)


@pytest.mark.parametrize(
    ("seed", "story"),
    [
        # A late heartbeat of a killed process, after a flush and a clock set back (R24).
        (5216, Story(settings=(("ordered", 0),))),
        # An ack that was replayed by a sidecar behind the back of the owner (R10, R16).
        (76, Story(("store_failover", "net", "store_freeze"), style="release")),
        # A lost chunk was made again, empty, by an owner that was revoked in mid-repair (R14).
        (6131, Story()),
        # A chunk was lost while nobody owned the partition; its next owner had owned it (R14).
        (26, Story(("evict", "rebalance", "kill"))),
        # Copies in line filled the buffer, and the first of them was not fetched (R19, I8).
        (35, BLOCKED),
        # An ack that a forgotten origin record had, and one that came before the origin record was
        # restored (R10).
        (41, AWAY),
        # A partition was let go under live leases, and the next owner's record forgot one (R10).
        (56, AWAY),
        # The first answer to an ack was lost, the repeat's was not; then the ack was (R10).
        (65, AWAY),
        # A record was lost as a whole, and origin records of before came into the new one (R2,
        # R19).
        (95, IN_ORDER),
        # Two failovers, one behind the other: what was let go was repeated only once (R10).
        (92, PROMOTED_KEYS),
        # An extension of a forwarded lease was served by another one than who sent it back (R4,
        # R10).
        (102, PROMOTED),
        # A copy was acked whose claim was forgotten, and its line waited for it for ever (R19).
        (97, PROMOTED_KEYS),
        # Told `already_acked` of what only a commit knew to be over: it was dismissed as such (R2).
        (41, PROMOTED_KEYS),
        # Its record had no owner for 12 s, and who had served the ack repeated it for 10 (R10).
        (1087, PROMOTED_KEYS),
        # A commit passed a message before its origin record was written again: its lease was `lost`
        # (I7).
        (1016, PROMOTED),
        # A commit passed a message whose origin record was there, and that it was sent was
        # forgotten (I7).
        (1138, PROMOTED),
        # A late ack of before a failover that forgot who had claimed its copy (R2, R10).
        (2325, PROMOTED),
        # The same, and a second failover forgot the ack: it was repeated behind the claim (R10).
        (2053, PROMOTED),
        # All was forgotten while nobody lived; a copy was first, its origin came later (R2, I3).
        (3021, PROMOTED_KEYS),
        # The same where the failover forgot the whole origin record (R2, R10).
        (3733, PROMOTED),
        # One that was silent for a moment was forgotten with what it knew (R10).
        (2864, PROMOTED),
        # The replay of a fenced owner met a lease that was granted after a loss of all data (R10).
        (151, Story(("flush", "rebalance", "evict", "freeze"))),
    ],
)
def test_what_was_once_found_is_mended(seed: int, story: Story) -> None:
    """Seeds that broke an invariant before."""
    outcome = simulate(seed, story)
    assert outcome.violation is None, rerun(outcome)


@pytest.mark.parametrize("kind", KINDS)
def test_each_fault_alone(kind: str) -> None:
    """One kind of fault in every run, so that none of them is rarely seen."""
    for seed in range(4):
        outcome = simulate(seed, Story((kind,)))
        assert outcome.violation is None, rerun(outcome)
        assert outcome.acked > 0 or outcome.delivered == 0


LOSE_NOTHING = ("kill", "fuse", "stop", "freeze", "cut", "net", "broker_net", "broker_down")


def test_r1_a_longer_topic_made_again_is_another_topic() -> None:
    """I1, I2: sessions stand in the old log when the new one is longer already."""
    for seed in range(8):
        outcome = simulate(seed, OUTGROWN)
        assert outcome.violation is None, rerun(outcome)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("story", "found"),
    [
        # A copy that is put aside in a repair was left waiting, and its next owner granted it.
        (forgers.IN_ORDER, [12]),
        # All sidecars started after the keys were lost: what was put aside was believed again, and
        # took its message out of the queue of its key; a later generation was believed.
        (forgers.KEYS_LOST, [23, 36]),
        (forgers.PLAIN, []),
        (forgers.PROMOTED, []),
        (forgers.RESET, []),
        (forgers.FLUSHED, []),
    ],
)
def test_r2_what_is_forged_reaches_nobody_and_takes_nothing(story: Story, found: list[int]) -> None:
    """Somebody writes copies of his own behind each genuine one; no genuine one is put aside."""
    for seed in [*range(6), *found]:
        outcome = simulate(seed, story)
        assert outcome.violation is None, rerun(outcome)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", LOSE_NOTHING)
def test_r2_stuck_messages_are_sent_back_under_each_fault(kind: str) -> None:
    """One copy of each is delivered, none after its ack, and all that were stored are finished."""
    for seed in range(6):
        settings = (("stuck_ms", 1_000 + 500 * (seed % 3)),)
        outcome = simulate(seed, Story((kind, "rebalance"), settings, "slow"))
        assert outcome.violation is None, rerun(outcome)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("more", [(), ("kill",), ("rebalance",)])
def test_r10_what_was_sent_back_survives_a_store_failover(more: tuple[str, ...]) -> None:
    """I1, I2, I3, I7: an origin record or a claim that a replica never got is written again by who
    knows it.

    Seeds 30 to 59 broke an invariant five times before that.
    """
    for seed in (30, 36, 41, 51, 54, 67):
        story = Story((*FAILOVER.faults, *more), FAILOVER.settings, FAILOVER.style)
        outcome = simulate(seed, story)
        assert outcome.violation is None, rerun(outcome)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("story", "seeds"),
    [
        (FAILOVER, (0, 24)),
        (PROMOTED, (0, 16, 32, 41)),
        (PROMOTED_KEYS, (223,)),  # the record was made anew past it
        (Story(("store_failover", "stop", "rebalance"), *SLOW), (0, 20, 32)),
        (Story(FAILOVER.faults[:1], FAILOVER.settings, "extend"), (0, 24, 41, 58)),
    ],
)
def test_i7_already_acked_is_told_of_acked_ones_alone(story: Story, seeds: tuple[int, ...]) -> None:
    """In these seeds it was told of what had been sent back, which a failover forgot."""
    for seed in seeds:
        outcome = simulate(seed, story)
        assert outcome.violation is None, rerun(outcome)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", LOSE_NOTHING)
def test_r19_keys_are_blocked_as_a_whole_under_each_fault(kind: str) -> None:
    """I6 at each grant, from the window or from a copy; in the end no key is blocked."""
    for seed in range(3):
        settings = (("stuck_ms", 1_000 + 500 * (seed % 3)), ("ordered", 1 + seed))
        outcome = simulate(seed, Story((kind, "rebalance"), settings, "slow"))
        assert outcome.violation is None, rerun(outcome)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("faults", [("kill", "fuse"), ("freeze", "cut"), ("net", "broker_net")])
def test_r8_the_group_is_moved_under_faults(faults: tuple[str, ...]) -> None:
    """Once, whoever dies; one holder; what comes again is finished again, its copies are not."""
    for seed in range(6):
        outcome = simulate(seed, Story(("seek", "rebalance", *faults), SEEK.settings, "slow"))
        assert outcome.violation is None, rerun(outcome)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_r8_copies_of_what_a_foreign_reset_brings_back_are_over() -> None:
    """Seeds 16 and 44 gave one message to two holders: from the window, and from its old copy. With
    two keys, 97 left a key blocked for good, and 16 called a message acked that nobody had acked.
    """
    for seed in (16, 44, *range(8)):
        outcome = simulate(seed, RESET)
        assert outcome.violation is None, rerun(outcome)
    keys = replace(RESET, settings=(*RESET.settings, ("ordered", 2)))
    for seed in (16, 97, *range(4)):
        outcome = simulate(seed, keys)
        assert outcome.violation is None, rerun(outcome)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("story", [RESET_LOST, replace(RESET_LOST, style="slow")])
def test_r8_a_reset_while_all_members_are_lost_is_judged(story: Story) -> None:
    """They own their partitions all the time, and get them assigned anew."""
    for seed in range(8):
        outcome = simulate(seed, story)
        assert outcome.violation is None, rerun(outcome)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_r5_what_the_group_moves_is_taken_from_nobody_who_delivers() -> None:
    """Who gave a partition up takes it back only until its next owner has it."""
    for seed in range(12):
        outcome = simulate(seed, handovers.MOVES)
        assert outcome.violation is None, rerun(outcome)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_i1_who_stops_looks_at_leases_and_ends_none() -> None:
    """Also while the store is back from a restart and its records are not repaired yet."""
    for seed in range(20):
        outcome = simulate(seed, DRAINED)
        assert outcome.violation is None, rerun(outcome)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_r29_dead_letters_are_redriven_to_their_group_under_faults() -> None:
    """R2, I1: each has one live copy whoever dies, none is lost, and only the group hears of it."""
    found = 0
    for seed in range(8):
        fault = ("net", "broker_net", "kill", "freeze")[seed % 4]
        outcome = simulate(seed, Story((*REDRIVE.faults, fault), REDRIVE.settings, REDRIVE.style))
        assert outcome.violation is None, rerun(outcome)
        found += outcome.redriven
    assert found > 15


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("story", [foreign_delays.AWAY, foreign_delays.FORGOTTEN])
def test_i4_what_others_delayed_is_not_early_and_counts_on(story: Story) -> None:
    """Whoever dies, and whatever the store forgets while its owner lives."""
    for seed in range(6):
        outcome = simulate(seed, story)
        assert outcome.violation is None, rerun(outcome)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("story", "found"),
    [
        # A late question took messages that nobody knew of; what came after them was sent first.
        (outboxes.AWAY, [21]),
        # A repeat of a batch got the numbers of other messages, and its own were never sent.
        (outboxes.CUT, [11, 29]),
        (outboxes.FULL, [0]),
        # Numbers and terms of before a failover were given again.
        (outboxes.FORGOTTEN, [0, 47, 161]),
    ],
)
def test_i1_what_is_accepted_is_sent(story: Story, found: list[int]) -> None:
    """In order by key and partition (I6); what may be there twice says so (R20)."""
    for seed in (*found, *range(1, 9)):
        outcome = simulate(seed, story)
        assert outcome.violation is None, rerun(outcome)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_i7_the_last_note_comes_with_the_next_lease() -> None:
    """Whoever dies, and from the window or from a copy."""
    for seed in range(20):
        outcome = simulate(seed, notes.WORK)
        assert outcome.violation is None, rerun(outcome)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("story", "found"),
    [
        (cancels.WORK, []),
        # A copy claimed its origin record in that moment, and was handed out after the cancel was
        # told. A silent sidecar was forgotten, came back, and a failover forgot that: nobody waited
        # for the acks that it had served (R10). A replay ended because the store was away for a
        # moment (2017). A watermark that had waited was told before the repair, and hid that a
        # message was sent back (3291, 4598). A copy died before anybody got it, and the store had
        # forgotten all (395).
        (cancels.AWAY, [0, 61, 207, 395, 499, 2017, 3291, 4598]),
    ],
)
def test_i2_what_was_cancelled_is_over(story: Story, found: list[int]) -> None:
    """Wherever it is: in the window, on its way to the retry topic, or as its copy."""
    for seed in (*found, *range(1, 13)):
        outcome = simulate(seed, story)
        assert outcome.violation is None, rerun(outcome)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_application_that_waits_gets_messages_wherever_they_are_owned() -> None:
    """Two partitions and three sidecars; no message lies, and no grant is lost (R21)."""
    for seed in range(4):
        outcome = simulate(seed, shares.PLAIN)
        assert outcome.violation is None, rerun(outcome)
        assert len(outcome.served) == 3
        assert min(outcome.served.values()) * 12 > outcome.delivered


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("story", "found"),
    [
        # An answer was refused, and the link closed before its owner heard that.
        (shares.CUT, [55, 58]),
        (shares.LATE, []),
        (shares.KILLED, []),
        # A failover behind a subscription that was built again: acks of before were not replayed.
        (shares.AWAY, [19]),
    ],
)
def test_r21_grants_for_other_sidecars_reach_somebody_or_go_back(
    story: Story, found: list[int]
) -> None:
    """Soon and uncounted, whatever breaks; one holder, and nothing acked comes again."""
    for seed in (*found, *range(1, 6 - len(found))):
        outcome = simulate(seed, story)
        assert outcome.violation is None, rerun(outcome)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_r18_repeats_hide_nothing_and_are_found() -> None:
    """A message is settled without delivery only behind the ack of another one of its key."""
    found = 0
    for seed in range(15):
        fault = ("reset",) if seed % 5 == 0 else KEYS.faults
        outcome = simulate(seed, Story(fault, (("keys", 8), ("sidecars", 2)), KEYS.style))
        assert outcome.violation is None, rerun(outcome)
        found += outcome.repeats
    assert found > 15


def test_runs_do_something() -> None:
    """A simulator in which nothing happens finds nothing."""
    outcomes = [simulate(seed) for seed in range(10)]
    assert sum(outcome.acked for outcome in outcomes) > 300
    assert sum(outcome.delivered for outcome in outcomes) > 400


@pytest.mark.parametrize("seed", [3, 24, 58])
def test_a_seed_decides_everything(seed: int) -> None:
    """Twice in this process, once in another with other hashes: the same trace."""
    here = simulate(seed, GENERAL)
    assert simulate(seed, GENERAL).digest == here.digest
    command = [sys.executable, "-m", "tests.simulation", "--seed", str(seed), "--trace", "0"]
    said = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=False)
    assert here.digest in said.stdout, said.stderr


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.rule} {mutant.name}")
def test_a_planted_mistake_is_found(mutant: Mutant) -> None:
    """The seed that finds it finds nothing without it."""
    for seed in range(mutant.first, mutant.first + MUTANT_SEEDS):
        outcome = mutant.run(seed)
        if outcome.violation is not None:
            break
    else:
        pytest.fail(f"{mutant.rule} was not found in {MUTANT_SEEDS} seeds: {mutant.name}")
    clean = simulate(seed, mutant.story)
    assert clean.violation is None, rerun(clean)


@pytest.mark.parametrize("mistake", inside.TABLE)
def test_what_a_planted_mistake_changes_exists(mistake: str) -> None:
    """A rename in production code that leaves a mistake without its target says which."""
    target = inside.TABLE[mistake]
    assert mistake in {mutant.name for mutant in MUTANTS}, f"nobody plants {mistake!r}"
    assert target.exists, (
        f"the planted mistake {mistake!r} has lost its target: {target.module} has no "
        f"{target.name} any more; mend its line in tests/simulation/inside.py"
    )


WRONG = [
    part
    for module in (module for name, module in vars(mutants).items() if inspect.ismodule(module))
    for part in vars(module).values()
    if inspect.isclass(part) and part.__module__ == module.__name__
]
"""The parts that are wrong."""


@pytest.mark.parametrize("part", WRONG, ids=lambda part: part.__name__)
def test_what_a_wrong_part_overrides_exists(part: type) -> None:
    """Else nobody calls it any more, and the mistake is none."""
    for name in vars(part):
        inherited = any(hasattr(base, name) for base in part.__bases__)
        assert name.startswith("_") or inherited, (
            f"the planted mistake {part.__name__} ({part.__doc__}) has lost its target: "
            f"{part.__bases__[0].__name__} has no {name} any more"
        )


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_something_is_planted(mutant: Mutant) -> None:
    """Wrong parts, rows of the table, or a name in the one list of them."""
    assert mutant.parts != PARTS or mutant.rows or mutant.name in inside.TABLE


def test_a_lost_target_is_named() -> None:
    """The module is gone, the class, or the name in it."""
    for module, name in (
        ("ackd.gone", "x"),
        ("ackd.core.record.copies", "Gone.x"),
        ("ackd.core", "gone"),
    ):
        assert not inside.Inside(module, name, repr).exists


def test_the_printed_command_repeats_the_failure() -> None:
    """With the story in which it failed; alone the seed is another run."""
    failed = replace(simulate(3, BLOCKED), violation="I1: as if")
    *_, again = rerun(failed).splitlines()
    command = shlex.split(again.partition(": ")[2])
    assert command[1:5] == ["-m", "tests.simulation", "--story", "blocked"]
    said = subprocess.run(
        [sys.executable, *command[1:]], cwd=REPO, capture_output=True, text=True, check=False
    )
    assert failed.digest in said.stdout, said.stderr


@pytest.mark.parametrize(
    "story",
    [
        *STORIES.values(),
        AWAY,
        Story(("kill",), (("ordered", -1), ("stuck_ms", 7)), "slow"),
        Story(settings=(("ordered", 0),)),
    ],
)
def test_every_story_can_be_told_again(story: Story) -> None:
    """By its name, or by what it is made of."""
    assert story_of(arguments(story)) == story
