"""With an order a failed message is tried again after three seconds, if nothing else is set."""

import pytest

from ackd.config.load import load_text

HEAD = '[subscriptions.orders]\ntopics = ["orders"]\n'


@pytest.mark.parametrize("ordering", ["key", "partition"])
def test_ordered_retries_wait_three_seconds(ordering: str) -> None:
    settings = load_text(f'{HEAD}ordering = "{ordering}"\n', None, {})
    assert settings.subscriptions["orders"].retry_delays_ms == (3_000,)


def test_what_is_set_counts() -> None:
    text = f'{HEAD}ordering = "key"\nretry_delays_ms = ["1s", "5s"]\n'
    assert load_text(text, None, {}).subscriptions["orders"].retry_delays_ms == (1_000, 5_000)
    environ = {"ACKD_SUBSCRIPTIONS__ORDERS__RETRY_DELAYS_MS": "7s"}
    settings = load_text(f'{HEAD}ordering = "key"\n', None, environ)
    assert settings.subscriptions["orders"].retry_delays_ms == (7_000,)


def test_without_an_order_the_schedule_grows() -> None:
    delays = load_text(HEAD, None, {}).subscriptions["orders"].retry_delays_ms
    assert delays[0] == 10_000
    assert len(delays) == 16


def test_a_name_with_a_dot_is_looked_up_right() -> None:
    text = '[subscriptions."a.b"]\ntopics = ["x"]\nordering = "key"\nretry_delays_ms = ["9s"]\n'
    assert load_text(text, None, {}).subscriptions["a.b"].retry_delays_ms == (9_000,)
