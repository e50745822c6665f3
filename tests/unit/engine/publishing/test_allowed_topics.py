"""The list of topics that applications may publish to."""

import pytest

from ackd.engine.publishing.allowed_topics import AllowedTopics


def test_an_empty_list_allows_every_topic() -> None:
    assert "anything" in AllowedTopics(())


@pytest.mark.parametrize("topic", ["orders", "invoices-eu", "invoices-eu-old"])
def test_names_and_beginnings_of_patterns_are_allowed(topic: str) -> None:
    assert topic in AllowedTopics(["orders", "^invoices-eu"])


@pytest.mark.parametrize("topic", ["orders-2", "eu.orders", "my-invoices-eu", "^invoices-eu", ""])
def test_what_only_looks_alike_is_not(topic: str) -> None:
    assert topic not in AllowedTopics(["orders", "^invoices-eu"])
