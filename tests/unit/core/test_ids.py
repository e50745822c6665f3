"""Names: what goes into keys, logs and messages' ids (R1)."""

from __future__ import annotations

from ackd.core.ids import LedgerKey, SidecarId, message_id, topic_id_of


def test_a_topic_made_again_is_another_ledger() -> None:
    """R1: the identity and the cluster are part of the key, not only the name."""
    keys = {
        LedgerKey("c", "s", topic_id_of("one"), 0),
        LedgerKey("c", "s", topic_id_of("two"), 0),
        LedgerKey("d", "s", topic_id_of("one"), 0),
        LedgerKey("c", "s", topic_id_of("one"), 1),
    }
    assert len({key.text() for key in keys}) == 4
    assert all(len(key.topic_id) == 16 for key in keys)


def test_two_boots_of_a_sidecar_have_two_names() -> None:
    assert SidecarId("a", 1).text() != SidecarId("a", 2).text()


def test_a_message_has_a_readable_id() -> None:
    assert message_id("orders", 3, 2101) == "orders/3/2101"
