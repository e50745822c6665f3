"""One cluster with a real node for the run; Kafka and a store beside it, where pods reach them."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.k8s.release import OPTED_IN, has_sidecar, merge, probed
from tests.node.shop import Shop
from tests.support.k8s import install as plane
from tests.support.k8s.api import ApiError, Json
from tests.support.k8s.helm import Helm
from tests.support.kafka import Kafka, KafkaOptions
from tests.support.node import install, kube_router, node
from tests.support.node.install import IMAGE
from tests.support.node.node import ADDRESS, NodeCluster
from tests.support.redis import Flavour, RedisOptions, RedisServer, binary
from tests.support.require import require
from tests.support.wait import wait_until

Shops = Callable[..., Shop]
Chart = Callable[[Json], None]


@pytest.fixture(scope="session")
def kafka_beside(cluster: NodeCluster) -> Iterator[Kafka]:
    """A broker at the node's address."""
    del cluster  # it makes the address
    with Kafka(KafkaOptions(host=ADDRESS)) as started:
        yield started


@pytest.fixture(scope="session")
def store_beside(cluster: NodeCluster) -> Iterator[str]:
    """The URL of a store at the node's address."""
    del cluster  # it makes the address
    config = {"bind": "0.0.0.0", "protected-mode": "no"}  # noqa: S104  a network of its own
    options = RedisOptions(binary=binary(Flavour.VALKEY), config=config)
    with RedisServer(options) as started:
        yield f"redis://{ADDRESS}:{started.port}/0"


@pytest.fixture(scope="session")
def cluster() -> Iterator[NodeCluster]:
    """The node is ready, and its network enforces NetworkPolicies."""
    require(node.missing())
    require(plane.missing())
    require(install.missing())
    require(kube_router.missing())
    with NodeCluster(plane.found(), install.found()) as started:
        started.enforce_policies()
        yield started


@pytest.fixture(scope="session")
def chart(cluster: NodeCluster, store_beside: str) -> Chart:
    """The chart with its defaults, so it is a policy of the API server; pods bring their
    configuration along. Call it to have other values.
    """
    repository, _, tag = IMAGE.rpartition(":")
    values: Json = {
        "image": {"repository": repository, "tag": tag, "pullPolicy": "Never"},
        "store": {"url": store_beside},
    }

    def upgrade(more: Json) -> None:
        Helm("helm4", cluster.kubeconfig).upgrade(merge(values, more))

    upgrade({})
    # The API server hears of a new policy a moment later; pods of before stay as they are.
    wait_until(
        lambda: has_sidecar(probed(cluster.api, OPTED_IN)),
        "pods get the sidecar",
        interval_s=0.2,
        ignoring=(ApiError,),
    )
    return upgrade


@pytest.fixture
def shops(cluster: NodeCluster, kafka_beside: Kafka, chart: Chart) -> Iterator[Shops]:
    """Make a namespace with a subscription; a failure shows what is known of its pods."""
    del chart
    made: list[Shop] = []

    def make(name: str, *, partitions: int = 4, lease_ms: int = 20_000, **settings: Any) -> Shop:
        shop = Shop(cluster, kafka_beside, name, lease_ms, settings)
        shop.open(partitions)
        made.append(shop)
        return shop

    yield make
    for each in made:
        print(each.told())  # noqa: T201  pytest shows it with a failure
        each.close()
