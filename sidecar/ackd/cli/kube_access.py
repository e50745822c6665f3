"""Arguments of commands that talk to the Kubernetes API."""

from __future__ import annotations

import argparse
from pathlib import Path

from ackd.inject import api


def add_access(parser: argparse.ArgumentParser) -> None:
    """Declare how to reach it."""
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        metavar="FILE",
        help="default: the pod's service account, else KUBECONFIG or ~/.kube/config",
    )
    parser.add_argument("--api-url", metavar="URL", help="the API server, without a kubeconfig")
    parser.add_argument("--api-token-file", type=Path, metavar="FILE", help="bearer token for it")
    parser.add_argument("--api-ca-file", type=Path, metavar="FILE", help="whom to trust there")
    parser.add_argument("--api-insecure", action="store_true", help="trust anybody there (tests)")


def access_of(arguments: argparse.Namespace) -> api.Access:
    """Raises ConfigError."""
    return api.find(
        url=arguments.api_url,
        token_file=arguments.api_token_file,
        ca_file=arguments.api_ca_file,
        insecure=arguments.api_insecure,
        kubeconfig=arguments.kubeconfig,
    )
