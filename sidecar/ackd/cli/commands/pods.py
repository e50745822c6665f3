"""`ackd pods`: list pods with a sidecar, and mark those with an older one than new pods get, or
with an older configuration.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
from pathlib import Path

from ackd.cli import common, exit_codes
from ackd.cli.kube_access import access_of, add_access
from ackd.errors import ConfigError
from ackd.inject.api import Access, Api
from ackd.inject.old import InjectedSidecar, sidecars
from ackd.inject.settings import InjectSettings, load, parse

INSTALLED = "ackd-system/ackd-injector"
KEY = "injector.json"
COLUMNS = ("namespace", "pod", "owner", "version", "state")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `ackd pods`."""
    add_access(parser)
    parser.add_argument(
        "--namespace", default="", metavar="NAME", help="only pods of this namespace; default: all"
    )
    parser.add_argument(
        "--installed",
        default=INSTALLED,
        metavar="NAMESPACE/NAME",
        help=f"the injector's ConfigMap, which says what new pods get; default {INSTALLED}",
    )
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="a file with injector.json, instead of that ConfigMap",
    )
    parser.add_argument("--old", action="store_true", help="only pods with an old sidecar")
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")


def run(arguments: argparse.Namespace) -> int:
    """Print the pods. Raises ConfigError, ApiError."""
    found = common.run_loop(_find(arguments, access_of(arguments)))
    shown = [each for each in found if each.old or not arguments.old]
    if arguments.json:
        for each in shown:
            print(json.dumps(dataclasses.asdict(each)))
        return exit_codes.DONE
    rows = [COLUMNS, *(_row(each) for each in shown)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    for row in rows:
        print(
            "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        )
    print(f"{sum(each.old for each in found)} of {len(found)} are older than what new pods get")
    return exit_codes.DONE


def _row(each: InjectedSidecar) -> tuple[str, ...]:
    state = f"old ({each.hash})" if each.old else "current"
    return each.namespace, each.pod, each.owner or "-", each.version, state


async def _find(arguments: argparse.Namespace, access: Access) -> list[InjectedSidecar]:
    async with Api(access) as api:
        now = await _settings_now(arguments, api)
        return [each async for each in sidecars(api, now, arguments.namespace)]


async def _settings_now(arguments: argparse.Namespace, api: Api) -> InjectSettings:
    """What a new pod gets. Raises ConfigError, ApiError."""
    if arguments.config is not None:
        return await asyncio.to_thread(load, arguments.config)
    namespace, slash, name = arguments.installed.partition("/")
    if not slash:
        raise ConfigError(f"--installed is like {INSTALLED}, not {arguments.installed!r}")
    found = await api.get(f"/api/v1/namespaces/{namespace}/configmaps/{name}")
    text = (found.get("data") or {}).get(KEY)
    if text is None:
        raise ConfigError(f"the ConfigMap {arguments.installed} has no {KEY}")
    return parse(text.encode(), f"{arguments.installed}: {KEY}")
