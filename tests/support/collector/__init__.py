"""A real OpenTelemetry Collector for tests: OTLP in, files out.

Nothing is imported here: `tests.support.collector.install` runs before there is a virtual
environment.
"""
