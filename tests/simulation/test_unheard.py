"""What a sidecar may do while the store does not hear of it (R11), on virtual time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from ackd.api.messages import Received, ReceiveRequest
from ackd.engine.cluster.members import HEARTBEAT_MS, UNCONFIRMED_MS
from ackd.engine.runtime import Runtime
from ackd.errors import StoreUnknownError
from ackd.ports import Members
from tests.simulation.faults import TOPIC
from tests.simulation.plan import Story
from tests.simulation.run import NAME, Run
from tests.simulation.sidecar import Sidecar
from tests.simulation.store import finish
from tests.simulation.store_client import LEASE_KEY, SimStore
from tests.simulation.world import MS, S


@pytest.fixture
def run() -> Iterator[Run]:
    """One sidecar that owns one partition, and nothing goes wrong by itself."""
    settings = (("sidecars", 1), ("partitions", 1), ("before", 0), ("store_timeout_ms", 500))
    run = Run(1, Story(settings=settings))
    yield run
    run.clean_up()


def _boot(run: Run) -> Sidecar:
    (sidecar,) = run.sidecars
    sidecar.boot()
    run.world.run(run.world.now_us + 3 * S)
    return sidecar


def _receive(run: Run, sidecar: Sidecar) -> int:
    """Publish a message and ask for one at once; how many came."""
    run.cluster.publish(TOPIC, 0, b"message")
    run.world.run(run.world.now_us + 300 * MS)
    said: list[object] = []

    async def work(engine: Runtime) -> object:
        return await engine.receive(NAME, ReceiveRequest(max=1, wait_ms=100))

    def answer(result: object, error: Exception | None) -> None:
        said.append(error or result)

    sidecar.request(work, answer)
    run.world.run(run.world.now_us + 400 * MS)
    (received,) = said
    assert isinstance(received, Received)
    return len(received.messages)


def _unconfirmed() -> Callable[..., object]:
    async def heartbeat(*_: object) -> Members:
        raise StoreUnknownError("written, but not confirmed by replicas in time (0 of 1)")

    return heartbeat


def test_who_is_not_heard_of_grants_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """R11: heartbeats are not confirmed while all else works; after 2 s granting stops."""
    sidecar = _boot(run)
    assert _receive(run, sidecar) == 1
    with monkeypatch.context() as patched:
        patched.setattr(SimStore, "heartbeat", _unconfirmed())
        run.world.run(run.world.now_us + 300 * MS)
        assert _receive(run, sidecar) == 1  # not yet
        run.world.run(run.world.now_us + (UNCONFIRMED_MS + HEARTBEAT_MS) * MS)
        assert _receive(run, sidecar) == 0
    run.world.run(run.world.now_us + 2 * HEARTBEAT_MS * MS)
    assert _receive(run, sidecar) == 1


@pytest.mark.parametrize("leave_ms", [None, 5_000])
def test_a_sidecar_without_a_store_leaves_the_group_if_told(run: Run, leave_ms: int | None) -> None:
    """R34: by default it stays, since the store may be away for all."""
    (sidecar,) = run.sidecars
    settings = replace(sidecar.settings.subscriptions[NAME], leave_without_store_ms=leave_ms)
    sidecar.settings = replace(sidecar.settings, subscriptions={NAME: settings})
    _boot(run)
    assert sidecar.store is not None
    assert _receive(run, sidecar) == 1
    sidecar.store.cut = True
    run.world.run(run.world.now_us + 4 * S)
    assert len(run.group.members) == 1
    run.world.run(run.world.now_us + 4 * S)
    assert len(run.group.members) == (1 if leave_ms is None else 0)
    sidecar.store.cut = False
    run.world.run(run.world.now_us + 10 * S)
    assert len(run.group.members) == 1
    assert _receive(run, sidecar) == 1


def test_after_a_loss_of_all_data_the_sidecars_agree_on_a_key() -> None:
    """R27: who runs publishes the key again, or follows who began after the loss and was faster."""
    settings = (("sidecars", 2), ("partitions", 1), ("before", 0), ("replicated", 0))
    run = Run(2, Story(settings=settings))
    first, second = run.sidecars
    first.boot()
    run.world.run(run.world.now_us + 2 * S)
    signed = _key(first)
    run.server.flush()
    run.world.run(run.world.now_us + 2 * HEARTBEAT_MS * MS)
    second.boot()
    run.world.run(run.world.now_us + 2 * S)
    assert _key(first) == _key(second) == signed
    run.server.flush()
    finish(run.server.memory.put(LEASE_KEY, b"another" * 5))
    run.world.run(run.world.now_us + 2 * HEARTBEAT_MS * MS)
    assert _key(first) == _key(second) == b"another" * 5
    run.clean_up()


def test_a_key_that_was_lost_before_the_first_heartbeat_is_put_back() -> None:
    """R27: the broker is away, so that nothing else tells that the store has lost something."""
    settings = (("sidecars", 1), ("partitions", 1), ("before", 0), ("replicated", 0))
    run = Run(2, Story(settings=settings))
    (sidecar,) = run.sidecars
    run.cluster.up = False
    sidecar.boot()
    run.world.run(run.world.now_us + 1 * S)
    signed = run.server.data.values[LEASE_KEY]
    run.server.start(run.server.writes)
    assert LEASE_KEY not in run.server.data.values
    run.cluster.up = True
    run.world.run(run.world.now_us + 10 * S)
    assert _key(sidecar) == run.server.data.values[LEASE_KEY][0] == signed[0]
    run.clean_up()


def _key(sidecar: Sidecar) -> bytes:
    runtime = sidecar.runtime
    assert runtime is not None
    return runtime._of(NAME).context.keys.key
