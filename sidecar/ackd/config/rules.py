"""Rules between settings, which no value can break alone.

A rule is skipped while one of its values has a mistake of its own, so that one slip is one line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TypeVar

from ackd.config.address import TcpAddress, parse_address
from ackd.config.mistakes import Path, nearest, shown
from ackd.config.peers import TLS_FILES, everywhere, parse_advertised, parse_peer_address
from ackd.config.reader import SettingsReader
from ackd.config.schema import Settings, StoreSettings
from ackd.config.store_url import StoreTarget, parse_store_url
from ackd.config.subscription import SubscriptionSettings, longest_delay_ms
from ackd.config.units import DAY_MS, format_duration

LEASE_KEY_BYTES_MIN = 16
RETENTION_MARGIN_MS = 7 * DAY_MS
"""How much longer than the longest delay copies must be kept (rule R25)."""

Parsed = TypeVar("Parsed")


def check(settings: Settings, reader: SettingsReader) -> None:
    """Report every broken rule."""
    _listen(settings, reader)
    _sqs(settings, reader)
    _store(settings, reader)
    _lease_key(settings, reader)
    if settings.peers.on:
        _peers(settings, reader)
    for name, each in settings.subscriptions.items():
        _subscription(settings, each, reader, ("subscriptions", name))
    _shared_topics(settings, reader)
    _dead_letter_topics(settings, reader)
    publish = settings.publish
    _topics(publish.topics, reader, ("publish", "topics"))
    paths: tuple[Path, Path] = (("publish", "backoff_ms"), ("publish", "backoff_ms_max"))
    if reader.clean(*paths) and publish.backoff_ms > publish.backoff_ms_max:
        _above(reader, paths, publish.backoff_ms, publish.backoff_ms_max)


def _above(reader: SettingsReader, paths: tuple[Path, Path], value_ms: int, most_ms: int) -> None:
    """Report that one duration exceeds the other, at the one that the operator set."""
    at = 0 if reader.given(paths[0]) else 1
    words = (
        f"{format_duration(value_ms)} is more than {paths[1][-1]} ({format_duration(most_ms)})",
        f"{format_duration(most_ms)} is less than {paths[0][-1]} ({format_duration(value_ms)})",
    )
    reader.mistake(paths[at], words[at])


def _listen(settings: Settings, reader: SettingsReader) -> None:
    server = settings.server
    both = (
        ("listen", server.listen, "token_file", server.token_file),
        ("admin_listen", server.admin_listen, "admin_token_file", server.admin_token_file),
    )
    for key, text, token_key, token_file in both:
        path = ("server", key)
        address = _parsed(reader, path, text, parse_address)
        if address is None or address.local or token_file is not None:
            continue
        if reader.clean(("server", token_key)):
            reader.mistake(
                path,
                f"others can reach this address, so `server.{token_key}` is required",
                value=shown(text),
            )
    if server.health_listen:
        _parsed(reader, ("server", "health_listen"), server.health_listen, parse_address)
    if reader.clean(("server", "listen"), ("server", "admin_listen")):
        data, admin = parse_address(server.listen), parse_address(server.admin_listen)
        free = isinstance(data, TcpAddress) and data.port == 0
        if data == admin and not free:
            path = ("server", "admin_listen")
            reader.mistake(path, "the same address as `server.listen`", value=shown(str(admin)))


def _sqs(settings: Settings, reader: SettingsReader) -> None:
    sqs, path = settings.sqs, ("sqs", "listen")
    if not sqs.listen:
        return
    address = _parsed(reader, path, sqs.listen, parse_address)
    if address is None or address.local or sqs.credentials_file is not None:
        return
    if reader.clean(("sqs", "credentials_file")):
        reader.mistake(
            path,
            "others can reach this address, so `sqs.credentials_file` is required",
            value=shown(sqs.listen),
        )


def _parsed(
    reader: SettingsReader, path: Path, text: str, parse: Callable[[str], Parsed]
) -> Parsed | None:
    if not reader.clean(path):
        return None
    try:
        return parse(text)
    except ValueError as error:
        reader.mistake(path, str(error), value=shown(text))
        return None


def _store(settings: Settings, reader: SettingsReader) -> None:
    store = settings.store
    target = _parsed(reader, ("store", "url"), store.url, parse_store_url)
    if (store.tls_cert_file is None) is not (store.tls_key_file is None):
        missing = "tls_cert_file" if store.tls_cert_file is None else "tls_key_file"
        given = "tls_key_file" if store.tls_cert_file is None else "tls_cert_file"
        if reader.clean(("store", missing), ("store", given)):
            reader.mistake(("store", given), f"needs `store.{missing}` as well")
    if target is None:
        return
    for key in _without_effect(settings, target):
        # At its default it says nothing (as in a file that `ackd check` has printed).
        changed = getattr(store, key) != getattr(StoreSettings(), key)
        if changed and reader.clean(("store", key)):
            reader.mistake(("store", key), f"has no effect with `url = {shown(store.url)}`")
    if store.durability == "replicated" and target.private:
        path = ("store", "durability")
        if reader.clean(path):
            problem = f"a store `{target.kind}` has no replicas"
            reader.mistake(path, problem, value=shown(store.durability), allowed="everysec, always")


def _without_effect(settings: Settings, target: StoreTarget) -> Iterable[str]:
    """Report settings that the chosen kind of store would silently ignore."""
    if target.private:
        yield from ("username", "password_file")
    if not target.tls:
        yield from ("tls_ca_file", "tls_cert_file", "tls_key_file")
    if settings.store.durability != "replicated":
        yield "replicas_min"


def _lease_key(settings: Settings, reader: SettingsReader) -> None:
    file = settings.lease_key_file
    if file is None or not reader.check_files or not reader.clean(("lease_key_file",)):
        return
    with file.open("rb") as opened:
        lines = [line.strip() for line in opened.read(4096).splitlines()[:2]]
    if len(lines[0]) < LEASE_KEY_BYTES_MIN or 0 < len(lines[-1]) < LEASE_KEY_BYTES_MIN:
        problem = f"a secret has less than {LEASE_KEY_BYTES_MIN} bytes"
        reader.mistake(("lease_key_file",), problem, value=shown(str(file)))


def _peers(settings: Settings, reader: SettingsReader) -> None:
    """Others must be able to connect to what they are given, and on other machines with TLS."""
    peers = settings.peers
    files: list[Path] = [("peers", key) for key in TLS_FILES]
    missing = [key for key in TLS_FILES if getattr(peers, key) is None]
    if reader.clean(*files) and 0 < len(missing) < len(TLS_FILES):
        given = next(key for key in TLS_FILES if key not in missing)
        reader.mistake(("peers", given), f"needs `peers.{missing[0]}` as well")
    at: Path = ("peers", "listen")
    listen = _parsed(reader, at, peers.listen, parse_peer_address)
    if not peers.advertise:
        if listen is not None and everywhere(listen):
            problem = "every address of the machine: it needs `peers.advertise` as well"
            reader.mistake(at, problem, value=shown(peers.listen))
        return
    to: Path = ("peers", "advertise")
    address = _parsed(reader, to, peers.advertise, parse_advertised)
    if address is None or listen is None:
        return
    if everywhere(address):
        reader.mistake(to, "nobody can connect to every address", value=shown(peers.advertise))
    elif address.local and not listen.local and len(missing) == len(TLS_FILES):
        problem = "others on this machine connect without TLS, which `peers.listen` can't have"
        reader.mistake(to, problem, value=shown(peers.advertise))


def _subscription(
    settings: Settings, each: SubscriptionSettings, reader: SettingsReader, path: Path
) -> None:
    by_itself(each, reader, path)
    if reader.clean((*path, "start"), (*path, "start_timestamp_ms")):
        timed = each.start == "timestamp"
        if timed and each.start_timestamp_ms is None:
            reader.mistake((*path, "start"), '"timestamp" needs `start_timestamp_ms` as well')
        if not timed and each.start_timestamp_ms is not None:
            problem = f"has no effect with `start = {shown(each.start)}`"
            reader.mistake((*path, "start_timestamp_ms"), problem)
    _mode(each, reader, path)
    _broker_of(settings, each, reader, (*path, "broker"))
    _topics(each.topics, reader, (*path, "topics"))


def _mode(each: SubscriptionSettings, reader: SettingsReader, path: Path) -> None:
    """Report settings that the chosen mode doesn't have."""
    if not reader.clean((*path, "mode")):
        return
    broadcast = each.mode == "broadcast"
    key = "static_id" if broadcast else "broadcast_id"
    if getattr(each, key) and reader.clean((*path, key)):
        reader.mistake((*path, key), f"has no effect with `mode = {shown(each.mode)}`")


def by_itself(each: SubscriptionSettings, reader: SettingsReader, path: Path) -> None:
    """Check the rules between settings that may change live. `path`: where these settings are."""
    lease: tuple[Path, Path] = ((*path, "lease_ms"), (*path, "lease_ms_max"))
    if reader.clean(*lease) and each.lease_ms > each.lease_ms_max:
        _above(reader, lease, each.lease_ms, each.lease_ms_max)
    _push(each, reader, path)
    _retry(each, reader, path)


def _retry(each: SubscriptionSettings, reader: SettingsReader, path: Path) -> None:
    """Copies must outlive the longest delay (R25), and a formula must not shrink."""
    formula: tuple[Path, Path] = ((*path, "retry_backoff_ms"), (*path, "retry_backoff_ms_max"))
    if not reader.clean(*formula):
        return
    if each.retry_backoff_ms > each.retry_backoff_ms_max:
        _above(reader, formula, each.retry_backoff_ms, each.retry_backoff_ms_max)
        return
    kept: Path = (*path, "retry_topic_retention_ms")
    if each.retry_topic and reader.clean(kept, (*path, "retry_delays_ms")):
        longest_ms = longest_delay_ms(each)
        least_ms = longest_ms + RETENTION_MARGIN_MS
        if each.retry_topic_retention_ms < least_ms:
            problem = f"a copy may wait {format_duration(longest_ms)}, and a week must be left"
            shown_text = format_duration(each.retry_topic_retention_ms)
            text = f"at least {format_duration(least_ms)}"
            reader.mistake(kept, problem, value=shown_text, allowed=text)


def _push(each: SubscriptionSettings, reader: SettingsReader, path: Path) -> None:
    """Report calls that may outlive their lease: they would work on a message that others get."""
    push = each.push
    paths = ((*path, "push", "timeout_ms"), (*path, "lease_ms"))
    longer = push.url and not push.auto_extend and push.timeout_ms > each.lease_ms
    if longer and reader.clean(*paths, (*path, "push", "auto_extend")):
        _above(reader, paths, push.timeout_ms, each.lease_ms)


def _broker_of(
    settings: Settings, each: SubscriptionSettings, reader: SettingsReader, path: Path
) -> None:
    if not reader.clean(path) or each.broker in settings.brokers:
        return
    names = ", ".join(settings.brokers)
    if each.broker == "":
        reader.mistake(path, "is required: there are several brokers", allowed=names)
        return
    hint = nearest(each.broker, settings.brokers)
    reader.mistake(path, "no such broker", value=shown(each.broker), allowed=names, hint=hint)


def _topics(topics: Iterable[str], reader: SettingsReader, path: Path) -> None:
    if not reader.clean(path):
        return
    seen: set[str] = set()
    for index, topic in enumerate(topics):
        if topic in seen:
            reader.mistake((*path, index), "the same topic twice", value=shown(topic))
        seen.add(topic)
        if topic.startswith("^"):
            try:
                re.compile(topic)
            except (re.error, RecursionError, OverflowError) as error:
                problem = f"not a regular expression: {error}"
                reader.mistake((*path, index), problem, value=shown(topic))


def _shared_topics(settings: Settings, reader: SettingsReader) -> None:
    """Two subscriptions of one group on one topic would undo each other's progress."""
    owner: dict[tuple[str, str, str], str] = {}
    for name, each in settings.subscriptions.items():
        path: Path = ("subscriptions", name)
        if not reader.clean((*path, "topics"), (*path, "group"), (*path, "broker")):
            continue
        for index, topic in enumerate(each.topics):
            first = owner.setdefault((each.broker, each.group, topic), name)
            if first != name:
                problem = f"subscription {first!r} of the same group has this topic already"
                reader.mistake((*path, "topics", index), problem, value=shown(topic))


def _dead_letter_topics(settings: Settings, reader: SettingsReader) -> None:
    """A subscription that consumes its own dead letters would never end; two that share one
    dead-letter topic would each redrive its messages.
    """
    owner: dict[tuple[str, str], str] = {}
    for name, each in settings.subscriptions.items():
        path: Path = ("subscriptions", name, "dead_letter_topic")
        if not each.dead_letter_topic or not reader.clean(path, ("subscriptions", name, "topics")):
            continue
        if each.dead_letter_topic in each.topics:
            reader.mistake(path, "is one of `topics`", value=shown(each.dead_letter_topic))
        first = owner.setdefault((each.broker, each.dead_letter_topic), name)
        if first != name:
            problem = f"subscription {first!r} has this topic already"
            reader.mistake(path, problem, value=shown(each.dead_letter_topic))
