"""A real node for tests: containerd, runc, kubelet and CNI in namespaces, and ackd's image.

Nothing is imported here: `tests.support.node.install` runs before there is a virtual environment.
"""
