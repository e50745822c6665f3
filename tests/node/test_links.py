"""Links between sidecars of real pods, in a network that enforces NetworkPolicies.

The chart is as a user installs it; kube-router makes its policies count. One topic with one
partition, so that all but one application live on what comes through a link.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.node.conftest import Chart
from tests.node.shop import SUB, Shop
from tests.node.test_node import assert_kept, keep, running_pods
from tests.node.wire import Wire, fetched
from tests.support.k8s.api import Json
from tests.support.kafka import Kafka
from tests.support.node.node import NodeCluster
from tests.support.paths import REPO
from tests.support.wait import wait_until

pytestmark = [pytest.mark.node, pytest.mark.slow]
LINKS, HEALTH = 7083, 7082
BACKLOG = 400
IDLE = ("python", "-c", "import time; time.sleep(3600)")
KNOCK = """
import socket, sys
for place in sys.argv[1:]:
    host, port = place.split(":")
    try:
        socket.create_connection((host, int(port)), timeout=2).close()
        print("open")
    except OSError:
        print("closed")
"""
NONSENSE = """
import socket, sys
host, port = sys.argv[1].split(":")
with socket.create_connection((host, int(port)), timeout=20) as stranger:
    stranger.sendall(b"GET / HTTP/1.1\\r\\nHost: ackd\\r\\n\\r\\n")
    said = b""
    try:
        while more := stranger.recv(4096):
            said += more
    except ConnectionResetError:
        pass
print("told" if b"HTTP" in said else "hung-up")
"""
STRANGER = """
import asyncio, sys
from ackd.config.peers import PeerSettings
from ackd.errors import PeerError
from tests.unit.peer.recorder import make_node, running

async def main(name, address):
    stranger = make_node("bills", PeerSettings(listen=":0", advertise="192.0.2.1"))
    async with running(stranger):
        try:
            await stranger.peers.connect(name, address)
        except PeerError as error:
            print(error.facts["reason"])
        else:
            print("linked")

asyncio.run(main(*sys.argv[1:]))
"""


class Place(NamedTuple):
    """One end of a connection that is tried, and the other."""

    source: str
    target: str
    port: int


@pytest.fixture(scope="module")
def linked(cluster: NodeCluster, kafka_beside: Kafka, chart: Chart) -> Iterator[Shop]:
    """Three pods of one subscription, one of another, and one without a sidecar."""
    del chart
    shop = Shop(cluster, kafka_beside, "links")
    shop.open(partitions=1)
    try:
        shop.configure("bills", "bills")
        plan = shop.plan(consumers=2, batch_max=5, work_ms_max=60)
        shop.publish(BACKLOG)
        shop.create("Deployment", env={"PLAN": plan}, grace_s=5, replicas=3)
        running_pods(shop, 3)
        shop.create_pod("bills", env={}, command=IDLE, config="bills")
        shop.create_pod("plain", env={}, command=IDLE)
        for name in ("bills", "plain"):
            shop.wait_pod(name)
        yield shop
    finally:
        print(shop.told())  # noqa: T201  pytest shows it with a failure
        shop.close()


@pytest.mark.timeout(600)
def test_applications_beside_all_pods_get_messages_of_the_only_partition(linked: Shop) -> None:
    """By the chart's defaults, over TLS; who owned and who served is counted on both sides."""
    with Wire() as wire:
        first = linked.acked()
        with linked.load(rate_per_s=40):
            wait_until(lambda: linked.acked() >= first + 200, "acks", timeout_s=180, interval_s=0.2)
            wait_until(lambda: linked.acked() >= BACKLOG, "the backlog", timeout_s=180)
    settled = linked.drain(calm_s=0)
    assert_kept(settled)

    served = {name: ways(pod) for name, pod in pods_of(linked).items()}
    print(served)  # noqa: T201  the point of it
    assert sum(each["own"] + each["through_peers"] for each in served.values()) == (
        settled.deliveries
    )
    gave = {name for name, each in served.items() if each["for_peers"]}
    took = {name for name, each in served.items() if each["through_peers"]}
    assert len(gave) == 1, "one owns the partition"
    assert len(took) == 2, "and the others have nothing else"
    assert not gave & took
    assert sum(served[name]["for_peers"] for name in gave) == sum(
        served[name]["through_peers"] for name in took
    )
    assert all(served[name]["own"] == 0 for name in took)
    keep("links", served=sorted(served.values(), key=str), acked=settled.acked)

    # Another subscription of the same store and topic has no part in it.
    assert value(named(linked, "bills"), "ackd_peers_connected") == 0
    # What the bodies say is seen where it goes in the clear, and nowhere on the links.
    assert wire.seen(LINKS) > 10_000
    assert LINKS in wire.where(b"\x17\x03\x03"), "records of TLS"
    plain = wire.where(b'"msg"')
    assert plain, "the broker's connections have no TLS"
    assert LINKS not in plain


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["bills", "plain"])
def test_whoever_lacks_the_key_of_the_store_is_refused_by_the_proof(
    linked: Shop, name: str
) -> None:
    """No policy is there: the port is open to pods of another subscription and to those without a
    sidecar, TLS is spoken, and the secret decides. What is no TLS is hung up on.
    """
    target = next(iter(pods_of(linked).values()))
    source, address = named(linked, name), f"{target['status']['podIP']}:{LINKS}"
    for code, arguments, answer, reason in (
        (STRANGER, (target["metadata"]["name"], address), "key", "key"),
        (NONSENSE, (address,), "hung-up", "tls"),
    ):
        before = refused(target, reason)
        assert inside(linked, source, code, *arguments) == [answer]
        until_refused(target, reason, before + 1)


@pytest.mark.timeout(900)
def test_the_port_is_open_between_pods_of_one_subscription_only(linked: Shop, chart: Chart) -> None:
    """The chart's policies are enforced. Pods that are left out are named, and all goes on; once
    they are let in, they are linked.
    """
    pods = {**pods_of(linked), "bills": named(linked, "bills"), "plain": named(linked, "plain")}
    orders = set(pods_of(linked))
    places = {
        Place(source, target, port)
        for source in pods
        for target in set(pods) - {source, "plain"}
        for port in (LINKS, HEALTH)
    }
    assert set(knocked(linked, pods, places).values()) == {"open"}, "nothing is closed yet"

    try:
        chart(policies(linked))
        right = {
            each: "open"
            if each.port == HEALTH or {each.source, each.target} <= orders
            else "closed"
            for each in places
        }
        until_knocked(linked, pods, right)
        with linked.load(rate_per_s=20):
            left_out_is_named(linked, orders)
            went_on(linked)
            chart(policies(linked, ["ackd-config", "orders-batch"], ["bills"]))
            late = named(linked, "batch")
            pods["batch"] = late
            ours = orders | {"batch"}
            both = {
                Place(source, target, LINKS): "open" if {source, target} <= ours else "closed"
                for source in pods
                for target in set(pods) - {source, "plain"}
            }
            until_knocked(linked, pods, both)
            wait_until(
                lambda: not any(unlinked(each) for each in (late, *pods_of(linked).values())),
                "nobody is left out",
                timeout_s=120,
                interval_s=0.5,
            )
            until_linked(late)
            went_on(linked)
        assert_kept(linked.drain(calm_s=1))
    finally:
        linked.delete_pod("batch")
        chart({})


@pytest.mark.timeout(900)
def test_a_pod_that_is_replaced_is_linked_again(linked: Shop, chart: Chart) -> None:
    """Each in turn, under the chart's policies: the owner of the partition is one of them. The new
    pod has another name and address.
    """
    try:
        chart(policies(linked))
        with linked.load(rate_per_s=20):
            for name in sorted(pods_of(linked)):
                new = replaced(linked, name)
                until_linked(new)
                went_on(linked)
            wait_until(
                lambda: not any(map(unlinked, pods_of(linked).values())),
                "nobody is left out",
                timeout_s=180,  # a pod that is gone is named for a minute
                interval_s=0.5,
            )
        plain = named(linked, "plain")
        places = {Place("plain", name, LINKS) for name in pods_of(linked)}
        until_knocked(linked, {"plain": plain, **pods_of(linked)}, dict.fromkeys(places, "closed"))
        assert_kept(linked.drain(calm_s=1))
    finally:
        chart({})


def policies(shop: Shop, *lists: list[str]) -> Json:
    """Values of the chart that turn its policies on in this namespace."""
    return {
        "config": {"namespaces": [shop.name]},
        "sidecar": {"networkPolicy": {"enabled": True, "linked": [*lists]}},
    }


def replaced(shop: Shop, name: str) -> Json:
    """Delete a pod of the Deployment; the one that comes for it."""
    before = set(pods_of(shop))
    shop.delete_pod(name)

    def there() -> str:
        return next(iter(set(pods_of(shop)) - before), "")

    return shop.wait_pod(wait_until(there, f"another pod than {name}", interval_s=0.2))


def left_out_is_named(shop: Shop, orders: set[str]) -> None:
    """A pod of the same subscription whose ConfigMap is in no list: it works and is not linked."""
    shop.configure("orders-batch", SUB)
    plan = shop.plan(consumers=2, batch_max=5, work_ms_max=60)
    shop.create_pod("batch", env={"PLAN": plan}, config="orders-batch")
    late = shop.wait_pod("batch")

    def said() -> str:
        """Whoever waits says it: this one, or the others if the partition has moved to it."""
        mine = unlinked(late)
        if any(name in mine for name in orders):
            return mine
        return next((each for each in map(unlinked, pods_of(shop).values()) if "batch" in each), "")

    found = wait_until(said, "who can't be reached is named", timeout_s=90, interval_s=0.5)
    print(found)  # noqa: T201  the point of it
    everybody = (late, *pods_of(shop).values())

    def counted() -> bool:
        return any(value(pod, "ackd_peers_unreachable") >= 1 for pod in everybody)

    wait_until(counted, "what the alert goes by", interval_s=0.5)
    for pod in everybody:
        assert json.loads(fetched(pod, HEALTH, "/readyz"))["ready"]


def went_on(shop: Shop) -> None:
    """Applications finish what is published meanwhile."""
    before = shop.acked()
    wait_until(lambda: shop.acked() >= before + 100, "work", timeout_s=120, interval_s=0.2)


def pods_of(shop: Shop) -> dict[str, Json]:
    """Those of the Deployment, by name."""
    found = {each["metadata"]["name"]: each for each in shop.pods()}
    return {name: each for name, each in found.items() if name.startswith("app-")}


def named(shop: Shop, name: str) -> Json:
    """One pod."""
    return next(each for each in shop.pods() if each["metadata"]["name"] == name)


def value(pod: Json, name: str, **labels: str) -> float:
    """The sum of a metric's samples with these labels."""
    return sum(
        sample.value
        for family in text_string_to_metric_families(fetched(pod, HEALTH, "/metrics"))
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


def ways(pod: Json) -> dict[str, int]:
    """How many messages its sidecar has served, by way."""
    return {
        way: int(value(pod, "ackd_messages_served_total", subscription=SUB, way=way))
        for way in ("own", "for_peers", "through_peers")
    }


def refused(pod: Json, reason: str) -> float:
    """How many it did not let in, for this."""
    return value(pod, "ackd_peer_handshakes_refused_total", reason=reason)


def until_refused(pod: Json, reason: str, count: float) -> None:
    """Wait until it has refused so many for this."""
    wait_until(lambda: refused(pod, reason) == count, f"refused: {reason}", interval_s=0.2)


def until_linked(pod: Json) -> None:
    """Wait until it has given messages to others, or got some of theirs."""

    def done() -> int:
        counts = ways(pod)
        return counts["through_peers"] + counts["for_peers"]

    what = f"links of {pod['metadata']['name']}"
    wait_until(done, what, timeout_s=120, interval_s=0.5)


def unlinked(pod: Json) -> str:
    """What readiness says of links."""
    reasons = json.loads(fetched(pod, HEALTH, "/readyz"))["reasons"]
    return next(str(each.get("detail", "")) for each in reasons if each["name"] == "peers")


def until_knocked(shop: Shop, pods: dict[str, Json], right: dict[Place, str]) -> None:
    """Wait until each connection comes to what it should."""
    wrong: dict[Place, str] = {}

    def done() -> bool:
        found = knocked(shop, pods, set(right))
        wrong.clear()
        wrong.update({place: said for place, said in found.items() if right[place] != said})
        return not wrong

    try:
        wait_until(done, "the policies count", timeout_s=120, interval_s=0.5)
    except AssertionError as error:
        raise AssertionError(f"{error}: {wrong}\n{shop.cluster.logs()}") from error


def knocked(shop: Shop, pods: dict[str, Json], places: set[Place]) -> dict[Place, str]:
    """What a connection from inside of one pod to another one comes to."""
    found: dict[Place, str] = {}
    for source, pod in pods.items():
        mine = sorted(each for each in places if each.source == source)
        where = [f"{pods[each.target]['status']['podIP']}:{each.port}" for each in mine]
        found |= dict(zip(mine, inside(shop, pod, KNOCK, *where), strict=True))
    return found


def inside(shop: Shop, pod: Json, code: str, *arguments: str) -> list[str]:
    """The lines that a Python program writes in the network of a pod."""
    process = shop.process(pod, "app")
    done = subprocess.run(
        ["nsenter", f"--net=/proc/{process.pid}/ns/net", sys.executable, "-c", code, *arguments],
        check=False,
        capture_output=True,
        text=True,
        cwd=REPO,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()
