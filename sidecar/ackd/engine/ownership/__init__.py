"""Decides which partitions this sidecar owns: taking, recovering, committing, letting go.

It asks `base`, `partition`, `cluster` and `retry`. Tracing is told of each partition taken, claims
of each one dropped; signals wake the dispatcher, the timers and the heartbeat.
"""
