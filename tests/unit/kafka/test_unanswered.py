"""A question that the client forgets ends all the same, and in its time.

librdkafka 2.16 answers each question or says that its time is up, as long as it lives; what was
asked of one that is gone gets no answer at all. Whoever waits must not wait for ever.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from ackd.core.ids import TopicPartition
from ackd.errors import BrokerError
from ackd_adapters.kafka import admin
from ackd_adapters.kafka.admin import LATEST, AdminQuestions
from ackd_adapters.kafka.config import KafkaOptions
from tests.support.serving import serving


@contextlib.asynccontextmanager
async def silent() -> AsyncIterator[str]:
    """Somebody who takes what comes and never answers."""

    async def take(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with serving(take) as port:
        yield f"127.0.0.1:{port}"


async def test_what_was_asked_of_a_client_that_is_gone_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admin, "ANSWER_S", 0.5)
    async with silent() as address:
        options = KafkaOptions(bootstrap_servers=address, request_timeout_ms=1_000)
        questions = AdminQuestions(options)
        await questions.start()

        async def close() -> None:
            questions.close()

        async with asyncio.timeout(20):
            found, _ = await asyncio.gather(
                questions.offset(TopicPartition("some", 0), LATEST), close(), return_exceptions=True
            )
    assert isinstance(found, BrokerError)
    assert str(found) == "offset of some/0: no answer in time"
