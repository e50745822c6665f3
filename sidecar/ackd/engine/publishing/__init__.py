"""Decides whether a message of an application is stored: producers, idempotency keys, the outbox.

It asks `base`, and `retry` only which topics are ackd's own. The application gets the answer; no
other room is told.
"""
