"""Posts events on the owner of an injected or refused pod (its ReplicaSet, Job ...), where people
look.

Best effort and bounded: creating a pod never waits for an event, an equal event is not sent again
soon, and when the API is slow, the injector drops events and counts them.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import OrderedDict
from datetime import UTC, datetime

from ackd.errors import AckdError
from ackd.inject.api import Api
from ackd.inject.pod import Decision
from ackd.inject.settings import Json

LOG = logging.getLogger("ackd.inject")

QUEUE_MAX = 200
AGAIN_S = 600.0
REMEMBERED_MAX = 2000
MESSAGE_MAX = 1000
NAME_MAX = 200


class Events:
    """A bounded queue of events, and the one task that sends them."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._queue: asyncio.Queue[Json] = asyncio.Queue(QUEUE_MAX)
        self._sent: OrderedDict[tuple[str, str], float] = OrderedDict()
        self.dropped = 0

    def tell(self, pod: Json, namespace: str, decision: Decision) -> None:
        """Queue an event about this decision, if the pod has an owner and the event is new."""
        owner = next(
            (
                o
                for o in pod.get("metadata", {}).get("ownerReferences") or []
                if o.get("controller")
            ),
            None,
        )
        if owner is None or not namespace:
            return
        now = asyncio.get_running_loop().time()
        key = str(owner.get("uid", "")), decision.refusal or decision.reason
        last = self._sent.get(key)
        if last is not None and now < last + AGAIN_S:
            return
        self._sent[key] = now
        self._sent.move_to_end(key)
        if len(self._sent) > REMEMBERED_MAX:
            self._sent.popitem(last=False)
        try:
            self._queue.put_nowait(event(owner, namespace, decision, datetime.now(UTC)))
        except asyncio.QueueFull:
            self.dropped += 1

    async def run(self) -> None:
        """Send them one by one, until cancelled."""
        while True:
            found = await self._queue.get()
            try:
                await self._api.post(
                    f"/api/v1/namespaces/{found['metadata']['namespace']}/events", found
                )
            except AckdError as error:
                self.dropped += 1
                LOG.warning("ackd can't write a Kubernetes event, and drops it: %s", error)


def event(owner: Json, namespace: str, decision: Decision, now: datetime) -> Json:
    """A decision as an Event of core/v1 on the pod's owner."""
    stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    refused = bool(decision.refusal)
    message = decision.refusal or "ackd was put beside a pod of this"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{str(owner.get('name', 'pod'))[:NAME_MAX]}.{secrets.token_hex(8)}",
            "namespace": namespace,
        },
        "involvedObject": {
            "apiVersion": owner.get("apiVersion"),
            "kind": owner.get("kind"),
            "name": owner.get("name"),
            "uid": owner.get("uid"),
            "namespace": namespace,
        },
        "reason": "AckdRefused" if refused else "AckdInjected",
        "message": message[:MESSAGE_MAX],
        "type": "Warning" if refused else "Normal",
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
        "source": {"component": "ackd-injector"},
        "reportingComponent": "ackd.dev/injector",
        "reportingInstance": "ackd-injector",
    }
