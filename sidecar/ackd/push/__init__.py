"""Push delivery: calls an application over HTTP with messages that it leases from the engine.

It stands beside the server, not in it: it asks the engine what any consumer may ask, is an HTTP
client, and shares with the server only how a message looks in bytes.
"""
