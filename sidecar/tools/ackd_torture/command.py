"""`ackd torture`: clients and faults against a deployment, and a verdict from their histories.

Two ways: `--url` points it at sidecars that run already (then it is load, clients that crash, and a
verdict; it hurts nothing that it did not start), or `--start` lets it start sidecars, a store and
perhaps a broker of its own, which it then kills, freezes and cuts off at random. `--histories`
judges what an earlier run has kept.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from ackd import __version__
from ackd.cli import exit_codes
from ackd_torture import edn, report
from ackd_torture.checker import Verdict, check
from ackd_torture.child import BrokerPart, Part, PartError
from ackd_torture.history import Event, histories, now_us
from ackd_torture.history import load as load_history
from ackd_torture.parts import Existing, LocalQueue, SidecarPlan, Value, load
from ackd_torture.run import Course, Deployment, Setup, deployed, torture
from ackd_torture.workload import Mood, WorkloadPlan

Outcome = tuple[Verdict, dict[str, object]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `ackd torture`."""
    parser.epilog = "How to read the result: docs/operate/torture.md."
    where = parser.add_argument_group("what to torture")
    where.add_argument("--url", action="append", help="a running sidecar; may be given again")
    where.add_argument(
        "--histories", type=Path, metavar="FOLDER", help="no run: judge what --keep has kept"
    )
    where.add_argument("--token-file", type=Path, help="bearer token of the data port (--url)")
    where.add_argument(
        "--start",
        choices=("local", "kafka", "pulsar", "rocketmq"),
        help="start sidecars on this broker",
    )
    where.add_argument(
        "--store",
        choices=("embedded", "redis"),
        default="redis",
        help="with --start: one sidecar with its own store, or several with a store of torture's",
    )
    where.add_argument(
        "--durability",
        choices=("everysec", "always", "replicated"),
        default="everysec",
        help="with --start: what a settle waits for; replicated needs --store redis",
    )
    where.add_argument("--sidecars", type=int, default=2, help="how many sidecars (--store redis)")
    where.add_argument(
        "--partitions", type=int, default=4, help="partitions of the topic (--start)"
    )
    where.add_argument("--kafka", metavar="HOST:PORT", help="a running Kafka, never broken")
    where.add_argument(
        "--parts",
        metavar="MODULE",
        help="importable module whose kafka() (pulsar(), rocketmq()) starts a broker to break",
    )
    where.add_argument("--topic", default="", help="topic to publish to (default: new)")
    where.add_argument("--sub", default="orders", help="subscription to consume")
    work = parser.add_argument_group("the load")
    work.add_argument("--rate", type=int, default=200, help="messages per second in all")
    work.add_argument("--publishers", type=int, default=6)
    work.add_argument("--consumers", type=int, default=9)
    work.add_argument("--batch", type=int, default=32, help="most messages in one receive")
    work.add_argument("--lease-ms", type=int, default=3_000)
    work.add_argument("--value-bytes", type=int, default=200)
    work.add_argument("--keys", type=int, default=0, help="different keys (0: one each)")
    work.add_argument(
        "--ordering",
        choices=("key", "partition"),
        default="",
        help="judge this order; with --start the subscription is set up for it",
    )
    work.add_argument("--workers", type=int, default=1, help="consumer processes to kill")
    course = parser.add_argument_group("the course")
    course.add_argument(
        "--kills", type=int, default=None, help="how many kills (default 20; 0 with --url)"
    )
    course.add_argument("--seconds", type=float, default=5.0, help="time without faults")
    course.add_argument("--drain-s", type=float, default=120.0, help="longest time to finish all")
    course.add_argument("--seed", type=int, default=None, help="repeats the faults of a run")
    out = parser.add_argument_group("what comes out")
    out.add_argument("--json", type=Path, metavar="FILE", help="write the verdict here")
    out.add_argument(
        "--export", type=Path, metavar="FILE", help="write the history as EDN, for other checkers"
    )
    out.add_argument("--keep", type=Path, metavar="FOLDER", help="keep histories and logs here")


def run(arguments: argparse.Namespace) -> int:
    """Torture; 0 when every promise was kept, 3 when there was nothing to judge, else 4."""
    console = Console()
    if sum(map(bool, (arguments.url, arguments.start, arguments.histories))) != 1:
        print("ackd torture: give one of --url, --start and --histories", file=sys.stderr)
        return exit_codes.CONFIG
    if arguments.histories:
        return _judge_again(arguments, console)
    seed = secrets.randbelow(1_000_000) if arguments.seed is None else arguments.seed
    console.print(f"seed {seed}")
    # Sidecars' folders hold unix sockets, whose paths may not be long.
    with tempfile.TemporaryDirectory(prefix="ackd-torture-", ignore_cleanup_errors=True) as temp:
        folder = temp if arguments.keep is None else arguments.keep.absolute()
        verdict, about = asyncio.run(_torture(arguments, seed, Path(folder), _speaker(console)))
        if arguments.export is not None:
            _export(arguments.export, load_history(histories(Path(folder) / "history")))
    about = {"version": __version__, **about}
    brief = {name: about[name] for name in ("seed", "kills", "faults")}
    report.show(console, verdict, brief)
    if arguments.json is not None:
        report.save(arguments.json, verdict, about)
    return _exit_code(verdict)


def _judge_again(arguments: argparse.Namespace, console: Console) -> int:
    """Read histories that were kept; nothing is started, and nothing broken."""
    events = load_history(histories(arguments.histories))
    verdict = check(events)
    report.show(console, verdict, {"histories": str(arguments.histories)})
    if arguments.json is not None:
        report.save(arguments.json, verdict, {"version": __version__})
    if arguments.export is not None:
        _export(arguments.export, events)
    return _exit_code(verdict)


def _export(path: Path, events: Sequence[Event]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(edn.export(events))


def _exit_code(verdict: Verdict) -> int:
    if not (verdict.judged or verdict.broken):
        return exit_codes.UNREACHABLE
    return exit_codes.DONE if verdict.kept else exit_codes.BROKEN_PROMISE


async def _torture(
    arguments: argparse.Namespace, seed: int, folder: Path, say: Callable[[str], None]
) -> Outcome:
    # A topic of our own: another run's messages would count as never published.
    topic = arguments.topic or f"torture-{seed}-{secrets.token_hex(3)}"
    kills = arguments.kills
    course = Course(
        seed=seed,
        warm_s=arguments.seconds,
        drain_s=arguments.drain_s,
        workers=arguments.workers,
        calm_s=arguments.lease_ms / 1000 + 7.0,
    )
    if arguments.url:
        if not arguments.topic:
            raise PartError("--url needs --topic, the one that --sub consumes, and nobody else's")
        course = replace(course, kills=kills or 0)
        token = arguments.token_file.read_text().split("\n")[0] if arguments.token_file else ""
        deployment = Deployment([each.rstrip("/") for each in arguments.url])
        plan = _plan(arguments, deployment, topic, seed, folder, token)
        return await torture(deployment, [], plan, course, say)
    course = replace(course, kills=20 if kills is None else kills)
    setup = Setup(
        broker=_broker(arguments, folder),
        topic=topic,
        folder=folder,
        store=arguments.store,
        durability=arguments.durability,
        sidecars=1 if arguments.store == "embedded" else arguments.sidecars,
        partitions=arguments.partitions,
        plan=lambda plan: _configured(plan, arguments),
    )
    async with deployed(setup) as deployment:
        parts: list[Part] = [*deployment.sidecars, *deployment.stores]
        if arguments.parts and deployment.broker is not None:
            parts.append(deployment.broker)
        say(f"started: {', '.join(part.name for part in parts)}")
        plan = _plan(arguments, deployment, topic, seed, folder, "")
        return await torture(deployment, parts, plan, course, say)


def _configured(plan: SidecarPlan, arguments: argparse.Namespace) -> SidecarPlan:
    subscription: dict[str, Value] = {"lease_ms": arguments.lease_ms}
    if arguments.ordering:
        subscription["ordering"] = arguments.ordering
    return replace(plan, sub=arguments.sub, subscription=subscription)


def _plan(
    arguments: argparse.Namespace,
    deployment: Deployment,
    topic: str,
    seed: int,
    folder: Path,
    token: str,
) -> WorkloadPlan:
    return WorkloadPlan(
        urls=deployment.urls,
        topic=topic,
        sub=arguments.sub,
        folder=folder / "history",
        seed=seed,
        # Two runs with one seed against one deployment must not name their messages alike.
        name=f"t{os.getpid()}-{now_us()[1] % 1_000_000}",
        publishers=arguments.publishers,
        consumers=arguments.consumers,
        rate_per_s=arguments.rate,
        batch_max=arguments.batch,
        lease_ms=arguments.lease_ms,
        value_bytes=arguments.value_bytes,
        keys=arguments.keys,
        ordering=arguments.ordering,
        mood=Mood(),
        token=token,
    )


def _broker(arguments: argparse.Namespace, folder: Path) -> BrokerPart:
    if arguments.start == "local":
        return LocalQueue(folder)
    if arguments.parts:
        return load(arguments.parts, arguments.start)
    if arguments.start in ("pulsar", "rocketmq"):
        raise PartError(f"--start {arguments.start} needs --parts MODULE")
    if arguments.kafka:
        return Existing(arguments.kafka)
    raise PartError("--start kafka needs --kafka HOST:PORT or --parts MODULE")


def _speaker(console: Console) -> Callable[[str], None]:
    start_us, _ = now_us()

    def say(text: str) -> None:
        seconds = (now_us()[0] - start_us) / 1e6
        console.print(f"[dim]{seconds:6.1f} s[/]  {text}", highlight=False)

    return say
