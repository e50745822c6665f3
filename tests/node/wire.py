"""What goes over the network of the pods: seen from the node, and asked for from there."""

import http.client
import socket
import threading
from collections import defaultdict
from contextlib import closing
from typing import Self

from tests.support.k8s.api import Json
from tests.support.started import Started

_ALL = 0x0003
_BYTES_MAX = 1 << 17
_TCP = 6


class Wire(Started):
    """Records what goes in and out of pods over TCP, by port."""

    def __init__(self) -> None:
        self._bytes: defaultdict[int, bytearray] = defaultdict(bytearray)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ALL))

    def start(self) -> Self:
        """Record from now on."""
        self._socket.settimeout(0.2)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Record no more; what there is stays."""
        self._end.set()
        self._thread.join()
        self._socket.close()

    def seen(self, port: int) -> int:
        """How many bytes went from or to it."""
        return len(self._bytes[port])

    def where(self, text: bytes) -> set[int]:
        """The ports of connections in which somebody who listened could have read this."""
        return {port for port, data in self._bytes.items() if text in data}

    def _work(self) -> None:
        while not self._end.is_set():
            try:
                packet, (interface, *_) = self._socket.recvfrom(_BYTES_MAX)
            except TimeoutError:
                continue
            # A bridge does not show what it forwards; the ends of pods in it do.
            if interface.startswith("veth"):
                self._add(packet)

    def _add(self, packet: bytes) -> None:
        if packet[0] >> 4 != 4 or packet[9] != _TCP:
            return
        segment = packet[(packet[0] & 15) * 4 : int.from_bytes(packet[2:4])]
        payload = segment[(segment[12] >> 4) * 4 :]
        for at in (0, 2):
            self._bytes[int.from_bytes(segment[at : at + 2])] += payload


def fetched(pod: Json, port: int, path: str) -> str:
    """What a pod answers to the node, whatever its status."""
    connection = http.client.HTTPConnection(pod["status"]["podIP"], port, timeout=20)
    with closing(connection):
        connection.request("GET", path)
        return connection.getresponse().read().decode()
