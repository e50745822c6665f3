"""Sidecars that arrive while this one stops."""

from __future__ import annotations

import asyncio
import gc
import socket
import warnings

import pytest

from tests.unit.peer.recorder import BOUND_S, make_node

TURNS = 8
"""Of the loop: more than a connection takes from its arrival to the first byte of a handshake."""


@pytest.mark.parametrize("turns", range(TURNS))
async def test_who_arrives_as_it_stops_is_closed_and_left_to_no_collector(turns: int) -> None:
    """However far it got: still in the queue, accepted, or about to prove itself."""
    node = make_node("one")
    await node.start()
    host, _, port = node.address.rpartition(":")
    await asyncio.sleep(0)  # it listens
    with socket.create_connection((host, int(port)), BOUND_S) as who:
        for _ in range(turns):
            await asyncio.sleep(0)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            await node.peers.stop()
            gc.collect()
        assert [str(each.message) for each in told] == []
        try:
            while await asyncio.to_thread(who.recv, 100):
                pass
        except ConnectionResetError:
            pass
