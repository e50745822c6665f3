"""`make test WITHOUT="pulsar rocketmq"`: no test that needs one of these, so none starts."""

import pytest

WITHOUT = "ACKD_TEST_WITHOUT"
BROKERS = ("kafka", "pulsar", "rocketmq")


def left_out(text: str) -> tuple[str, ...]:
    """The brokers that a run does without. Raises ValueError for what is none."""
    names = tuple(text.replace(",", " ").split())
    unknown = sorted(set(names) - set(BROKERS))
    if unknown:
        raise ValueError(f"{WITHOUT}: {', '.join(unknown)}: none of {', '.join(BROKERS)}")
    return names


def needs(item: pytest.Item, brokers: tuple[str, ...]) -> bool:
    """Whether a test needs one of them: by its mark, or by the fixture that starts it."""
    fixtures = set(getattr(item, "fixturenames", ()))
    return any(
        name in item.keywords or not fixtures.isdisjoint((name, f"own_{name}")) for name in brokers
    )
