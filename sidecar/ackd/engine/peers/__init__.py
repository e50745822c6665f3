"""An application that waits beside one sidecar also gets messages of partitions that other sidecars
own.

Decides at which other sidecar a receive waits too, and which of this sidecar's messages go to
others. Asks `delivery` for leases, as receives of its own application do, and `cluster` who owns
partitions. The dispatcher calls it when a receive waits, is served or has gone, and when messages
are ready that no receive here waits for. Links (`ackd.ports.peers`) bring it frames of other
sidecars. ADR 17 has the protocol.
"""
