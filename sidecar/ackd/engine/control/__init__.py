"""Decides what operators see of a running sidecar, and which of their changes are in force.

It asks `base`, `partition`, `cluster`, `retry`, `settlement`, `ownership` and `delivery`. A change
goes to the ownership, the cancels, the circuit breaker and the spans that `subscription.py`
connected to it.
"""
