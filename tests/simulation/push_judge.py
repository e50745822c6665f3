"""What docs/guides/push.md promises of calls, judged from outside: by the calls that an application
gets and what it answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ackd.api.messages import SettleItem, SettleVerb
from ackd.config.push import PushSettings
from ackd.push.call import Failed, PushFailure
from tests.simulation.apps import Told
from tests.simulation.book import Coordinate, Holding, Lease, read_token
from tests.simulation.general import PUSH
from tests.simulation.process import Process
from tests.simulation.pushed import Call, Heard, Result
from tests.simulation.world import S, World

PAUSE_US_MIN: Final = S // 10
QUIET: Final = frozenset((*PUSH, "nothing"))
"""Beside these nothing keeps ackd from holding a lease while its call runs."""
Key = tuple[int, int, Coordinate]


@dataclass(slots=True)
class _Gate:
    """What one sidecar has heard: when it was asked for the latest pause, and since when nobody is
    there (0: somebody is). `single`: somebody is there again, and no call has gone well since.

    What it does in the moment when it hears something counts for nothing.
    """

    asked_us: int = 0
    paused_until_us: int = 0
    away_us: int = 0
    single: bool = False


class PushJudge(Heard):
    """Hears of calls. `quiet`: nothing else goes wrong."""

    def __init__(self, world: World, told: Told, settings: PushSettings, *, quiet: bool) -> None:
        self.calls = 0
        self.took: Callable[[Lease], None] = lambda _: None
        self._world = world
        self._told = told
        self._settings = settings
        self._quiet = quiet
        self._running: dict[Call, None] = {}
        self._gates: dict[Process, _Gate] = {}
        self._held: dict[Key, Call] = {}
        self._acked: set[Key] = set()

    def _gate(self, process: Process) -> _Gate:
        return self._gates.setdefault(process, _Gate())

    # --- what a sidecar does and hears

    def begun(self, call: Call) -> None:
        """I8: as many calls and messages as the settings say, and none that may not be made."""
        settings, gate, name = self._settings, self._gate(call.process), call.process.name
        self.calls += 1
        self._world.note(name, "calls", *(read_token(e.lease).fence for e in call.deliveries))
        beside = sum(each.process is call.process for each in self._running)
        if beside >= settings.concurrency:
            self._world.fail(f"I8: {beside + 1} calls of {name} at once")
        if len(call.deliveries) > (settings.batch_max if settings.mode == "batch" else 1):
            self._world.fail(f"I8: {name} calls with {len(call.deliveries)} messages")
        if gate.asked_us < call.begun_us < gate.paused_until_us:
            self._world.fail(f"I8: {name} calls in a pause that the application asked for")
        if gate.away_us and gate.away_us < call.begun_us:
            self._world.fail(f"I8: {name} calls while its circuit breaker is open")
        if gate.single and beside:
            self._world.fail(f"I8: {name} makes {beside + 1} calls to try who was away")
        self._running[call] = None
        for each in call.deliveries:
            self._held[_key(each.lease)] = call
            self.took(read_token(each.lease))

    def ended(self, call: Call, result: Result) -> None:
        """What the answer table makes of it is what the application asks for (I4)."""
        gate, now_us = self._gate(call.process), self._world.now_us
        self._running.pop(call, None)
        for each in call.deliveries:
            self._held.pop(_key(each.lease), None)
        if isinstance(result, PushFailure):
            self._world.note(call.process.name, "has no answer", result.how)
            away = result.how is Failed.UNREACHABLE
            for each in call.deliveries:
                do = SettleVerb.RELEASE if away else SettleVerb.RETRY
                self._told.asked(SettleItem(each.lease, do))
            if away:
                gate.away_us = gate.away_us or now_us
            return
        self._world.note(call.process.name, "has an answer", result.status)
        self._acked.update(_key(lease) for lease in call.acked)
        pause_s = result.headers.get("Retry-After")
        if pause_s is None:
            gate.single = False
        else:
            pause_us = max(int(pause_s) * S, PAUSE_US_MIN)
            gate.asked_us = now_us
            gate.paused_until_us = max(gate.paused_until_us, now_us + pause_us)

    def reached(self, process: Process) -> None:
        """One call may be made."""
        gate = self._gate(process)
        gate.away_us, gate.single = 0, True

    # --- what the store does

    def granted(self, at: Coordinate, holding: Holding) -> None:
        """I4, I2: nobody gets a message while a call with it runs, or after its answer `done`."""
        if not self._quiet:
            return
        for (fence, epoch, where), call in self._held.items():
            running = where == holding.at and call in self._running and call.process.running
            young = self._world.now_us - call.begun_us < self._settings.timeout_ms * 1000
            if running and young:
                self._world.fail(
                    f"I4: {at.partition}/{at.offset} granted while fence {fence} of"
                    f" term {epoch} is with a call"
                )
        if any(where == holding.at for _, _, where in self._acked):
            self._world.fail(f"I2: {at.partition}/{at.offset} granted after the answer `done`")


def _key(lease: str) -> Key:
    token = read_token(lease)
    return token.fence, token.rollback_epoch, token.coordinate
