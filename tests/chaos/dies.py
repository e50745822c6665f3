"""A sidecar that kills itself with -9 at a named moment of a send back, of a redrive or
of a seek: `python -m tests.chaos.dies CONFIG`.

The moment stands in the file `die-at` beside the configuration, which is deleted before: once.
"""

import os
import signal
import sys
from pathlib import Path

from ackd.cli.main import main
from ackd.engine.control.control import Control
from ackd.engine.operations.redrive_job import RedriveJob
from ackd.engine.operations.seek_job import SeekJob
from ackd.engine.retry.claims import CopyClaims
from ackd.engine.retry.copier import Copier

MOMENTS: dict[str, tuple[type[object], str]] = {
    "origin record written, nothing copied": (Copier, "_store"),
    "copied, not finished": (Copier, "_finish"),
    "claimed, not placed": (CopyClaims, "_answered"),
}
REDRIVE_MOMENTS: dict[str, tuple[type[object], str]] = {
    "batch written down, nothing done": (RedriveJob, "_batch"),
    "dead letters have origin records, nothing copied": (RedriveJob, "_copy"),
    "dead letters copied, not marked": (RedriveJob, "_mark"),
    "dead letters marked, not counted": (RedriveJob, "_count"),
}
SEEK_MOMENTS: dict[str, tuple[type[object], str]] = {
    "all halted, nothing moved": (SeekJob, "_find_held"),
    "moved, not written down": (SeekJob, "_moved"),
    "partitions moved, copies left": (SeekJob, "_finish_copies"),
    "done, still halted": (Control, "end_halt"),
}


def plant(flag: Path) -> None:
    """Replace the step that would come next."""
    if not flag.exists():
        return
    owner, name = (MOMENTS | REDRIVE_MOMENTS | SEEK_MOMENTS)[flag.read_text()]

    def die(*_: object, **__: object) -> None:
        flag.unlink()
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, name, die)


if __name__ == "__main__":
    plant(Path(sys.argv[1]).parent / "die-at")
    sys.exit(main(["serve", "--config", sys.argv[1]]))
