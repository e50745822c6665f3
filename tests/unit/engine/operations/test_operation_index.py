"""The list of operations: the newest first, bounded, whoever changes it."""

from collections.abc import Awaitable, Callable

from ackd.engine.operations.operation_index import LISTED_MAX, OperationIndex
from ackd.ports import Store
from ackd.store.memory import MemoryStore


class BusyStore(MemoryStore):
    """`meanwhile` happens once, after a value was read."""

    meanwhile: Callable[[], Awaitable[None]] | None = None

    async def get(self, name: str) -> bytes | None:
        found = await super().get(name)
        happens, self.meanwhile = self.meanwhile, None
        if happens is not None:
            await happens()
        return found


def index(store: Store, subscription: str = "orders") -> OperationIndex:
    return OperationIndex(store, "main", subscription)


async def test_the_newest_is_first_for_everybody() -> None:
    store = MemoryStore()
    assert await index(store).ids() == []
    await index(store).add("one")
    await index(store).add("two")
    await index(store).remove("none")
    assert await index(store).ids() == ["two", "one"]
    assert await index(store, "images").ids() == []
    await index(store).remove("two")
    assert await index(store).ids() == ["one"]


async def test_i8_of_too_many_the_oldest_go() -> None:
    store = MemoryStore()
    for number in range(LISTED_MAX + 5):
        await index(store).add(str(number))
    assert await index(store).ids() == [str(number) for number in range(LISTED_MAX + 4, 4, -1)]


async def test_what_two_sidecars_add_at_once_is_there() -> None:
    store = BusyStore()
    store.meanwhile = lambda: index(store).add("theirs")
    await index(store).add("mine")
    assert await index(store).ids() == ["mine", "theirs"]
