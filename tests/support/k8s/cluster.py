"""A Kubernetes of its own: etcd, API server, controllers, scheduler, and kwok in place of nodes.

It wants a network namespace that it has for itself (`make test-k8s` makes one, no root needed), so
that addresses of pods can be addresses of this machine: what is said to listen in a pod is started
here, and the API server reaches it through the chart's Service as it would in a cluster.
"""

import json
import secrets
import socket
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from ackd_torture.ports import free_port, give_back
from tests.support.k8s.api import Api, ApiError, Json
from tests.support.k8s.install import Installation
from tests.support.paths import remove_run_dir, run_dir
from tests.support.proc import Process, ProcessFailedError
from tests.support.started import Started
from tests.support.wait import wait_until

PODS = "10.244.0.0/16"
SERVICES = "10.96.0.0/16"
NODES = ("node-1", "node-2")
READY_S_MAX = 180.0
_NOTHING_THERE = (ApiError, OSError)


def alone_on_network() -> bool:
    """Whether nothing but a loopback interface is here: a namespace of our own."""
    return [name for _, name in socket.if_nameindex()] == ["lo"]


def missing() -> str:
    """Why there can be no cluster here, as a sentence; empty when there can."""
    if not alone_on_network():
        return "a cluster wants a network namespace of its own: make test-k8s"
    return ""


class Cluster(Started):
    """One cluster; `api` speaks to it as its administrator."""

    def __init__(self, programs: Installation) -> None:
        self._programs = programs
        self._folder: Path | None = None
        self._ports: list[int] = []
        self._processes: dict[str, Process] = {}
        self._token = secrets.token_hex(16)
        self._api: Api | None = None

    @property
    def api(self) -> Api:
        """A client that may do everything."""
        if self._api is None:
            raise AssertionError("the cluster was never started")
        return self._api

    @property
    def folder(self) -> Path:
        """Its data and logs."""
        if self._folder is None:
            raise AssertionError("the cluster was never started")
        return self._folder

    @property
    def kubeconfig(self) -> Path:
        """For helm and the controllers."""
        return self.folder / "kubeconfig"

    def start(self) -> Self:
        """Start all of it; returns when both nodes are ready."""
        self._folder = run_dir("k8s")
        try:
            self._start(self._programs)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Kill all of it and remove its data."""
        for process in reversed(self._processes.values()):
            process.kill()
        self._processes.clear()
        give_back(*self._ports)
        if self._folder is not None:
            remove_run_dir(self._folder)

    def logs(self, lines: int = 20) -> str:
        """The ends of all logs."""
        return "\n".join(
            f"--- {name}\n" + "\n".join(each.log().splitlines()[-lines:])
            for name, each in self._processes.items()
        )

    def network(self) -> list[str]:
        """Commands of `ip` that make the network: addresses of pods are addresses of ours."""
        return ["link set lo up", f"route add local {PODS} dev lo"]

    def start_nodes(self, programs: Installation) -> list[str]:
        """Start what runs pods; the names of the nodes to wait for."""
        stages = [f"--config={path}" for path in programs.stages]
        kwok = [str(programs.program("kwok")), f"--kubeconfig={self.kubeconfig}"]
        self.run("kwok", [*kwok, "--manage-all-nodes=true", f"--cidr={PODS}", *stages])
        for name in NODES:
            self.api.create(_node(name))
        return list(NODES)

    def _start(self, programs: Installation) -> None:
        for command in self.network():
            subprocess.run(["ip", *command.split()], check=True, timeout=20)
        etcd, peer, port = self._ports = [free_port(), free_port(), free_port()]
        plane = str(programs.program("controlplane"))
        self.run("etcd", [str(programs.program("etcd")), *_etcd(self.folder, etcd, peer)])
        self._prepare()
        self.run("apiserver", [plane, "kube-apiserver", *_apiserver(self.folder, etcd, port)])
        ca = self.folder / "certs" / "apiserver.crt"
        self._api = Api(f"https://127.0.0.1:{port}", self._token, ca)
        self.until_ready("apiserver", lambda: self.api.call("GET", "/readyz") == "ok")
        self._write_kubeconfig()
        access = [f"--kubeconfig={self.kubeconfig}"]
        more = [
            *access,
            f"--authentication-kubeconfig={self.kubeconfig}",
            f"--authorization-kubeconfig={self.kubeconfig}",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
        ]
        self.run(
            "controllers",
            [
                *(plane, "kube-controller-manager", *more),
                "--use-service-account-credentials=false",
                # On a busy machine heartbeats are late; no test here is about lost nodes.
                "--node-monitor-grace-period=1h",
                f"--root-ca-file={ca}",
                f"--service-account-private-key-file={self.folder / 'accounts.key'}",
            ],
        )
        self.run("scheduler", [plane, "kube-scheduler", *more])
        nodes = self.start_nodes(programs)
        self.until_ready("nodes", lambda: self._nodes_ready(nodes))

    def run(self, name: str, argv: list[str]) -> None:
        """Start a part of it; it ends with the cluster."""
        process = Process(argv, log_path=self.folder / f"{name}.log")
        self._processes[name] = process
        process.start()

    def _prepare(self) -> None:
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
        (self.folder / "accounts.key").write_bytes(pem)
        (self.folder / "tokens.csv").write_text(f'{self._token},admin,1,"system:masters"\n')

    def _write_kubeconfig(self) -> None:
        cluster = {"server": self.api.url, "certificate-authority": str(self.api.ca_file)}
        text = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "own", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": self._token}}],
            "contexts": [{"name": "own", "context": {"cluster": "own", "user": "admin"}}],
            "current-context": "own",
        }
        self.kubeconfig.write_text(json.dumps(text))

    def _nodes_ready(self, names: Sequence[str]) -> bool:
        nodes = self.api.items("/api/v1/nodes")
        ready = [
            each["metadata"]["name"]
            for each in nodes
            for condition in each.get("status", {}).get("conditions", [])
            if condition["type"] == "Ready" and condition["status"] == "True"
            if not each["spec"].get("taints")
        ]
        return sorted(ready) == sorted(names)

    def until_ready(self, name: str, ready: Callable[[], bool]) -> None:
        """Wait for it, as long as all parts run."""

        def asked() -> bool:
            for part, process in self._processes.items():
                if not process.running:
                    status = process.returncode
                    raise ProcessFailedError(f"{part} ended with {status}:\n{self.logs()}")
            return ready()

        try:
            wait_until(asked, name, timeout_s=READY_S_MAX, ignoring=_NOTHING_THERE)
        except AssertionError as error:
            raise ProcessFailedError(f"{error}\n{self.logs()}") from error


def _etcd(folder: Path, client: int, peer: int) -> list[str]:
    urls, peers = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
    return [
        f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls={urls}",
        f"--advertise-client-urls={urls}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=default={peers}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def _apiserver(folder: Path, etcd: int, port: int) -> list[str]:
    key = folder / "accounts.key"
    return [
        f"--etcd-servers=http://127.0.0.1:{etcd}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        "--endpoint-reconciler-type=none",
        f"--secure-port={port}",
        f"--cert-dir={folder / 'certs'}",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-cluster-ip-range={SERVICES}",
        "--authorization-mode=RBAC",
        f"--token-auth-file={folder / 'tokens.csv'}",
        "--kubelet-preferred-address-types=InternalIP",
        # A webhook's Service is resolved to its endpoints: there is no kube-proxy.
        "--enable-aggregator-routing=true",
    ]


def _node(name: str) -> Json:
    room = {"cpu": "32", "memory": "256Gi", "pods": "500"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"},
        },
        "status": {"allocatable": room, "capacity": room},
    }
