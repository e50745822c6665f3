"""`ackd inject`: serve the webhook that adds the sidecar to pods, or try it on one file."""

from __future__ import annotations

import argparse
import json
import os
import sys
from datetime import timedelta
from pathlib import Path

from ackd.cli import common, exit_codes
from ackd.cli.kube_access import access_of, add_access
from ackd.config.address import TcpAddress, parse_address
from ackd.config.schema import TelemetrySettings
from ackd.config.units import parse_duration
from ackd.errors import ConfigError
from ackd.inject import settings as inject_settings
from ackd.inject.injector import Options, serve
from ackd.inject.pod import applied, decide
from ackd.inject.settings import InjectSettings
from ackd.telemetry import log

LIFE_MS_MIN = 60_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `ackd inject`."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    serving = actions.add_parser("serve", help="run the webhook", allow_abbrev=False)
    _add_config(serving)
    add_access(serving)
    serving.add_argument(
        "--namespace",
        default=os.environ.get("POD_NAMESPACE", "ackd-system"),
        metavar="NAME",
        help="namespace of the webhook's Service; default: POD_NAMESPACE, else ackd-system",
    )
    serving.add_argument(
        "--service", default="ackd-injector", metavar="NAME", help="name of that Service"
    )
    serving.add_argument(
        "--webhook",
        default="ackd-injector",
        metavar="NAME",
        help="name of the MutatingWebhookConfiguration whose caBundle ackd writes",
    )
    serving.add_argument(
        "--listen", default=":8443", metavar="ADDRESS", help="address for the API server (TLS)"
    )
    serving.add_argument(
        "--health-listen",
        default=":8080",
        metavar="ADDRESS",
        help="address for probes and metrics (plain HTTP)",
    )
    serving.add_argument(
        "--tls-cert",
        type=Path,
        metavar="FILE",
        help="a certificate that you manage (PEM); ackd then makes none and writes no caBundle",
    )
    serving.add_argument("--tls-key", type=Path, metavar="FILE", help="key of --tls-cert (PEM)")
    serving.add_argument(
        "--cert-life",
        type=parse_duration,
        default=86_400_000,
        metavar="TIME",
        help="how long a certificate that ackd makes is valid; default 24h",
    )
    serving.add_argument(
        "--drain",
        type=parse_duration,
        default=5_000,
        metavar="TIME",
        help="how long to go on answering after SIGTERM; default 5s",
    )
    serving.add_argument(
        "--look-for-old",
        type=parse_duration,
        default=300_000,
        metavar="TIME",
        help="time between two counts of pods with an old sidecar; 0: never; default 5m",
    )
    serving.add_argument(
        "--no-events", action="store_true", help="write no Kubernetes events about the pods' owners"
    )
    trying = actions.add_parser(
        "try", help="read a pod from a JSON file and print it with the sidecar", allow_abbrev=False
    )
    _add_config(trying)
    trying.add_argument("pod", type=Path, help="file with the pod as JSON; - reads standard input")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "\n".join(sub.format_usage() for sub in actions.choices.values())


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config",
        type=Path,
        required=True,
        metavar="FILE",
        help="the injector's settings, as the chart renders them (injector.json)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the chosen action. Raises ConfigError, OSError."""
    settings = inject_settings.load(arguments.config)
    if arguments.action == "try":
        return _try(arguments.pod, settings)
    options, access = _options(arguments), access_of(arguments)
    output = log.set_up(TelemetrySettings())
    try:
        common.run_loop(serve(settings, access, options))
    except BaseExceptionGroup as group:
        found, rest = group.split((ConfigError, OSError))
        if found is None or rest is not None:
            raise
        first: BaseException = found
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from group
    finally:
        output.close()
    return exit_codes.DONE


def _options(arguments: argparse.Namespace) -> Options:
    """Make the webhook's options out of the arguments. Raises ConfigError."""
    if (arguments.tls_cert is None) != (arguments.tls_key is None):
        raise ConfigError("--tls-cert and --tls-key go together")
    return Options(
        listen=_address(arguments.listen, "--listen"),
        health_listen=_address(arguments.health_listen, "--health-listen"),
        webhook=arguments.webhook,
        service=arguments.service,
        namespace=arguments.namespace,
        life=timedelta(milliseconds=max(arguments.cert_life, LIFE_MS_MIN)),
        drain_s=arguments.drain / 1000,
        old_every_s=arguments.look_for_old / 1000,
        events=not arguments.no_events,
        cert=arguments.tls_cert,
        key=arguments.tls_key,
    )


def _address(text: str, option: str) -> TcpAddress:
    try:
        address = parse_address(text)
    except ValueError as error:
        raise ConfigError(f"{option}: {error}") from error
    if not isinstance(address, TcpAddress):
        raise ConfigError(f"{option}: a host and a port, no socket file")
    return address


def _try(file: Path, settings: InjectSettings) -> int:
    """Print the pod with its sidecar; 1 and the reason if the webhook would refuse the pod."""
    text = sys.stdin.read() if str(file) == "-" else file.read_text()
    try:
        pod = json.loads(text)
        decision = decide(pod, settings)
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise ConfigError(f"{file}: not a pod as JSON: {error}") from error
    if decision.refusal:
        print(f"refused: {decision.refusal}", file=sys.stderr)
        return exit_codes.FAILED
    print(json.dumps(applied(pod, decision.patch), indent=2))
    print(decision.reason, file=sys.stderr)
    return exit_codes.DONE
