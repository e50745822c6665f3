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
    retry=st.sets(st.integers(41, 60)),
    order=st.randoms(use_true_random=False),
)
def test_members_that_act_one_by_one_come_to_rest(
    before: set[str], after: set[str], logs: set[int], retry: set[int], order: object
) -> None:
    """As the processes do it: each gives up what is too much, each takes only what is free."""
    claims = {
        log: member
        for member, share in assign(dict.fromkeys(before, logs | retry), {}).items()
        for log in share
        if member in after
    }
    wanted = dict.fromkeys(after, logs | retry)
    for _ in range(2 * len(after) + 2):
        changed = False
        members = sorted(after)
        order.shuffle(members)  # type: ignore[attr-defined]
        for member in members:
            share = assign(wanted, claims, retry)[member]
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
    assert set(claims) == logs | retry
    counts = [sum(claims[log] == member for log in logs) for member in after]
    assert max(counts) - min(counts) <= 1


@given(
    members=MEMBERS,
    logs=st.sets(LOGS, min_size=1),
    retry=st.sets(st.integers(41, 60)),
    data=st.data(),
)
def test_topics_come_first_and_retry_topics_go_to_those_who_have_some(
    members: set[str], logs: set[int], retry: set[int], data: st.DataObject
) -> None:
    """Whoever joined first, whatever each has now."""
    holders = st.sampled_from([*sorted(members), "gone"])
    claims = data.draw(st.dictionaries(st.sampled_from(sorted(logs | retry)), holders))
    shares = assign(dict.fromkeys(members, logs | retry), claims, retry)
    assert sum(map(len, shares.values())) == len(logs | retry)
    assert set().union(*shares.values()) == logs | retry
    counts = [len(share & logs) for share in shares.values()]
    assert max(counts) - min(counts) <= 1
    busy = [share for share in shares.values() if share & logs]
    more = [len(share & retry) for share in busy]
    assert sum(more) == len(retry), "somebody has the retry topic only"
    assert max(more) - min(more) <= 1
    both = [len(share) for share in busy]
    assert max(both) - min(both) <= 1, "the larger shares of both are with the same members"
    settled = {log: member for member, share in shares.items() for log in share}
    assert assign(dict.fromkeys(members, logs | retry), settled, retry) == shares


def test_a_retry_topic_alone_is_given_too() -> None:
    """As to one that reads nothing else, or whose topics do not exist yet."""
    assert assign({"a": {7, 8}, "b": {7, 8}}, {}, {7, 8}) == {"a": {7}, "b": {8}}
    assert assign({"a": {1}, "b": {7, 8}}, {}, {7, 8}) == {"a": {1}, "b": {7, 8}}


def test_members_ask_for_different_topics() -> None:
    shares = assign({"a": {1, 2, 3, 4}, "b": {3, 4, 5, 6}, "c": set()}, {})
    assert shares["a"] >= {1, 2}
    assert shares["b"] >= {5, 6}
    assert shares["a"] | shares["b"] == {1, 2, 3, 4, 5, 6}
    assert not shares["a"] & shares["b"]
    assert shares["c"] == set()
