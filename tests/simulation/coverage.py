"""What runs have reached: rows of the record's transition table, and verbs beside faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final
from unittest.mock import patch

from ackd.core.record import transitions
from ackd.core.record.transitions import Phase, TransitionStep, Verb
from tests.simulation.world import S, World

Row = tuple[Phase, Verb]
BESIDE_US: Final = 2 * S
"""A verb that the store decides so soon after a fault began is beside it."""
SELDOM: Final[frozenset[Row]] = frozenset(
    {
        # A call that was overtaken by another one of the same owner, or of the owner before it.
        *((p, Verb.GRANT) for p in (Phase.ACKED, Phase.DEAD, Phase.MOVING, Phase.GONE)),
        *((p, Verb.MOVE_TO_RETRY) for p in (Phase.MOVING, Phase.DEAD, Phase.ACKED, Phase.GONE)),
        *((p, Verb.MARK_DEAD) for p in (Phase.RELEASED, Phase.MOVING, Phase.ACKED, Phase.GONE)),
        *((p, Verb.FINISH) for p in (Phase.ACKED, Phase.GONE)),
        # A settle between a failover that forgot the grant and the end of the repair.
        *((Phase.FORGOTTEN, v) for v in (Verb.ACK, Verb.RETRY, Verb.DEAD, Verb.RELEASE)),
        # A copy that has its slot already, as its claim is repeated.
        *((p, Verb.PLACE_COPY) for p in (Phase.LEASED, Phase.EXPIRED, Phase.WAITING)),
        *((p, Verb.PLACE_COPY) for p in (Phase.RELEASED, Phase.DEAD, Phase.ACKED, Phase.GONE)),
    }
)
"""Rows that a hundred seeds do not reach; some thousand reach some of them."""


@dataclass(slots=True)
class Coverage:
    """Counts of many runs. `rows`: of the table, and what is not in it and answered `LOST`."""

    rows: Counter[Row] = field(default_factory=Counter)
    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, other: Coverage) -> None:
        """One more run."""
        self.rows += other.rows
        self.pairs += other.pairs

    def missing(self) -> list[Row]:
        """Rows of the table that were never used."""
        return [row for row in transitions.TABLE if row not in self.rows]

    def report(self, kinds: tuple[str, ...]) -> str:
        """For people, in a few lines."""
        known = [row for row in transitions.TABLE if row in self.rows]
        verbs = sorted({verb for _, verb in self.pairs})
        rare = sorted(
            (self.rows[row], f"{row[0].name}+{row[1].name}") for row in known if self.rows[row] < 20
        )
        missing = ", ".join(f"{phase.name}+{verb.name}" for phase, verb in self.missing())
        never = sum((kind, verb) not in self.pairs for kind in kinds for verb in verbs)
        lines = [
            f"{len(known)} of {len(transitions.TABLE)} transitions"
            + (f"; never: {missing}" if missing else ""),
            f"{len(self.pairs)} pairs of a fault and a verb; never: {never}",
        ]
        if rare:
            lines.append("seldom: " + ", ".join(f"{name} {count}" for count, name in rare))
        return "\n".join(lines)


class _Watched(dict[Row, TransitionStep]):
    """The table, which counts what is asked of it."""

    def __init__(self, table: dict[Row, TransitionStep], rows: Counter[Row]) -> None:
        super().__init__(table)
        self._rows = rows

    def get(self, row: Row, default: TransitionStep) -> TransitionStep:  # type: ignore[override]
        self._rows[row] += 1
        return super().get(row, default)


@contextmanager
def watched(coverage: Coverage) -> Iterator[None]:
    """Count the rows that are used meanwhile."""
    with patch.object(transitions, "TABLE", _Watched(transitions.TABLE, coverage.rows)):
        yield


class Pairs:
    """Which verbs the store decides while a fault is on."""

    def __init__(self, world: World, coverage: Coverage) -> None:
        self._world = world
        self._coverage = coverage
        self._until_us: dict[str, int] = {}

    def began(self, kind: str) -> None:
        """A fault of this kind."""
        self._until_us[kind] = self._world.now_us + BESIDE_US

    def decided(self, verb: str) -> None:
        """The store has."""
        for kind, until_us in self._until_us.items():
            if self._world.now_us <= until_us:
                self._coverage.pairs[kind, verb] += 1
