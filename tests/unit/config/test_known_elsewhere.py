"""Keys that a broker's own clients have: the report says what does it here."""

import dataclasses
import re
from pathlib import Path

import pytest

from ackd.config.known_elsewhere import joined
from ackd.config.load import load_text
from ackd.config.mistakes import MistakesError
from ackd.config.subscription import SubscriptionSettings
from ackd_adapters.pulsar import PulsarOptions, adapter

PULSAR = """\
[brokers.p]
adapter = "pulsar"
[brokers.p.options]
service_url = "pulsar://h:1"
admin_url = "http://h:1"
"""
OURS = {each.name for each in dataclasses.fields(SubscriptionSettings)}
OPTIONS = {each.name for each in dataclasses.fields(PulsarOptions)}
FIELDS_OF_A_SETTLE = {"retry", "delay_ms"}
SUBSCRIPTION = '[subscriptions.s]\ntopics = ["t"]\n'


def mistakes(text: str, **environ: str) -> list[str]:
    """The lines of the report."""
    with pytest.raises(MistakesError) as caught:
        load_text(text, Path("ackd.toml"), environ)
    return [str(each) for each in caught.value.mistakes]


@pytest.mark.parametrize("key", ["subscription_type", "subscriptionType", "subscription-type"])
@pytest.mark.parametrize("kind", ["Shared", "Exclusive"])
def test_a_subscription_type_is_told_to_be_an_ordering(key: str, kind: str) -> None:
    (line,) = mistakes(f'{PULSAR}{SUBSCRIPTION}{key} = "{kind}"')
    assert line == (
        f"ackd.toml:8:1: subscriptions.s.{key}: unknown key: ackd holds Pulsar's subscription by "
        "itself, so there is no type to choose; `ordering` does it: leave it out for Shared, "
        '"key" for Key_Shared, "partition" for Failover and Exclusive'
    )


def test_all_of_them_at_once_in_their_places() -> None:
    """What looks alike is not proposed: `ack_timeout_ms` is no `start_timestamp_ms`."""
    lines = mistakes(
        f"{PULSAR}receiver_queue_size = 1\n{SUBSCRIPTION}"
        'ack_timeout_ms = 10\nsubscription_name = "x"\nleese_ms = "1s"'
    )
    places = [line.split(": unknown key")[0] for line in lines]
    assert places == [
        "ackd.toml:6:1: brokers.p.options.receiver_queue_size",
        "ackd.toml:9:1: subscriptions.s.ack_timeout_ms",
        "ackd.toml:10:1: subscriptions.s.subscription_name",
        "ackd.toml:11:1: subscriptions.s.leese_ms",
    ]
    named = ["`receiver_queue`", "`lease_ms`", "`group`", "did you mean lease_ms?"]
    assert all(word in line for word, line in zip(named, lines, strict=True))
    assert "start_timestamp_ms" not in "".join(lines)


def test_an_option_from_the_environment_is_explained_too() -> None:
    name = "ACKD_BROKERS__P__OPTIONS__SUBSCRIPTION_TYPE"
    (line,) = mistakes(PULSAR + SUBSCRIPTION, **{name: "Shared"})
    assert line.startswith(f"${name}: brokers.p.options.subscription_type: unknown key: ackd holds")


def test_other_brokers_know_nothing_of_it() -> None:
    (line,) = mistakes(f'{SUBSCRIPTION}subscription_type = "Shared"')
    assert "Key_Shared" not in line
    assert "allowed: broker, topics" in line


@pytest.mark.parametrize("broker", ['adapter = "nobodys"', 'adapter = "pulsar"\nadaptor = 1', ""])
def test_a_broker_with_mistakes_of_its_own_does_not_hide_the_key(broker: str) -> None:
    lines = mistakes(f"[brokers.p]\n{broker}\n{SUBSCRIPTION}subscription_type = 1")
    assert any("subscriptions.s.subscription_type: unknown key" in line for line in lines)
    assert len(lines) >= 2


def test_sentences_name_settings_that_exist_and_keys_that_do_not() -> None:
    ours = {joined(each) for each in OURS}
    for key, sentence in adapter.known_elsewhere.items():
        assert joined(key) not in ours | {joined(each) for each in OPTIONS}, key
        named = set(re.findall(r"`([a-z0-9_]+)(?: = [^`]*)?`", sentence))
        assert named <= OURS | OPTIONS | FIELDS_OF_A_SETTLE, (key, named)
