"""Shares of a bound go by partitions, and never add up to more than the bound."""

from ackd.engine.cluster.members import MemberNote, View, write_note
from ackd.engine.cluster.membership import REMEMBER_MS, InFlightShare
from ackd.ports import Member, Members


def view(**others: tuple[int, int, int]) -> View:
    """(partitions, leases, silent_ms) of other sidecars."""
    seen = View("me", 1)
    members = [
        Member(
            name,
            1,
            silent,
            "run",
            tuple(f"{name}{n}" for n in range(owned)),
            write_note(MemberNote(leased=leased)),
        )
        for name, (owned, leased, silent) in others.items()
    ]
    seen.update(Members(10_000, tuple(members), superseded=False), beating_ms=60_000)
    return seen


def test_alone_it_is_everything() -> None:
    share = InFlightShare()
    share.received(view(), {"a", "b"}, 0)
    assert share.room(100, 2, 30) == 70


def test_it_goes_by_partitions_and_leaves_everybody_one() -> None:
    share = InFlightShare()
    share.received(view(other=(6, 10, 0)), {"a", "b"}, 0)
    assert share.room(100, 2, 0) == 25
    share.received(view(other=(6, 0, 0)), {"a", "b"}, 0)
    assert share.room(3, 2, 0) == 1


def test_who_has_more_than_its_share_is_made_room_for() -> None:
    share = InFlightShare()
    share.received(view(other=(2, 90, 0)), {"a", "b"}, 0)
    assert share.room(100, 2, 0) == 10
    assert share.room(100, 2, 10) == 0


def test_what_a_dead_sidecar_left_counts_until_somebody_has_it() -> None:
    share = InFlightShare()
    share.received(view(dead=(2, 40, 60_000)), {"a", "b"}, 0)
    assert share.room(100, 2, 0) == 50
    share.received(view(dead=(2, 40, 60_000)), {"a", "b", "dead0", "dead1"}, REMEMBER_MS + 1)
    assert share.room(100, 4, 40) == 60


def test_a_partition_that_changes_hands_is_never_counted_as_gone() -> None:
    share = InFlightShare()
    share.received(view(), {"a", "b", "c", "d"}, 0)
    share.received(view(), {"a", "b"}, 300)
    assert share.room(100, 2, 0) == 50
    share.received(view(other=(2, 0, 0)), {"a", "b"}, 600)
    assert share.room(100, 2, 0) == 50


def reported(share: InFlightShare, *leased: int, bound: int = 800) -> list[int]:
    return [share.reported(bound, 2, each) for each in leased]


def test_what_others_hear_of_leases_changes_seldom_and_is_never_less() -> None:
    """All others read each change."""
    share = InFlightShare()
    share.received(view(other=(6, 0, 0)), {"a", "b"}, 0)  # a share of 200
    assert reported(share, 0, 1, 26, 20, 3, 26) == [0, 26, 26, 26, 26, 26]
    assert reported(share, 27, 60, 53, 2) == [52, 85, 85, 27]
    assert reported(share, 0) == [27]


def test_who_is_within_its_share_takes_nothing_of_others() -> None:
    share = InFlightShare()
    share.received(view(other=(6, 0, 0)), {"a", "b"}, 0)
    assert reported(share, 190, 200, 230, 201) == [200, 200, 230, 230]


def test_small_shares_are_reported_exactly() -> None:
    share = InFlightShare()
    share.received(view(other=(6, 0, 0)), {"a", "b"}, 0)
    assert reported(share, 0, 1, 5, 3, 0, bound=60) == [0, 1, 5, 3, 0]
