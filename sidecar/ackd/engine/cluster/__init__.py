"""Decides which sidecars of a subscription live, whether this one may grant, and its shares.

It asks `base` and `partition`, and the store for the heartbeats of the others. The heartbeat tells
`ownership` which partitions to take over or let go, and `control` which pauses are in force.
"""
