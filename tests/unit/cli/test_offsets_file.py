"""Files of progress: ackd's export, and what RocketMQ's clients write."""

import json

import pytest

from ackd.cli.offline.offsets_file import read_progress
from ackd.errors import ConfigError

PRETTY = """{
\t"offsetTable":{{
\t\t\t"brokerName":"broker-a",
\t\t\t"queueId":1,
\t\t\t"topic":"orders"
\t\t}:1234,{
\t\t\t"brokerName":"broker-a",
\t\t\t"queueId":0,
\t\t\t"topic":"orders"
\t\t}:7
\t}
}"""
EXPECTED = [
    {"topic": "orders", "partition": 0, "offset": 7},
    {"topic": "orders", "partition": 1, "offset": 1234},
]


def queue(broker: str, number: int, topic: str = "orders") -> str:
    """A key."""
    return json.dumps({"topic": topic, "brokerName": broker, "queueId": number})


def table(*entries: str) -> str:
    """A file without spaces."""
    return '{"offsetTable":{' + ",".join(entries) + "}}"


@pytest.mark.parametrize(
    "text",
    [
        PRETTY,
        table(f"{queue('broker-a', 1)}:1234", f"{queue('broker-a', 0)}:7"),
        table(
            f"{json.dumps(queue('b', 0))}:7",
            f"{json.dumps(queue('b', 1))}:1234",
            f"{queue('b', 2)}:-1",
        ),
    ],
)
def test_keys_that_are_objects(text: str) -> None:
    assert read_progress(text)["partitions"] == EXPECTED


def test_queues_of_several_brokers_are_not_mixed_up() -> None:
    text = table(f"{queue('a', 0)}:7", f"{queue('b', 0)}:9", f"{queue('a', 1)}:1234")
    with pytest.raises(ConfigError, match="a, b: say --broker"):
        read_progress(text)
    assert read_progress(text, "a")["partitions"] == EXPECTED
    with pytest.raises(ConfigError, match="no progress of c"):
        read_progress(text, "c")


def test_an_export_is_taken_as_it_is() -> None:
    export = {"version": 1, "partitions": EXPECTED}
    assert read_progress(json.dumps(export)) == export


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "no",
        '{"offsetTable":7}',
        '{"offsetTable":{{}:1}}',
        '{"offsetTable":{{"topic":"a"}:1}}',
        table(queue("a", 0)),
        table(f"{queue('a', 0)}:true"),
        table(f"{queue('a', 0)}:1")[:-2],
        '{"offsetTable":{"x":1}}',
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="neither an export"):
        read_progress(text)


def test_an_empty_table_holds_no_progress() -> None:
    with pytest.raises(ConfigError, match="holds no progress"):
        read_progress('{"offsetTable":{}}')
