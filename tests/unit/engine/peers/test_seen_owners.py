"""Which others own partitions, where they are reached, and what lies ready there."""

from ackd.engine.cluster.members import MemberNote, write_note
from ackd.engine.peers.seen_owners import SeenOwners
from ackd.ports import READY_MAX, Member


def member(name: str, *owned: str, peer: str = "there", ready: int = 0) -> Member:
    return Member(name, 1, 0, "", owned, write_note(MemberNote(peer=peer, ready=ready)))


ALIVE = [member("a", "x"), member("b"), member("c", "y", peer=""), member("d", "z", ready=8)]


def test_who_is_reached_and_owns_something_may_be_asked() -> None:
    seen = SeenOwners()
    seen.look(ALIVE, {"a": 4, "b": 2, "c": 1, "gone": 16})
    assert seen.addresses == {"a": "there", "b": "there", "d": "there"}
    assert list(seen.owners) == ["a", "d"]
    assert seen.ready == {"a": 4, "d": 8}  # d is of an older build: its note says it
    assert seen.whole


def test_the_same_again_is_not_looked_through() -> None:
    seen, reported = SeenOwners(), {"a": 4}
    seen.look(ALIVE, reported)
    owners, ready = seen.owners, seen.ready
    seen.look(ALIVE, reported)
    assert (seen.owners is owners, seen.ready is ready) == (True, True)
    seen.look(ALIVE, dict(reported))
    assert (seen.owners is owners, seen.ready is ready) == (True, False)
    seen.look(ALIVE[1:], reported)
    assert (list(seen.owners), seen.ready) == (["d"], {"d": 8})


def test_so_many_are_not_all() -> None:
    seen = SeenOwners()
    seen.look(ALIVE, {f"pod-{number}": 1 for number in range(READY_MAX)})
    assert not seen.whole
