"""What is told about an application that asks for pauses."""

from __future__ import annotations

import asyncio
import logging
from typing import cast
from unittest.mock import Mock

import pytest

from ackd.api.messages import Engine
from ackd.config.push import PushSettings
from ackd.push import pressure
from ackd.push.answer import judge
from ackd.push.call_limit import CallLimit
from ackd.push.pressure import Pressure
from ackd.push.push_delivery import PushDelivery
from ackd.telemetry.metrics import Metrics

BUSY = judge(503, {"Retry-After": "1"}, 0)


def made(engine: Mock | None = None, metrics: Metrics | None = None) -> Pressure:
    """One that is only told of answers; it asks nothing of the delivery."""
    engine, metrics = engine or Mock(spec=Engine), metrics or Metrics()
    delivery = cast("PushDelivery", None)
    return Pressure("orders", PushSettings(), engine, delivery, CallLimit(4, 1), metrics)


def warnings(log: pytest.LogCaptureFixture) -> list[str]:
    return [each.message for each in log.records if each.levelno == logging.WARNING]


async def test_a_minute_of_pauses_is_warned_of_once_and_told_for_how_long(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = made()
    assert found.asked(BUSY) == "the application asked for a pause (HTTP 503)"
    found.asked(BUSY)
    assert warnings(caplog) == []
    loop_time = asyncio.get_running_loop().time
    monkeypatch.setattr(found, "_now", lambda: loop_time() + pressure.WARN_AFTER_S)
    assert found.asked(BUSY).endswith("for 60 s now")
    found.asked(BUSY)
    [warning] = warnings(caplog)
    assert "every call for 60 s" in warning
    assert "uses up its attempts" in warning


async def test_before_anything_is_lost_readiness_and_a_gauge_tell_until_it_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine, metrics = Mock(spec=Engine), Metrics()
    found = made(engine, metrics)

    def gauge() -> float | None:
        return metrics.registry.get_sample_value("ackd_push_throttled", {"subscription": "orders"})

    found.asked(BUSY)
    loop_time = asyncio.get_running_loop().time
    monkeypatch.setattr(found, "_now", lambda: loop_time() + pressure.WARN_AFTER_S - 1)
    found.asked(BUSY)
    assert (gauge(), engine.warn.call_args_list) == (0, [])
    monkeypatch.setattr(found, "_now", lambda: loop_time() + pressure.WARN_AFTER_S)
    found.asked(BUSY)
    found.asked(BUSY)
    [(name, source, what)] = [each.args for each in engine.warn.call_args_list]
    assert (name, source, gauge()) == ("orders", "push", 1)
    assert "asking for a pause (HTTP 503)" in what
    found.over()
    found.over()
    assert (engine.warn.call_args.args, gauge()) == (("orders", "push", None), 0)
    assert engine.warn.call_count == 2


async def test_an_answer_without_a_pause_begins_anew(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pressure, "WARN_AFTER_S", 0.0)
    found = made()
    found.asked(BUSY)
    found.over()
    monkeypatch.setattr(pressure, "WARN_AFTER_S", 60.0)
    found.asked(BUSY)
    assert len(warnings(caplog)) == 1
