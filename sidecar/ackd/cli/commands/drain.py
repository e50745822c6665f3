"""`ackd drain`: the sidecar hands out nothing more, but serves settles until it is stopped.

In a pod this is the hook that runs when the pod is told to end, while the application still works
on what it has (`lifecycle.preStop`).
"""

from __future__ import annotations

import argparse

from ackd.cli import exit_codes
from ackd.cli.client import endpoint
from ackd.cli.client.admin import Admin


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    endpoint.add_arguments(parser, "admin")


def run(arguments: argparse.Namespace) -> int:
    """0 when it does. Raises RefusedError, ConfigError, OSError."""
    with Admin.of(arguments) as admin:
        admin.post(("v1", "drain"), {})
    print("nothing more is handed out; leases can be settled until the sidecar is stopped")
    return exit_codes.DONE
