"""Free TCP ports that stay ours across a restart of the server that uses them.

They are taken from below the range that Linux uses for outgoing connections, so that no client
socket slips onto the port while its server is down. Processes that look for ports keep apart by a
socket in Linux's abstract namespace for each port taken: no file is left behind, whatever happens.
"""

from __future__ import annotations

import os
import random
import socket
import threading

_FIRST, _LAST = 15_000, 32_000
_held: dict[int, int] = {}
"""Port -> descriptor of its claim; not the socket, which would warn when the process ends."""
_lock = threading.Lock()


def free_port() -> int:
    """A port on 127.0.0.1 that nothing uses; ours until `give_back` or the end of the process."""
    chance = random.SystemRandom()  # not the seeded one: other runs may have the same seed
    with _lock:
        for _ in range(1000):
            port = chance.randint(_FIRST, _LAST)
            if port not in _held and _take(port):
                return port
    raise RuntimeError(f"no free port between {_FIRST} and {_LAST}")


def give_back(*ports: int) -> None:
    """Let others use these ports again; their servers have stopped."""
    with _lock:
        for port in ports:
            claim = _held.pop(port, None)
            if claim is not None:
                os.close(claim)


def listens(port: int) -> bool:
    """Whether something accepts connections on 127.0.0.1 at this port."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _take(port: int) -> bool:
    """Claim the port among all that take some here, and see that no server of anybody listens."""
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0ackd-test-port-{port}")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
    except OSError:
        claim.close()
        return False
    _held[port] = claim.detach()
    return True
