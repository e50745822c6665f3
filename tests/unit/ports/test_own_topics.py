"""Names of ackd's own topics, whatever the groups are called (R25)."""

import re

from hypothesis import given
from hypothesis import strategies as st

from ackd.ports.own_topics import dead_letter_topic, is_own_topic, retry_topic

VALID = re.compile(r"[A-Za-z0-9._-]{1,249}")
groups = st.text(min_size=1, max_size=300) | st.text("ab._-/", min_size=1, max_size=8)


@given(groups)
def test_r25_own_names_are_valid_topics(group: str) -> None:
    for name in (retry_topic(group), dead_letter_topic(group)):
        assert VALID.fullmatch(name)
        assert is_own_topic(name)


@given(groups, groups)
def test_r25_own_names_of_two_groups_never_collide(one: str, other: str) -> None:
    # Kafka counts names as equal that differ in `.` and `_` only.
    if one != other:
        assert retry_topic(one).replace(".", "_") != retry_topic(other).replace(".", "_")
    assert retry_topic(one).replace(".", "_") != dead_letter_topic(other).replace(".", "_")


def test_r25_plain_groups_keep_readable_names() -> None:
    assert retry_topic("orders") == "ackd.retry.orders"
    assert dead_letter_topic("orders.v2") == "ackd.dead.orders.v2"
    assert retry_topic("a_b") != retry_topic("a.b")
