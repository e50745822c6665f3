"""A real Kubernetes for tests: its control plane, kwok's nodes, helm, and the chart's injectors.

Nothing is imported here: `tests.support.k8s.install` runs before there is a virtual environment.
"""
