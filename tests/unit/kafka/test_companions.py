"""Partitions of the retry topic go with partitions of the topics."""

from hypothesis import given
from hypothesis import strategies as st

from ackd.core.ids import TopicPartition
from ackd_adapters.kafka.companions import Companions, hosts

COUNTS = st.integers(0, 24)
PARTITIONS = st.integers(1, 24)
RETRY = "ackd.retry.g"


def numbers(topic: str, *which: int) -> set[TopicPartition]:
    """Partitions of one topic."""
    return {TopicPartition(topic, each) for each in which}


def shares(
    members: int, topics: dict[str, int], retry: int, *, runs: bool
) -> list[tuple[int, int]]:
    """How many partitions of the topics and of the retry topic each gets if an assignor gives runs
    of numbers, or every n-th one.
    """
    every = sorted(TopicPartition(t, n) for t, count in topics.items() for n in range(count))
    found = []
    for member in range(members):
        if runs:
            least, rest = divmod(len(every), members)
            begin = member * least + min(member, rest)
            mine = every[begin : begin + least + (member < rest)]
        else:
            mine = every[member::members]
        companions = Companions()
        companions.add(RETRY)
        companions.counted({**topics, RETRY: retry})
        found.append((len(mine), len(companions.assigned(mine))))
    return found


@given(
    topics=st.dictionaries(st.sampled_from("abc"), PARTITIONS, min_size=1),
    retry=COUNTS,
    members=st.integers(1, 9),
    runs=st.booleans(),
)
def test_all_is_given_once_and_nobody_has_retry_only(
    topics: dict[str, int], retry: int, members: int, *, runs: bool
) -> None:
    found = shares(members, topics, retry, runs=runs)
    assert sum(more for _, more in found) == retry
    assert all(more == 0 for mine, more in found if mine == 0)


@given(count=PARTITIONS, members=st.integers(1, 9), runs=st.booleans())
def test_as_many_as_of_the_topic_if_both_have_as_many(
    count: int, members: int, *, runs: bool
) -> None:
    assert all(mine == more for mine, more in shares(members, {"t": count}, count, runs=runs))


@given(members=st.sampled_from([2, 4]), factor=st.integers(1, 8), runs=st.booleans())
def test_even_if_the_topic_has_many_more(members: int, factor: int, *, runs: bool) -> None:
    """The usual retry topic of 4, beside topics of 4 to 32."""
    found = shares(members, {"t": 4 * factor}, 4, runs=runs)
    assert max(more for _, more in found) - min(more for _, more in found) <= 1


def test_two_topics_whose_partitions_went_to_one_member_each() -> None:
    """What a sticky assignor makes of members that joined one after the other."""
    found = hosts({"a": 4, "b": 4}, {RETRY: 4})
    assert [host.topic for host in found.values()].count("a") == 2


def test_they_come_and_go_with_their_hosts_and_with_what_is_counted() -> None:
    companions = Companions()
    companions.add(RETRY)
    assert companions.assigned(numbers("t", 0, 1)) == []
    assert companions.counted({"t": 4, RETRY: 4}) == (sorted(numbers(RETRY, 0, 1)), [])
    assert companions.counted({"t": None, RETRY: None}) == ([], [])
    assert companions.assigned(numbers("t", 2)) == [TopicPartition(RETRY, 2)]
    assert companions.revoked(numbers("t", 0)) == [TopicPartition(RETRY, 0)]
    assert TopicPartition(RETRY, 1) in companions
    assert TopicPartition(RETRY, 0) not in companions
    assert companions.counted({"t": 4, RETRY: 0}) == ([], sorted(numbers(RETRY, 1, 2)))
    assert companions.counted({"t": 4, RETRY: 8}) == (sorted(numbers(RETRY, 1, 2, 5, 6)), [])
