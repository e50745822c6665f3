"""Pods as people write them, by name; what becomes of each lies in `golden/NAME.json`.

`python -m tests.unit.inject.cases` writes the golden files anew; read the difference before you
keep it. The same files are held against a real API server with the admission policy.
"""

import json
from pathlib import Path
from typing import Any

from ackd.inject.pod import applied, decide
from ackd.inject.settings import InjectSettings, parse

GOLDEN = Path(__file__).parent / "golden"
SETTINGS = GOLDEN / "injector.json"

Json = dict[str, Any]


def pod(annotations: dict[str, str] | None = None, **spec: Any) -> Json:
    """A small pod; `spec` replaces parts of it."""
    metadata: Json = {"name": "shop"}
    if annotations is not None:
        metadata["annotations"] = {f"ackd.dev/{name}": text for name, text in annotations.items()}
    container = {"name": "app", "image": "registry.example/shop:7"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [container], **spec},
    }


WANTED = {"inject": "true"}
APP = {"name": "app", "image": "registry.example/shop:7"}

CASES: dict[str, Json] = {
    "plain": pod(WANTED),
    "full": pod(
        WANTED,
        restartPolicy="Never",
        initContainers=[{"name": "migrate", "image": "registry.example/shop:7"}],
        containers=[
            {
                **APP,
                "env": [{"name": "PORT", "value": "8080"}],
                "volumeMounts": [{"name": "cache", "mountPath": "/cache"}],
            },
            {"name": "proxy", "image": "registry.example/proxy:1"},
        ],
        volumes=[{"name": "cache", "emptyDir": {}}],
    ),
    "own-env": pod(
        WANTED,
        containers=[{**APP, "env": [{"name": "ACKD_URL", "value": "http://localhost:7080"}]}],
    ),
    "own-pull-secrets": pod(WANTED, imagePullSecrets=[{"name": "own"}, {"name": "registry"}]),
    "other-pull-secrets": pod(WANTED, imagePullSecrets=[{"name": "own"}]),
    "changed": pod(
        {
            **WANTED,
            "config": "orders",
            "image": "registry.example/ackd@sha256:" + "ab" * 32,
            "cpu": "200m",
            "memory": "256Mi",
            "app-env": "false",
            "app-health": "http://127.0.0.1:8080/healthz",
        }
    ),
    "not-wanted": pod({"inject": "false"}),
    "says-nothing": pod(),
    "unknown-annotation": pod({**WANTED, "confg": "orders"}),
    "bad-values": pod({"inject": "yes", "cpu": "lots", "app-health": "https://example.com/"}),
    "host-network": pod(WANTED, hostNetwork=True),
    "same-name": pod(WANTED, containers=[{**APP, "name": "ackd"}]),
    "same-port": pod(WANTED, containers=[{**APP, "ports": [{"containerPort": 7080}]}]),
    "same-volume": pod(WANTED, volumes=[{"name": "ackd-config", "emptyDir": {}}]),
}


def settings() -> InjectSettings:
    """Those that the chart renders with `golden/values.yaml`."""
    return parse(SETTINGS.read_bytes(), SETTINGS.name)


def outcome(name: str) -> Json:
    """What a golden file has to say."""
    made = CASES[name]
    decision = decide(made, settings())
    if decision.refusal:
        return {"pod": made, "refused": decision.refusal}
    return {"pod": made, "injected": applied(made, decision.patch)}


if __name__ == "__main__":
    for case in CASES:
        (GOLDEN / f"{case}.json").write_text(json.dumps(outcome(case), indent=2) + "\n")
