"""Real servers for tests: Kafka, Redis in all its shapes, and a proxy that breaks connections.

Plain classes with a synchronous `start` and `stop`, so that the demo and the benchmarks use them
too; the pytest fixtures in `tests/conftest.py` are thin. Every server listens on 127.0.0.1, keeps
its data below `.cache/run`, and is killed when the process that started it dies in whatever way.
"""
