"""A sidecar that kills itself with -9 at a named moment of a send back: `python -m tests.chaos.dies
CONFIG`.

The moment stands in the file `die-at` beside the configuration, which is deleted before: once.
"""

import os
import signal
import sys
from pathlib import Path

from ackd.cli.main import main
from ackd.engine.claims import Claims
from ackd.engine.sender import Sender

MOMENTS: dict[str, tuple[type[object], str]] = {
    "home written, nothing copied": (Sender, "_store"),
    "copied, not finished": (Sender, "_finish"),
    "claimed, not placed": (Claims, "_answered"),
}


def plant(flag: Path) -> None:
    """Replace the step that would come next."""
    if not flag.exists():
        return
    owner, name = MOMENTS[flag.read_text()]

    def die(*_: object) -> None:
        flag.unlink()
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, name, die)


if __name__ == "__main__":
    plant(Path(sys.argv[1]).parent / "die-at")
    sys.exit(main(["serve", "--config", sys.argv[1]]))
