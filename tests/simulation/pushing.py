"""Push in a run: its settings, its applications, what goes wrong with them, and its judge."""

from __future__ import annotations

from random import Random

from tests.simulation.apps import Habits, Told
from tests.simulation.plan import Plan
from tests.simulation.push_judge import QUIET, PushJudge
from tests.simulation.pushed import PushWires, drawn
from tests.simulation.pushed_apps import PushedApp
from tests.simulation.sidecar import Sidecar
from tests.simulation.world import MS, World

ONLY = 2
"""`Plan.push`: nobody asks for messages."""


class Pushing:
    """All of it; `wires` leads from each sidecar to the application beside it."""

    def __init__(self, world: World, plan: Plan, told: Told) -> None:
        self.settings = drawn(world.random("push"))
        quiet = {act.kind for act in plan.acts} <= QUIET
        self.judge = PushJudge(world, told, self.settings, quiet=quiet)
        self.apps: dict[str, PushedApp] = {}
        self.wires = PushWires(world, self.judge, self.apps)
        self._world = world
        self._told = told

    def begin(self, sidecars: list[Sidecar], habits: Habits) -> list[PushedApp]:
        """Make the applications."""
        for sidecar in sidecars:
            self.apps[sidecar.name] = PushedApp(self._world, sidecar, sidecars, habits, self._told)
        return list(self.apps.values())

    def fault(self, kind: str, random: Random) -> None:
        """Something goes wrong with one of them, for a while."""
        app = self.apps[random.choice(list(self.apps))]
        match kind:
            case "push_cut":
                app.cut = random.choice([0.3, 1.0])
            case "push_slow":
                app.slow = random.choice([0.3, 1.0])
            case "push_busy":
                app.busy = random.choice([0.5, 1.0])
            case _:
                app.go()
        self._world.note(app.name, kind)
        self._world.after(random.randint(200, 5_000) * MS, app.mend)

    def mend(self) -> None:
        """All is well from now on."""
        for app in self.apps.values():
            app.mend()
