"""Settings of the health check of the application beside the sidecar."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ackd.config.units import MINUTE_MS, SECOND_MS
from ackd.options import setting

DownLeases = Literal["keep", "retry"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppSettings:
    """How ackd checks the application's health; it doesn't without `health_url`."""

    health_url: str = setting(
        "",
        "Address at which the application answers 2xx when it is well. While it does not, this "
        "sidecar delivers nothing but still settles. Empty: no check.",
        pattern=r"(https?://([^\s/?#@:\[\]]+|\[[0-9A-Fa-f:.]+\])(:\d{1,5})?(/[^\s#]*)?)?",
        pattern_doc="`http://` or `https://` with a host, without user and password",
    )
    health_every_ms: int = setting(
        SECOND_MS, "Time between two health checks.", min=50, max=MINUTE_MS
    )
    health_timeout_ms: int = setting(
        SECOND_MS,
        "How long the application may take to answer a health check.",
        min=10,
        max=MINUTE_MS,
    )
    health_failures: int = setting(
        3,
        "After how many failed checks in a row the application is not well. After a refused "
        "connection it is not well at once, as nobody listens.",
        min=1,
        max=100,
    )
    down_leases: DownLeases = setting(
        "keep",
        "What ackd does about open leases when nobody listens there any more: lets them run to "
        "their deadlines (`keep`), or ends them at once, with an attempt that counts (`retry`). "
        "It does not notice a restart that is over within `health_every_ms`.",
    )
