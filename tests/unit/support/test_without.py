"""`make test WITHOUT=...`: what is left out is named, and nothing else goes."""

import pytest

from tests.support.without import BROKERS, left_out


def test_names_in_words_or_with_commas() -> None:
    assert left_out("") == ()
    assert left_out("pulsar rocketmq,kafka") == ("pulsar", "rocketmq", "kafka")


@pytest.mark.parametrize("text", ["pulsar rabbit", "redis", "Pulsar"])
def test_an_unknown_name_is_an_error_that_names_the_known_ones(text: str) -> None:
    with pytest.raises(ValueError, match=", ".join(BROKERS)):
        left_out(text)
