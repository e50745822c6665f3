"""Settings from environment variables."""

import pytest

from tests.unit.config.test_load import mistakes, only, read


def test_a_variable_wins_over_the_file_and_over_its_part_of_a_section() -> None:
    text = '[subscriptions.eu-orders]\ntopics = ["a"]\nlease_ms = "1s"\nattempts_max = 1'
    settings = read(
        text,
        ACKD_SUBSCRIPTIONS__EU_ORDERS__LEASE_MS="2s",
        ACKD_SUBSCRIPTIONS__EU_ORDERS__TOPICS="b, c",
        ACKD_STATE_DIR="/var/lib/ackd",
    )
    orders = settings.subscriptions["eu-orders"]
    assert (orders.lease_ms, orders.topics, orders.attempts_max) == (2000, ("b", "c"), 1)
    assert str(settings.state_dir) == "/var/lib/ackd"


def test_a_default_counts_where_neither_file_nor_another_variable_says_anything() -> None:
    text = '[server]\ndrain_ms = "7s"\n[subscriptions.a-b]\ntopics = ["a"]'
    settings = read(
        text,
        ACKD_DEFAULT__SERVER__DRAIN_MS="1s",
        ACKD_DEFAULT__SERVER__STOP="release",
        ACKD_DEFAULT__SERVER__BODY_BYTES_MAX="1MiB",
        ACKD_SERVER__BODY_BYTES_MAX="2MiB",
        ACKD_DEFAULT__TELEMETRY__LOG_LEVEL="debug",
        ACKD_TELEMETRY='{log_level = "error"}',
        ACKD_DEFAULT__SUBSCRIPTIONS__A_B__LEASE_MS="4s",
        ACKD_DEFAULT__STORE__URL="",
    )
    server = settings.server
    assert (server.drain_ms, server.stop, server.body_bytes_max) == (7_000, "release", 2 << 20)
    assert settings.telemetry.log_level == "error"
    assert settings.subscriptions["a-b"].lease_ms == 4_000
    assert settings.store == read(text).store


def test_a_wrong_default_is_named() -> None:
    for name, value in (
        ("ACKD_DEFAULT__SERVER__STOPP", "release"),
        ("ACKD_DEFAULT__SERVER__DRAIN_MS", "soon"),
    ):
        assert name in str(only("", **{name: value}))


def test_everything_can_be_set_without_a_file() -> None:
    settings = read(
        "",
        ACKD_BROKERS__MAIN__ADAPTER="kafka",
        ACKD_BROKERS__MAIN__OPTIONS__BOOTSTRAP_SERVERS="k:9092",
        ACKD_BROKERS__MAIN__OPTIONS__PROPERTIES='{"socket.timeout.ms" = 5000, debug = "all"}',
        ACKD_SUBSCRIPTIONS__ORDERS='{topics = ["a"], lease_ms = "5s"}',
        ACKD_SUBSCRIPTIONS__ORDERS__RETRY_DELAYS_MS='["1s", 10]',
        ACKD_SUBSCRIPTIONS__ORDERS__START_TIMESTAMP_MS="",
        ACKD_TELEMETRY__METRICS="off",
        ACKD_SERVER__BODY_BYTES_MAX="1MiB",
        ACKD_SERVER__DRAIN_MS="250",
    )
    orders = settings.subscriptions["orders"]
    assert (orders.topics, orders.lease_ms, orders.retry_delays_ms) == (("a",), 5000, (1000, 10))
    assert orders.broker == "main"
    assert getattr(settings.brokers["main"].options, "properties", None) == {
        "socket.timeout.ms": "5000",
        "debug": "all",
    }
    assert not settings.telemetry.metrics
    assert (settings.server.body_bytes_max, settings.server.drain_ms) == (1 << 20, 250)


@pytest.mark.parametrize(
    "name",
    [
        "ACKD_SERVICE_HOST",
        "ACKD_SERVICE_PORT",
        "ACKD_SERVICE_PORT_HTTP",
        "ACKD_PORT",
        "ACKD_PORT_7080_TCP",
        "ACKD_PORT_7080_TCP_ADDR",
        "ACKD_ADMIN_SERVICE_HOST",
        "ACKD_TEST_X",
    ],
)
def test_variables_of_a_kubernetes_service_are_not_ours(name: str) -> None:
    assert read("", **{name: "tcp://10.0.0.1:7080"}) == read("")


@pytest.mark.parametrize(
    ("name", "value", "part"),
    [
        ("ACKD_STATEDIR", "x", "did you mean ACKD_STATE_DIR?"),
        ("ACKD_STORE__URI", "x", "did you mean ACKD_STORE__URL?"),
        ("ACKD_STORE__URL__X", "x", "unknown variable"),
        ("ACKD_BROKERS__B__OPTIONS__X__Y", "x", "unknown variable"),
        ("ACKD_SUBSCRIPTIONS", "orders", "expected an inline table"),
        ("ACKD_SUBSCRIPTIONS", "{", "not a TOML table"),
        ("ACKD_SERVER__RECEIVE_MAX", "ten", "expected a whole number"),
        ("ACKD_SERVER__RECEIVE_MAX", "0", "too small; allowed: 1 to 10000"),
        ("ACKD_TELEMETRY__METRICS", "maybe", "expected true or false"),
        ("ACKD_SERVER__LISTEN", "", "not an address"),
    ],
)
def test_a_wrong_variable_is_named(name: str, value: str, part: str) -> None:
    line = only("", **{name: value})
    assert line.startswith(f"${name}: ")
    assert part in line


def test_a_variable_below_something_else_than_a_table() -> None:
    assert mistakes("server = 1", ACKD_SERVER__DRAIN_MS="1") == [
        "ackd.toml:1:1: server = 1: expected a table (a section)",
        "$ACKD_SERVER__DRAIN_MS: server is not a table, so nothing can be set in it",
    ]


def test_a_mistake_in_a_variable_never_points_at_the_file() -> None:
    text = '[subscriptions.o]\ntopics = ["a", "b", "c"]'
    line = only(text, ACKD_SUBSCRIPTIONS__O__TOPICS="x,,z")
    assert line == '$ACKD_SUBSCRIPTIONS__O__TOPICS: subscriptions.o.topics[1] = "": an empty text'
