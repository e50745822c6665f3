"""A sidecar that ends or stops itself at a named moment of a send back, of a redrive or of a seek:
`python -m tests.chaos.dies CONFIG`.

Moments stand in a file beside the configuration, one a line, which is taken out before: once. At
those in `die-at` it kills itself with -9; at those in `stop-at` it stops (SIGSTOP), and goes on
when somebody continues it.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ackd.cli.main import main
from ackd.engine.control.control import Control
from ackd.engine.operations import seek_job
from ackd.engine.operations.redrive_job import RedriveJob
from ackd.engine.operations.seek_job import SeekJob
from ackd.engine.ownership.expected import Expected
from ackd.engine.retry.claims import CopyClaims
from ackd.engine.retry.copier import Copier
from ackd_adapters.rocketmq.positions import RocketMQPositions

Moments = dict[str, tuple[object, str]]
MOMENTS: Moments = {
    "origin record written, nothing copied": (Copier, "_store"),
    "copied, not finished": (Copier, "_finish"),
    "claimed, not placed": (CopyClaims, "_answered"),
}
REDRIVE_MOMENTS: Moments = {
    "batch written down, nothing done": (RedriveJob, "_batch"),
    "dead letters have origin records, nothing copied": (RedriveJob, "_copy"),
    "dead letters copied, not marked": (RedriveJob, "_mark"),
    "dead letters marked, not counted": (RedriveJob, "_count"),
}
SEEK_MOMENTS: Moments = {
    "all halted, nothing moved": (SeekJob, "_find_held"),
    "moved, not written down": (SeekJob, "_moved"),
    "partitions moved, copies left": (SeekJob, "_finish_copies"),
    "done, still halted": (Control, "end_halt"),
}
BEFORE_BROKER: Moments = {
    "copies over, broker not told": (seek_job, "move_broker"),
    "all is expected, broker not moved": (RocketMQPositions, "move"),
}
AFTER: Moments = {
    "one queue is expected, the other not": (Expected, "note"),
    "one queue of the broker moved, the other not": (RocketMQPositions, "move"),
    "broker moved, not written down": (seek_job, "move_broker"),
}
"""Right after the first such step."""
CHECKS: Moments = {"broker moved, not checked": (SeekJob, "_check")}
BROKER_MOMENTS = [*BEFORE_BROKER, *AFTER, *CHECKS]
"""Of a seek where the broker hands messages out by itself."""


def plant(flag: Path, sign: signal.Signals) -> None:
    """Replace the steps that would come next."""
    for moment in flag.read_text().splitlines() if flag.exists() else ():
        _plant(moment, flag, sign)


def _plant(moment: str, flag: Path, sign: signal.Signals) -> None:
    after = moment in AFTER
    at_its_begin = MOMENTS | REDRIVE_MOMENTS | SEEK_MOMENTS | BEFORE_BROKER | CHECKS
    owner, name = (AFTER if after else at_its_begin)[moment]
    step: Callable[..., Any] = getattr(owner, name)

    def strike() -> None:
        left = flag.read_text().splitlines()
        if moment in left:
            left.remove(moment)
            flag.write_text("\n".join(left))
            os.kill(os.getpid(), sign)

    def before(*args: object, **named: object) -> object:
        strike()
        return step(*args, **named)

    async def behind(*args: object, **named: object) -> object:
        done = await step(*args, **named)
        strike()
        return done

    setattr(owner, name, behind if after else before)


if __name__ == "__main__":
    folder = Path(sys.argv[1]).parent
    plant(folder / "die-at", signal.SIGKILL)
    plant(folder / "stop-at", signal.SIGSTOP)
    sys.exit(main(["serve", "--config", sys.argv[1]]))
