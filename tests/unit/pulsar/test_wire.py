"""The connection that reads metadata: look-ups, broken frames, entries that are gone (R31)."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from random import Random

import pytest

from ackd.errors import BrokerError
from ackd_adapters.pulsar import wire
from ackd_adapters.pulsar.entries import PERMITS, EntryFollower
from ackd_adapters.pulsar.heads import MESSAGE, HeadReader, Heads, Place
from ackd_adapters.pulsar.protobuf import Fields, decode, encode, number, octets
from ackd_adapters.pulsar.wire import FRAME_BYTES_MAX, ClusterAccess, reader_on

Command = tuple[int, Fields]
SEED = 2311
TOPIC = "persistent://a/b/c"
CONNECTED: Command = (wire.CONNECTED, {1: b"fake"})
FOUND = 1


def frame(kind: int, fields: Fields, behind: bytes = b"") -> bytes:
    command = encode({1: kind, kind: encode(fields)})
    size = len(command) + 4 + len(behind)
    return size.to_bytes(4, "big") + len(command).to_bytes(4, "big") + command + behind


def entry(at: int, due_ms: int = 0, messages: int = 1, *, ledger: int = 7) -> bytes:
    """A message as the broker sends it: magic, checksum, metadata, payload."""
    said: Fields = {1: b"p", 2: at, 3: 1, 4: encode({1: b"k", 2: b"v"}), 11: messages}
    if due_ms:
        said[19] = due_ms
    metadata = encode(said)
    behind = b"\x0e\x01" + b"\0" * 4 + len(metadata).to_bytes(4, "big") + metadata + b"payload"
    return frame(MESSAGE, {1: 1, 2: encode({1: ledger, 2: at})}, behind)


class Broker:
    """Answers a connection's commands by a function of its own."""

    def __init__(self, answer: Callable[["Broker", int, Fields], bytes]) -> None:
        self.answer = answer
        self.heard: list[Command] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def url(self) -> str:
        return f"pulsar://127.0.0.1:{self._server.getsockname()[1]}"

    def _accept(self) -> None:
        while True:
            try:
                link, _ = self._server.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._serve, args=(link,), daemon=True))
            self._threads[-1].start()

    def _serve(self, link: socket.socket) -> None:
        with link, link.makefile("rb") as reading:
            while len(sizes := reading.read(8)) == 8:
                size = int.from_bytes(sizes[:4], "big") - 4
                command = decode(reading.read(size))
                kind = number(command, 1)
                fields = decode(octets(command, kind))
                self.heard.append((kind, fields))
                said = self.answer(self, kind, fields)
                # In pieces, as a network may do it.
                for start in range(0, len(said), 7):
                    link.sendall(said[start : start + 7])

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for each in self._threads:
            each.join(20)


def plain(entries: bytes) -> Callable[[Broker, int, Fields], bytes]:
    """Serves the topic itself; sends `entries` for the first permits."""

    def answer(broker: Broker, kind: int, _: Fields) -> bytes:
        if kind == wire.CONNECT:
            return frame(*CONNECTED)
        if kind == wire.LOOKUP:
            return frame(wire.LOOKUP_ANSWER, {1: broker.url.encode(), 3: FOUND, 4: 1})
        if kind == wire.SUBSCRIBE:
            return frame(wire.PING, {}) + frame(wire.SUCCESS, {1: 2})
        first = sum(each[0] == wire.FLOW for each in broker.heard) == 1
        return entries if kind == wire.FLOW and first else b""

    return answer


@contextmanager
def served(*answers: Callable[[Broker, int, Fields], bytes]) -> Iterator[list[Broker]]:
    brokers = [Broker(each) for each in answers]
    try:
        yield brokers
    finally:
        for each in brokers:
            each.close()


def access(url: str, timeout_s: float = 20.0) -> ClusterAccess:
    return ClusterAccess(url, None, lambda: ("token", "s3cret"), timeout_s)


def yes() -> bool:
    return True


def soon() -> float:
    return time.monotonic() + 20


def at(number: int) -> Place:
    return 7, number


def test_due_times_are_found_in_one_reading() -> None:
    sent = b"".join(entry(number, 5_000 + number if number % 3 == 0 else 0) for number in range(50))
    with served(plain(sent)) as (broker,):
        follows = EntryFollower(access(broker.url), TOPIC)
        assert follows.due(at(2), at(4), soon(), yes) == {(7, 3): 5_003}
        assert follows.due(at(5), at(30), soon(), yes) == {
            (7, number): 5_000 + number for number in range(6, 31, 3)
        }
        follows.close()
        kinds = [kind for kind, _ in broker.heard]
        assert kinds.count(wire.SUBSCRIBE) == 1
        assert wire.PONG in kinds
        said = dict(broker.heard)[wire.CONNECT]
        assert (said[5], said[3]) == (b"token", b"s3cret")
        wanted = dict(broker.heard)[wire.SUBSCRIBE]
        assert decode(octets(wanted, 9)) == {1: 7, 2: 1}, "from behind the entry before it"


def test_permits_are_given_back_by_the_messages_of_a_batch() -> None:
    sent = entry(0, messages=400) + entry(1, messages=400) + entry(2, 9)
    with served(plain(sent)) as (broker,):
        follows = EntryFollower(access(broker.url), TOPIC)
        assert follows.due(at(0), at(2), soon(), yes) == {(7, 2): 9}
        follows.close()
        given = [fields[2] for kind, fields in broker.heard if kind == wire.FLOW]
        assert given[0] == PERMITS
        assert given[1:] in ([800], [])  # the last one may not have arrived yet


def test_an_entry_that_is_gone_is_passed_and_an_entry_far_away_asks_anew() -> None:
    with served(plain(entry(1) + entry(4, 8))) as (broker,):
        follows = EntryFollower(access(broker.url), TOPIC)
        assert follows.due(at(1), at(3), soon(), yes) == {}
        assert follows.due(at(5_000), at(5_000), soon(), lambda: False) == {}
        follows.close()
        assert sum(kind == wire.SUBSCRIBE for kind, _ in broker.heard) == 2


def test_look_ups_lead_to_the_broker_that_serves_the_topic() -> None:
    """The first server of the address is down, the second sends on, the third serves."""

    def sends_on(_: Broker, kind: int, __: Fields) -> bytes:
        if kind == wire.CONNECT:
            return frame(*CONNECTED)
        there = brokers[1].url.encode()
        return frame(wire.LOOKUP_ANSWER, {1: there, 3: 0, 4: 1, 5: 1})

    with served(sends_on, plain(entry(0, 3))) as brokers:
        closed = socket.create_server(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        closed.close()
        url = f"pulsar://127.0.0.1:{port},{brokers[0].url.removeprefix('pulsar://')}"
        follows = EntryFollower(access(url), TOPIC)
        assert follows.due(at(0), at(0), soon(), yes) == {(7, 0): 3}
        follows.close()
        asked = [fields for kind, fields in brokers[1].heard if kind == wire.LOOKUP]
        assert number(asked[0], 3) == 1, "the one that was sent to decides"


def test_behind_a_proxy_all_goes_through_the_proxy() -> None:
    serving = plain(entry(0, 3))

    def proxy(broker: Broker, kind: int, fields: Fields) -> bytes:
        if kind == wire.LOOKUP:
            return frame(wire.LOOKUP_ANSWER, {1: b"pulsar://inside:6650", 3: FOUND, 4: 1, 8: 1})
        return serving(broker, kind, fields)

    with served(proxy) as (broker,):
        follows = EntryFollower(access(broker.url), TOPIC)
        assert follows.due(at(0), at(0), soon(), yes) == {(7, 0): 3}
        follows.close()
        shakes = [fields for kind, fields in broker.heard if kind == wire.CONNECT]
        assert [octets(each, 6) for each in shakes] == [b"", b"inside:6650"]


@pytest.mark.parametrize(
    ("said", "match"),
    [
        ((FRAME_BYTES_MAX + 1).to_bytes(4, "big") + b"\0" * 4, "a frame of"),
        (b"\0\0\0\6\0\0\0\2\xff\xff", "can't be read"),
        (frame(wire.ERROR, {1: 1, 2: 4, 3: b"not authorized"}), "not authorized"),
        (frame(wire.CLOSE_CONSUMER, {1: 1, 2: 5}), "closed the reader"),
        (b"", "in time"),
    ],
)
def test_i1_what_breaks_is_an_error_and_the_next_question_begins_anew(
    said: bytes, match: str
) -> None:
    with served(plain(said)) as (broker,):
        follows = EntryFollower(access(broker.url), TOPIC)
        with pytest.raises(BrokerError, match=match):
            follows.due(at(0), at(0), time.monotonic() + (20 if said else 0.3), yes)
        broker.heard.clear()
        broker.answer = plain(entry(0, 3))
        assert follows.due(at(0), at(0), soon(), yes) == {(7, 0): 3}
        follows.close()


@pytest.mark.parametrize("kind", [wire.CONNECT, wire.LOOKUP, wire.SUBSCRIBE])
def test_who_is_refused_is_told_and_who_gets_no_answer_is_not_held_up(kind: int) -> None:
    serving = plain(b"")
    refused = frame(wire.ERROR, {1: 1, 2: 4, 3: b"no right"})

    def refuses(answer: bytes, broker: Broker, heard: int, fields: Fields) -> bytes:
        return answer if heard == kind else serving(broker, heard, fields)

    for answer, match in ((refused, "no right"), (b"", "does not answer")):
        with served(partial(refuses, answer)) as (broker,), pytest.raises(BrokerError, match=match):
            reader_on(TOPIC, access(broker.url, 0.5), after=(7, -1), name="r")


def test_a_head_without_checksum() -> None:
    metadata = encode({1: b"p", 2: 1, 3: 1, 19: 77})
    behind = len(metadata).to_bytes(4, "big") + metadata
    sent = frame(MESSAGE, {1: 1, 2: encode({1: 7, 2: 0})}, behind)
    with served(plain(sent)) as (broker,):
        made = reader_on(TOPIC, access(broker.url), after=(7, -1), name="r")
        made.tell(wire.FLOW, {1: 1, 2: 1})
        assert made.next_heads(soon(), yes) == Heads(1, (7, 0), {(7, 0): 77})
        made.close()


def read_all(sent: bytes) -> Heads | None:
    return HeadReader().read(bytearray(sent), 0)[1]


def test_heads_are_read_whatever_their_commands_look_like() -> None:
    """Numbers of one to five bytes, other ledgers, ids with more fields, several in a buffer: all
    are compared with the command before, and none may be taken for another one.
    """
    random = Random(SEED)
    places = sorted(
        (random.choice((7, 8, 300, 1 << 30)), random.randrange(1 << random.choice((3, 8, 15, 33))))
        for _ in range(3_000)
    )
    sent, due_ms, messages = b"", {}, 0
    for ledger, at_entry in dict.fromkeys(places):
        more: Fields = {3: random.randrange(3)} if random.random() < 0.3 else {}
        place = encode({1: ledger, 2: at_entry, **more})
        said: Fields = {1: b"XX\x98\x01" * random.randrange(3), 2: random.randrange(1 << 20), 3: 1}
        if random.random() < 0.2:
            said[4] = encode({1: b"X", 2: b"\x98\x01X"})
        count = random.choice((1, 1, 1, 32))
        if count > 1:
            said[11] = count
        if random.random() < 0.1:
            due_ms[ledger, at_entry] = said[19] = random.randrange(1, 1 << 41)
        metadata = encode(said)
        behind = len(metadata).to_bytes(4, "big") + metadata + b"payload \x98\x01X"
        behind = b"\x0e\x01" + b"\0" * 4 + behind if random.random() < 0.5 else behind
        fields: Fields = {1: 1, 2: place}
        if random.random() < 0.2:
            fields[3] = 5
        sent += frame(MESSAGE, fields, behind)
        messages += count
    assert read_all(sent) == Heads(messages, places[-1], due_ms)
    assert len(due_ms) > 100


def test_heads_before_one_that_can_not_be_read_count() -> None:
    """Nor does a frame that is no entry, or has not come as a whole, hold up what is before it."""
    sent = entry(0) + entry(1, 9)
    broken = frame(MESSAGE, {1: 1, 2: encode({1: 7, 2: 2})}, b"\xff\xff\xff\xff")
    reader = HeadReader()
    for behind in (broken, frame(wire.PING, {}), entry(2)[:-1], b"\0\0"):
        data = bytearray(sent + behind)
        assert reader.read(data, 0) == (len(sent), Heads(2, (7, 1), {(7, 1): 9}))
        if behind == broken:
            with pytest.raises(ValueError, match="longer"):
                reader.read(data, len(sent))
        else:
            assert reader.read(data, len(sent)) == (len(sent), None)
