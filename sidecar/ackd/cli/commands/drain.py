"""`ackd drain`: make a sidecar stop delivering while it still serves settles, until it is stopped.

In a pod the kubelet runs this as the `lifecycle.preStop` hook, while the application still works on
its leases.
"""

from __future__ import annotations

import argparse

from ackd.cli import exit_codes
from ackd.cli.client import endpoint
from ackd.cli.client.admin import Admin


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `ackd drain`."""
    endpoint.add_arguments(parser, "admin")


def run(arguments: argparse.Namespace) -> int:
    """Tell the sidecar to drain. Raises RefusedError, ConfigError, OSError."""
    with Admin.of(arguments) as admin:
        admin.post(("v1", "drain"), {})
    print("nothing more is delivered; leases can be settled until the sidecar is stopped")
    return exit_codes.DONE
