"""Random configurations: every mistake is reported, and what is printed can be read again."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ackd.config.dedup import DedupSettings
from ackd.config.fields import FieldKind, Spec, specs
from ackd.config.load import load_text
from ackd.config.mistakes import FilePlace, MistakesError, dotted
from ackd.config.push import PushSettings
from ackd.config.schema import NAME, Settings, resolved
from ackd.config.show import as_toml, public, rows
from ackd.config.subscription import SubscriptionSettings
from ackd.config.units import DAY_MS

FILE = Path("random.toml")
PARTS = ("server", "store", "publish", "telemetry")
SECTIONS: dict[tuple[str, ...], tuple[Spec, ...]] = {
    (part,): specs(type(getattr(Settings(), part))) for part in PARTS
}
SECTIONS["subscriptions", "orders"] = specs(SubscriptionSettings)
SECTIONS["subscriptions", "orders", "push"] = specs(PushSettings)
SECTIONS["subscriptions", "orders", "dedup"] = specs(DedupSettings)
PLACES = [
    (path, spec)
    for path, known in SECTIONS.items()
    for spec in known
    if spec.kind is not FieldKind.SECTION
]


def wrongs(spec: Spec) -> list[str]:
    """TOML values that this setting must refuse."""
    found = ["1979-05-27", "{a = 1}"]
    if spec.kind is FieldKind.LIST:
        return [*found, "3", '"a"', "[[]]", "[true]"]
    if spec.kind is FieldKind.BOOL:
        return [*found, "1", '"true"']
    if spec.kind is FieldKind.INT:
        found += ["true", '"soon"', "1.5", "[]"]
        found += [str(spec.facts["min"] - 1), str(spec.facts["max"] + 1)]
        return found
    if spec.kind is FieldKind.FLOAT:
        found += ["true", '"soon"', "[]", "nan"]
        return [*found, str(spec.facts["min"] - 1), str(spec.facts["max"] + 1)]
    if spec.choices:
        found.append('"none of these"')
    if spec.kind is FieldKind.PATH:
        found += ['""', '"/nonexistent/file"']
    return [*found, "true", "7", '"a\\u0000b"']


@given(st.data())
def test_every_mistake_is_reported_at_its_line(data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.sampled_from(PLACES), unique_by=lambda p: (p[0], p[1].name)))
    unknown = data.draw(st.lists(st.sampled_from(sorted(SECTIONS)), unique=True))
    lines: list[str] = []
    expected: dict[str, int] = {}
    for section in SECTIONS:
        lines.append(f"[{'.'.join(section)}]")
        if section == ("subscriptions", "orders") and not any(
            (path, spec.name) == (section, "topics") for path, spec in chosen
        ):
            lines.append('topics = ["t"]')
        for path, spec in chosen:
            if path == section:
                lines.append(f"{spec.name} = {data.draw(st.sampled_from(wrongs(spec)))}")
                expected[dotted((*path, spec.name))] = len(lines)
        if section in unknown:
            lines.append("no_such_key_at_all = 1")
            expected[dotted((*section, "no_such_key_at_all"))] = len(lines)
    text = "\n".join(lines)
    reported: dict[str, int] = {}
    try:
        load_text(text, FILE, {})
    except MistakesError as error:
        for mistake in error.mistakes:
            assert isinstance(mistake.place, FilePlace)
            key = mistake.path.partition("[")[0]
            reported[key] = mistake.place.line
    assert reported == expected


CHARACTERS = st.characters(codec="utf-8", exclude_characters="\0")


def texts(**bounds: int) -> st.SearchStrategy[str]:
    """Any text that TOML can hold: escapes, quotes, what looks like a comment, emoji."""
    return st.text(CHARACTERS, **bounds)


def values(spec: Spec) -> st.SearchStrategy[Any]:
    """Values that a setting takes."""
    if spec.kind is FieldKind.BOOL:
        return st.booleans()
    if spec.kind is FieldKind.FLOAT:
        return st.floats(spec.facts["min"], spec.facts["max"])
    if FieldKind.INT in (spec.kind, spec.item):
        numbers = st.integers(spec.facts["min"], spec.facts["max"])
        few = st.lists(numbers, min_size=1, max_size=20).map(tuple)
        return numbers if spec.kind is FieldKind.INT else few
    if spec.choices:
        return st.sampled_from(spec.choices)
    if spec.kind is FieldKind.PATH:
        return texts(min_size=1, max_size=20).map(lambda text: Path("/", text))
    if "pattern" in spec.facts:
        return st.from_regex(str(spec.facts["pattern"]), fullmatch=True, alphabet=CHARACTERS)
    least, most = spec.facts.get("len_min", 0), min(spec.facts.get("len_max", 30), 30)
    if spec.kind is FieldKind.LIST:
        items = texts(min_size=1, max_size=20).map(_literal)
        return st.lists(items, min_size=least, max_size=5, unique=True).map(tuple)
    return texts(min_size=least, max_size=most)


@st.composite
def sections(draw: st.DrawFn, cls: type[Any], fixed: dict[str, Any]) -> Any:
    """A dataclass of settings with random values, but for the fixed ones."""
    drawn = dict(fixed)
    for spec in specs(cls):
        if spec.name not in drawn:
            value = values(spec)
            drawn[spec.name] = draw(st.none() | value if spec.optional else value)
    return cls(**drawn)


@st.composite
def subscriptions(draw: st.DrawFn) -> SubscriptionSettings:
    """A subscription that keeps the rules between its settings."""
    topics = draw(st.lists(texts(min_size=1, max_size=20).map(_literal), min_size=1, unique=True))
    lease_ms = draw(st.integers(100, 43_200_000))
    start = draw(st.sampled_from(("latest", "earliest", "timestamp")))
    stamp = draw(st.integers(0, 253_402_300_799_999)) if start == "timestamp" else None
    fixed = {
        "topics": tuple(topics),
        # No topic that is drawn has a tilde in its place; `whole` gives each one of its own.
        "dead_letter_topic": draw(st.sampled_from(("", "~dead", "ä~DLQ"))),
        "broker": "",
        "filter": "",  # the local queue has none
        "lease_ms": lease_ms,
        "lease_ms_max": draw(st.integers(lease_ms, 43_200_000)),
        "start": start,
        "start_timestamp_ms": stamp,
        "retry_backoff_ms": draw(st.integers(0, 60_000)),
        "retry_backoff_ms_max": draw(st.integers(60_000, 604_800_000)),
        "retry_topic_retention_ms": draw(st.integers(14 * DAY_MS, 365 * DAY_MS)),
        "push": draw(sections(PushSettings, {"auto_extend": True})),
        "dedup": draw(sections(DedupSettings, {"key": draw(st.sampled_from(DEDUP_KEYS))})),
        **draw(st.sampled_from(MODES)),
    }
    made: SubscriptionSettings = draw(sections(SubscriptionSettings, fixed))
    return made


DEDUP_KEYS = ("", "key", "header:x order", "pointer:/a/0", 'pointer:/"')
MODES = (
    {"mode": "clustering", "broadcast_id": ""},
    {"mode": "broadcast", "broadcast_id": "a", "static_id": None},
)


def _literal(topic: str) -> str:
    """A topic's name: no expression, and no dead-letter topic of those above."""
    return topic.replace("^", "x", 1).replace("~", "-")


@cache
def _bare() -> Settings:
    """No file at all. Read once: looking for adapters takes longer than all the rest."""
    return load_text("", None, {"ACKD_STATE_DIR": "/var/lib/ackd"})


@st.composite
def whole(draw: st.DrawFn) -> Settings:
    """Settings that keep every rule."""
    default = Settings()
    addresses = st.sampled_from(("127.0.0.1:0", "[::1]:0", "unix:/run/a.sock", "localhost:0"))
    server = {
        "listen": draw(addresses),
        "admin_listen": "127.0.0.1:1",
        "health_listen": draw(st.sampled_from(("", "0.0.0.0:2"))),
        "hosts": draw(st.sampled_from(((), ("sidecar", "a.example")))),
    }
    backoff_ms = draw(st.integers(1, 60_000))
    publish = {"backoff_ms": backoff_ms, "backoff_ms_max": draw(st.integers(backoff_ms, 60_000))}
    store = {
        "url": draw(st.sampled_from(("rediss://h", "sentinels://a,b:1/n", "clusters://a:1"))),
        **draw(st.sampled_from(({"replicas_min": 1}, {"durability": "replicated"}))),
        **draw(st.sampled_from(({"tls_cert_file": None, "tls_key_file": None}, TLS))),
    }
    numbers = iter(range(1000))
    subs = draw(st.dictionaries(st.from_regex(NAME, fullmatch=True), subscriptions(), max_size=3))
    # Groups of their own, so that no two subscriptions share a topic in one group.
    named = {name: _numbered(each, next(numbers)) for name, each in subs.items()}
    return resolved(
        _with(
            _bare(),
            state_dir=Path("/var/lib/ackd"),
            identity=draw(st.from_regex(NAME, fullmatch=True)),
            lease_key_file=draw(st.none() | st.just(Path("/run/key"))),
            server=draw(sections(type(default.server), server)),
            store=draw(sections(type(default.store), store)),
            publish=draw(sections(type(default.publish), publish)),
            telemetry=draw(sections(type(default.telemetry), {})),
            subscriptions=named,
        )
    )


def _numbered(each: SubscriptionSettings, number: int) -> SubscriptionSettings:
    dead_letters = each.dead_letter_topic and f"{each.dead_letter_topic}{number}"
    made: SubscriptionSettings = _with(
        each, group=f"{each.group[:9]}{number}", dead_letter_topic=dead_letters
    )
    return made


TLS = {"tls_cert_file": Path("/run/tls.crt"), "tls_key_file": Path("/run/tls.key")}


def _with(section: Any, **changes: Any) -> Any:
    return type(section)(
        **{
            spec.name: changes.get(spec.name, getattr(section, spec.name))
            for spec in specs(type(section))
        }
    )


def section_view(settings: Settings, *path: str) -> tuple[Mapping[str, object], Mapping[str, str]]:
    """The values of one section (integers in their units) and their sources, with the same keys."""
    values: dict[str, object] = {}
    sources: dict[str, str] = {}
    for row in rows(settings):
        if row.path[: len(path)] == path:
            key = dotted(row.path[len(path) :])
            values[key] = public(row.spec, row.value)
            sources[key] = row.source
    return values, sources


@settings(max_examples=50)
@given(whole())
def test_what_is_printed_is_read_again(made: Settings) -> None:
    again = load_text(as_toml(made), FILE, {}, check_files=False)
    assert again == made
    for row_path in ("server", "store", "publish"):
        values_, sources = section_view(again, row_path)
        assert values_.keys() == sources.keys()
        assert json.loads(json.dumps(values_)) == values_
