"""Old names of settings are refused wherever they are written, each with what to write instead."""

import dataclasses

import pytest

from ackd.config.live_settings import overlaid, pointer
from ackd.config.mistakes import MistakesError
from ackd.config.renamed import OPTIONS, REMOVED, SUBSCRIPTION
from ackd.config.subscription import SubscriptionSettings
from ackd_adapters.pulsar import PulsarOptions
from ackd_adapters.rocketmq import RocketMQOptions
from tests.unit.config.test_load import mistakes, only

PULSAR = '[brokers.b]\nadapter = "pulsar"\n[brokers.b.options]\n'
ROCKETMQ = '[brokers.b]\nadapter = "rocketmq"\n[brokers.b.options]\nendpoints = "h:1"\n'
PLACES = 'service_url = "pulsar://h:1"\nadmin_url = "http://h:1"\n'
ADAPTERS = {
    "foreign_delays": (f"{PULSAR}{PLACES}", PulsarOptions),
    "foreign_delays_wait_ms": (f"{PULSAR}{PLACES}", PulsarOptions),
    "hold_ms": (ROCKETMQ, RocketMQOptions),
}
FILE = '[subscriptions.orders]\ntopics = ["t"]\n'


def test_old_names_are_gone_and_new_ones_are_there() -> None:
    names = {each.name for each in dataclasses.fields(SubscriptionSettings)}
    assert set(SUBSCRIPTION.values()) <= names
    assert not {*SUBSCRIPTION, *REMOVED} & names
    assert ADAPTERS.keys() == OPTIONS.keys()
    for old, (_, options) in ADAPTERS.items():
        names = {each.name for each in dataclasses.fields(options)}
        assert (OPTIONS[old] in names, old in names) == (True, False)


@pytest.mark.parametrize(("old", "new"), SUBSCRIPTION.items())
def test_in_the_file(old: str, new: str) -> None:
    assert only(f"{FILE}{old} = 1") == (
        f"ackd.toml:3:1: subscriptions.orders.{old}: `{old}` is now `{new}`"
    )


@pytest.mark.parametrize(("old", "new"), SUBSCRIPTION.items())
def test_in_the_environment(old: str, new: str) -> None:
    start = "ACKD_SUBSCRIPTIONS__ORDERS__"
    assert only(FILE, **{f"{start}{old.upper()}": "1"}) == (
        f"${start}{old.upper()}: `{old}` is now `{new}`: set {start}{new.upper()}"
    )


@pytest.mark.parametrize(("old", "new"), SUBSCRIPTION.items())
def test_in_a_live_change(old: str, new: str) -> None:
    with pytest.raises(MistakesError) as refused:
        overlaid(SubscriptionSettings(topics=("t",)), {old: 1})
    (mistake,) = refused.value.mistakes
    assert (pointer(mistake), mistake.reason) == (f"/{old}", f"`{old}` is now `{new}`")


@pytest.mark.parametrize(("old", "why"), REMOVED.items())
def test_what_is_gone_is_told_with_what_happens_instead(old: str, why: str) -> None:
    said = f"`{old}` is gone, take it out: {why}"
    assert only(f"{FILE}{old} = 1") == f"ackd.toml:3:1: subscriptions.orders.{old}: {said}"
    variable = f"ACKD_SUBSCRIPTIONS__ORDERS__{old.upper()}"
    assert only(FILE, **{variable: "1"}) == f"${variable}: {said}"
    with pytest.raises(MistakesError) as refused:
        overlaid(SubscriptionSettings(topics=("t",)), {old: 1})
    assert [(pointer(each), each.reason) for each in refused.value.mistakes] == [(f"/{old}", said)]


def test_what_is_gone_was_a_subscriptions_setting_only() -> None:
    assert "unknown key" in only("[server]\nsettings_drift = 'warn'")


@pytest.mark.parametrize(("old", "new"), OPTIONS.items())
def test_an_adapters_options(old: str, new: str) -> None:
    text, _ = ADAPTERS[old]
    said = f"brokers.b.options.{old}: `{old}` is now `{new}`"
    assert only(f"{text}{old} = 1").endswith(f": {said}")
    variable = f"ACKD_BROKERS__B__OPTIONS__{old.upper()}"
    assert only(text, **{variable: "1"}) == f"${variable}: {said}"


def test_they_are_in_the_one_list_of_all_mistakes() -> None:
    found = mistakes(f"{FILE}brake_failures = 3\nlease_ms = 1\non_growth = 'drain'\nmodes = 1")
    assert [line.split(": ")[1] for line in found] == [
        f"subscriptions.orders.{key}"
        for key in ("brake_failures", "lease_ms = 1", "on_growth", "modes")
    ]


def test_another_adapters_old_name_is_just_unknown() -> None:
    line = only(f"{ROCKETMQ}foreign_delays = true")
    assert "unknown key" in line
    assert "is now" not in line
