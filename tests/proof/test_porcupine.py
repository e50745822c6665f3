"""Two judges of a history agree: torture's own, and Porcupine with a model of a queue with leases.

They share the history alone, in Jepsen's form. The second one searches for an order of instants,
the first one argues with intervals; so a mistake in either shows as a disagreement. I6 (order) and
lateness are the first one's alone.
"""

import random
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from ackd.cli import exit_codes
from ackd_torture import edn
from ackd_torture.checker import BROKEN, Verdict, check
from ackd_torture.history import Event, EventKind, histories, load
from tests.proof import planted
from tests.proof.porcupine import SecondVerdict, judge, judge_all, missing
from tests.support.paths import REPO, remove_run_dir, run_dir
from tests.support.require import require
from tests.unit.torture.model import Model
from tests.unit.torture.test_checker import MUTANTS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
HISTORIES = 100
JUDGED = tuple(word for word in BROKEN if word != "out_of_order")


@pytest.fixture(autouse=True, scope="module")
def go() -> None:
    """The second judge is a program in Go."""
    require(missing())


def blamed(verdict: Verdict) -> list[set[str]]:
    """Of each finding the words by which the other judge may call what it is about."""
    found = (each for word in JUDGED for each in verdict.findings[word])
    return [{f"place {f.sub} {f.id}", f"name {f.sub} {f.msg}"} for f in found]


def assert_agree(first: Verdict, second: SecondVerdict, about: object) -> None:
    assert not second.undecided, about
    assert second.kept == (not blamed(first)), (about, first.findings, second.blamed)
    for names in blamed(first):
        assert names & second.blamed, (about, names, second.blamed)


def test_the_judges_agree_on_a_hundred_histories_of_a_queue(tmp_path: Path) -> None:
    """Fifty of a queue that keeps the rules, fifty of one that breaks one of ten."""
    mutants = sorted(MUTANTS)
    about = [(n, mutants[n // 2 % len(mutants)] if n % 2 else "") for n in range(HISTORIES)]
    runs = [Model(seed, mutant).run() for seed, mutant in about]
    first = [check(events) for events in runs]
    second = judge_all(runs, tmp_path)
    for one, other, which in zip(first, second, about, strict=True):
        assert_agree(one, other, which)
        assert other.kept or which[1], which
    broken = {which[1] for which, other in zip(about, second, strict=True) if not other.kept}
    assert broken == set(mutants), "each mutant is found at least once"
    assert sum(not other.kept for other in second) >= HISTORIES * 0.4


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The histories of a real run: kills of sidecar and application, ways that are cut."""
    folder = run_dir("torture-export")
    exported = tmp_path_factory.mktemp("export") / "history.edn"
    command = [sys.executable, "-m", "ackd", "torture", "--start", "local"]
    command += ["--store", "embedded", "--kills", "2", "--seed", "11", "--seconds", "3"]
    command += ["--rate", "400", "--lease-ms", "1500", "--keep", str(folder)]
    command += ["--export", str(exported)]
    done = subprocess.run(
        command, cwd=REPO, check=False, capture_output=True, text=True, timeout=220
    )
    assert done.returncode == exit_codes.DONE, done.stdout + done.stderr
    [verdict] = judge([exported])
    assert verdict.kept, verdict.blamed
    yield folder
    remove_run_dir(folder)


def test_the_judges_agree_on_a_hundred_histories_of_torture(recorded: Path, tmp_path: Path) -> None:
    """A real run in a hundred parts; half of them get a fault, every eighth a loss of data."""
    rng = random.Random(18)
    runs: list[list[Event]] = []
    about: list[str] = []
    missing: dict[str, int] = defaultdict(int)
    for number, events in enumerate(planted.slices(load(histories(recorded)), HISTORIES)):
        kinds: list[planted.Plant] = [planted.excused] if number % 8 == 0 else []
        if number % 2:
            shift = number // 2 % len(planted.FAULTS)
            kinds = [*planted.FAULTS[shift:], *planted.FAULTS[:shift]]
        changed, name = None, ""
        for kind in kinds:  # a part without the occasion gets the next fault
            changed, name = planted.plant(events, kind, rng), kind.__name__
            if changed is not None:
                break
            missing[name] += 1
        runs.append(events if changed is None else changed)
        about.append("" if changed is None else name)
    first = [check(events) for events in runs]
    second = judge_all(runs, tmp_path)
    for number, (one, other, name) in enumerate(zip(first, second, about, strict=True)):
        assert_agree(one, other, (number, name))
        assert other.kept == (name in {"", "excused"}), (number, name, other)
        assert one.count("excused") == (name == "excused"), (number, name)
    for fault in set(planted.FAULTS) - {planted.acked_after_retry}:  # a short run may have no retry
        assert about.count(fault.__name__) >= 2, (fault.__name__, dict(missing))


def test_kept_histories_are_judged_again_and_exported(recorded: Path, tmp_path: Path) -> None:
    exported = tmp_path / "again.edn"
    command = [sys.executable, "-m", "ackd", "torture", "--histories", str(recorded)]
    done = subprocess.run(
        [*command, "--export", str(exported)],
        cwd=REPO,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == exit_codes.DONE, done.stdout + done.stderr
    [verdict] = judge([exported])
    assert verdict.kept
    assert verdict.operations > 1_000


def test_a_process_has_one_operation_open_and_none_after_one_of_unknown_outcome() -> None:
    """What Jepsen demands of a history."""
    form = re.compile(
        r"\{:index (\d+), :type :(\w+), :process (\d+|:nemesis), :f :([\w-]+), "
        r":value \{.*\}, :time (\d+)\}\n"
    )
    opened: dict[str, str] = {}
    over: set[str] = set()
    ends: dict[str, int] = defaultdict(int)
    time = 0
    for number, line in enumerate(edn.export(Model(3, clients=8).run())):
        found = form.fullmatch(line)
        assert found is not None, line
        assert int(found[1]) == number
        assert int(found[5]) >= time
        time, kind, process = int(found[5]), found[2], found[3]
        ends[kind] += 1
        if process == ":nemesis":
            continue
        assert process not in over
        if kind == "invoke":
            assert process not in opened
            opened[process] = found[4]
        else:
            assert opened.pop(process) == found[4]
            over |= {process} if kind == "info" else set()
    assert not opened
    assert min(ends[kind] for kind in ("invoke", "ok", "info")) > 0
    assert ends["invoke"] == ends["ok"] + ends["info"] + ends["fail"] - 1  # one is of the nemesis


def test_text_of_any_content_is_read_back(tmp_path: Path) -> None:
    odd = 'a "quoted" \\ back\nslash\tä 💥 {:not [edn]} ; comment'
    steps = (
        (EventKind.PUBLISH, odd, ""),
        (EventKind.PUBLISHED, odd, "t/0/1"),
        (EventKind.DRAINED, "", ""),
    )
    story = [
        Event(kind=kind, client="c", sub="s", mono_us=us, wall_us=us, msg=msg, id=place)
        for us, (kind, msg, place) in enumerate(steps)
    ]
    [verdict] = judge_all([story], tmp_path)
    assert verdict.blamed == {f"name s {odd}"}
