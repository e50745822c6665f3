"""Arguments of commands that talk to the Kubernetes API."""

from __future__ import annotations

import argparse
from pathlib import Path

from ackd.inject import api


def add_access(parser: argparse.ArgumentParser) -> None:
    """Declare the options that say how to reach the API server."""
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        metavar="FILE",
        help="how to reach the API server; default: the pod's service account, else KUBECONFIG "
        "or ~/.kube/config",
    )
    parser.add_argument(
        "--api-url", metavar="URL", help="address of the API server, instead of a kubeconfig"
    )
    parser.add_argument(
        "--api-token-file", type=Path, metavar="FILE", help="bearer token for --api-url"
    )
    parser.add_argument(
        "--api-ca-file",
        type=Path,
        metavar="FILE",
        help="authorities that may sign its certificate (PEM)",
    )
    parser.add_argument(
        "--api-insecure", action="store_true", help="do not check its certificate (for tests)"
    )


def access_of(arguments: argparse.Namespace) -> api.Access:
    """Make the access that these options describe. Raises ConfigError."""
    return api.find(
        url=arguments.api_url,
        token_file=arguments.api_token_file,
        ca_file=arguments.api_ca_file,
        insecure=arguments.api_insecure,
        kubeconfig=arguments.kubeconfig,
    )
