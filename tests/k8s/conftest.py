"""One cluster for the run, and the chart in it in one of its two ways to inject."""

import itertools
from collections.abc import Callable, Iterator, Mapping

import pytest

from tests.k8s.release import MODES, Release
from tests.support.k8s import cluster as cluster_support
from tests.support.k8s import install
from tests.support.k8s.api import Api
from tests.support.k8s.cluster import Cluster
from tests.support.k8s.install import Installation
from tests.support.require import require

Namespaces = Callable[..., str]
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def programs() -> Installation:
    """They are built; a cluster is not needed."""
    require(install.missing())
    return install.found()


@pytest.fixture(scope="session")
def cluster(programs: Installation) -> Iterator[Cluster]:
    """Do not hurt it; use namespaces of your own."""
    require(cluster_support.missing())
    with Cluster(programs) as started:
        yield started


@pytest.fixture(scope="session", params=MODES)
def release(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[Release]:
    """The chart, installed by Helm 4 in each mode in turn. Do not hurt it."""
    with Release(cluster, request.param) as installed:
        yield installed


@pytest.fixture
def own_webhook(cluster: Cluster) -> Iterator[Callable[..., Release]]:
    """The chart in webhook mode for one test, to break. Options go to the injector's command."""
    releases: list[Release] = []

    def start(helm: str = "helm4", *options: str) -> Release:
        releases.append(Release(cluster, "webhook", helm=helm, options=options).start())
        return releases[-1]

    yield start
    for each in releases:
        each.stop()


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[Namespaces]:
    """Make a namespace with labels; it is emptied at the end."""
    made: list[str] = []

    def make(labels: Mapping[str, str] | None = None) -> str:
        made.append(cluster.api.namespace(f"app-{next(_numbers)}", labels or {}))
        return made[-1]

    yield make
    for name in made:
        cluster.api.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture
def api(cluster: Cluster) -> Api:
    """The administrator's client."""
    return cluster.api
