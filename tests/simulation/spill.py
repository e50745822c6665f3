"""Bodies that wait long, in a simulated process: no file and no thread, but the same bound."""

from __future__ import annotations

from collections.abc import Sequence

from ackd.engine.base.spill_file import Stub
from ackd.ports import Record


class MemorySpill:
    """Implements `ackd.engine.base.spill_file.Spill`."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bodies: dict[Stub, Record] = {}
        self.taken = 0

    async def write(self, records: Sequence[Record]) -> list[Stub] | None:
        """See `Spill`."""
        size = sum(each.size() for each in records)
        if self.taken + size > self._bytes_max:
            return None
        self.taken += size
        stubs = [Stub(each) for each in records]
        self._bodies.update(zip(stubs, records, strict=True))
        return stubs

    async def read(self, stubs: Sequence[Stub]) -> list[Record]:
        """See `Spill`."""
        try:
            return [self._bodies[each] for each in stubs]
        except KeyError:
            raise OSError("no such body") from None

    def free(self, stub: Stub) -> None:
        """See `Spill`."""
        record = self._bodies.pop(stub, None)
        if record is not None:
            self.taken -= record.size()

    async def close(self) -> None:
        """See `Spill`."""
