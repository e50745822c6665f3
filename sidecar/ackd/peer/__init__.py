"""Connections between the sidecars of one store, by TCP: `ackd.peer.network.TcpPeers`.

They carry frames and know nothing of what these say. Docs: docs/operate/peers.md.
"""
