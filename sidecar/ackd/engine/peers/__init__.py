"""An application that waits beside one sidecar also gets messages of partitions that other sidecars
own.

Decides at which other sidecar a receive waits too, and which of this sidecar's messages go to
others. It asks `base`, `cluster`, `settlement` and `delivery`: who owns partitions, progress notes,
and leases, as receives of its own application do. The dispatcher calls it when a receive waits, is
served or has gone, and when messages are ready that no receive here waits for. Links
(`ackd.ports.peers`) bring it frames of other sidecars. ADR 17 has the protocol.
"""
