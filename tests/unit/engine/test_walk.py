"""ARCHITECTURE.md walks a receive to its lease: through so many frames, and so many files."""

import re
import sys
import traceback
from types import FrameType

import pytest

from ackd.store import flusher
from ackd.store.flusher import Flusher
from tests.bench.replay import Replay, work
from tests.support.paths import REPO

ROOM = "/sidecar/ackd/"
FRAMES_MAX, FILES_MAX = 12, 20
WALK = re.compile(r"(\d+) frames,\s+(\d+) files to the store")


async def test_a_receive_takes_the_walk_of_the_map(monkeypatch: pytest.MonkeyPatch) -> None:
    replay = Replay(partitions=1)
    await replay.start()
    client = replay.clients("separate", 1)[0]
    await work([client], 4)  # what is made at first use is made
    files: set[str] = set()
    walks: list[tuple[int, int]] = []
    tell = Flusher.tell

    def called(frame: FrameType, event: str, _: object) -> None:
        names = [each.f_code.co_filename for each, _ in traceback.walk_stack(frame)]
        if event == "call" and ROOM in names[0] and any("/http/" in each for each in names):
            files.add(names[0])

    def counted(self: Flusher, *given: object, **named: object) -> object:
        stack = [each.filename for each in traceback.extract_stack() if ROOM in each.filename]
        if any("/http/" in each for each in stack) and not walks:
            walks.append((len(stack), len({*files, *stack, flusher.__file__})))
        return tell(self, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Flusher, "tell", counted)
    sys.setprofile(called)
    try:
        await work([client], 1)
    finally:
        sys.setprofile(None)
        await replay.runtime.stop()
    told = WALK.search((REPO / "ARCHITECTURE.md").read_text())
    assert told is not None
    assert walks == [(int(told[1]), int(told[2]))]
    [(frames, seen)] = walks
    assert frames <= FRAMES_MAX
    assert seen <= FILES_MAX
