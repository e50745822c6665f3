"""`ackd` with one of the simulator's planted mistakes, as a process.

`python -m tests.chaos.mutant NAME serve --config FILE`
"""

import sys

from ackd.cli.main import main
from tests.simulation.mutants import MUTANTS


def command(name: str) -> tuple[str, ...]:
    """What starts a sidecar with this mistake; the configuration's file comes behind it."""
    return (sys.executable, "-m", "tests.chaos.mutant", name, "serve", "--config")


if __name__ == "__main__":
    with next(each for each in MUTANTS if each.name == sys.argv[1]).plant():
        sys.exit(main(sys.argv[2:]))
