"""The fetching client's log: what it says about topics, and what of it goes on to the log."""

import logging
from uuid import UUID

import pytest

from ackd_adapters.kafka.client_log import NO_IDENTITY, ClientLog

FIRST, SECOND = UUID(int=2**127 + 5), UUID(int=2**126 + 62)
FORM = "%s [%s] %s"


def said(before: str, now: str) -> tuple[str, str, str]:
    return (
        "METADATA",
        "rdkafka#consumer-1",
        f"[thrd:main]: Topic a.b changed id from {before} to {now}",
    )


def heard(log: ClientLog, *lines: tuple[str, str, str], level: int = logging.DEBUG) -> None:
    for line in lines:
        log.log(level, FORM, *line)


def test_r1_identities_are_read_as_the_admin_client_tells_them() -> None:
    adopted: list[tuple[str, bytes, bytes]] = []
    log = ClientLog({}, lambda *facts: adopted.append(facts))
    none, first, second = ("A" * 22, "gAAAAAAAAAAAAAAAAAAABQ", "QAAAAAAAAAAAAAAAAAAAPg")
    heard(log, said(none, first), ("METADATA", "c", "Topic a.b [0] Leader 1"), said(first, second))
    assert adopted == [("a.b", NO_IDENTITY, FIRST.bytes), ("a.b", FIRST.bytes, SECOND.bytes)]


@pytest.mark.parametrize(
    ("asked", "context", "told"), [(None, "metadata", []), ("fetch", "fetch,metadata", ["x"])]
)
def test_debug_lines_are_for_those_who_asked(
    caplog: pytest.LogCaptureFixture, asked: str | None, context: str, told: list[str]
) -> None:
    caplog.set_level(logging.DEBUG, "ackd.kafka.client")
    log = ClientLog({"debug": asked} if asked else {}, lambda *_: None)
    assert log.properties["debug"] == context
    heard(log, ("FETCH", "c", "x"))
    heard(log, ("FAIL", "c", "broken"), level=logging.WARNING)
    assert [record.args[2] for record in caplog.records if record.args] == [*told, "broken"]  # type: ignore[index]
