"""A Kubernetes with one real node: kubelet, containerd, runc, and a bridge for its pods.

It wants a machine of its own, which `tests/support/node/space.sh` makes out of namespaces: in there
it may mount, route and kill what it likes. Kafka and a store that are started beside it listen at
`ADDRESS`, where pods reach them.
"""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import psutil

from ackd_torture.ports import free_port, give_back
from tests.support.k8s.api import Json
from tests.support.k8s.cluster import SERVICES, Cluster, alone_on_network
from tests.support.k8s.install import Installation as Plane
from tests.support.node import kube_router
from tests.support.node.install import CNI, IMAGE, PAUSE, Installation, image_archive

NAME = "node-1"
ADDRESS = "10.250.0.1"
PODS = "10.244.0.0/24"
HOME = Path("/run/node")
"""The folder on a disk that space.sh has put there; short, as paths of sockets have to be."""
CGROUP = "ACKD_NODE_CGROUP"
SOCKET = Path("/run/containerd.sock")
_IMPORT_S_MAX = 600
_CGROUPS = Path("/sys/fs/cgroup")


def missing() -> str:
    """Why there can be no node here, as a sentence; empty when there can."""
    if os.geteuid() != 0:
        return "a real node needs root: its containers are real ones. As root: make test-node"
    if CGROUP not in os.environ or not alone_on_network():
        return "a node wants namespaces of its own: make test-node"
    return ""


class NodeCluster(Cluster):
    """One cluster with one node, `NAME`."""

    def __init__(self, plane: Plane, programs: Installation) -> None:
        super().__init__(plane)
        self._node = programs
        self._health = free_port()

    def stop(self) -> None:
        """Kill it; containers go with the namespaces that all of this runs in."""
        super().stop()
        give_back(self._health)

    def network(self) -> list[str]:
        """Commands of `ip`: the node's own address. The bridge is made with the first pod."""
        return ["link set lo up", f"address add {ADDRESS}/32 dev lo"]

    def start_nodes(self, programs: Plane) -> list[str]:
        """Start containerd, give it the images, start the kubelet."""
        del programs
        self._write_cni()
        config = HOME / "containerd.toml"
        config.write_text(_containerd())
        containerd = str(self._node.program("containerd"))
        # It looks for its shims in PATH.
        self.run("containerd", ["env", f"PATH={self._path()}", containerd, "--config", str(config)])
        self.until_ready("containerd", lambda: "SERVER" in self.ctr("version").upper())
        for archive in (self._node.pause, image_archive()):
            self.ctr("images", "import", "--local", str(archive))
        (HOME / "resolv.conf").write_text("nameserver 127.0.0.1\n")
        settings = HOME / "kubelet.json"
        settings.write_text(json.dumps(_kubelet(os.environ[CGROUP], self._health)))
        argv = [
            *(str(self._node.program("kubelet")), f"--config={settings}"),
            *(f"--kubeconfig={self.kubeconfig}", f"--root-dir={HOME / 'kubelet'}"),
            *(f"--cert-dir={HOME / 'pki'}", f"--node-ip={ADDRESS}", f"--hostname-override={NAME}"),
        ]
        self.run("kubelet", argv)
        return [NAME]

    def enforce_policies(self) -> None:
        """Make NetworkPolicies count: kube-router, as a firewall only, beside the bridge."""
        argv = [
            *(str(kube_router.found().program(kube_router.NAME)), "--run-firewall=true"),
            *("--run-router=false", "--run-service-proxy=false", "--health-port=0"),
            *(f"--kubeconfig={self.kubeconfig}", f"--hostname-override={NAME}"),
            f"--service-cluster-ip-range={SERVICES}",
        ]
        self.run(kube_router.NAME, argv)

    def ctr(self, *words: str) -> str:
        """What containerd's own command says; an empty text when it failed at asking."""
        done = subprocess.run(
            [str(self._node.program("ctr")), "-a", str(SOCKET), "-n", "k8s.io", *words],
            check=words[0] != "version",
            capture_output=True,
            text=True,
            timeout=_IMPORT_S_MAX,
        )
        return done.stdout

    def process(self, container: str) -> psutil.Process:
        """The first process of a container, by its status' `containerID`."""
        wanted = container.rpartition("/")[2]
        for line in self.ctr("tasks", "ls").splitlines():
            words = line.split()
            if words[:1] == [wanted]:
                return psutil.Process(int(words[1]))
        raise AssertionError(f"{container} does not run")

    def _path(self) -> str:
        return f"{self._node.folder}:{os.environ['PATH']}"

    @staticmethod
    def _write_cni() -> None:
        folder = HOME / "cni"
        folder.mkdir(exist_ok=True)
        bridge: Json = {
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": True,
            "hairpinMode": True,
            "ipam": {
                "type": "host-local",
                "dataDir": str(HOME / "ipam"),
                "ranges": [[{"subnet": PODS}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }
        text: Json = {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge]}
        (folder / "10-pods.conflist").write_text(json.dumps(text))


@dataclass(frozen=True)
class Cgroup:
    """The memory of one container, as the kernel accounts for it."""

    folder: Path

    @classmethod
    def of(cls, process: psutil.Process) -> "Cgroup":
        """The one that a process is in; cgroup v1 and v2."""
        for line in Path(f"/proc/{process.pid}/cgroup").read_text().splitlines():
            number, controllers, path = line.split(":", 2)
            if number == "0" and (_CGROUPS / "cgroup.controllers").exists():
                return cls(_CGROUPS / path.lstrip("/"))
            if "memory" in controllers.split(","):
                return cls(_CGROUPS / "memory" / path.lstrip("/"))
        raise AssertionError(f"{process.pid} is in no cgroup for memory")

    def working_set(self) -> int:
        """Bytes, as the kubelet counts them: what is used but for files that can go at once."""
        for used, inactive in (
            ("memory.current", "inactive_file"),
            ("memory.usage_in_bytes", "total_inactive_file"),
        ):
            if (self.folder / used).exists():
                lines = (self.folder / "memory.stat").read_text().splitlines()
                stat = dict(line.split() for line in lines)
                return int((self.folder / used).read_text()) - int(stat[inactive])
        raise AssertionError(f"{self.folder} does not say what memory it uses")


def _containerd() -> str:
    cri = "plugins.'io.containerd.cri.v1"
    return f"""
version = 3
root = '{HOME}/containerd'
state = '/run/containerd-state'
disabled_plugins = ['io.containerd.internal.v1.opt', 'io.containerd.nri.v1.nri']
[grpc]
address = '{SOCKET}'
[{cri}.images']
snapshotter = 'overlayfs'
[{cri}.images'.pinned_images]
sandbox = '{PAUSE}'
[{cri}.runtime']
# Lowering it takes a capability that root of a virtual machine may not have.
restrict_oom_score_adj = true
[{cri}.runtime'.containerd.runtimes.runc]
runtime_type = 'io.containerd.runc.v2'
[{cri}.runtime'.containerd.runtimes.runc.options]
SystemdCgroup = false
[{cri}.runtime'.cni]
bin_dirs = ['{CNI}']
conf_dir = '{HOME}/cni'
"""


def _kubelet(cgroup: str, health: int) -> Json:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": ADDRESS,
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup}",
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "enforceNodeAllocatable": [],
        "evictionHard": {"memory.available": "1Mi", "nodefs.available": "1%"},
        "failCgroupV1": False,
        "failSwapOn": False,
        # It must not stop where settings of the whole machine can't be written.
        "featureGates": {"KubeletInUserNamespace": True},
        "healthzPort": health,
        "imageGCHighThresholdPercent": 100,
        "localStorageCapacityIsolation": True,
        "makeIPTablesUtilChains": False,
        "podLogsDir": f"{HOME}/logs",
        "resolvConf": f"{HOME}/resolv.conf",
        "volumePluginDir": f"{HOME}/volume-plugins",
    }


__all__ = ["ADDRESS", "HOME", "IMAGE", "NAME", "Cgroup", "NodeCluster", "missing"]
