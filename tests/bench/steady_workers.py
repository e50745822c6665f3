"""Workers of 20 ms, one message at a time: beside sidecars, or on a broker's own client.

`python -m tests.bench.steady_workers KIND ADDRESS TOPIC GROUP COUNT SECONDS`: KIND `ackd` (ADDRESS:
the ports of the sidecars, GROUP: the subscription; a receive and a settle over HTTP for each
message), `kafka` (a share group, one record a poll, accepted before the next) or `pulsar` (a
Shared subscription, no queue of messages in the client, each message acked by itself). Prints
`begun` after all have been at it for a while, and then how many messages each did within the
seconds, as JSON. Ends with 1 if one of them fails.

Each is a thread that sleeps as exactly as the kernel does: timers of an event loop with other work
end up to 1 ms late (`epoll` counts in ms). They begin one after another, as workers do that don't
know each other: ten that begin at once ask at once for as long as each takes equally long.
"""

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable

import confluent_kafka
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from tests.bench.load import LEASE, LENGTH, settle_items
from tests.support.pulsar import bare

WORK_S = 0.02
WARM_S = 10.0
RECEIVE = b'{"max":1,"wait_ms":1000}'


class Workers:
    """Counts what each does while it counts."""

    def __init__(self, count: int, seconds: float) -> None:
        self.done = [0] * count
        self._begin_s = time.monotonic() + WARM_S
        self._end_s = self._begin_s + seconds

    def run(self, work: Callable[[int], None]) -> None:
        """Each in a thread."""
        threads = [threading.Thread(target=work, args=(n,)) for n in range(len(self.done))]
        for each in threads:
            each.start()
            time.sleep(WORK_S / len(threads))
        time.sleep(max(self._begin_s - time.monotonic(), 0))
        sys.stdout.write("begun\n")
        sys.stdout.flush()
        for each in threads:
            each.join()

    @property
    def over(self) -> bool:
        """Whether the time is."""
        return time.monotonic() > self._end_s

    def did(self, number: int) -> None:
        """One message, its work and its ack."""
        if self._begin_s < time.monotonic() < self._end_s:
            self.done[number] += 1


class Asked:
    """One keep-alive connection to a sidecar."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def post(self, path: str, body: bytes) -> bytes:
        """The whole answer, head and body."""
        head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        self._socket.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        answer, wanted = bytearray(), -1
        while wanted < 0 or len(answer) < wanted:
            some = self._socket.recv(65_536)
            if not some:
                raise ConnectionResetError
            answer += some
            end = answer.find(b"\r\n\r\n")
            if end >= 0:
                found = LENGTH.search(answer, 0, end)
                wanted = end + 4 + (int(found[1]) if found else 0)
        return bytes(answer)


def ackd(address: str, topic: str, group: str, workers: Workers) -> None:
    """Beside each of these sidecars one."""
    del topic
    ports = [int(each) for each in address.split(",")]

    def work(number: int) -> None:
        sidecar = Asked(ports[number])
        while not workers.over:
            held = LEASE.findall(sidecar.post(f"/v1/subscriptions/{group}/receive", RECEIVE))
            if held:
                time.sleep(WORK_S)
                items = b'{"items":' + settle_items(held) + b"}"
                answer = sidecar.post("/v1/settle", items)
                if answer.count(b'"acked"') != len(held):
                    raise RuntimeError(f"not acked: {answer!r}")
                workers.did(number)

    workers.run(work)


def kafka(address: str, topic: str, group: str, workers: Workers) -> None:
    """A share group that starts at the first message."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    earliest = ConfigEntry(
        "share.auto.offset.reset",
        "earliest",
        incremental_operation=AlterConfigOpType.SET,
    )
    resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=[earliest])
    for each in admin.incremental_alter_configs([resource]).values():
        each.result(30)

    def work(number: int) -> None:
        consumer = confluent_kafka.ShareConsumer(
            {
                "bootstrap.servers": address,
                "group.id": group,
                "max.poll.records": 1,
                "share.acknowledgement.mode": "explicit",
                "log_level": 0,
            }
        )
        consumer.subscribe([topic])
        while not workers.over:
            for message in consumer.poll(1.0):
                if message.error() is None:
                    time.sleep(WORK_S)
                    consumer.acknowledge(message)
                    consumer.commit_sync(30.0)
                    workers.did(number)
        consumer.close()

    workers.run(work)


def pulsar(address: str, topic: str, group: str, workers: Workers) -> None:
    """Subscriptions are made beforehand, so that no consumer comes late."""

    def work(number: int) -> None:
        with bare.client(address) as made:
            name = f"persistent://public/default/{topic}"
            consumer = bare.join(made, name, group, receiver_queue_size=1)
            while not workers.over:
                message = consumer.receive(30_000)
                time.sleep(WORK_S)
                consumer.acknowledge(message)
                workers.did(number)

    workers.run(work)


def _failed(args: threading.ExceptHookArgs) -> None:
    threading.__excepthook__(args)
    sys.stderr.flush()
    os._exit(1)


def main(kind: str, address: str, topic: str, group: str, count: str, seconds: str) -> None:
    """See the module."""
    threading.excepthook = _failed
    workers = Workers(int(count), float(seconds))
    {"ackd": ackd, "kafka": kafka, "pulsar": pulsar}[kind](address, topic, group, workers)
    sys.stdout.write(json.dumps(workers.done))
    sys.stdout.flush()
    os._exit(0)  # threads of Pulsar's client that still end may abort an interpreter that ends


if __name__ == "__main__":
    main(*sys.argv[1:])
