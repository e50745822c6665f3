"""Prometheus' own rule engine: `promtool`, and a server that scrapes what a test runs."""

from __future__ import annotations

import json
import shutil
import subprocess
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Self

import yaml

from ackd_torture.ports import free_port, give_back
from tests.support.paths import REPO, remove_run_dir, run_dir
from tests.support.proc import Process
from tests.support.started import Started
from tests.support.wait import wait_until

RULES = REPO / "helm" / "ackd" / "rules" / "ackd.rules.yaml"
PERIOD = "1s"

Json = dict[str, Any]


def missing() -> str:
    """What to install, or nothing."""
    lack = [name for name in ("prometheus", "promtool") if shutil.which(name) is None]
    return f"{' and '.join(lack)} missing: tests/support/apt.sh installs it" if lack else ""


def promtool(*words: str | Path) -> str:
    """Run it; its output. Fails on what it finds wrong."""
    argv = ["promtool", *map(str, words)]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def rules() -> list[Json]:
    """All alert rules that ackd ships."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


class Prometheus(Started):
    """A server with these rules, which do not wait (`for`) and are judged once a second."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._port = free_port()
        self._folder = run_dir("prometheus")
        config = self._folder / "prometheus.yaml"
        argv: list[str | Path] = ["prometheus", f"--config.file={config}"]
        argv.append(f"--storage.tsdb.path={self._folder / 'data'}")
        argv.append(f"--web.listen-address=127.0.0.1:{self._port}")
        self._process = Process(argv, log_path=self._folder / "log")

    def start(self) -> Self:
        """Start it and wait until it answers."""
        shown = {"name": "all", "interval": PERIOD, "rules": [_at_once(each) for each in rules()]}
        (self._folder / "rules.yaml").write_text(yaml.safe_dump({"groups": [shown]}))
        config = {
            "global": {"scrape_interval": PERIOD, "scrape_timeout": PERIOD},
            "rule_files": ["rules.yaml"],
            "scrape_configs": [
                {
                    "job_name": "ackd",
                    "static_configs": [{"targets": [f"127.0.0.1:{self._target_port}"]}],
                }
            ],
        }
        (self._folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
        self._process.start()
        try:
            wait_until(lambda: self._get("/-/ready"), "Prometheus is ready", ignoring=(OSError,))
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Kill it and remove its data."""
        self._process.stop()
        give_back(self._port)
        remove_run_dir(self._folder)

    def firing(self) -> dict[str, Json]:
        """The alerts that fire now, by name; of several with one name any."""
        found = json.loads(self._get("/api/v1/alerts"))["data"]["alerts"]
        return {each["labels"]["alertname"]: each for each in found if each["state"] == "firing"}

    def value(self, query: str) -> float:
        """The first value of an instant query; 0 without any. No blank in it."""
        found = json.loads(self._get(f"/api/v1/query?query={query}"))["data"]["result"]
        return float(found[0]["value"][1]) if found else 0.0

    def _get(self, path: str) -> str:
        if not self._process.running:
            raise AssertionError(self._process.log())
        with closing(HTTPConnection("127.0.0.1", self._port, timeout=60)) as connection:
            connection.request("GET", path)
            answer = connection.getresponse()
            text = answer.read().decode()
        return text if answer.status == 200 else ""


def _at_once(rule: Json) -> Json:
    return {name: value for name, value in rule.items() if name != "for"}
