"""The one who breaks things, at random from a seed, and writes down when.

Every fault is two events: `FAULT` before it begins, `HEALED` when the part serves again. At most
two parts are broken at a time, each in one way. Only parts that this run started are handed in.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ackd_torture.child import Child, Part
from ackd_torture.history import EventKind, Recorder
from ackd_torture.proxy import Proxy

BROKEN_MAX = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Temper:
    """How it breaks things. Times are the most; each is drawn anew.

    `freeze` and `cut` are shares of all faults, the rest are kills.
    """

    pause_ms: int = 2_500
    down_ms: int = 800
    frozen_ms: int = 3_000
    freeze: float = 0.2
    cut: float = 0.15


class Nemesis:
    """Breaks the given parts and connections."""

    def __init__(
        self,
        parts: Sequence[Part],
        proxies: Sequence[Proxy],
        folder: Path,
        rng: random.Random,
        temper: Temper | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.parts = list(parts)
        self.proxies = list(proxies)
        self._history = Recorder(folder / "nemesis.ndjson", "nemesis")
        self._rng = rng
        self._temper = temper or Temper()
        self._say = say
        self._broken: set[str] = set()
        self.done: Counter[str] = Counter()

    @property
    def kills(self) -> int:
        """How many times something was killed."""
        return sum(count for what, count in self.done.items() if what.startswith("kill"))

    async def rage(self, kills: int) -> None:
        """Break things until this many kills have been done, then wait until all is healed."""
        started = 0
        async with asyncio.TaskGroup() as group:
            while started < kills:
                await asyncio.sleep(self._rng.uniform(0.1, 1.0) * self._temper.pause_ms / 1000)
                whole = [each for each in self.parts if self.whole(each.name)]
                if len(self._broken) >= BROKEN_MAX or not whole:
                    continue
                dice = self._rng.random()
                part = self._rng.choice(whole)
                if dice < self._temper.freeze:
                    group.create_task(self.freeze(part))
                elif dice < self._temper.freeze + self._temper.cut and self.proxies:
                    group.create_task(self.cut(self._rng.choice(self.proxies)))
                else:
                    started += 1
                    group.create_task(self.kill(part))
                # Let it write its first line, so that `_broken` is true.
                await asyncio.sleep(0)

    async def kill(self, part: Part, *, down_ms: int | None = None) -> None:
        """SIGKILL, a while of nothing, and a new start."""
        note = self._begin("kill", part.name)
        await asyncio.to_thread(part.kill)
        if down_ms is None:
            down_ms = round(self._rng.uniform(0, 1) * self._temper.down_ms)
        await asyncio.sleep(down_ms / 1000)
        await asyncio.to_thread(part.start)
        self._end(note, part.name)

    async def restart(self, sidecar: Child) -> None:
        """Stop it in good order (SIGTERM), and start it again at once."""
        note = self._begin("restart", sidecar.name)
        await asyncio.to_thread(sidecar.terminate)
        await asyncio.to_thread(sidecar.start)
        self._end(note, sidecar.name)

    async def freeze(self, part: Part, *, frozen_ms: int | None = None) -> None:
        """Stop the part's process (SIGSTOP), wait, let it go on (SIGCONT)."""
        note = self._begin("freeze", part.name)
        await asyncio.to_thread(part.freeze)
        if frozen_ms is None:
            frozen_ms = round(self._rng.uniform(0.2, 1) * self._temper.frozen_ms)
        await asyncio.sleep(frozen_ms / 1000)
        await asyncio.to_thread(part.thaw)
        self._end(note, part.name)

    def whole(self, name: str) -> bool:
        """Whether this part is not broken now."""
        return name not in self._broken

    async def strike(
        self, what: str, name: str, begin: Callable[[], None], end: Callable[[], None], for_ms: int
    ) -> None:
        """Any other fault of a part, for so long."""
        note = self._begin(what, name)
        await asyncio.to_thread(begin)
        await asyncio.sleep(for_ms / 1000)
        await asyncio.to_thread(end)
        self._end(note, name)

    async def cut(self, proxy: Proxy) -> None:
        """Reset connections; sometimes refuse new ones for a while, or hold all bytes back."""
        if not self.whole(proxy.name):
            return
        how = self._rng.choice(["cut", "refuse", "hold"])
        note = self._begin(how, proxy.name)
        {"cut": proxy.cut, "refuse": proxy.refuse, "hold": proxy.hold}[how]()
        if how != "cut":
            await asyncio.sleep(self._rng.uniform(0.2, 1) * self._temper.frozen_ms / 1000)
        await proxy.heal()
        self._end(note, proxy.name)

    def close(self) -> None:
        self._history.close()

    def _begin(self, what: str, name: str) -> str:
        note = f"{what} {name}"
        self._broken.add(name)
        self.done[note] += 1
        self._history.note(EventKind.FAULT, note=note)
        self._history.flush()
        self._say(note)
        return note

    def _end(self, note: str, name: str) -> None:
        self._history.note(EventKind.HEALED, note=note)
        self._history.flush()
        self._broken.discard(name)
        self._say(f"{note}: healed")
