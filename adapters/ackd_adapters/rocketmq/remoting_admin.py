"""What ackd asks name servers and brokers themselves: where a topic lies, its first and end
offsets, its messages by offset; and topics and groups, which the gRPC proxies can't make.

The remoting port of a proxy in cluster mode may stand in for the name servers: it answers all but
what makes or shows topics and groups.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ackd.errors import BrokerError
from ackd_adapters.rocketmq.client import expression
from ackd_adapters.rocketmq.config import RocketMQOptions, name_servers
from ackd_adapters.rocketmq.protocol.definition_pb2 import FilterType
from ackd_adapters.rocketmq.remoting import (
    SUCCESS,
    TOPIC_NOT_EXIST,
    Remoting,
    RemotingAnswer,
    ensure,
)
from ackd_adapters.rocketmq.remoting_message import LogMessage, stored_messages
from ackd_adapters.rocketmq.rpc import UNREACHABLE

PULL: Final = 11
CONSUMED: Final = 14
MAKE_TOPIC: Final = 17
OFFSET_AT: Final = 29
END_OFFSET: Final = 30
FIRST_OFFSET: Final = 31
ROUTE: Final = 105
BROKERS: Final = 106
MAKE_GROUP: Final = 200
TOPIC_SETTINGS: Final = 351
ALL_GROUPS: Final = 201

PULL_MAX: Final = 32
_READ: Final = 1 << 2
_NO_OFFSET: Final = 22
_NOT_FOUND, _AGAIN, _MOVED = 19, 20, 21
_SUSPEND, _SUBSCRIPTION = 1 << 1, 1 << 2
_NUMBERS: Final = re.compile(r'"(?:[^"\\]|\\.)*"|(?<=[{,])(\d+)(?=:)')
_PREFIXES: Final = ("%RETRY%", "%DLQ%")

OFF: Final = (
    "RocketMQ's proxies know no positions and make neither topics nor groups: set the option "
    "`name_servers` of this broker"
)


class LogQueue(NamedTuple):
    """A queue of a topic and where its broker's master is."""

    topic: str
    broker: str
    address: str
    number: int


class Pulled(NamedTuple):
    """Messages from an offset on, and the offset to go on with."""

    messages: list[LogMessage]
    next_offset: int
    first: int
    end: int


class RemotingAdmin:
    """Asks over a `Remoting`. `start` it before, `close` it after. Calls raise BrokerError."""

    def __init__(self, options: RocketMQOptions) -> None:
        self._options = options
        self._remoting = Remoting(options)
        self._now = 0

    @property
    def on(self) -> bool:
        """Whether the options say where name servers are."""
        return bool(self._options.name_servers)

    async def start(self) -> None:
        """Read the secrets; connections are made when they are needed. Raises ConfigError."""
        if self.on:
            await self._remoting.start()

    async def close(self) -> None:
        """Never raises."""
        await self._remoting.close()

    def full(self, name: str) -> str:
        """A topic's or group's name with the namespace, as brokers know it."""
        space = self._options.namespace
        if not space:
            return name
        for prefix in _PREFIXES:
            if name.startswith(prefix):
                return f"{prefix}{space}%{name.removeprefix(prefix)}"
        return f"{space}%{name}"

    # --- name servers

    async def names(
        self, code: int, fields: Mapping[str, str], body: bytes = b""
    ) -> RemotingAnswer:
        """Ask a name server; when one can't be reached, the next."""
        if not self.on:
            raise BrokerError(OFF, code="NAME_SERVERS_NOT_SET")
        known = name_servers(self._options)
        for left in reversed(range(len(known))):
            try:
                return await self._remoting.call(known[self._now % len(known)], code, fields, body)
            except BrokerError:
                self._now += 1
                if not left:
                    raise
        raise BrokerError("name_servers names nobody", code=UNREACHABLE)

    async def queues(self, topic: str) -> list[LogQueue]:
        """The readable queues of a topic by broker and number; empty: no such topic."""
        fields = {"topic": self.full(topic), "acceptStandardJsonOnly": "true"}
        answer = await self.names(ROUTE, fields)
        if answer.code == TOPIC_NOT_EXIST:
            return []
        found = object_in(ensure(f"route of {topic}", answer))
        masters = _masters(found.get("brokerDatas", []))
        queues = [
            LogQueue(topic, each["brokerName"], masters[each["brokerName"]], number)
            for each in found.get("queueDatas", [])
            if each["perm"] & _READ and each["brokerName"] in masters
            for number in range(each["readQueueNums"])
        ]
        return sorted(queues, key=lambda each: (each.broker, each.number))

    async def brokers(self) -> dict[str, str]:
        """The addresses of all masters by name of the broker. No proxy answers this."""
        answer = ensure("brokers", await self.names(BROKERS, {}))
        return _masters(object_in(answer).get("brokerAddrTable", {}).values())

    # --- brokers

    async def ask(
        self,
        at: LogQueue,
        code: int,
        fields: Mapping[str, str],
        body: bytes = b"",
        *,
        wait_ms: int = 0,
    ) -> RemotingAnswer:
        """Ask the queue's broker anything about the queue; `fields` are what only this question
        has.
        """
        made = {
            "topic": self.full(at.topic),
            "queueId": str(at.number),
            "bname": at.broker,  # a proxy asks that broker
            **fields,
        }
        return await self._remoting.call(at.address, code, made, body, wait_ms=wait_ms)

    async def range(self, at: LogQueue) -> tuple[int, int]:
        """First and end offset of a queue."""
        first = ensure("first offset", await self.ask(at, FIRST_OFFSET, {}))
        end = ensure("end offset", await self.ask(at, END_OFFSET, {}))
        return _number(first, "offset"), _number(end, "offset")

    async def offset_at(self, at: LogQueue, time_ms: int) -> int:
        """The first offset of a message that was stored at this Unix time or later; the end
        when there is none.
        """
        fields = {"timestamp": str(time_ms), "boundaryType": "LOWER"}
        return _number(ensure("offset at a time", await self.ask(at, OFFSET_AT, fields)), "offset")

    async def consumed(self, group: str, at: LogQueue) -> int:
        """Up to which offset the group's ordinary consumers have confirmed the queue; 0 when they
        never have.
        """
        fields = {"consumerGroup": self.full(group), "setZeroIfNotFound": "false"}
        answer = await self.ask(at, CONSUMED, fields)
        if answer.code == _NO_OFFSET:
            return 0
        return max(_number(ensure("offset of a group", answer), "offset"), 0)

    async def pull(
        self,
        group: str,
        at: LogQueue,
        offset: int,
        *,
        most: int = PULL_MAX,
        wait_ms: int = 0,
        filter: str = "",  # noqa: A002 -- its name everywhere
    ) -> Pulled:
        """Messages from this offset on that pass the filter, at least one unless there is none
        there now. Nothing is noted for the group, which only has to exist.
        """
        wanted = expression(filter)
        fields = {
            "consumerGroup": self.full(group),
            "queueOffset": str(offset),
            "maxMsgNums": str(min(most, PULL_MAX)),
            "sysFlag": str(_SUBSCRIPTION | (_SUSPEND if wait_ms else 0)),
            "commitOffset": "0",
            "suspendTimeoutMillis": str(wait_ms),
            "subscription": wanted.expression,
            "subVersion": "0",
            "expressionType": "SQL92" if wanted.type == FilterType.SQL else "TAG",
        }
        answer = await self.ask(at, PULL, fields, wait_ms=wait_ms)
        if answer.code not in (SUCCESS, _NOT_FOUND, _AGAIN, _MOVED):
            ensure(f"pull from {at.topic}", answer)
        first, end = _number(answer, "minOffset"), _number(answer, "maxOffset")
        found: list[LogMessage] = []
        if answer.code == SUCCESS:
            found = stored_messages(answer.body, self._options.message_bytes_max)
        return Pulled(found, _number(answer, "nextBeginOffset"), first, end)

    # --- topics and groups

    async def make_topic(self, topic: str, queues: int, kind: str = "NORMAL") -> None:
        """Make a topic on the first broker by name. One that exists would be changed: ask
        before. `kind`: NORMAL, FIFO, DELAY, TRANSACTION or MIXED.
        """
        brokers = await self.brokers()
        if not brokers:
            raise BrokerError("no broker is registered", code=UNREACHABLE)
        name = min(brokers)
        fields = {
            "topic": self.full(topic),
            "defaultTopic": "TBW102",
            "readQueueNums": str(queues),
            "writeQueueNums": str(queues),
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": str(kind == "FIFO").lower(),
            "attributes": f"+message.type={kind}",
        }
        answer = await self._remoting.call(brokers[name], MAKE_TOPIC, fields)
        ensure(f"making topic {topic}", answer)

    async def group_settings(self, group: str) -> dict[str, dict[str, Any]]:
        """The settings of a group on each broker, by the broker's names; without those that do
        not know it.

        A question for one group would make it there, with the broker's defaults.
        """
        found: dict[str, dict[str, Any]] = {}
        for name, address in (await self.brokers()).items():
            answer = await self._remoting.call(address, ALL_GROUPS, {})
            groups = object_in(ensure("groups", answer)).get("subscriptionGroupTable", {})
            if self.full(group) in groups:
                found[name] = groups[self.full(group)]
        return found

    async def make_group(self, group: str, *, retries: int, orderly: bool) -> list[str]:
        """Make a group on those brokers that do not know it; returns their names. A group that
        exists is left as it is.
        """
        there = await self.group_settings(group)
        made: list[str] = []
        settings = {
            "groupName": self.full(group),
            "consumeEnable": True,
            "consumeMessageOrderly": orderly,
            "retryMaxTimes": retries,
        }
        for name, address in (await self.brokers()).items():
            if name not in there:
                body = json.dumps(settings).encode()
                answer = await self._remoting.call(address, MAKE_GROUP, {}, body)
                ensure(f"making group {group}", answer)
                made.append(name)
        return made


def _masters(brokers: Any) -> dict[str, str]:
    """The address of each broker's master. JSON has numbers of brokers as texts."""
    return {
        each["brokerName"]: each["brokerAddrs"]["0"]
        for each in brokers
        if "0" in each["brokerAddrs"]
    }


def object_in(answer: RemotingAnswer) -> dict[str, Any]:
    """The JSON of an answer. Raises BrokerError."""
    try:
        found = json.loads(_NUMBERS.sub(_quoted, answer.body.decode()))
    except ValueError as error:
        raise BrokerError(f"an answer that is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise BrokerError("an answer that is no JSON object")
    return found


def _quoted(match: re.Match[str]) -> str:
    """Name servers write numbers as names without quotes in some answers."""
    number = match[1]
    return match[0] if number is None else f'"{number}"'


def _number(answer: RemotingAnswer, name: str) -> int:
    try:
        return int(answer.fields[name])
    except (KeyError, ValueError):
        raise BrokerError(f"an answer without {name}: {answer.remark[:200]}") from None
