"""Finds pods whose sidecar is not the one that a new pod would get: they wait for a restart."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass

from ackd.errors import AckdError
from ackd.inject.api import Api
from ackd.inject.metrics import InjectMetrics
from ackd.inject.settings import CONTAINER, HASH, VERSION, Json

LOG = logging.getLogger("ackd.inject")
ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class InjectedSidecar:
    """The sidecar of one pod. `owner` as `Kind/name`, empty for a bare pod; `old`: it differs from
    the present hash.
    """

    namespace: str
    pod: str
    owner: str
    version: str
    hash: str
    image: str
    old: bool


async def sidecars(api: Api, hash_now: str, namespace: str = "") -> AsyncIterator[InjectedSidecar]:
    """The sidecars of all injected pods that have not ended. Raises ApiError, ConfigError."""
    path = f"/api/v1/namespaces/{namespace}/pods" if namespace else "/api/v1/pods"
    async for pod in api.all(path):
        found = sidecar_of(pod, hash_now)
        if found is not None:
            yield found


def sidecar_of(pod: Json, hash_now: str) -> InjectedSidecar | None:
    """None for a pod without one, or one that has ended."""
    metadata = pod["metadata"]
    annotations = metadata.get("annotations") or {}
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
        old=annotations[HASH] != hash_now,
    )


async def count_old(api: Api, hash_now: str, metrics: InjectMetrics, every_s: float) -> None:
    """Update the gauge, until cancelled."""
    while True:
        try:
            old = [each async for each in sidecars(api, hash_now) if each.old]
        except AckdError as error:
            LOG.warning("pods could not be looked through: %s", error)
        else:
            metrics.old_pods.set(len(old))
        await asyncio.sleep(every_s)
