"""Who gets which partition: balanced, sticky, and a fixed point reached in few rounds."""

from hypothesis import given
from hypothesis import strategies as st

from ackd_adapters.local.assign import assign

MEMBERS = st.sets(st.sampled_from("abcdefgh"), min_size=1)
LOGS = st.integers(0, 40)


@given(members=MEMBERS, logs=st.sets(LOGS), data=st.data())
def test_everything_is_given_once_and_evenly(
    members: set[str], logs: set[int], data: st.DataObject
) -> None:
    holders = st.sampled_from([*sorted(members), "gone"])
    claims = data.draw(st.dictionaries(LOGS, holders))
    shares = assign(dict.fromkeys(members, logs), claims)
    assert set(shares) == members
    assert sum(len(share) for share in shares.values()) == len(logs)
    assert set().union(*shares.values()) == logs
    counts = [len(share) for share in shares.values()]
    assert max(counts) - min(counts) <= 1


@given(members=MEMBERS, logs=st.sets(LOGS, min_size=1), data=st.data())
def test_nothing_moves_without_need(members: set[str], logs: set[int], data: st.DataObject) -> None:
    holders = st.sampled_from([*sorted(members), "gone"])
    claims = data.draw(st.dictionaries(st.sampled_from(sorted(logs)), holders))
    shares = assign(dict.fromkeys(members, logs), claims)
    most = -(-len(logs) // len(members))
    for member, share in shares.items():
        held = {log for log, holder in claims.items() if holder == member}
        # It keeps what it has up to its share, and gives none away while it takes others.
        assert len(share & held) == min(len(held), len(share))
        assert len(share) <= most


@given(
    before=MEMBERS,
    after=MEMBERS,
    logs=st.sets(LOGS),
    order=st.randoms(use_true_random=False),
)
def test_members_that_act_one_by_one_come_to_rest(
    before: set[str], after: set[str], logs: set[int], order: object
) -> None:
    """As the processes do it: each gives up what is too much, each takes only what is free."""
    claims = {
        log: member
        for member, share in assign(dict.fromkeys(before, logs), {}).items()
        for log in share
        if member in after
    }
    wanted = dict.fromkeys(after, logs)
    for _ in range(2 * len(after) + 2):
        changed = False
        members = sorted(after)
        order.shuffle(members)  # type: ignore[attr-defined]
        for member in members:
            share = assign(wanted, claims)[member]
            for log in [log for log, holder in claims.items() if holder == member]:
                if log not in share:
                    del claims[log]
                    changed = True
            for log in share:
                if log not in claims:
                    claims[log] = member
                    changed = True
        if not changed:
            break
    else:
        raise AssertionError("no rest")
    assert set(claims) == logs
    counts = [list(claims.values()).count(member) for member in after]
    assert max(counts) - min(counts) <= 1


def test_members_ask_for_different_topics() -> None:
    shares = assign({"a": {1, 2, 3, 4}, "b": {3, 4, 5, 6}, "c": set()}, {})
    assert shares["a"] >= {1, 2}
    assert shares["b"] >= {5, 6}
    assert shares["a"] | shares["b"] == {1, 2, 3, 4, 5, 6}
    assert not shares["a"] & shares["b"]
    assert shares["c"] == set()
