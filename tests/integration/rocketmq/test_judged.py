"""Whether tests of a killed broker may be let off."""

import pytest

from tests.support.rocketmq import RocketMQ
from tests.support.rocketmq.timers import judged

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(120)]


def test_a_verdict_stands_where_the_brokers_timers_work(rocketmq: RocketMQ) -> None:
    before = rocketmq.endpoints
    with pytest.raises(AssertionError, match="lost"), judged(rocketmq):
        raise AssertionError("lost")
    assert rocketmq.endpoints == before
