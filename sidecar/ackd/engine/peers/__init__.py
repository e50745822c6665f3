"""Messages from any sidecar of the subscription: an application that waits beside one sidecar gets
what another one owns.

Decides where a receive waits beside its own queue, and which of this sidecar's messages go to
others. Asks `delivery` for leases as receives of its own application do, and `cluster` who owns
something. Told by the dispatcher (a receive waits, is served, has gone; messages lie ready that
nobody here waits for) and by links (`ackd.ports.peers`). ADR 17 has the protocol.
"""
