"""Adapters of brokers: each one a package that implements `ackd.ports.Broker`.

They are found through the entry-point group `ackd.adapters`, so others can add one without a change
here. An adapter may import `ackd.core` and `ackd.ports`, never the engine or the HTTP side.
"""
