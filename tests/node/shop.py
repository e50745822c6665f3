"""What runs on the node: namespaces with their configuration, workloads, and messages for them."""

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Producer

from ackd_torture.checker import Verdict, check
from ackd_torture.history import EventKind, Recorder, histories, load
from ackd_torture.workload import acked_by
from tests.support.k8s.api import Api, ApiError, Json
from tests.support.kafka import Kafka
from tests.support.node.node import HOME, IMAGE, NodeCluster
from tests.support.paths import REPO
from tests.support.wait import wait_until

SUB = "orders"
SIDECAR = "ackd"
APP = Path(__file__).with_name("app.py")
LIBRARY = REPO / "sidecar/tools/ackd_torture"
POD_S_MAX = 180.0
DRAIN_S_MAX = 240.0
MERGE = "application/merge-patch+json"


@dataclass
class Shop:
    """A namespace with one subscription to a topic of its own, and what its clients wrote."""

    cluster: NodeCluster
    kafka: Kafka
    name: str
    lease_ms: int = 20_000
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def api(self) -> Api:
        """The administrator's client."""
        return self.cluster.api

    @property
    def topic(self) -> str:
        """Its topic; its group is called alike."""
        return self.name

    @property
    def folder(self) -> Path:
        """Where histories are written, by pods too."""
        return HOME / "history" / self.name

    def open(self, partitions: int = 4) -> None:
        """Make all of it."""
        self.folder.mkdir(parents=True)
        self.folder.chmod(0o777)
        self.kafka.create_topic(self.topic, partitions=partitions)
        self.api.namespace(self.name, {})
        self.configure("ackd-config", SUB)
        self._config_map("app", {"app.py": APP.read_text()})
        # The image has no tools: the library of clients comes with the application.
        self._config_map("tools", {each.name: each.read_text() for each in LIBRARY.glob("*.py")})

    def configure(self, name: str, sub: str) -> None:
        """A ConfigMap for sidecars, with one subscription to the topic."""
        settings = {
            "topics": [self.topic],
            "group": self.topic if sub == SUB else sub,
            "start": "earliest",
            "lease_ms": self.lease_ms,
            **self.settings,
        }
        lines = [
            "[brokers.main]",
            'adapter = "kafka"',
            "[brokers.main.options]",
            f'bootstrap_servers = "{self.kafka.bootstrap}"',
            f"[subscriptions.{sub}]",
            *(f"{key} = {json.dumps(value)}" for key, value in settings.items()),
        ]
        self._config_map(name, {"ackd.toml": "\n".join(lines) + "\n"})

    def close(self) -> None:
        """End its pods and wait until they are gone."""
        self.api.delete(f"/api/v1/namespaces/{self.name}")
        wait_until(lambda: not self.pods(), f"the end of {self.name}", timeout_s=POD_S_MAX)

    # --- workloads

    def create(self, kind: str, *, env: dict[str, str], grace_s: int = 30, **spec: Any) -> None:
        """A Deployment or Job named `app`, opted in."""
        pod = self._pod(env, grace_s, {"ackd.dev/inject": "true"})
        body: Json = {"template": pod, **spec}
        if kind == "Job":
            pod["spec"]["restartPolicy"] = "Never"
        else:
            body["selector"] = {"matchLabels": {"app": "app"}}
        version = "batch/v1" if kind == "Job" else "apps/v1"
        made = {"apiVersion": version, "kind": kind, "spec": body}
        self.api.create({**made, "metadata": {"name": "app", "namespace": self.name}})

    def create_pod(
        self, name: str, *, env: dict[str, str], command: Sequence[str] = (), config: str = ""
    ) -> None:
        """A pod by itself. `config`: the ConfigMap of its sidecar; empty: it has no sidecar.
        `command`: in place of the application.
        """
        wanted = {"ackd.dev/inject": "true", "ackd.dev/config": config} if config else {}
        pod = self._pod(env, 1, wanted)
        pod["metadata"] |= {"name": name, "namespace": self.name, "labels": {"app": name}}
        if command:
            pod["spec"]["containers"][0]["command"] = list(command)
        self.api.create({"apiVersion": "v1", "kind": "Pod", **pod})

    def wait_pod(self, name: str) -> Json:
        """The pod when all of it runs."""

        def ready() -> Json:
            found = self.api.get(f"/api/v1/namespaces/{self.name}/pods/{name}")
            true = {
                each["type"]
                for each in found.get("status", {}).get("conditions", [])
                if each["status"] == "True"
            }
            return found if "Ready" in true else {}

        return wait_until(ready, f"the pod {name}", timeout_s=POD_S_MAX, interval_s=0.2)

    def delete_pod(self, name: str) -> None:
        """Returns when it is gone, or at once if there is none."""
        path = f"/api/v1/namespaces/{self.name}/pods/{name}"

        def gone() -> bool:
            return name not in {each["metadata"]["name"] for each in self.pods()}

        if not gone():
            self.api.delete(path)
        wait_until(gone, f"the end of {name}", timeout_s=POD_S_MAX, interval_s=0.2)

    def change(self, spec: Json) -> None:
        """Change the Deployment's spec."""
        path = f"/apis/apps/v1/namespaces/{self.name}/deployments/app"
        self.api.call("PATCH", path, {"spec": spec}, MERGE)

    def roll_out(self, mark: str) -> None:
        """A new revision; returns when its pods have replaced the others."""
        self.change({"template": {"metadata": {"annotations": {"revision": mark}}}})
        self.wait_settled()

    def scale(self, replicas: int) -> None:
        """Returns when there are exactly so many pods, all ready."""
        self.change({"replicas": replicas})
        self.wait_settled()

    def wait_settled(self) -> list[Json]:
        """Until the Deployment is what it should be and no pod of the past is left."""
        path = f"/apis/apps/v1/namespaces/{self.name}/deployments/app"

        def settled() -> list[Json] | bool:
            found = self.api.get(path)
            status, wanted = found.get("status", {}), found["spec"]["replicas"]
            if status.get("observedGeneration") != found["metadata"]["generation"]:
                return False
            pods = self.pods()
            counts = [status.get("updatedReplicas", 0), status.get("readyReplicas", 0), len(pods)]
            return (pods or True) if counts == [wanted] * 3 else False

        found = wait_until(
            settled, f"the Deployment of {self.name}", timeout_s=POD_S_MAX, interval_s=0.2
        )
        return found if isinstance(found, list) else []

    def pods(self) -> list[Json]:
        """All that there are, ending ones too."""
        return self.api.items(f"/api/v1/namespaces/{self.name}/pods")

    def container(self, pod: Json, name: str) -> Json:
        """The status of one of a pod's containers, as it is now."""
        found = self.api.get(f"/api/v1/namespaces/{self.name}/pods/{pod['metadata']['name']}")
        status = found.get("status", {})
        both = [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
        return next((each for each in both if each["name"] == name), {})

    def process(self, pod: Json, name: str) -> psutil.Process:
        """The process of a container."""
        return self.cluster.process(self.container(pod, name)["containerID"])

    def logs(self, pod: Json, name: str = SIDECAR) -> str:
        """What a container has written."""
        path = f"/api/v1/namespaces/{self.name}/pods/{pod['metadata']['name']}/log"
        return str(self.api.call("GET", f"{path}?container={name}"))

    def told(self) -> str:
        """What is known about its pods, for whoever reads a failure."""
        lines: list[str] = []
        for pod in self.pods():
            lines.append(json.dumps(pod["status"])[:4000])
            for name in (SIDECAR, "app"):
                try:
                    lines.append(f"--- {name}\n{self.logs(pod, name)[-3000:]}")
                except (ApiError, OSError) as error:
                    lines.append(f"--- {name}: {error}")
        return "\n".join(lines)

    # --- messages and the verdict

    @contextmanager
    def load(self, rate_per_s: int) -> Iterator[None]:
        """Publish meanwhile, straight into the topic."""
        publisher = Publisher(self, rate_per_s)
        thread = threading.Thread(target=publisher.work)
        thread.start()
        try:
            yield
        finally:
            publisher.end.set()
            thread.join()

    def publish(self, count: int) -> None:
        """Publish so many at once."""
        with Recorder(self.folder / "backlog.ndjson", "backlog") as recorder:
            publisher = Publisher(self, 0)
            for number in range(count):
                publisher.send(recorder, f"{self.name}-backlog-{number}")
            publisher.producer.flush(60)

    def acked(self) -> int:
        """How many messages are finished by what is written so far."""
        return len(acked_by(histories(self.folder)))

    def drain(self, calm_s: float) -> Verdict:
        """Wait until all that was published is acked, and a while longer; then judge."""

        def finished() -> bool:
            events = load(histories(self.folder))
            published = {each.msg for each in events if each.kind is EventKind.PUBLISHED}
            return published <= acked_by(histories(self.folder))

        wait_until(finished, f"acks in {self.name}", timeout_s=DRAIN_S_MAX, interval_s=0.5)
        time.sleep(calm_s)  # what should not come would have come
        with Recorder(self.folder / "drain.ndjson", "drain") as recorder:
            recorder.note(EventKind.DRAINED, sub=SUB, count=0)
        return check(load(histories(self.folder)))

    def attempts(self) -> int:
        """The highest attempt number that any application was told."""
        events = load(histories(self.folder))
        return max(each.attempt for each in events if each.kind is EventKind.DELIVERED)

    def plan(self, **more: Any) -> str:
        """For `PLAN` of the application."""
        plan = {
            "topic": self.topic,
            "sub": SUB,
            "folder": "/history",
            "seed": 7,
            "consumers": 3,
            "lease_ms": self.lease_ms,
            **more,
        }
        return json.dumps(plan)

    def _pod(self, env: dict[str, str], grace_s: int, annotations: dict[str, str]) -> Json:
        return {
            "metadata": {"labels": {"app": "app"}, "annotations": annotations},
            "spec": {
                "terminationGracePeriodSeconds": grace_s,
                "containers": [self._container(env)],
                "volumes": [
                    {"name": "app", "configMap": {"name": "app"}},
                    {"name": "tools", "configMap": {"name": "tools"}},
                    {"name": "history", "hostPath": {"path": str(self.folder)}},
                ],
            },
        }

    def _container(self, env: dict[str, str]) -> Json:
        return {
            "name": "app",
            "image": IMAGE,
            "command": ["python", "/app/app.py"],
            "env": [
                {"name": name, "value": value}
                for name, value in {"PYTHONPATH": "/tools", **env}.items()
            ],
            "volumeMounts": [
                {"name": "app", "mountPath": "/app"},
                {"name": "tools", "mountPath": f"/tools/{LIBRARY.name}"},
                {"name": "history", "mountPath": "/history"},
            ],
        }

    def _config_map(self, name: str, data: dict[str, str]) -> None:
        made = {"apiVersion": "v1", "kind": "ConfigMap", "data": data}
        self.api.create({**made, "metadata": {"name": name, "namespace": self.name}})


class Publisher:
    """Messages with names, and a history of them. The broker alone says what was stored."""

    def __init__(self, shop: Shop, rate_per_s: int) -> None:
        self.end = threading.Event()
        self.producer = Producer(
            {"bootstrap.servers": shop.kafka.bootstrap, "acks": "all", "linger.ms": 5}
        )
        self._shop = shop
        self._rate_per_s = rate_per_s

    def work(self) -> None:
        """Until the end, at its rate."""
        number, began = 0, time.time_ns()
        with Recorder(self._shop.folder / "publisher.ndjson", "publisher") as recorder:
            while not self.end.wait(1 / self._rate_per_s):
                number += 1
                self.send(recorder, f"{self._shop.name}-{began}-{number}")
                self.producer.poll(0)
            self.producer.flush(60)

    def send(self, recorder: Recorder, msg: str) -> None:
        """One message; `PUBLISHED` is noted when the broker has it."""

        def stored(error: object, message: Any) -> None:
            if error is None:
                place = f"{message.topic()}/{message.partition()}/{message.offset()}"
                recorder.note(EventKind.PUBLISHED, msg=msg, id=place)
            else:
                recorder.note(EventKind.PUBLISH_UNKNOWN, msg=msg, note=str(error))
            recorder.flush()

        recorder.note(EventKind.PUBLISH, msg=msg)
        recorder.flush()
        body = json.dumps({"msg": msg, "pad": "x" * 200}).encode()
        self.producer.produce(self._shop.topic, body, key=msg.encode(), on_delivery=stored)
