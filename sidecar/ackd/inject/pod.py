"""Decides about a pod, as a pure function: leave it alone, refuse it, or change it.

The chart's admission policy says the same in CEL, for API servers that need no webhook; tests
compare both on the same examples.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from ackd.inject.settings import (
    APP_ENV,
    CONFIG,
    CONFIG_LABEL,
    CONTAINER,
    DOMAIN,
    HASH,
    INJECT,
    STATUS,
    VERSION,
    InjectSettings,
    Json,
)

VALUE_SHOWN_MAX = 80
_UNSAFE = re.compile(r"[^ -~]")


@dataclass(frozen=True, slots=True)
class Decision:
    """`reason` is a label for metrics. `refusal` is a sentence for the pod's creator, empty if
    the pod may pass. `patch` is a JSON patch (RFC 6902), empty if the pod stays as it is.
    """

    reason: str
    refusal: str = ""
    patch: list[Json] = field(default_factory=list)


def decide(pod: Json, settings: InjectSettings, *, by_namespace: bool = False) -> Decision:
    """Decide about a pod that somebody is creating.

    `by_namespace`: the namespace opts in by its label, so the pod needs no annotation. A pod that
    already has its sidecar stays as it is.
    """
    given = _ours(pod)
    wanted = given.get(INJECT, "true" if by_namespace else "false")
    if wanted == "false":
        return Decision("not-wanted")
    spec = pod.get("spec") or {}
    there = any(each.get("name") == CONTAINER for each in spec.get("initContainers") or [])
    if there and HASH in _annotations(pod):
        return Decision("already-there")
    wrong = list(_wrong_annotations(given, settings))
    if wrong:
        return Decision("bad-annotation", "; ".join(wrong))
    clashes = "; ".join(_clashes(spec, settings))
    if clashes:
        return Decision("clash", clashes)
    values = {name: each.default for name, each in settings.annotations.items()} | given
    return Decision("injected", patch=list(_changes(pod, spec, settings, values)))


def _annotations(pod: Json) -> dict[str, str]:
    return (pod.get("metadata") or {}).get("annotations") or {}


def _ours(pod: Json) -> dict[str, str]:
    """The pod's annotations in ackd's domain, without those that the injector writes; keys without
    the domain.
    """
    start = f"{DOMAIN}/"
    return {
        name.removeprefix(start): value
        for name, value in _annotations(pod).items()
        if name.startswith(start) and name not in STATUS
    }


def _wrong_annotations(given: dict[str, str], settings: InjectSettings) -> Iterator[str]:
    known = settings.annotations
    for name, value in sorted(given.items()):
        if name not in known:
            yield f"{DOMAIN}/{name} is no annotation of ackd; there are: {', '.join(sorted(known))}"
        elif not re.fullmatch(known[name].pattern, value):
            shown = _UNSAFE.sub("?", value[:VALUE_SHOWN_MAX])
            yield f"{DOMAIN}/{name} is '{shown}' and must be {known[name].words}"


def _clashes(spec: Json, settings: InjectSettings) -> Iterator[str]:
    """Reasons to refuse the pod's spec, in the words of the chart's policy."""
    if spec.get("hostNetwork"):
        yield "hostNetwork is set: the sidecar's ports would be open to the whole node"
    containers = [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]
    if any(each.get("name") == CONTAINER for each in containers):
        yield f"a container is named {CONTAINER}, as the sidecar is"
    taken = {port.get("containerPort") for each in containers for port in each.get("ports") or []}
    if not taken.isdisjoint(settings.ports):
        ports = ", ".join(map(str, settings.ports))
        yield f"a container has a port which is the sidecar's ({ports})"
    if any(str(v.get("name", "")).startswith(f"{CONTAINER}-") for v in spec.get("volumes") or []):
        yield f"a volume's name starts with {CONTAINER}-: such names are the sidecar's"


def _changes(
    pod: Json, spec: Json, settings: InjectSettings, values: dict[str, str]
) -> Iterator[Json]:
    ours = settings.filled(values)
    if spec.get("initContainers"):
        yield _add("/spec/initContainers/0", ours.container)
    else:
        yield _add("/spec/initContainers", [ours.container])
    yield from _appended("/spec", spec, "volumes", ours.volumes)
    secrets = [{"name": name} for name in settings.pull_secrets]
    secrets = _new(spec, "imagePullSecrets", secrets, "name")
    yield from _appended("/spec", spec, "imagePullSecrets", secrets)
    if values[APP_ENV] == "true":
        for index, each in enumerate(spec.get("containers") or []):
            path = f"/spec/containers/{index}"
            yield from _appended(path, each, "env", _new(each, "env", ours.app_env, "name"))
            mounts = _new(each, "volumeMounts", ours.app_mounts, "mountPath")
            yield from _appended(path, each, "volumeMounts", mounts)
    status = {VERSION: settings.version, HASH: settings.hash_with(values[CONFIG])}
    yield from _set(pod, "labels", {CONFIG_LABEL: values[CONFIG]})
    yield from _set(pod, "annotations", status)


def _set(pod: Json, kind: str, ours: dict[str, str]) -> Iterator[Json]:
    """Add to the labels or annotations of a pod; those of these names are replaced."""
    if not (pod.get("metadata") or {}).get(kind):
        yield _add(f"/metadata/{kind}", ours)
        return
    for name, value in ours.items():
        yield _add(f"/metadata/{kind}/{name.replace('/', '~1')}", value)


def _new(parent: Json, key: str, more: list[Json], identity: str) -> list[Json]:
    """Items of `more` that the container or pod does not set itself; its own ones stay."""
    has = {each.get(identity) for each in parent.get(key) or []}
    return [each for each in more if each[identity] not in has]


def _appended(path: str, parent: Json, key: str, more: list[Json]) -> Iterator[Json]:
    if more and not parent.get(key):
        yield _add(f"{path}/{key}", more)
        return
    for each in more:
        yield _add(f"{path}/{key}/-", each)


def _add(path: str, value: object) -> Json:
    return {"op": "add", "path": path, "value": value}


def applied(pod: Json, patch: list[Json]) -> Json:
    """A copy of the pod with the patch applied; knows only the operations that `decide` makes."""
    made: Json = deepcopy(pod)
    for each in patch:
        *parents, last = [
            part.replace("~1", "/").replace("~0", "~") for part in each["path"].split("/")[1:]
        ]
        node: Any = made
        for part in parents:
            node = node[int(part)] if isinstance(node, list) else node[part]
        if isinstance(node, list):
            node.insert(len(node) if last == "-" else int(last), each["value"])
        else:
            node[last] = each["value"]
    return made
