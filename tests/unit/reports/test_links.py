"""Links to a trace viewer and to ackd: mistakes are said at once, names are no part of a URL."""

import pytest

from ackd_reports.links import address, template

MESSAGE = {
    "system": "kafka",
    "cluster": "c",
    "topic": "a/b?c=d&e",
    "group": "g",
    "partition": "3",
    "message": "17",
    "application": "",
    "trace_id": "00ff",
    "first": None,
    "born": "2026-11-01T10:00:00.000Z",
    "seen_last": "2026-11-01T10:00:30.000Z",
}


def test_names_are_quoted() -> None:
    link = template("https://t.example/{trace_id}?topic={topic}&app={application}&{{x}}")
    assert address(link, MESSAGE) == "https://t.example/00ff?topic=a%2Fb%3Fc%3Dd%26e&app=&{x}"


def test_times_are_around_the_life() -> None:
    link = template("http://logs.example/?from={since_ms}&to={until_ms}")
    assert address(link, MESSAGE) == "http://logs.example/?from=1793527140000&to=1793527290000"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("javascript:alert(1)", "must begin with"),
        ("https://t.example/{trace}", "unknown trace; allowed are trace_id"),
        ("https://t.example/{trace_id.__class__}", "unknown"),
        ("https://t.example/{}", "unknown"),
        ("https://t.example/{trace_id", "braces"),
    ],
)
def test_a_mistake_is_named(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        template(text)
