"""Signs of life: a dead process is seen at once, a frozen one after its session, no live one."""

from pathlib import Path

from ackd_adapters.local.alive import FOLDER, LOOK_MS, Instance, Watch, look

SESSION_MS = 1000


def test_dead_process_is_seen_at_once(tmp_path: Path) -> None:
    own, other = Instance(tmp_path), Instance(tmp_path)
    watch = Watch(tmp_path, own.name, SESSION_MS)
    assert watch.dead({own.name, other.name}, 0) == set()
    other.close()
    assert watch.dead({own.name, other.name}, 1) == {other.name}
    own.close()


def test_frozen_process_is_seen_after_its_session(tmp_path: Path) -> None:
    own, other = Instance(tmp_path), Instance(tmp_path)
    watch = Watch(tmp_path, own.name, SESSION_MS)
    now_ms = 0
    for _ in range(20):
        now_ms += LOOK_MS
        other.beat()
        assert watch.dead({other.name}, now_ms) == set()
    last_ms = now_ms
    while not watch.dead({other.name}, now_ms):
        assert now_ms - last_ms <= SESSION_MS
        now_ms += LOOK_MS
    assert now_ms - last_ms == SESSION_MS
    other.beat()
    assert watch.dead({other.name}, now_ms + LOOK_MS) == set()
    own.close()
    other.close()


def test_own_freeze_kills_nobody(tmp_path: Path) -> None:
    """A process that wakes after a minute has seen no silence, it was deaf."""
    own, other = Instance(tmp_path), Instance(tmp_path)
    watch = Watch(tmp_path, own.name, SESSION_MS)
    assert watch.dead({other.name}, 0) == set()
    assert watch.dead({other.name}, 60_000) == set()
    assert watch.dead({other.name}, 120_000) == set()
    own.close()
    other.close()


def test_files_of_the_dead_are_removed_by_the_next_one(tmp_path: Path) -> None:
    """Left by a kill: the file is there, its lock is not."""
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "killed").write_bytes(bytes(8))
    living = Instance(tmp_path)
    assert [path.name for path in (tmp_path / FOLDER).iterdir()] == [living.name]
    assert look(tmp_path / FOLDER / living.name) is not None
    assert look(tmp_path / FOLDER / "never was") is None
    living.close()
