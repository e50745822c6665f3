"""The command `ackd report`, and the same for spark-submit (`python -m ackd_reports`).

This file knows no Spark: only what is asked for is loaded, so that a wrong argument is told at
once.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import sys
import time
import webbrowser
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from ackd_reports.durations import duration_us
from ackd_reports.evidence import COMPLETE, SILENT_TIMES, VerdictBounds
from ackd_reports.generate import START_US, GenerationPlan, generate
from ackd_reports.links import FIELDS, Presentation, template
from ackd_reports.targets import TargetsError
from ackd_reports.words import HOUR_US

KEPT, FAILED, USAGE, BROKEN, NO_DATA, INCOMPLETE = 0, 1, 2, 3, 4, 5
EXITS: Final = {
    KEPT: "every promise was kept",
    FAILED: "failed: a folder or file could not be used, or Spark gave up",
    USAGE: "wrong usage, or mistakes in the targets",
    BROKEN: "a promise was broken",
    NO_DATA: "a promise has no messages to judge it by, or a subscription fell silent",
    INCOMPLETE: "too much of the traces is missing to say that anything was kept",
}
NOW, LAST = "now", "last"
SECRET: Final = re.compile("secret|password|passphrase|token|access[.]?key", re.IGNORECASE)
"""Names of settings whose values are secrets."""
EPILOG: Final = "exit codes of make:\n" + "\n".join(f"  {n}  {text}" for n, text in EXITS.items())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `ackd report`."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    make = verbs.add_parser("make", help="make a report from trace files", allow_abbrev=False)
    _add_make(make)
    follow = verbs.add_parser(
        "follow", help="read new trace files as they come", allow_abbrev=False
    )
    follow.add_argument("source", help="folder in which trace files appear")
    _add_lake(follow, needed=True)
    follow.add_argument("--once", action="store_true", help="read what is there, then end")
    follow.add_argument(
        "--every",
        type=_duration,
        default="1m",
        metavar="DURATION",
        help="between two looks; default: 1m",
    )
    make_up = verbs.add_parser("generate", help="write made-up traces", allow_abbrev=False)
    make_up.add_argument("folder", type=Path)
    make_up.add_argument("--messages", type=int, default=10_000)
    make_up.add_argument("--hours", type=int, default=24)
    make_up.add_argument("--seed", type=int, default=1)
    make_up.add_argument(
        "--until",
        type=_until,
        default=NOW,
        metavar="TIME",
        help="where the hours end; default: now",
    )
    usages = "".join(each.format_usage() for each in (make, follow, make_up))
    parser.epilog = f"{usages}\n{EPILOG}"


def _add_make(make: argparse.ArgumentParser) -> None:
    make.add_argument(
        "source", nargs="*", help="trace files, or their folders (OTLP JSON lines; .gz, .zst)"
    )
    _add_lake(make, needed=False)
    make.add_argument(
        "--out", type=Path, default=Path("report"), metavar="FOLDER", help="default: report"
    )
    make.add_argument(
        "--targets", type=Path, metavar="FILE", help="promised levels: .toml, or OpenSLO .yaml"
    )
    make.add_argument(
        "--since", type=_time, metavar="TIME", help="begin: ISO time, UTC; default: first message"
    )
    make.add_argument(
        "--until",
        type=_until,
        default=NOW,
        metavar="TIME",
        help="end, as --since, or now, or last (the last event there is); unfinished messages are"
        " judged as of then; default: now",
    )
    make.add_argument(
        "--last", type=_duration, metavar="DURATION", help="begin this long before --until, say 7d"
    )
    make.add_argument(
        "--complete",
        type=_share,
        default=COMPLETE,
        metavar="SHARE",
        help="of the spans that sidecars wrote, how many must be there; below it the verdict is"
        f" incomplete; default: {COMPLETE}",
    )
    make.add_argument(
        "--silent",
        type=_silent,
        metavar="DURATION",
        help="a subscription of which nothing was heard for this long has no data; never: none has;"
        f" default: {SILENT_TIMES} times its longest pause, an hour at least",
    )
    make.add_argument(
        "--trace-link",
        type=_link,
        metavar="TEMPLATE",
        help="where a trace is looked at, as https://jaeger.example/trace/{trace_id}; may also name"
        f" {', '.join(FIELDS[1:])}",
    )
    make.add_argument(
        "--ackd-link",
        type=_link,
        metavar="TEMPLATE",
        help="where ackd tells of a message's subscription, as"
        " https://ackd.example/v1/subscriptions/{group}/explain",
    )
    make.add_argument(
        "--mark",
        type=_mark,
        action="append",
        default=[],
        metavar="TIME=TEXT",
        help="draw this into every plot, say a deploy; may be given several times",
    )
    make.add_argument(
        "--exact", action="store_true", help="exact percentiles, by a sort of all durations"
    )
    make.add_argument("--open", action="store_true", help="open the report in a browser")
    make.add_argument("--compact", action="store_true", help="first merge the lake's small files")


def _add_lake(parser: argparse.ArgumentParser, *, needed: bool) -> None:
    parser.add_argument(
        "--lake",
        required=needed,
        metavar="ADDRESS",
        help="the lake: folder or s3a://... that keeps what was read"
        + ("" if needed else "; default: <out>/lake"),
    )
    parser.add_argument(
        "--keep",
        type=_duration,
        metavar="DURATION",
        help="remove what was published longer ago, and take up no older files; default: for ever",
    )
    parser.add_argument(
        "--master", help="Spark's master; default: what spark-submit gives, else local[*]"
    )
    parser.add_argument(
        "--conf",
        type=_setting,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of Spark as in spark-submit; may be given several times; not for secrets",
    )


def run(arguments: argparse.Namespace) -> int:
    """Do it; the exit code, one of `EXITS`."""
    verbs: dict[str, Callable[[argparse.Namespace], int]] = {
        "make": _make,
        "follow": _follow,
        "generate": _generate,
    }
    try:
        return verbs[arguments.verb](arguments)
    except TargetsError as error:
        print(error, file=sys.stderr)
        return USAGE
    except OSError as error:
        # 3 and 4 are verdicts here, so the general codes of `ackd` do not fit.
        print(f"ackd report: {error}", file=sys.stderr)
        return FAILED


def _installed() -> bool:
    if importlib.util.find_spec("pyspark") is not None:
        return True
    print("ackd report needs Spark: pip install 'ackd[reports]', and Java 17", file=sys.stderr)
    return False


def _make(arguments: argparse.Namespace) -> int:
    if not arguments.source and arguments.lake is None:
        print("ackd report make: name trace files, or a --lake that has some", file=sys.stderr)
        return USAGE
    if not _installed():
        return FAILED
    from ackd_reports import job  # noqa: PLC0415 -- Spark takes seconds to load

    verdict: int = job.make(
        job.ReportRequest(
            sources=tuple(arguments.source),
            lake=arguments.lake,
            out=arguments.out,
            targets=arguments.targets,
            since_us=arguments.since,
            until_us=_until_us(arguments.until),
            last_us=arguments.last,
            bounds=VerdictBounds(arguments.complete, arguments.silent),
            keep_us=arguments.keep,
            shown=Presentation(
                arguments.trace_link or "", arguments.ackd_link or "", tuple(arguments.mark)
            ),
            compact=arguments.compact,
            exact=arguments.exact,
            master=arguments.master,
            conf=dict(arguments.conf),
        ),
        _say,
    )
    if arguments.open:
        _open(arguments.out / "report.html")
    return verdict


def _open(page: Path) -> None:
    """Show it where there is a screen; where there is none, say where it lies."""
    screen = sys.platform in ("darwin", "win32") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )
    if not (screen and webbrowser.open(page.absolute().as_uri())):
        print(page.absolute())


def _follow(arguments: argparse.Namespace) -> int:
    if not _installed():
        return FAILED
    from ackd_reports.frames import stream  # noqa: PLC0415 -- as above
    from ackd_reports.frames.session import session  # noqa: PLC0415

    every = None if arguments.once else arguments.every
    spark = session(arguments.master, dict(arguments.conf))
    stream.follow(spark, arguments.source, arguments.lake, every, arguments.keep)
    return KEPT


def _generate(arguments: argparse.Namespace) -> int:
    until = _until_us(arguments.until) or START_US
    start = until - arguments.hours * HOUR_US
    plan = GenerationPlan(arguments.messages, arguments.seed, arguments.hours, start)
    made = generate(arguments.folder, plan)
    _say(f"{made.messages} messages, {made.spans} spans, {len(made.files)} files")
    return KEPT


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _setting(text: str) -> tuple[str, str]:
    """`spark.name=value`. Others can see a command line, so it is no place for secrets."""
    name, equals, value = text.partition("=")
    if not (equals and name.startswith("spark.") and name.isprintable()):
        raise argparse.ArgumentTypeError("expected spark.NAME=VALUE")
    if SECRET.search(name):
        raise argparse.ArgumentTypeError(
            f"{name} is a secret, which others see on a command line: put it into the environment"
            " (AWS_SECRET_ACCESS_KEY) or into a file (docs/operate/reports.md)"
        )
    return name, value


def _link(text: str) -> str:
    try:
        return template(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _mark(text: str) -> tuple[int, str]:
    at, equals, what = text.partition("=")
    if not (equals and what.strip()):
        raise argparse.ArgumentTypeError('expected TIME=TEXT, as "2026-11-01T10:00=deploy 1.4"')
    return _time(at), what


def _until(text: str) -> int | str:
    return text if text in (NOW, LAST) else _time(text)


def _until_us(until: int | str) -> int | None:
    """None: the last event."""
    if until == NOW:
        return time.time_ns() // 1000
    return None if until == LAST else int(until)


def _share(text: str) -> float:
    share = float(text)
    if not 0 <= share <= 1:
        raise ValueError
    return share


def _silent(text: str) -> int:
    """0: never."""
    return 0 if text == "never" else _duration(text)


def _time(text: str) -> int:
    at = datetime.fromisoformat(text)
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return round(at.timestamp() * 1000) * 1000


def _duration(text: str) -> int:
    return duration_us(text)


def main(argv: Sequence[str] | None = None) -> int:
    """For spark-submit and `python -m ackd_reports`."""
    parser = argparse.ArgumentParser(prog="ackd report", allow_abbrev=False)
    add_arguments(parser)
    return run(parser.parse_args(argv))
