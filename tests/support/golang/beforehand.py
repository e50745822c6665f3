"""`python -m tests.support.golang.beforehand --yield`: build what `.ci/run` needs at its end."""

from tests.support.collector import install as collector
from tests.support.golang import build
from tests.support.k8s import install as k8s


def _all() -> None:
    collector.install()
    k8s.install()


if __name__ == "__main__":
    build.main(_all)
