"""What is told about an application that asks for pauses."""

from __future__ import annotations

import asyncio
import logging
from typing import cast

import pytest

from ackd.api.messages import Engine
from ackd.config.push import PushSettings
from ackd.push import pressure
from ackd.push.answer import judge
from ackd.push.pressure import Pressure
from ackd.push.push_delivery import PushDelivery

BUSY = judge(503, {"Retry-After": "1"}, 0)


def made() -> Pressure:
    """One that is only told of answers; it asks neither engine nor delivery."""
    return Pressure("orders", PushSettings(), cast("Engine", None), cast("PushDelivery", None))


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
