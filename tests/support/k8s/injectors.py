"""The chart's injectors: for each pod that kwok says runs, a real process at the pod's address."""

import contextlib
import http.client
import json
import sys

from tests.support.k8s.api import Api, Json
from tests.support.k8s.cluster import Cluster
from tests.support.k8s.helm import NAMESPACE
from tests.support.proc import Process, ProcessFailedError
from tests.support.wait import wait_until

NAME = "ackd-injector"
READY_S_MAX = 60.0
DRAIN = "1s"
"""Enough to hear of a pod that goes, on one machine."""


class Injectors:
    """Processes that follow the pods of the Deployment; they act as its service account."""

    def __init__(self, cluster: Cluster, *options: str) -> None:
        self._cluster = cluster
        self._options = options
        self._processes: dict[str, Process] = {}

    @property
    def processes(self) -> list[Process]:
        """Those that run."""
        return list(self._processes.values())

    def follow(self) -> None:
        """Wait for the roll-out; start what is in new pods, end what was in gone ones."""
        api = self._cluster.api
        pods = wait_until(
            lambda: _rolled_out(api), f"pods of {NAME}", timeout_s=READY_S_MAX, interval_s=0.2
        )
        addresses = {str(pod["metadata"]["uid"]): str(pod["status"]["podIP"]) for pod in pods}
        for uid in self._processes.keys() - addresses.keys():
            self._processes.pop(uid).stop()
        fresh = addresses.keys() - self._processes.keys()
        for uid in fresh:
            self._processes[uid] = self._start(uid, addresses[uid])
        for uid, address in addresses.items():
            self._wait_ready(self._processes[uid], address)

    def stop(self) -> None:
        """End all, as when every pod is gone at once."""
        for process in self._processes.values():
            process.stop()
        self._processes.clear()

    def kill(self) -> None:
        """End all with no warning; the pods stay, as does what the cluster believes of them."""
        for process in self._processes.values():
            process.kill()
        self._processes.clear()

    def _start(self, uid: str, address: str) -> Process:
        folder = self._cluster.folder
        settings, token = folder / f"{uid}.json", folder / f"{uid}.token"
        settings.write_text(rendered_settings(self._cluster.api))
        account = self._cluster.api.as_account(NAMESPACE, NAME)
        token.write_text(account.token)
        argv: list[str] = [
            *(sys.executable, "-m", "ackd", "inject", "serve"),
            *("--config", str(settings), "--namespace", NAMESPACE),
            *("--service", NAME, "--webhook", NAME),
            *("--listen", f"{address}:8443", "--health-listen", f"{address}:8080"),
            *("--api-url", account.url, "--api-token-file", str(token)),
            *("--api-ca-file", str(account.ca_file), "--drain", DRAIN, *self._options),
        ]
        process = Process(argv, log_path=folder / f"injector-{address}.log")
        process.start()
        return process

    @staticmethod
    def _wait_ready(process: Process, address: str) -> None:
        def ready() -> bool:
            if not process.running:
                raise ProcessFailedError(f"the injector ended:\n{process.log()}")
            connection = http.client.HTTPConnection(address, 8080, timeout=5)
            with contextlib.closing(connection):
                connection.request("GET", "/readyz")
                return connection.getresponse().status == 200

        try:
            wait_until(ready, "an injector", timeout_s=READY_S_MAX, ignoring=(OSError,))
        except AssertionError as error:
            raise ProcessFailedError(f"{error}\n{process.log()}") from error


def rendered_settings(api: Api) -> str:
    """The injector's settings in the cluster."""
    config = api.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/{NAME}")
    text: str = config["data"]["injector.json"]
    json.loads(text)
    return text


def _rolled_out(api: Api) -> list[Json]:
    deployment = api.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{NAME}")
    status, wanted = deployment.get("status", {}), deployment["spec"]["replicas"]
    seen = status.get("observedGeneration") == deployment["metadata"]["generation"]
    counts = [status.get(key, 0) for key in ("replicas", "updatedReplicas", "availableReplicas")]
    if not seen or counts != [wanted] * 3:
        return []
    labels = deployment["spec"]["selector"]["matchLabels"]
    selector = ",".join(f"{key}%3D{value}" for key, value in labels.items())
    pods = api.items(f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector={selector}")
    alive = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    placed = [pod for pod in alive if "podIP" in pod["status"]]
    return placed if len(placed) == len(alive) == wanted else []
