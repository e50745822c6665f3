"""The embedded server: starts, stops, dies, and what must never happen to its data (R24)."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import psutil
import pytest
from redis.asyncio import Redis

from ackd.config.schema import StoreSettings
from ackd.core.ids import LedgerKey
from ackd.core.record.operations import Grant
from ackd.core.record.protocol import CallStatus
from ackd.core.record.transitions import Outcome
from ackd.errors import StoreError, StoreSetupError
from ackd.ports import Store
from ackd.store.build import open_store
from tests.contract.store.owner import Owner, fresh_key
from tests.contract.store.servers import started
from tests.support import reaper
from tests.support.paths import REPO
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.timeout(240)]

CHILD = """
import asyncio, sys
from pathlib import Path
from ackd.config.schema import StoreSettings
from ackd.store.build import open_store
from tests.contract.store.owner import Owner
from ackd.core.ids import LedgerKey
from ackd.core.record.transitions import Verb
from ackd.core.record.protocol import Op

async def main():
    store = open_store(StoreSettings(), Path(sys.argv[1]))
    await store.start()
    owner = Owner(store, LedgerKey("c", "child", bytes(16), 0))
    await owner.open()
    number = 0
    while True:
        acks = await owner.grant(*range(number, number + 10))
        reply = await owner.call(*acks)
        number += 10
        print(number, flush=True)

asyncio.run(main())
"""


async def test_where_there_is_no_program_the_error_says_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packages for other platforms lack the program, or the package."""
    packages: tuple[list[object] | str | None, ...] = ("", None, [])
    for package in packages:

        def found(name: str, of: object = package) -> object:
            if of == "":
                raise PackageNotFoundError(name)
            return of

        monkeypatch.setattr("ackd.store.embedded.files", found)
        with pytest.raises(StoreSetupError, match=r"`store\.url`"):
            await embedded(tmp_path / "store").start()


def embedded(folder: Path) -> Store:
    """A store of ackd's own."""
    return open_store(StoreSettings(), folder)


def server_pid(folder: Path) -> int:
    """The server as the lock file names it."""
    return int(json.loads((folder / "store" / "lock").read_text())["server"])


def child(folder: Path) -> "subprocess.Popen[str]":
    """Another ackd process that settles without end and prints how far it is."""
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPO,
        start_new_session=True,
    )
    reaper.watch_process(process.pid)
    return process


def finish(process: "subprocess.Popen[str]") -> int:
    """Kill it; the last number that it said and nobody has read yet."""
    process.kill()
    said, _ = process.communicate()
    reaper.forget_process(process.pid)
    return int((said.split() or ["0"])[-1])


async def test_data_and_leases_survive_a_clean_restart(tmp_path: Path) -> None:
    key = fresh_key()
    async with started(embedded(tmp_path)) as store:
        owner = Owner(store, key)
        await owner.open()
        acks = await owner.grant(1, 2)
        await owner.one(acks[0])
        run = store.run
        pid = server_pid(tmp_path)
    assert not psutil.pid_exists(pid)
    async with started(embedded(tmp_path)) as store:
        assert store.run != run
        owner = Owner(store, key)
        snapshot = await owner.open(create_at=None)
        assert (snapshot.moved, [slot.offset for slot in snapshot.slots]) == (True, [2])
        results = (await owner.call(*acks)).results
        assert [r.outcome for r in results] == [Outcome.ALREADY_ACKED, Outcome.ACKED]


async def test_the_server_listens_on_its_socket_only_and_keeps_its_promise(tmp_path: Path) -> None:
    async with started(embedded(tmp_path)) as store:
        assert store.conditions() == []
        server = psutil.Process(server_pid(tmp_path))
        assert server.net_connections("inet") == []
        folder = tmp_path / "store"
        assert (folder / "s").is_socket()
        assert oct(folder.stat().st_mode & 0o777) == "0o700"
        assert oct((folder / "s").stat().st_mode & 0o777) == "0o700"


async def written(folder: Path) -> None:
    """Wait until the server has written what it answered: with everysec it holds that back for up
    to two seconds while the disk is busy with the second before.
    """
    client = Redis(unix_socket_path=str(folder / "store" / "s"))
    try:

        async def empty() -> bool:
            return bool((await client.info("persistence"))["aof_buffer_length"] == 0)

        await wait_until_async(empty, "the append-only file is written")
    finally:
        await client.aclose()


async def test_i2_a_killed_server_is_started_again_with_its_data(tmp_path: Path) -> None:
    async with started(embedded(tmp_path)) as store:
        owner = Owner(store)
        await owner.open()
        acks = await owner.grant(*range(20))
        await owner.call(*acks[:10])
        await written(tmp_path)
        old = server_pid(tmp_path)
        os.kill(old, signal.SIGKILL)

        async def reopened() -> bool:
            return (await owner.open(again=True)).verdict is CallStatus.OK

        await wait_until_async(reopened, "it runs again", ignoring=(StoreError,))
        assert server_pid(tmp_path) != old
        outcomes = [r.outcome for r in (await owner.call(*acks)).results]
        assert outcomes == [Outcome.ALREADY_ACKED] * 10 + [Outcome.ACKED] * 10
        assert store.conditions() == []


async def test_r24_killed_with_9_the_server_goes_too_and_nothing_confirmed_is_lost(
    tmp_path: Path,
) -> None:
    process = await asyncio.to_thread(child, tmp_path)

    async def busy() -> bool:
        line = await asyncio.to_thread(process.stdout.readline) if process.stdout else ""
        return line.strip().isdecimal() and int(line) >= 300

    await wait_until_async(busy, "the child settles", timeout_s=60)
    old = psutil.Process(server_pid(tmp_path))
    last = await asyncio.to_thread(finish, process)
    async with started(embedded(tmp_path)) as store:
        assert not old.is_running() or old.status() == psutil.STATUS_ZOMBIE
        owner = Owner(store, LedgerKey("c", "child", bytes(16), 0))
        snapshot = await owner.open(create_at=None)
        bits = snapshot.chunks[0]
        missing = [n for n in range(last) if not bits[n >> 3] & (0x80 >> (n & 7))]
        assert missing == []


async def test_r24_two_processes_never_share_a_state_directory(tmp_path: Path) -> None:
    process = await asyncio.to_thread(child, tmp_path)
    try:
        assert process.stdout is not None
        await asyncio.to_thread(process.stdout.readline)
        second = embedded(tmp_path)
        with pytest.raises(StoreSetupError, match=f"pid {process.pid}"):
            await second.start()
        await second.close()
    finally:
        await asyncio.to_thread(finish, process)


LEAVER = """
import os, sys
from pathlib import Path
from ackd.store.statelock import StateLock

lock = StateLock(Path(sys.argv[1]) / "store" / "lock")
lock.take()
os.set_inheritable(lock.fd, True)
pid = os.posix_spawnp("sleep", ["sleep", "60"], os.environ)
lock.note(server=pid)
"""


async def test_r24_an_old_server_that_still_ends_is_waited_for_and_not_adopted(
    tmp_path: Path,
) -> None:
    """Its ackd is dead, it holds the lock that it inherited: a stand-in that ends when told."""
    (tmp_path / "store").mkdir()
    argv = [sys.executable, "-c", LEAVER, str(tmp_path)]
    await asyncio.to_thread(subprocess.run, argv, check=True, cwd=REPO)
    old = psutil.Process(server_pid(tmp_path))
    store = embedded(tmp_path)
    starting = asyncio.gather(store.start())
    try:
        done, _ = await asyncio.wait([starting], timeout=0.5)
        assert not done
        assert old.is_running()
        old.kill()
        await starting
        assert server_pid(tmp_path) != old.pid
    finally:
        old.kill()
        await store.close()


async def test_a_long_state_directory_does_not_matter(tmp_path: Path) -> None:
    folder = tmp_path / ("d" * 100) / ("e" * 100)
    async with started(embedded(folder)) as store:
        owner = Owner(store)
        await owner.open()
        (ack,) = await owner.grant(1)
        assert (await owner.one(ack)).outcome is Outcome.ACKED


async def test_a_state_directory_that_cannot_be_made_is_a_setup_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = embedded(tmp_path / "file")
    with pytest.raises(StoreSetupError, match="state directory"):
        await store.start()
    await store.close()


async def test_a_server_that_cannot_start_says_where_to_look(tmp_path: Path) -> None:
    aof = tmp_path / "store" / "appendonlydir"
    aof.mkdir(parents=True)
    (aof / "appendonly.aof.manifest").write_text("rubbish\n")
    store = embedded(tmp_path)
    with pytest.raises(StoreError, match=r"server\.log"):
        await store.start()
    assert "store-embedded" in {condition.code for condition in store.conditions()}
    await store.close()


async def test_a_held_lease_is_not_shortened_by_the_restart(tmp_path: Path) -> None:
    """I4: deadlines are points in time, kept in the slot."""
    key = fresh_key()
    async with started(embedded(tmp_path)) as store:
        owner = Owner(store, key)
        await owner.open()
        reply = await owner.call(Grant.of(1, 600_000, 1))
        deadline = reply.results[0].when_ms
    async with started(embedded(tmp_path)) as store:
        snapshot = await Owner(store, key).open()
        assert [slot.when_ms for slot in snapshot.slots] == [deadline]
