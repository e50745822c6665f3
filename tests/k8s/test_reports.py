"""The chart's way to a report: the CronJob, its verdicts, and the page that it leaves."""

import argparse
import http.client
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ackd_reports import command
from ackd_torture.ports import free_port
from tests.k8s.conftest import Namespaces
from tests.k8s.release import merge
from tests.support.k8s.api import Api, Json
from tests.support.k8s.cluster import Cluster
from tests.support.k8s.helm import Helm
from tests.support.proc import Process
from tests.support.wait import wait_until

pytestmark = [pytest.mark.k8s, pytest.mark.usefixtures("programs")]
VALUES: Json = {
    "image": {"pullSecrets": [{"name": "registry"}]},
    "reports": {
        "mode": "cronjob",
        "tracesClaim": "traces",
        "reportsClaim": "reports",
        "secretEnv": ["s3-keys"],
        "targets": {"targets.toml": '[[target]]\nname = "in time"\n'},
        "page": {"enabled": True},
    },
}
MERGE = "application/merge-patch+json"


def made(kind: str, values: Json | None = None) -> list[Json]:
    things = Helm("helm4").template(merge(VALUES, values or {}))
    return [
        each for each in things if each["kind"] == kind and "reports" in each["metadata"]["name"]
    ]


def job_spec(values: Json | None = None) -> Json:
    [cron] = made("CronJob", values)
    spec: Json = cron["spec"]["jobTemplate"]["spec"]
    return spec


def test_with_no_arguments_it_makes_a_report_of_the_day() -> None:
    """The command takes what the chart says, and each folder and file that it names is there."""
    pod = job_spec()["template"]["spec"]
    [container] = pod["containers"]
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    asked = parser.parse_args(container["args"])
    assert (asked.verb, asked.source) == ("make", ["/traces"])
    mounted = {each["mountPath"] for each in container["volumeMounts"]}
    for place in ("/traces", str(asked.out), asked.lake, str(asked.targets)):
        assert any(place == each or place.startswith(f"{each}/") for each in mounted), place
    [files] = made("ConfigMap")
    assert Path(asked.targets).name in files["data"]
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert container["envFrom"] == [{"secretRef": {"name": "s3-keys"}}]


def test_the_heap_fits_into_what_the_job_may_use() -> None:
    """The job takes up to a GiB beside the heap (docs/operate/reports.md)."""
    [container] = job_spec()["template"]["spec"]["containers"]
    [heap] = [each["value"] for each in container["env"] if each["name"] == "ACKD_REPORT_MEMORY"]
    limit = container["resources"]["limits"]["memory"]
    assert heap.endswith("g")
    assert limit.endswith("Gi")
    assert int(heap[:-1]) + 1 <= int(limit[:-2])


@pytest.mark.parametrize(
    ("code", "pods"),
    [
        *((code, 1) for code in (command.USAGE, command.BROKEN, command.NO_DATA)),
        (command.INCOMPLETE, 1),
        (command.FAILED, 2),
    ],
)
def test_a_verdict_is_not_asked_for_again(
    api: Api, namespace: Namespaces, code: int, pods: int
) -> None:
    """Only what failed is: Spark runs once for each verdict."""
    name = namespace()
    spec = job_spec()
    # No node takes it, so that nobody but this test says how its pod ended.
    spec["template"]["spec"]["nodeSelector"] = {"none": "there"}
    job = {"apiVersion": "batch/v1", "kind": "Job", "spec": spec}
    api.create({**job, "metadata": {"name": "report", "namespace": name}})
    path = f"/api/v1/namespaces/{name}/pods"
    [first] = wait_until(lambda: api.items(path), "a pod", interval_s=0.1)
    ended = {"name": "reports", "image": "x", "imageID": "x", "ready": False, "restartCount": 0}
    ended["state"] = {"terminated": {"exitCode": code, "reason": "Error"}}
    status = {"phase": "Failed", "containerStatuses": [ended]}
    api.call("PATCH", f"{path}/{first['metadata']['name']}/status", {"status": status}, MERGE)

    def outcome() -> str:
        found = api.get(f"/apis/batch/v1/namespaces/{name}/jobs/report").get("status", {})
        failed = [
            each["reason"]
            for each in found.get("conditions", [])
            if each["type"] == "Failed" and each["status"] == "True"
        ]
        return failed[0] if failed else ("again" if len(api.items(path)) > 1 else "")

    said = wait_until(outcome, "what becomes of the job", timeout_s=90, interval_s=0.2)
    assert said == ("PodFailurePolicy" if pods == 1 else "again")


@pytest.fixture
def page(cluster: Cluster, tmp_path: Path) -> Iterator[tuple[str, int]]:
    """The program of the page's pod, on a folder and a port of ours."""
    del cluster  # it has switched the loopback interface on
    [deployment] = made("Deployment")
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    [mount] = container["volumeMounts"]
    assert mount["readOnly"] is True
    *_, program = container["command"]
    port = free_port()
    program = program.replace("/reports/latest", str(tmp_path)).replace("8080", str(port))
    process = Process([sys.executable, "-c", program], log_path=tmp_path.parent / "page.log")
    process.start()
    yield "127.0.0.1", port
    process.kill()


def test_the_newest_page_and_its_figures_are_shown(page: tuple[str, int], tmp_path: Path) -> None:
    """As HTML for people, and with the kind of text that Prometheus reads."""
    (tmp_path / "report.html").write_text("<h1>kept</h1>")
    (tmp_path / "report.prom").write_text("ackd_report_verdict 1\n")

    def got(path: str, method: str = "GET") -> tuple[int, str, bytes]:
        connection = http.client.HTTPConnection(*page, timeout=10)
        connection.request(method, path)
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer.status, answer.headers.get("Content-Type", ""), body

    wait_until(lambda: got("/")[0] == 200, "the page", ignoring=(OSError,))
    assert got("/report.html") == (200, "text/html", b"<h1>kept</h1>")
    status, kind, body = got("/report.prom")
    assert (status, kind) == (200, "text/plain; version=0.0.4")
    assert body.startswith(b"ackd_report_verdict")
    assert got("/report.html", "PUT")[0] == 501
    assert got("/%2e%2e/page.log")[0] == 404
    [monitor] = made("ServiceMonitor", {"monitoring": {"serviceMonitor": {"enabled": True}}})
    [endpoint] = monitor["spec"]["endpoints"]
    [service] = made("Service")
    assert endpoint["path"] == "/report.prom"
    assert endpoint["port"] in [each["name"] for each in service["spec"]["ports"]]
    assert (
        monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    )
