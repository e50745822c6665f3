"""Ports that stay free for the server that was given them, whoever else looks for some."""

import subprocess
import sys
from pathlib import Path

from ackd_torture.ports import free_port, give_back

TAKE = "import sys; from ackd_torture import ports; print(ports._take(int(sys.argv[1])))"


def another_takes(port: int) -> bool:
    """Whether a process of its own gets it."""
    command = [sys.executable, "-c", TAKE, str(port)]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return said.stdout == "True\n"


def test_free_ports_are_below_those_of_outgoing_connections() -> None:
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = [free_port() for _ in range(20)]
    assert max(ports) < low
    assert len(set(ports)) == 20
    give_back(*ports)


def test_a_port_is_nobody_elses_until_it_is_given_back() -> None:
    """Also while nothing listens there yet, or its server is down."""
    port = free_port()
    assert not another_takes(port)
    give_back(port)
    assert another_takes(port)
