"""Reading a configuration: every mistake at once, with its place; the environment; the rules."""

from pathlib import Path

import pytest

from ackd.config.load import load, load_text
from ackd.config.mistakes import MistakesError
from ackd.config.schema import Settings
from ackd.config.units import MIB
from ackd.errors import ConfigError

FILE = Path("ackd.toml")


ALL_MISTAKES = """\
[server]
listen = "0.0.0.0:7080"
wait_ms_max = "2m"
[store]
url = "redis://me:hush@host"
durability = "replicate"
[subscriptions.orders]
topics = ["a", 3, "^("]
leese_ms = "1s"
[subscriptions.bills]
broker = "kafka"
"""


def read(text: str, **environ: str) -> Settings:
    """Settings of a text and an environment."""
    return load_text(text, FILE, environ)


def mistakes(text: str, **environ: str) -> list[str]:
    """The lines of the report."""
    with pytest.raises(MistakesError) as caught:
        read(text, **environ)
    return [str(each) for each in caught.value.mistakes]


def only(text: str, **environ: str) -> str:
    """The one line of the report."""
    (line,) = mistakes(text, **environ)
    return line


def test_nothing_configured_runs_on_local_parts() -> None:
    settings = load(None, {})
    assert settings.store.url == "embedded"
    assert settings.brokers["local"].adapter == "local"
    (subscription,) = settings.subscriptions.values()
    assert (subscription.topics, subscription.broker) == (("default",), "local")
    assert subscription.group == "default"
    assert set(settings.sources.values()) == {"default"}


def test_a_broker_without_subscriptions_is_for_publishing_only() -> None:
    settings = read('[brokers.queue]\nadapter = "local"')
    assert list(settings.brokers) == ["queue"]
    assert settings.subscriptions == {}


def test_units_and_sources() -> None:
    settings = read(
        '[server]\nbody_bytes_max = "1MiB"\ndrain_ms = 250\n'
        '[subscriptions.orders]\ntopics = ["a", "b"]\nretry_delays_ms = ["1s", 2500, "1m"]\n',
        ACKD_SUBSCRIPTIONS__ORDERS__LEASE_MS="45s",
    )
    orders = settings.subscriptions["orders"]
    assert settings.server.body_bytes_max == MIB
    assert settings.server.drain_ms == 250
    assert orders.retry_delays_ms == (1000, 2500, 60_000)
    assert orders.lease_ms == 45_000
    sources = settings.sources_below("subscriptions.orders")
    assert (sources["topics"], sources["lease_ms"]) == ("file", "env")
    assert sources["attempts_max"] == "default"


def test_all_mistakes_at_once_with_their_places() -> None:
    lines = mistakes(
        ALL_MISTAKES,
        ACKD_PUBLISH__TIMEOUT_MS="soon",
        ACKD_SERVER__LISTN="x",
    )
    starts = [
        'ackd.toml:2:1: server.listen = "0.0.0.0:7080": others can reach this address',
        'ackd.toml:3:1: server.wait_ms_max = "2m": too large; allowed: 0s to 1m',
        'ackd.toml:5:1: store.url = "redis://***@host": user and password go into',
        'ackd.toml:6:1: store.durability = "replicate": not one of the choices; allowed: everysec',
        "ackd.toml:8:16: subscriptions.orders.topics[1] = 3: expected a text, got a number",
        "ackd.toml:9:1: subscriptions.orders.leese_ms: unknown key; did you mean lease_ms?",
        "ackd.toml:10:1: subscriptions.bills.topics: is required",
        'ackd.toml:11:1: subscriptions.bills.broker = "kafka": no such broker; allowed: local',
        '$ACKD_PUBLISH__TIMEOUT_MS: publish.timeout_ms = "soon": not a duration',
        "$ACKD_SERVER__LISTN: unknown variable; did you mean ACKD_SERVER__LISTEN?",
    ]
    assert len(lines) == len(starts)
    for line, start in zip(lines, starts, strict=True):
        assert line.startswith(start)
    assert not any("hush" in line for line in lines)


def test_the_error_is_a_config_error_and_its_text_holds_every_line() -> None:
    with pytest.raises(ConfigError) as caught:
        read("a = 1\nb = 2\n")
    assert caught.value.detail.count("unknown key") == 2
    assert caught.value.detail.startswith("The configuration has 2 mistakes:")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a = ", "ackd.toml:1:5: not TOML: Invalid value"),
        ("[server]\nlisten = 'x\n'", "ackd.toml:2:12: not TOML: "),
        ("a = 1\na = 2", "ackd.toml:2:6: not TOML: Cannot overwrite a value"),
    ],
)
def test_broken_toml_is_reported_with_its_place(text: str, line: str) -> None:
    assert only(text).startswith(line)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    latin = tmp_path / "latin.toml"
    latin.write_bytes(b"[server]\n# caf\xe9\n")
    for file, part in (
        (tmp_path / "none.toml", "No such file"),
        (tmp_path, "Is a directory"),
        (latin, "latin.toml:2:1: not UTF-8 text"),
    ):
        with pytest.raises(MistakesError, match=part):
            load(file, {})
        with pytest.raises(MistakesError, match=part):
            load(None, {"ACKD_CONFIG": str(file)})


def test_secret_files_are_looked_at_and_found_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "token").write_text("s3cret-token")
    file = tmp_path / "ackd.toml"
    file.write_text(
        '[server]\ntoken_file = "token"\nadmin_token_file = "empty"\n'
        '[store]\nurl = "redis://h"\npassword_file = "nothing"\n'
    )
    with pytest.raises(MistakesError) as caught:
        load(file, {})
    problems = {each.path: each.problem for each in caught.value.mistakes}
    assert problems == {
        "server.admin_token_file": "the file is empty",
        "store.password_file": "can't be read: No such file or directory",
    }
    file.write_text('[server]\ntoken_file = "token"\nlisten = ":0"')
    assert load(file, {}).server.token_file == tmp_path / "token"


PUSH = '[subscriptions.o]\ntopics = ["a"]\n[subscriptions.o.push]\n{}'


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ('[subscriptions.o]\ntopics = ["a"]\nlease_ms_max = "10s"', "less than lease_ms (30s)"),
        ('[subscriptions.o]\ntopics = ["a", "a"]', "same topic twice"),
        ('[publish]\ntopics = ["a", "^("]', 'publish.topics[1] = "^(": not a regular expression'),
        ('[publish]\ntopics = ["a", "a"]', "same topic twice"),
        (PUSH.format('url = "ftp://h/"'), "not of the right form; allowed: `http://` or"),
        (PUSH.format('url = "http://me:hush@h/"'), "not of the right form"),
        (PUSH.format('url = "http://h"\nauto_extend = false\ntimeout_ms = "1m"'), "lease_ms (30s)"),
        (PUSH.format('signature_file = "none"'), "No such file"),
        ('[subscriptions.o]\ntopics = ["a"]\nstart = "timestamp"', "needs `start_timestamp_ms`"),
        ('[subscriptions.o]\ntopics = ["a"]\nstart_timestamp_ms = 1', "no effect with"),
        ('[subscriptions.o]\ntopics = ["a"]\nbroadcast_id = "b"', "no effect with"),
        ('[subscriptions.o]\ntopics = ["a"]\nmode = "broadcast"\nstatic_id = "b"', "no effect"),
        ('[subscriptions.o]\ntopics = ["a"]\nstatic_id = "a b"', "not of the right form"),
        ('[subscriptions."o p"]\ntopics = ["a"]', "not a name"),
        ("[subscriptions.o]\ntopics = []", "needs at least 1 item"),
        ('[store]\nurl = "redis://h"\ntls_ca_file = "pyproject.toml"', "no effect with"),
        ('[store]\nusername = "me"', "no effect with"),
        ('[store]\ndurability = "replicated"', "no replicas"),
        ('[server]\nadmin_listen = "127.0.0.1:7080"', "the same address"),
        ('[publish]\nbackoff_ms = "90s"\nbackoff_ms_max = "1s"', "more than backoff_ms_max"),
        ('[brokers.b]\nadapter = "lokal"', "did you mean local?"),
        ("[brokers]\nb = 1", "expected a table"),
        ("server = [1]", "expected a table"),
        ("[telemetry]\nmetrics = 1", "expected true or false, got a number"),
        ("[server]\nreceive_max = true", "expected a whole number, got a truth value"),
        ("[server]\nwait_ms_max = 1.5", "expected whole milliseconds"),
    ],
)
def test_rules(text: str, part: str) -> None:
    assert part in only(text)


def test_two_subscriptions_of_one_group_must_not_share_a_topic() -> None:
    line = only(
        '[subscriptions.a]\ntopics = ["x"]\ngroup = "g"\n'
        '[subscriptions.b]\ntopics = ["y", "x"]\ngroup = "g"\n'
    )
    assert line.startswith("ackd.toml:5:16: subscriptions.b.topics[1]")


def test_several_brokers_need_a_choice() -> None:
    brokers = '[brokers.a]\nadapter = "local"\n[brokers.b]\nadapter = "local"\n'
    assert "there are several brokers" in only(brokers + '[subscriptions.s]\ntopics = ["t"]')
    chosen = read(brokers + '[subscriptions.s]\ntopics = ["t"]\nbroker = "b"')
    assert chosen.subscriptions["s"].broker == "b"


def test_a_start_in_time_may_be_a_date() -> None:
    text = '[subscriptions.s]\ntopics = ["t"]\nstart = "timestamp"\nstart_timestamp_ms = '
    for value in ("1769846400000", "2026-01-31T08:00:00Z", '"2026-01-31T09:00:00+01:00"'):
        assert read(text + value).subscriptions["s"].start_timestamp_ms == 1_769_846_400_000
    assert "needs an offset" in only(text + "2026-01-31T08:00:00")


def test_an_adapters_own_options_go_through_the_same_checks() -> None:
    text = '[brokers.k]\nadapter = "kafka"\n[brokers.k.options]\n'
    lines = mistakes(text + 'group_protocol = "clasic"\nboostrap_servers = "x"\n')
    assert [line.split(": ", 1)[1] for line in lines] == [
        (
            "brokers.k.options.bootstrap_servers: is required: Some of the brokers, `host:port`, "
            "separated by commas."
        ),
        (
            'brokers.k.options.group_protocol = "clasic": not one of the choices; '
            "allowed: classic, consumer; did you mean classic?"
        ),
        "brokers.k.options.boostrap_servers: unknown key; did you mean bootstrap_servers?",
    ]


def test_an_adapters_own_rules_are_part_of_the_report() -> None:
    lines = mistakes(
        '[brokers.k]\nadapter = "kafka"\n[brokers.k.options]\nbootstrap_servers = "h:1"\n'
        'security_protocol = "sasl_ssl"\n[subscriptions.s]\ntopics = ["t"]\nlease = 1'
    )
    assert len(lines) == 2
    login = "sasl_ssl with SCRAM-SHA-512 needs sasl_username and sasl_password_file"
    assert lines[0].startswith(f"ackd.toml:3:1: brokers.k.options: {login}")
    assert lines[1].startswith("ackd.toml:8:1: subscriptions.s.lease: unknown key")


def test_what_the_broker_cannot_do_is_a_mistake() -> None:
    """Declared by the adapter, told before anything runs, all at once."""
    head = '[brokers.r]\nadapter = "rocketmq"\n[brokers.r.options]\nendpoints = "h:1"\n'
    lines = mistakes(
        head + '[subscriptions.s]\ntopics = ["^t.*"]\nstart = "earliest"\nmode = "broadcast"'
    )
    named = [line.split(": ", 1)[1] for line in lines]
    assert [each.split(": ", 1)[0] for each in named] == [
        'subscriptions.s.topics[0] = "^t.*"',
        'subscriptions.s.start = "earliest"',
        'subscriptions.s.mode = "broadcast"',
    ]
    assert all("rocketmq " in each for each in named)
    assert named[2].endswith(
        "rocketmq can't be read by everyone without being in the group; "
        "instead give each sidecar a subscription with a `group` of its own; allowed: clustering"
    )
    (line,) = mistakes(head + '[subscriptions.s]\ntopics = ["t"]\nexternal_commit = "accept"')
    assert line.endswith("only `ackd seek` delivers it; leave this out; allowed: refuse")
    read(head + '[subscriptions.s]\ntopics = ["t"]\nexternal_commit = "refuse"')
    read(head + '[subscriptions.s]\ntopics = ["t"]\nfilter = "sql92: a > 1"')
    (line,) = mistakes('[subscriptions.s]\ntopics = ["t"]\nfilter = "paid"')
    assert line.endswith(
        'filter = "paid": local can\'t choose messages by this; allowed: no filter'
    )


def test_a_path_may_be_meant_below_the_state_directory(tmp_path: Path) -> None:
    settings = read(f'state_dir = "{tmp_path}"')
    options = settings.brokers["local"].options
    assert getattr(options, "path", None) == tmp_path / "local"
