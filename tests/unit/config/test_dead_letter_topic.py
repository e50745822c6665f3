"""A topic of dead letters that a subscription names itself."""

import pytest

from ackd.config.load import load_text
from ackd.errors import ConfigError

HEAD = '[subscriptions.orders]\ntopics = ["orders"]\n'
OTHER = '[subscriptions.other]\ntopics = ["x"]\n'


def test_it_is_taken_as_it_is() -> None:
    settings = load_text(f'{HEAD}dead_letter_topic = "orders-work-DLQ"\n', None, {})
    assert settings.subscriptions["orders"].dead_letter_topic == "orders-work-DLQ"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f'{HEAD}dead_letter_topic = "orders"\n', "is one of `topics`"),
        (f'{HEAD}dead_letter_topic = "^orders"\n', "no expression"),
        (
            f'{HEAD}dead_letter_topic = "d"\n{OTHER}dead_letter_topic = "d"\n',
            "'orders' has this topic already",
        ),
    ],
)
def test_mistakes_are_told(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match="dead_letter_topic") as told:
        load_text(text, None, {})
    assert problem in str(told.value)
