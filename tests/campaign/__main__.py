"""`make campaign HOURS=n`: worlds one after the other until the time is over.

Each verdict is a line of `.cache/campaign/log.ndjson`; histories and logs of a world that broke a
promise are kept beside it. The exit code is 0 when every promise of every world was kept.
"""

import argparse
import datetime as dt
import itertools
import secrets
import subprocess
import sys
import time
from pathlib import Path

from ackd_torture.child import PartError
from tests.campaign import log
from tests.campaign.brokers import Brokers
from tests.campaign.plan import BROKERS, drawn
from tests.campaign.world import run
from tests.support.paths import CACHE, REPO

FOLDER = CACHE / "campaign"
HOUR_S = 3_600
FIRST_MAX = 1_000_000


def main() -> int:
    """Run it."""
    options = _options()
    if options.summary:
        print(log.summary(log.read(options.summary)))  # noqa: T201
        return 0
    first = secrets.randbelow(FIRST_MAX) if options.first is None else options.first
    numbers = itertools.count(first) if options.world is None else [options.world]
    end = time.monotonic() + options.hours * HOUR_S
    brokers, broken, revision = Brokers(), 0, _revision()
    try:
        for number in numbers:
            if options.world is None and time.monotonic() >= end:
                break
            if BROKERS[number % len(BROKERS)] in options.brokers:
                broken += not _one(number, options, brokers, revision)
    finally:
        brokers.close()
    print(f"promises broken in {broken} worlds; the log is {options.log}")  # noqa: T201
    return 1 if broken else 0


def _one(number: int, options: argparse.Namespace, brokers: Brokers, revision: str) -> bool:
    """Whether every promise was kept, or nothing can be said."""
    plan = drawn(number, options.kills, options.rate)
    began = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    print(f"world {number}: {plan}", flush=True)  # noqa: T201
    try:
        judged = run(plan, brokers, FOLDER / f"world-{number}")
    except (PartError, TimeoutError, AssertionError, ExceptionGroup) as error:
        entry = log.broken_down(plan, error, revision, began)
        brokers.end(plan.broker)
    else:
        entry = log.line(plan, judged, revision, began)
    log.append(options.log, entry)
    told = {name: value for name, value in entry.items() if name not in ("plan", "done")}
    print(f"world {number}: {told}", flush=True)  # noqa: T201
    return entry["verdict"] != "broken"


def _revision() -> str:
    command = ["git", "-C", str(REPO), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make campaign", description=__doc__)
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--first", type=int, default=None, help="number of the first world")
    parser.add_argument("--world", type=int, default=None, help="this world alone, once")
    parser.add_argument("--kills", type=int, default=40, help="in each world")
    parser.add_argument("--rate", type=int, default=1_500, help="messages a second published")
    parser.add_argument("--log", type=Path, default=FOLDER / "log.ndjson")
    parser.add_argument(
        "--brokers", type=lambda text: text.split(","), default=BROKERS, help="only worlds of these"
    )
    parser.add_argument(
        "--summary", type=Path, nargs="+", help="print the table of these logs, and run nothing"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
