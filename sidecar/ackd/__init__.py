"""ackd: leases over HTTP for messages of a log broker, with every ack kept in a store.

This package is the sidecar. Adapters for brokers live in `ackd_adapters`, Spark jobs in
`ackd_reports`.
"""

__version__ = "0.1.0"
