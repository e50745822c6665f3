"""Consumers in a process of their own, so that a fault can kill an application with -9.

`python -m ackd_torture.consumer_process '<plan as JSON>'` works until it is killed. Its history is
on disk line by line, so the checker knows which leases died with it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import msgspec

from ackd_torture.workload import Workload, WorkloadPlan


def command(plan: WorkloadPlan) -> list[str]:
    """The command line that works by this plan (without publishers)."""
    facts = {
        name: getattr(plan, name)
        for name in WorkloadPlan.__slots__
        if name not in {"mood", "folder"}
    }
    facts |= {"folder": str(plan.folder), "publishers": 0}
    plan_text = msgspec.json.encode(facts).decode()
    return [sys.executable, "-m", "ackd_torture.consumer_process", plan_text]


async def _work(plan: WorkloadPlan) -> None:
    async with Workload(plan).running():
        await asyncio.Event().wait()


def main() -> None:
    """Receive and settle as the arguments say, until this process is killed."""
    facts = msgspec.json.decode(sys.argv[1])
    facts["folder"] = Path(facts["folder"])
    # Started again after a kill it is another client: its calls are counted from 1 again.
    facts["name"] += f"-{os.getpid()}"
    asyncio.run(_work(WorkloadPlan(**facts)))


if __name__ == "__main__":
    main()
