"""The seeded simulator: production core and engine; simulated broker, store, clock and network.

A run is decided by its seed alone: sidecars, applications, what is published, every latency and
every fault. `python -m tests.simulation --seed 7` repeats one run, `make simulate SEEDS=n` runs n.
"""
