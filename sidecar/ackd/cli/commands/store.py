"""`ackd store`: list what the store keeps, measure it, and remove what nobody uses any more.

The command connects to the configured store itself, while sidecars may be running. It reaches an
embedded store through the socket of the running sidecar, or starts it for as long as the command
runs.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from ackd.cli import common, exit_codes
from ackd.cli.offline.inventory import Inventory, StoreRow, ask_brokers, refused, select, take
from ackd.config.schema import Settings
from ackd.ports import Store
from ackd.store.build import open_store
from ackd.store.survey import Survey


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `ackd store`."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = _action(actions, "ls", "list records, sidecars' names and what is left over")
    usage = _action(actions, "du", "print bytes by subscription and kind of key")
    removal = _action(actions, "rm", "remove records; without --yes it only prints which")
    for each in (listing, usage):
        each.add_argument("--json", action="store_true", help="print one JSON document")
    for each in (listing, removal):
        each.add_argument(
            "--no-broker",
            action="store_true",
            help="do not ask brokers which topics exist; then no topic counts as deleted",
        )
    which = removal.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--orphans",
        action="store_true",
        help="remove what nothing uses any more: what `ls` marks so, and sidecars without a "
        "heartbeat for an hour",
    )
    which.add_argument(
        "--subscription", metavar="NAME", help="remove all records of a subscription"
    )
    removal.add_argument(
        "--topic-id", default="", metavar="HEX", help="only records of the topic with this id"
    )
    removal.add_argument(
        "--partition", type=int, default=-1, metavar="N", help="only records of this partition"
    )
    removal.add_argument("--yes", action="store_true", help="remove them")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "\n".join(sub.format_usage() for sub in actions.choices.values())


def _action(actions: Any, name: str, text: str) -> argparse.ArgumentParser:
    sub: argparse.ArgumentParser = actions.add_parser(name, help=text, allow_abbrev=False)
    common.add_config(sub)
    return sub


def run(arguments: argparse.Namespace) -> int:
    """Do it; 2 when something may not be done. Raises MistakesError, StoreError."""
    settings = common.settings_of(arguments)
    # What matters is printed; the parts' own log lines would bury it.
    logging.getLogger().addHandler(logging.NullHandler())
    store = open_store(settings.store, settings.state_dir, beside=True)
    return common.run_loop(_run(store, settings, arguments))


async def _run(store: Store, settings: Settings, arguments: argparse.Namespace) -> int:
    action: _Action = _ACTIONS[arguments.action]
    try:
        await store.start()
        return await action(store, settings, arguments)
    finally:
        await store.close()


async def _inventory(
    survey: Survey, settings: Settings, arguments: argparse.Namespace
) -> Inventory:
    known = {} if arguments.no_broker else await ask_brokers(settings)
    found = await take(survey, settings, known)
    for name, error in found.unknown.items():
        print(f"ackd: {name}: topics can't be judged: {error}", file=sys.stderr)
    return found


# --- ls, du


async def _ls(store: Store, settings: Settings, arguments: argparse.Namespace) -> int:
    found = await _inventory(Survey(store), settings, arguments)
    if arguments.json:
        document = {
            "records": [row.as_json() for row in found.rows],
            "sidecars": [
                {**dataclasses.asdict(each), "old": each.old} for each in found.identities
            ],
            "other": [{"name": e.name, "keys": len(e.keys), "bytes": e.size} for e in found.rest],
            "orphan_subscriptions": found.orphans,
        }
        print(json.dumps(document, indent=2))
        return exit_codes.DONE
    for row in found.rows:
        print(_line(row))
    for each in found.identities:
        old = "  ORPHAN: an old name" if each.old else ""
        print(f"sidecar {each.name} of {each.subscription}: {each.state}{old}")
    for rest in found.rest:
        print(f"{rest.name}: {len(rest.keys)} keys, {rest.size} bytes")
    return exit_codes.DONE


def _line(row: StoreRow) -> str:
    found = row.found
    key = found.key
    name = "" if key is None else f"{key.cluster} {key.subscription} "
    topic = row.topic or ("" if key is None else key.topic_id.hex())
    number = "" if key is None else f"/{key.partition}"
    owner = f" owner {row.owner}" if row.owner else ""
    orphan = f"  ORPHAN: {row.orphan}" if row.orphan else ""
    state = f"layout {found.layout} watermark {found.watermark}"
    return f"{name}{topic}{number}: {state} {found.size} bytes{owner}{orphan}"


async def _du(store: Store, settings: Settings, arguments: argparse.Namespace) -> int:
    del settings
    sums: dict[str, Counter[str]] = {}
    records: Counter[str] = Counter()
    for found in await Survey(store).everything():
        name = found.name if found.key is None else found.key.subscription
        sums.setdefault(name, Counter()).update(found.sizes)
        records[name] += found.key is not None
    if arguments.json:
        document = {
            name: {"records": records[name], "bytes": sum(kinds.values()), "bytes_by_kind": kinds}
            for name, kinds in sums.items()
        }
        print(json.dumps(document, indent=2))
        return exit_codes.DONE
    for name, kinds in sums.items():
        by_kind = ", ".join(f"{kind} {size}" for kind, size in kinds.most_common())
        print(f"{sum(kinds.values()):>12} {name}: {by_kind}")
    print(f"{sum(sum(kinds.values()) for kinds in sums.values()):>12} all")
    return exit_codes.DONE


# --- rm


async def _rm(store: Store, settings: Settings, arguments: argparse.Namespace) -> int:
    survey = Survey(store)
    found = await _inventory(survey, settings, arguments)
    rows = select(
        found.rows,
        orphans=arguments.orphans,
        subscription=arguments.subscription,
        topic_id=arguments.topic_id,
        partition=arguments.partition,
    )
    kept = 0
    left = list(found.rows)
    for row in rows:
        why = refused(row)
        if why:
            kept += 1
        elif arguments.yes and not await survey.forget(row.found):
            why, kept = "it has changed since it was looked at", kept + 1
        else:
            left.remove(row)
        verb = "removed" if arguments.yes else "would remove"
        print(f"kept ({why})" if why else verb, _line(row))
    if arguments.yes:
        for subscription, topic_id in _topics(rows) - _topics(left):
            await survey.forget_logs(subscription, topic_id)
    if arguments.orphans:
        await _leftovers(survey, found, do=arguments.yes)
    if not arguments.yes:
        print("nothing was removed; --yes does it")
    return exit_codes.CONFIG if kept else exit_codes.DONE


def _topics(rows: Iterable[StoreRow]) -> set[tuple[str, bytes]]:
    """The topics of which these are records, each with its subscription."""
    keys = [row.found.key for row in rows if row.found.key is not None]
    return {(key.subscription, key.topic_id) for key in keys}


async def _leftovers(survey: Survey, found: Inventory, *, do: bool) -> None:
    """Remove old identities, and the shared keys of subscriptions that nobody configures."""
    verb = "removed" if do else "would remove"
    gone = set(found.orphans)
    for each in found.identities:
        if not each.old and each.subscription not in gone:
            continue
        print(f"{verb} the name {each.name} of {each.subscription}")
        if do:
            await survey.drop_name(each.subscription, each.name, each.boot)
    for name in found.orphans:
        print(f"{verb} what the subscription {name} shared")
        if do:
            await survey.drop_shared(name)


_Action = Callable[[Store, Settings, argparse.Namespace], Awaitable[int]]
_ACTIONS: dict[str, _Action] = {"ls": _ls, "du": _du, "rm": _rm}
