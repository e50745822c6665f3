"""An application in a pod of the tests, on the library of clients that write histories.

It is not imported: pods run it with the Python of ackd's image, from ConfigMaps. `PLAN` is a plan
of `ackd_torture.workload` as JSON; `UNTIL` ends it by itself after so many acks (a Job), 0 never.
`ON_TERM` is what SIGTERM does: `finish` what is in hand and go, or `drop` everything at once.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from ackd_torture.history import EventKind, Recorder, read
from ackd_torture.workload import Mood, Workload, WorkloadPlan

CALM = Mood(retry=0, extend=0, forget=0, overdue=0, release=0, dead=0)


def plan() -> WorkloadPlan:
    """Of this pod: its name makes its histories different from others'."""
    facts = json.loads(os.environ["PLAN"])
    facts["folder"] = Path(facts["folder"])
    facts["name"] = f"{os.environ['HOSTNAME']}-{os.getpid()}-{os.urandom(3).hex()}"
    # The mood of an application that does nothing wrong: what comes twice is not its fault.
    return WorkloadPlan(**facts, urls=[os.environ["ACKD_URL"]], publishers=0, mood=CALM)


def drop_all(own: WorkloadPlan) -> None:
    """Note that what is open is nobody's any more, as the sidecar gives it back; then be gone."""
    left: dict[str, str] = {}
    for path in sorted(own.folder.glob(f"{own.name}-*.ndjson")):
        for event in read(path):
            if event.kind is EventKind.DELIVERED:
                left[event.lease] = event.sub
            elif event.kind is EventKind.SETTLE:
                left.pop(event.lease, None)
    name = f"{own.name}-end"
    with Recorder(own.folder / f"{name}.ndjson", name) as recorder:
        for lease, sub in left.items():
            recorder.note(EventKind.SETTLE, sub=sub, lease=lease, do="release")
    os._exit(0)


async def work() -> None:
    """Until told to end, or until enough is done."""
    own = plan()
    end = asyncio.Event()
    loop = asyncio.get_running_loop()

    def told() -> None:
        if os.environ.get("ON_TERM") == "drop":
            drop_all(own)
        end.set()

    loop.add_signal_handler(signal.SIGTERM, told)
    until = int(os.environ.get("UNTIL", "0"))
    workload = Workload(own)
    async with workload.running():
        while not end.is_set():
            if until and len(workload.tally.acked) >= until:
                break
            await asyncio.sleep(0.05)
    sys.stdout.write(f"acked {len(workload.tally.acked)}\n")


if __name__ == "__main__":
    asyncio.run(work())
    sys.exit(0)
