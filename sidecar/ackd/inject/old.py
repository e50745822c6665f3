"""Finds pods that still run an older sidecar than a new pod would get, or one that began with an
older ackd.toml of the chart, until somebody restarts them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass

from ackd.errors import AckdError
from ackd.inject.api import Api
from ackd.inject.inject_metrics import InjectMetrics
from ackd.inject.settings import CONFIG_LABEL, CONTAINER, HASH, VERSION, InjectSettings, Json

LOG = logging.getLogger("ackd.inject")
ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class InjectedSidecar:
    """The sidecar of one pod. `owner` is `Kind/name`, or empty for a bare pod; `old` means that its
    hash differs from that which a new pod would get.
    """

    namespace: str
    pod: str
    owner: str
    version: str
    hash: str
    image: str
    old: bool


async def sidecars(
    api: Api, now: InjectSettings, namespace: str = ""
) -> AsyncIterator[InjectedSidecar]:
    """The sidecars of all injected pods that have not ended. Raises ApiError, ConfigError."""
    path = f"/api/v1/namespaces/{namespace}/pods" if namespace else "/api/v1/pods"
    async for pod in api.all(path):
        found = sidecar_of(pod, now)
        if found is not None:
            yield found


def sidecar_of(pod: Json, now: InjectSettings) -> InjectedSidecar | None:
    """A pod's sidecar; None if the pod has none or has ended."""
    metadata = pod["metadata"]
    annotations, labels = (metadata.get(kind) or {} for kind in ("annotations", "labels"))
    if HASH not in annotations or pod.get("status", {}).get("phase") in ENDED:
        return None
    owner = next((o for o in metadata.get("ownerReferences") or [] if o.get("controller")), None)
    containers = pod["spec"].get("initContainers") or []
    return InjectedSidecar(
        namespace=metadata["namespace"],
        pod=metadata["name"],
        owner=f"{owner['kind']}/{owner['name']}" if owner else "",
        version=annotations.get(VERSION, ""),
        hash=annotations[HASH],
        image=next((c["image"] for c in containers if c["name"] == CONTAINER), ""),
        old=annotations[HASH] != now.hash_with(labels.get(CONFIG_LABEL, "")),
    )


async def count_old(api: Api, now: InjectSettings, metrics: InjectMetrics, every_s: float) -> None:
    """Count pods with an old sidecar into the gauge every `every_s`, until cancelled."""
    while True:
        try:
            old = [each async for each in sidecars(api, now) if each.old]
        except AckdError as error:
            LOG.warning("ackd can't count the pods with an old sidecar, and tries again: %s", error)
        else:
            metrics.old_pods.set(len(old))
        await asyncio.sleep(every_s)
