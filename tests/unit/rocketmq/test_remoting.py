"""The remoting client against a server that says what a test wants: late, wrong, cut and huge."""

import asyncio
import json
import struct
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackd.errors import BrokerError, ConfigError
from ackd_adapters.rocketmq import remoting
from ackd_adapters.rocketmq.config import RocketMQOptions, check
from ackd_adapters.rocketmq.remoting import Remoting, decode, signature
from ackd_adapters.rocketmq.remoting_admin import RemotingAdmin
from ackd_adapters.rocketmq.remoting_message import stored_messages
from tests.support.rocketmq.frames import answer, message, question

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def options(names: str = "", timeout_ms: int = 60_000) -> RocketMQOptions:
    """`names`: name servers."""
    return RocketMQOptions(
        endpoints="127.0.0.1:1", name_servers=names, request_timeout_ms=timeout_ms
    )


@asynccontextmanager
async def server(serve: Serve) -> AsyncIterator[str]:
    """The address of a server that does this with each connection, then waits for its end."""
    open_: dict[asyncio.Task[None], None] = {}

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        open_[task] = None
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                await serve(reader, writer)
                await reader.read()
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    started = await asyncio.start_server(handle, "127.0.0.1", 0)
    host, port = started.sockets[0].getsockname()
    try:
        yield f"{host}:{port}"
    finally:
        started.close()
        for task in open_:
            task.cancel()
        await asyncio.gather(*open_, return_exceptions=True)


@asynccontextmanager
async def client(made: RocketMQOptions | None = None) -> AsyncIterator[Remoting]:
    """A started one."""
    found = Remoting(made or options())
    await found.start()
    try:
        yield found
    finally:
        await found.close()


async def test_answers_come_in_any_order_and_each_gets_its_own() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = [await question(reader) for _ in range(20)]
        for each in reversed(asked):
            writer.write(answer(each["opaque"], fields={"echo": each["extFields"]["which"]}))

    async with server(serve) as address, client() as it:
        found = await asyncio.gather(
            *(it.call(address, 30, {"which": str(number)}) for number in range(20))
        )
    assert [each.fields["echo"] for each in found] == [str(number) for number in range(20)]


async def test_a_late_answer_is_nobodys() -> None:
    """The one that gave up is not answered, and the next one gets no answer of another."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first, second = await question(reader), await question(reader)
        writer.write(answer(first["opaque"], fields={"of": "first"}))
        writer.write(answer(second["opaque"], fields={"of": "second"}))

    async with server(serve) as address, client(options(timeout_ms=200)) as it:
        with pytest.raises(BrokerError) as late:
            await it.call(address, 30, {})
        found = await it.call(address, 30, {})
    assert late.value.facts["code"] == "NO_ANSWER"
    assert found.fields == {"of": "second"}


async def test_a_connection_that_ends_fails_all_who_wait_and_the_next_call_opens_another() -> None:
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        first = await question(reader)
        if connections == 1:
            await question(reader)
            writer.close()  # and `serve` goes on to wait
            return
        writer.write(answer(first["opaque"]))

    async with server(serve) as address, client() as it:
        cut = await asyncio.gather(
            it.call(address, 30, {}), it.call(address, 31, {}), return_exceptions=True
        )
        assert [type(each) for each in cut] == [BrokerError, BrokerError]
        assert (await it.call(address, 30, {})).code == 0
    assert connections == 2


@pytest.mark.parametrize(
    "sent",
    [
        struct.pack(">I", 1 << 31),
        struct.pack(">II", 4, 9),
        struct.pack(">II", 6, 2) + b"{]",
        struct.pack(">II", 6, 2) + b"[]",
        struct.pack(">II", 6, 1 << 24 | 2) + b"{}",
        struct.pack(">I", 0),
    ],
)
async def test_no_frame_is_an_error_and_no_crash(sent: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await question(reader)
        writer.write(sent)

    async with server(serve) as address, client() as it:
        with pytest.raises(BrokerError):
            await it.call(address, 30, {})


async def test_a_question_of_the_broker_is_passed_over() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await question(reader)
        writer.write(answer(asked["opaque"], flag=0))
        writer.write(answer(asked["opaque"], fields={"mine": "yes"}))

    async with server(serve) as address, client() as it:
        assert (await it.call(address, 30, {})).fields == {"mine": "yes"}


async def test_a_name_server_that_is_away_gives_way_to_the_next() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            asked = await question(reader)
            writer.write(answer(asked["opaque"], code=17, remark="no such topic"))

    async with server(serve) as address:
        it = RemotingAdmin(options(f"127.0.0.1:1;{address}"))
        await it.start()
        assert await it.queues("nothing") == []
        await it.close()


async def test_name_servers_write_numbers_as_names_and_texts_stay_as_they_are() -> None:
    body = (
        b'{"brokerAddrTable":{"a":{"brokerAddrs":{0:"10.0.0.1:1",1:"10.0.0.2:1"},'
        b'"brokerName":"a{7:b"},"c":{"brokerAddrs":{1:"10.0.0.3:1"},"brokerName":"c"}}}'
    )

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await question(reader)
        writer.write(answer(asked["opaque"], body=body))

    async with server(serve) as address:
        it = RemotingAdmin(options(address))
        await it.start()
        assert await it.brokers() == {"a{7:b": "10.0.0.1:1"}
        await it.close()


async def test_without_name_servers_the_option_is_named() -> None:
    it = RemotingAdmin(options())
    await it.start()
    with pytest.raises(BrokerError, match="`name_servers`") as refused:
        await it.queues("topic")
    assert refused.value.facts["code"] == "NAME_SERVERS_NOT_SET"
    await it.close()


def test_an_address_that_is_none_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match="name_servers: nowhere is not host:port"):
        check(options("127.0.0.1:9876;nowhere"))


def test_names_get_the_namespace_where_brokers_have_it() -> None:
    made = RocketMQOptions(endpoints="127.0.0.1:1", namespace="shop")
    full = RemotingAdmin(made).full
    assert [full("orders"), full("%DLQ%work"), full("%RETRY%work")] == [
        "shop%orders",
        "%DLQ%shop%work",
        "%RETRY%shop%work",
    ]


def test_the_signature_covers_the_fields_by_name_and_the_body() -> None:
    """Worked out with Java's `AclUtils`."""
    made = signature("tests-secret-key", {"b": "2", "AccessKey": "tests", "a": "1"}, b"body")
    assert made == signature(
        "tests-secret-key", {"a": "1", "AccessKey": "tests", "b": "2"}, b"body"
    )
    assert made != signature(
        "tests-secret-key", {"a": "2", "AccessKey": "tests", "b": "1"}, b"body"
    )
    assert made != signature("tests-secret-key", {"a": "1", "AccessKey": "tests", "b": "2"}, b"")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_frame_or_a_value_error(data: bytes) -> None:
    with suppress(ValueError):
        decode(data)


@given(st.binary(max_size=400))
def test_any_bytes_are_messages_or_a_broker_error(data: bytes) -> None:
    with suppress(BrokerError):
        stored_messages(data, 1_000)


@given(st.data())
def test_a_message_with_any_byte_changed_is_a_message_or_a_broker_error(
    data: st.DataObject,
) -> None:
    whole = bytearray(message(b"body" * 9, {"UNIQ_KEY": "id", "color": "red"}))
    whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with suppress(BrokerError):
        stored_messages(bytes(whole), 1_000)


@pytest.mark.parametrize("long_topic", [False, True])
@pytest.mark.parametrize("v6", [False, True])
def test_a_message_in_all_its_forms(*, v6: bool, long_topic: bool) -> None:
    properties = {"UNIQ_KEY": "id", "KEYS": "k1 k2", "TAGS": "t", "color": "red=\n1"}
    topic = "t" * 300 if long_topic else "orders"
    made = message(
        b"body", properties, topic=topic, offset=7, queue=3, v6=v6, attempts=2, place=1 << 40
    )
    [one, two] = stored_messages(made + made, 1_000)
    assert one == two
    found = one.message
    assert (found.topic, found.queue, found.offset, found.body) == (topic, 3, 7, b"body")
    assert (found.message_id, found.keys, found.tag) == ("id", ("k1", "k2"), "t")
    assert found.properties == {"color": "red=\n1"}
    assert (one.place, one.attempts) == (1 << 40, 2)


def test_a_packed_body_is_unpacked_up_to_the_bound() -> None:
    packed = message(zlib.compress(b"x" * 1_000), {"UNIQ_KEY": "id"}, flags=1)
    assert stored_messages(packed, 1_000)[0].message.body == b"x" * 1_000
    with pytest.raises(BrokerError, match="too large"):
        stored_messages(packed, 999)
    with pytest.raises(BrokerError, match="Zstandard"):
        stored_messages(message(b"", {}, flags=1 | 2 << 8), 1_000)


async def test_connections_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remoting, "LINKS_MAX", 2)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer((await question(reader))["opaque"]))

    async with server(serve) as one, server(serve) as two, server(serve) as three, client() as it:
        for address in (one, two, three):
            assert (await it.call(address, 30, {})).code == 0
        assert len(it._links) == 2


def test_a_request_is_json_that_a_broker_reads() -> None:
    frame = remoting.encode(11, 5, {"topic": "orders"}, b"body")
    length, header = struct.unpack_from(">II", frame)
    assert length == len(frame) - 4
    assert json.loads(frame[8 : 8 + header])["extFields"] == {"topic": "orders"}
    assert frame[8 + header :] == b"body"
