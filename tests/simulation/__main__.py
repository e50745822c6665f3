"""`python -m tests.simulation`: run many seeds, or one again with its trace."""

from __future__ import annotations

import argparse
import sys
from time import monotonic

from tests.simulation.coverage import Coverage
from tests.simulation.general import KINDS as GENERAL_KINDS
from tests.simulation.mistakes import table
from tests.simulation.plan import KINDS, STYLES, Story
from tests.simulation.run import Outcome, simulate
from tests.simulation.shrink import shrink
from tests.simulation.stories import STORIES, arguments

FAILURES_MAX = 5


def rerun(outcome: Outcome) -> str:
    """What somebody needs to see the same again."""
    return (
        f"seed {outcome.seed}: {outcome.violation}\n{outcome.tail}\n"
        f"again: python -m tests.simulation {' '.join(command(outcome))}"
    )


def command(outcome: Outcome) -> list[str]:
    """The arguments that run the same seed in the same story."""
    return [*arguments(outcome.story), "--seed", str(outcome.seed)]


def _setting(text: str) -> tuple[str, int]:
    name, _, value = text.partition("=")
    return name, int(value)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(",") if number)


def story_of(words: list[str]) -> Story:
    """What these arguments tell."""
    return _story(_parser().parse_args(words))


def _story(options: argparse.Namespace) -> Story:
    story = STORIES[options.story]
    return Story(
        tuple(kind for kind in options.only.split(",") if kind) or story.faults,
        (*story.settings, *options.set),
        options.style or story.style,
        options.keep,
    )


def _parser() -> argparse.ArgumentParser:
    kinds = ",".join(dict.fromkeys((*KINDS, *GENERAL_KINDS)))
    parser = argparse.ArgumentParser(prog="tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="only this seed, with the end of its trace")
    parser.add_argument("--story", default="general", choices=STORIES, help="what it is about")
    parser.add_argument("--only", default="", help=f"only these faults: {kinds}")
    parser.add_argument("--set", default=[], type=_setting, action="append", help="NAME=NUMBER")
    parser.add_argument("--style", default="", help=f"applications like: {', '.join(STYLES)}")
    parser.add_argument("--keep", type=_numbers, help="only the faults of these numbers")
    parser.add_argument("--trace", type=int, default=80, help="lines of trace to print")
    parser.add_argument("--about", default="", help="only lines of the trace with this text")
    parser.add_argument("--mistakes", type=int, help="seeds that each planted mistake may need")
    parser.add_argument("--whole", action="store_true", help="don't make failing runs smaller")
    return parser


def main() -> int:
    """Exit code 1 if a seed was found that breaks an invariant."""
    options = _parser().parse_args()
    story = _story(options)
    if options.mistakes is not None:
        for line in table(options.mistakes):
            print(line, flush=True)  # noqa: T201
        return 0
    if options.seed is not None:
        outcome = simulate(options.seed, story, lines=options.trace, about=options.about)
        print(outcome.tail)  # noqa: T201 - a command
        print(outcome.summary())  # noqa: T201
        return int(outcome.violation is not None)
    return _many(options.first, options.seeds, story, whole=options.whole)


def _many(first: int, count: int, story: Story, *, whole: bool) -> int:
    started, failed, virtual_ms, acked = monotonic(), 0, 0, 0
    coverage = Coverage()
    for seed in range(first, first + count):
        outcome = simulate(seed, story)
        virtual_ms += outcome.virtual_ms
        acked += outcome.acked
        coverage.add(outcome.coverage)
        if outcome.violation is not None:
            failed += 1
            print(rerun(outcome), file=sys.stderr)  # noqa: T201
            if not whole:
                small = shrink(outcome)
                print(f"the smallest run like it:\n{rerun(small)}", file=sys.stderr)  # noqa: T201
            if failed >= FAILURES_MAX:
                break
    if dict(story.settings).get("general"):
        print(coverage.report(story.faults or GENERAL_KINDS))  # noqa: T201
    print(  # noqa: T201
        f"{seed + 1 - first} seeds from {first} on, {virtual_ms // 60_000} simulated minutes, "
        f"{acked} acks, {failed} failed, {monotonic() - started:.0f} s"
    )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
