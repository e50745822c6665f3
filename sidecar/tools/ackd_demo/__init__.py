"""The demo: a real sidecar, two tiny workers, and four things that go wrong."""
