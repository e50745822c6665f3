"""The configuration that the chart writes is what ackd reads."""

import tomllib

import pytest

from ackd.config.fields import FieldKind, specs
from ackd.config.load import load_text
from ackd.config.schema import Settings
from tests.support.k8s.helm import VERSIONS, Helm

pytestmark = [pytest.mark.k8s, pytest.mark.usefixtures("programs")]
CONFIG = {
    "namespaces": ["shop", "billing"],
    "brokers": {
        "main": {
            "adapter": "kafka",
            "options": {"bootstrap_servers": "kafka-1:9092,kafka-2:9092"},
        }
    },
    "subscriptions": {
        "orders": {
            "topics": ["orders"],
            "lease_ms": "45s",
            "attempts_max": 5,
            "retry_delays_ms": ["1s", 10_000, "1m"],
            "rate_per_s": 2.5,
        },
        "orders.eu": {
            "topics": ["eu", 'odd "name"'],
            "push": {"url": "http://127.0.0.1:8080/x?a=1&b=<2>", "auto_extend": False},
        },
    },
    "store": {"grace_ms": 86_400_000 // 288},
    "publish": {"topics": ["orders"]},
    "peers": {"on": False},
    "traces": {"sample": 0.5},
    "server": {"body_bytes_max": "4MiB", "drain_ms": "7s"},
    "app": {"health_url": "http://127.0.0.1:8080/healthz", "down_leases": "retry"},
    "sqs": {"listen": "127.0.0.1:9324"},
    "telemetry": {"log_level": "debug"},
}


def test_every_section_of_the_file_can_be_a_value() -> None:
    """What is not a section comes from the pod: identity, state and the file with a key."""
    sections = {
        each.name
        for each in specs(Settings)
        if each.kind in (FieldKind.SECTION, FieldKind.SECTIONS)
    }
    assert set(CONFIG) - {"namespaces"} == sections


@pytest.mark.parametrize("version", VERSIONS)
def test_subscriptions_as_values(version: str) -> None:
    """Nested tables, names with dots, lists, numbers, text that HTML would escape."""
    things = Helm(version).template({"config": CONFIG})
    made = {
        each["metadata"]["namespace"]: each["data"]["ackd.toml"]
        for each in things
        if each["kind"] == "ConfigMap" and "ackd.toml" in each["data"]
    }
    assert sorted(made) == ["billing", "shop"]
    text = made["shop"]
    wanted = {name: value for name, value in CONFIG.items() if name != "namespaces"}
    assert tomllib.loads(text) == wanted
    text = text.replace('odd \\"name\\"', "odd")
    settings = load_text(text, None, {"ACKD_STORE__URL": "redis://redis:6379/0"})
    assert settings.subscriptions["orders"].lease_ms == 45_000
    assert settings.subscriptions["orders"].retry_delays_ms == (1_000, 10_000, 60_000)
    assert settings.subscriptions["orders.eu"].push.url.endswith("?a=1&b=<2>")
    assert (settings.server.drain_ms, settings.app.down_leases) == (7_000, "retry")
