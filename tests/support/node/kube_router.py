"""Build kube-router, which makes NetworkPolicies count, from Go's module proxy, once for a go.sum.

`python -m tests.support.node.kube_router` builds it. It calls Debian's iptables and ipset.
"""

import shutil
from pathlib import Path

from tests.support.golang import build
from tests.support.golang.build import Installation, Program

MODULE = Path(__file__).parent / "kube_router_module"
NAME = "kube-router"
PACKAGE = "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router"
FLAGS = ("-trimpath", "-gcflags=all=-N -l -dwarf=false")
"""Without the optimiser it is built faster; it has little to do here."""
LINK = "-s -w"


def found() -> Installation:
    """Where it is, or will be."""
    return Installation(build.folder(NAME, (FLAGS, LINK, PACKAGE), [MODULE]))


def missing() -> str:
    """What is not there, as a sentence; empty when policies can be enforced."""
    if not found().made:
        return "kube-router is not built: make test-node"
    if not all(shutil.which(each) for each in ("iptables", "ipset", "nsenter")):
        return "enforcing policies takes iptables, ipset and nsenter: make test-node"
    return ""


def install() -> Installation:
    """Return the installation, made on first use (some two minutes of a processor)."""
    target = found()
    build.make(target, {NAME: Program(MODULE, PACKAGE, LINK)}, FLAGS)
    return target


def _main() -> None:
    build.say(f"kube-router for the tests: {install().folder}")


if __name__ == "__main__":
    build.main(_main)
