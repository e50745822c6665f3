"""The slot of a key is the one that clients and servers compute."""

from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from ackd.store.nodes import hash_slot


def test_slots_that_the_specification_names() -> None:
    assert hash_slot("123456789") == 0x31C3
    assert hash_slot("foo{hash_tag}") == hash_slot("bar{hash_tag}") == 2515
    assert hash_slot("foo{}{bar}") == 8363
    assert hash_slot("foo{{bar}}zap") == hash_slot("{bar")


@given(st.text("{}aä", max_size=8))
def test_braces(key: str) -> None:
    assert hash_slot(key) == key_slot(key.encode())
