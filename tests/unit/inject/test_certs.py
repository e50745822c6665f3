"""Certificates that are made in memory, and the bundle in which several replicas stand."""

import base64
import ssl
from datetime import UTC, datetime, timedelta

from ackd.inject import certs
from ackd.inject.trust import AUTHORITIES_MAX, bundle_changes

NOW = datetime(2026, 5, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
HOSTS = ["ackd-injector.ackd-system.svc"]


def made(hours_ago: int, life: timedelta = 24 * HOUR) -> certs.Identity:
    return certs.make(HOSTS, life, NOW - hours_ago * HOUR)


def test_it_verifies_for_the_service_and_nothing_else() -> None:
    """The chain as OpenSSL sees it is tried over TLS in test_webhook; here: what it says."""
    identity = certs.make(HOSTS, HOUR)
    trust = ssl.create_default_context(cadata=identity.ca)
    (authority,) = trust.get_ca_certs()
    assert authority["subject"] == authority["issuer"]
    assert identity.renew_at() < identity.end
    assert identity.renew_at() > datetime.now(UTC)


def test_replicas_come_to_the_same_bundle() -> None:
    """Whoever writes last writes the same: no patching back and forth."""
    one, two = made(2).ca, made(1).ca
    first = certs.merged("", [one], NOW, 16)
    both = certs.merged(first, [two], NOW, 16)
    assert certs.merged(both, [one], NOW, 16) == both
    assert certs.merged(both, [two], NOW, 16) == both
    assert both.count("BEGIN") == 2


def test_what_is_over_or_broken_goes() -> None:
    over, mine = made(30).ca, made(1).ca
    broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    assert certs.merged(f"{over}{broken} rubbish", [mine], NOW, 16) == mine


def test_the_bundle_is_bounded_and_ours_stays() -> None:
    """A replica that starts again and again leaves authorities behind (I8)."""
    old = [made(hours).ca for hours in range(20, 2, -1)]
    mine = made(22).ca
    bundle = certs.merged("".join(old), [mine], NOW, AUTHORITIES_MAX)
    assert bundle.count("BEGIN") == AUTHORITIES_MAX
    assert mine in bundle
    assert old[-1] in bundle
    assert old[0] not in bundle


def test_each_entry_of_a_webhook_is_patched_when_it_lacks_it() -> None:
    mine = made(1).ca
    value = base64.b64encode(mine.encode()).decode()
    entries = [{"clientConfig": {}}, {"clientConfig": {"caBundle": value}}]
    (change,) = bundle_changes({"webhooks": entries}, [mine], NOW)
    assert change == {"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": value}
    entries[0] = {"clientConfig": {"caBundle": "%%%"}}
    assert len(bundle_changes({"webhooks": entries}, [mine], NOW)) == 1
    assert not bundle_changes({"webhooks": entries[1:]}, [mine], NOW)
