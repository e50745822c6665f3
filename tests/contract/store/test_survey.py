"""A walk through everything in a store, on every kind of server."""

from itertools import count

import pytest

from ackd.core.record.operations import Advance, MoveToRetry
from ackd.core.record.protocol import CallStatus
from ackd.errors import StoreSetupError
from ackd.ports import Store
from ackd.store.memory import MemoryStore
from ackd.store.survey import BITS, HEAD, ORIGINS, SLOTS, FoundKeys, Survey
from tests.contract.store.owner import Owner

pytestmark = pytest.mark.redis
_numbers = count(1)


async def of(survey: Survey, owner: Owner) -> FoundKeys | None:
    """What it finds of one record."""
    found = [each for each in await survey.everything() if each.key == owner.key]
    assert len(found) < 2
    return found[0] if found else None


async def test_a_record_is_found_with_all_its_keys_and_goes_with_all_of_them(store: Store) -> None:
    if isinstance(store, MemoryStore):
        with pytest.raises(StoreSetupError):
            Survey(store)
        return
    survey, owner, other = Survey(store), Owner(store), Owner(store)
    await owner.open(create_at=7)
    await other.open()
    acks = await owner.grant(*range(7, 50))
    await owner.call(*acks[1:], MoveToRetry(7, 9), Advance(7))
    found = await of(survey, owner)
    assert found is not None
    assert {HEAD, BITS, SLOTS, ORIGINS} <= found.sizes.keys()
    assert (found.layout, found.watermark, found.owner) == (1, 7, "me#1")
    assert found.sizes[BITS] >= 4096
    await owner.grant(60)
    assert not await survey.forget(found)  # it is in use: nothing of it went
    found = await of(survey, owner)
    assert found is not None
    assert SLOTS in found.sizes
    assert await survey.forget(found)
    assert await of(survey, owner) is None
    assert (await owner.open(create_at=None)).verdict is CallStatus.ABSENT
    assert await of(survey, other) is not None


async def test_sidecars_and_what_they_share_are_found_and_removed(store: Store) -> None:
    if isinstance(store, MemoryStore):
        return
    survey, name = Survey(store), f"survey {next(_numbers)}:x"
    for sidecar in ("one", "two"):
        boot = await store.register(name, sidecar)
        await store.heartbeat(name, sidecar, boot, ("a:b:c:0",), "{}")
    await store.put(f"start:{name}", b"{}")
    (one, two) = (await survey.members())[name]
    assert (one.name, two.name, one.owned) == ("one", "two", ("a:b:c:0",))
    await survey.drop_name(name, "one", one.boot - 1)
    assert [each.name for each in (await survey.members())[name]] == ["one", "two"]
    await survey.drop_name(name, "one", one.boot)
    assert [each.name for each in (await survey.members())[name]] == ["two"]
    assert await survey.boots(name) == ["two"]
    await survey.drop_shared(name)
    assert name not in await survey.members()
    assert await store.get(f"start:{name}") is None
