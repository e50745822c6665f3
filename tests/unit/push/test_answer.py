"""What an answer means, the gate that holds calls back, and the signature."""

from __future__ import annotations

import json
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from ackd.api.messages import SettleVerb
from ackd.errors import ConfigError
from ackd.push.answer import (
    MISSING,
    RETRY_AFTER_MS_MAX,
    RETRY_AFTER_MS_MIN,
    judge,
    judge_items,
)
from ackd.push.call_limit import CallLimit
from ackd.push.signature import read_secrets

NOW = datetime(2026, 11, 21, 15, 0, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
DATE = format_datetime(NOW + timedelta(seconds=30), usegmt=True)
PAST = format_datetime(NOW - timedelta(days=1), usegmt=True)


@pytest.mark.parametrize(
    ("status", "headers", "do", "delay_ms", "count", "outcome"),
    [
        (200, {}, SettleVerb.ACK, None, True, "ack"),
        (204, {}, SettleVerb.ACK, None, True, "ack"),
        (299, {}, SettleVerb.ACK, None, True, "ack"),
        (202, {}, None, None, True, "kept"),
        (404, {}, SettleVerb.RETRY, None, True, "retry"),
        (410, {}, SettleVerb.RETRY, None, True, "retry"),
        (301, {}, SettleVerb.RETRY, None, True, "retry"),
        (500, {"Retry-After": "3"}, SettleVerb.RETRY, None, True, "retry"),
        (500, {"Ackd-Delay-Ms": "70"}, SettleVerb.RETRY, 70, True, "retry"),
        (429, {}, SettleVerb.RETRY, None, True, "retry"),
        (503, {"Retry-After": "soon"}, SettleVerb.RETRY, None, True, "retry"),
        (429, {"Retry-After": "3"}, SettleVerb.RETRY, 3000, False, "pressure"),
        (503, {"Retry-After": DATE}, SettleVerb.RETRY, 30_000, False, "pressure"),
        (503, {"Retry-After": PAST}, SettleVerb.RETRY, RETRY_AFTER_MS_MIN, False, "pressure"),
        (503, {"Retry-After": "999999"}, SettleVerb.RETRY, RETRY_AFTER_MS_MAX, False, "pressure"),
        (503, {"Retry-After": "3", "Ackd-Do": "ack"}, SettleVerb.ACK, None, True, "ack"),
        (202, {"Ackd-Do": "Retry", "Ackd-Delay-Ms": "5"}, SettleVerb.RETRY, 5, True, "retry"),
        (200, {"ackd-do": "dead"}, SettleVerb.DEAD, None, True, "dead"),
        (200, {"Ackd-Do": "explode"}, SettleVerb.ACK, None, True, "ack"),
        (200, {"Ackd-Do": "retry", "Ackd-Delay-Ms": "-1"}, SettleVerb.RETRY, None, True, "retry"),
    ],
)
def test_table(
    status: int,
    headers: dict[str, str],
    do: SettleVerb | None,
    delay_ms: int | None,
    count: bool,  # noqa: FBT001
    outcome: str,
) -> None:
    verdict = judge(status, CIMultiDict(headers), NOW_MS)
    found = (verdict.do, verdict.delay_ms, verdict.count, verdict.outcome)
    assert found == (do, delay_ms, count, outcome)
    assert bool(verdict.pause_ms) is (outcome == "pressure")


@given(
    st.integers(100, 599),
    st.dictionaries(
        st.sampled_from(["Retry-After", "Ackd-Do", "Ackd-Delay-Ms"]),
        st.text(max_size=30) | st.sampled_from(["ack", "retry", "1", DATE]),
    ),
)
def test_no_answer_breaks_it(status: int, headers: dict[str, str]) -> None:
    verdict = judge(status, CIMultiDict(headers), NOW_MS)
    assert verdict.pause_ms <= RETRY_AFTER_MS_MAX
    assert verdict.do in {None, SettleVerb.ACK, SettleVerb.RETRY, SettleVerb.DEAD}
    assert (
        verdict.do is not SettleVerb.ACK
        or status // 100 == 2
        or "ack" in headers["Ackd-Do"].lower()
    )


def test_items_of_others_do_not_count_and_missing_ones_are_retried() -> None:
    body = {
        "items": [
            {"lease": "b", "do": "dead", "reason": "bad"},
            {"lease": "of-others", "do": "ack"},
            {"lease": "a", "do": "ack"},
        ]
    }
    items, readable = judge_items(json.dumps(body).encode(), ["a", "b", "c"])
    assert readable
    assert [(item.lease, item.do) for item in items] == [
        ("b", SettleVerb.DEAD),
        ("a", SettleVerb.ACK),
        ("c", SettleVerb.RETRY),
    ]
    assert items[2].reason == MISSING
    for broken in (b"", b"ok", b'{"items":{}}', b'{"items":[{"lease":"a","do":"fly"}]}', b"\xff"):
        items, readable = judge_items(broken, ["a"])
        assert not readable
        assert [(item.lease, item.do) for item in items] == [("a", SettleVerb.RETRY)]


def test_gate_halves_under_pressure_and_recovers_one_by_one() -> None:
    gate = CallLimit(8, 1.0)
    gate.slow_down(100.0, 5.0)
    gate.slow_down(100.5, 5.0)  # was under way together with the first
    assert gate.limit == 4
    assert gate.wait_s(101.0) == 4.5
    assert gate.wait_s(106.0) == 0
    for expected in (5, 6, 7, 8, 8):
        gate.worked()
        assert gate.limit == expected
    for number in range(10):
        gate.slow_down(200.0 + 10 * number, 1.0)
    assert gate.limit == 1


def test_trials_grow_apart_up_to_a_bound_and_start_again() -> None:
    gate = CallLimit(4, 1.0)
    assert gate.unreachable(1.0)
    assert not gate.unreachable(2.0)
    pauses = [gate.next_trial_s() for _ in range(12)]
    assert pauses[0] == 1.0
    assert pauses == sorted(pauses)
    assert pauses[-1] == 10.0
    gate.reachable()
    assert not gate.broken
    assert gate.limit == 1
    gate.worked()
    assert gate.next_trial_s() == 1.0


def test_secrets_are_read_or_refused_in_words(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    raw = b"0123456789abcdef0123456789abcdef"
    file.write_text(f"whsec_{b64encode(raw).decode()}\nplain text of enough length\n")
    assert read_secrets(file) == [raw, b"plain text of enough length"]
    for bad in ("short\n", "whsec_!!!\n", "\n"):
        file.write_text(bad)
        with pytest.raises(ConfigError, match="signature_file"):
            read_secrets(file)
    with pytest.raises(ConfigError, match="signature_file"):
        read_secrets(tmp_path / "none")
