"""Parts of Pulsar's adapter that need no broker: messages, shares, names, ids, options."""

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackd.core.ids import TopicPartition
from ackd.errors import ConfigError
from ackd_adapters.pulsar.config import PulsarOptions, check
from ackd_adapters.pulsar.letters import is_retry
from ackd_adapters.pulsar.message import (
    HEADERS,
    java_hash,
    partition_key,
    properties,
    read_headers,
    read_key,
)
from ackd_adapters.pulsar.names import Names, TopicNameError, partition_name, whole
from ackd_adapters.pulsar.protobuf import decode, encode
from ackd_adapters.pulsar.share import wanted

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=5)
headers = st.lists(st.tuples(names, st.none() | st.binary(max_size=5)), max_size=4)


@given(st.none() | st.binary(max_size=6), headers.map(tuple))
def test_a_message_comes_back_whole(
    key: bytes | None, given_headers: tuple[tuple[str, bytes | None], ...]
) -> None:
    found = properties(key, given_headers)
    assert read_key(partition_key(key) or "", found) == key
    # The broker's client returns a table, in an order of its own.
    assert read_headers(dict(sorted(found.items()))) == given_headers


def test_what_is_plain_stands_plainly() -> None:
    """Other clients read it."""
    assert properties(b"k", (("a", b"1"), ("b", b"2"))) == {"a": "1", "b": "2"}
    assert properties(b"k", (("b", b"1"), ("a", b"2"))).keys() == {"a", "b", HEADERS}
    assert read_headers({HEADERS: "not ours"}) == ((HEADERS, b"not ours"),)


def test_r20_partitions_are_chosen_as_javas_producer_chooses() -> None:
    """`String.hashCode` of these is what the Java language specification says."""
    assert [java_hash(each) for each in ("", "a", "orders", "é中")] == [
        0,
        97,
        -1008770331 & 0x7FFFFFFF,
        233 * 31 + 0x4E2D,
    ]


@given(
    st.integers(1, 5),
    st.dictionaries(st.integers(0, 9), st.integers(0, 6), min_size=1),
)
def test_shares_are_even_and_move_little(members: int, held: dict[int, int]) -> None:
    """Everybody computes the same; nobody has two more than another; holders keep what they may."""
    everybody = {f"m{each}" for each in range(members)}
    readers = {"t": everybody}
    holders = {TopicPartition("t", at): f"m{who}" for at, who in held.items()}
    share = {name: wanted(name, readers, holders) for name in everybody}
    given_out = [partition for each in share.values() for partition in each]
    assert sorted(given_out) == sorted(holders)
    sizes = [len(each) for each in share.values()]
    assert max(sizes) - min(sizes) <= 1
    settled = {at: name for name, each in share.items() for at in each}
    assert {name: wanted(name, readers, settled) for name in everybody} == share


@given(
    st.integers(1, 5),
    st.dictionaries(st.integers(0, 9), st.integers(0, 6), min_size=1),
    st.dictionaries(st.integers(0, 9), st.integers(0, 6)),
)
def test_retry_topics_go_to_those_who_have_something_of_the_topics(
    members: int, held: dict[int, int], retry_held: dict[int, int]
) -> None:
    everybody = {f"m{each}" for each in range(members)}
    readers = {"t": everybody, "ackd.retry.t": everybody}
    holders = {TopicPartition("t", at): f"m{who}" for at, who in held.items()}
    holders |= {TopicPartition("ackd.retry.t", at): f"m{who}" for at, who in retry_held.items()}
    share = {name: wanted(name, readers, holders, {"ackd.retry.t"}) for name in everybody}
    assert sorted(at for each in share.values() for at in each) == sorted(holders)
    counts = {name: sum(at.topic == "t" for at in each) for name, each in share.items()}
    assert max(counts.values()) - min(counts.values()) <= 1
    more = [len(each) - counts[name] for name, each in share.items() if counts[name]]
    assert sum(more) == len(retry_held), "somebody has the retry topic only"
    assert max(more) - min(more) <= 1
    settled = {at: name for name, each in share.items() for at in each}
    assert {name: wanted(name, readers, settled, {"ackd.retry.t"}) for name in share} == share


def test_which_topics_are_retry_topics() -> None:
    for topic in ("ackd.retry.orders", "acme/shop/ackd.retry.orders", "orders-shop-RETRY"):
        assert is_retry(topic)
    for topic in ("orders", "ackd.dead.orders", "ackd.retry.x/orders"):
        assert not is_retry(topic)


def test_a_topic_is_for_its_readers_only() -> None:
    readers = {"a": {"one", "two"}, "b": {"two"}}
    holders: dict[TopicPartition, str | None] = {
        TopicPartition(topic, number): None for topic in "ab" for number in range(2)
    }
    assert {each.topic for each in wanted("one", readers, holders)} == {"a"}
    assert wanted("stranger", readers, holders) == set()


def test_names() -> None:
    found = Names("acme/shop")
    assert found.path("orders") == "acme/shop/orders"
    assert found.path("persistent://other/ns/x") == "other/ns/x"
    assert found.short("persistent://acme/shop/orders") == "orders"
    assert found.short("other/ns/x") == "other/ns/x"
    assert partition_name("a/b/c", 3, 5) == "a/b/c-partition-3"
    assert whole("a/b/c-partition-3") == "a/b/c"
    for wrong in ("a b", "a/b", "", "a//b"):
        with pytest.raises(TopicNameError):
            found.path(wrong)
    existing = ["orders", "orders.eu", "ackd.dead.orders", "__change_events"]
    assert found.matching(("^.*", "x"), existing) == ["orders", "orders.eu", "x"]


def test_ids_tell_the_size_of_their_batch() -> None:
    numbers = {1: 6, 2: 150, 3: 0, 4: 9, 6: 10}
    assert decode(b"\x08\x06\x10\x96\x01\x18\x00 \x090\n") == numbers
    assert decode(encode({**numbers, 5: b"\xff\x00", 7: -1})) == {
        **numbers,
        5: b"\xff\x00",
        7: (1 << 64) - 1,
    }


@pytest.mark.parametrize("data", [b"\x0a\x05ab", b"\x0b", b"\x08\xff"])
def test_a_message_that_is_cut_or_of_another_kind_is_no_message(data: bytes) -> None:
    with pytest.raises((ValueError, IndexError)):
        decode(data)


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"admin_url": "https://a:8443"}, "both with TLS"),
        ({"oauth2_issuer_url": "https://i"}, "go together"),
        ({"oauth2_audience": "x"}, "oauth2_audience needs"),
        ({"tls_cert_file": Path("c")}, "tls_cert_file and tls_key_file"),
        ({"tls_cert_file": Path("c"), "tls_key_file": Path("k")}, "needs pulsar"),
        ({"tls_cert_file": Path("c"), "token_file": Path("t")}, "only one of"),
    ],
)
def test_options_that_can_not_go_together(more: dict[str, str | Path], what: str) -> None:
    plain = PulsarOptions(service_url="pulsar://a:6650", admin_url="http://a:8080")
    check(plain)
    with pytest.raises(ConfigError, match=what):
        check(dataclasses.replace(plain, **more))  # type: ignore[arg-type]  # by name
