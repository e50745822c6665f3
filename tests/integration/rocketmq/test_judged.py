"""A loss after a kill is a failure, whatever the broker's timers do."""

import pytest

from tests.support.rocketmq import RocketMQ, timers
from tests.support.rocketmq.timers import STILL, judged

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(120)]


def test_a_verdict_stands_where_the_brokers_timers_work(rocketmq: RocketMQ) -> None:
    before = rocketmq.endpoints
    with pytest.raises(AssertionError, match="lost") as told, judged(rocketmq):
        raise AssertionError("lost")
    assert rocketmq.endpoints == before
    assert not any(STILL in each for each in getattr(told.value, "__notes__", ()))


class Still:
    """A broker whose timers stand still, which can be made anew."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def complaints(self) -> str:
        return "its log"

    def stop(self) -> None:
        self.made.append("stop")

    def start(self) -> None:
        self.made.append("start")


def test_a_loss_is_a_failure_also_where_they_stand_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was a skip. The reason is told, and the next test gets a broker that works."""
    monkeypatch.setattr(timers, "timers_work", lambda _: False)
    broker = Still()
    with pytest.raises(AssertionError, match="lost") as told, judged(broker):  # type: ignore[arg-type]
        raise AssertionError("lost")
    [note] = told.value.__notes__
    assert STILL in note
    assert "its log" in note
    assert broker.made == ["stop", "start"]
