"""Decides which ready message goes to which waiting receive, and when a lease's time is up.

It asks `base`, `partition`, `cluster`, `retry` and `settlement`. The waiting receive gets the
messages; streams and push learn of changed leases by `LeaseEvents`.
"""
