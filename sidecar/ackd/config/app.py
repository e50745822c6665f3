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
        "An address of the application that answers 2xx when it is well. Until it does, and while "
        "it does not, nothing is delivered here; settles are served. Empty: not asked.",
        pattern=r"(https?://([^\s/?#@:\[\]]+|\[[0-9A-Fa-f:.]+\])(:\d{1,5})?(/[^\s#]*)?)?",
        pattern_doc="`http://` or `https://` with a host, without user and password",
    )
    health_every_ms: int = setting(SECOND_MS, "How often it is asked.", min=50, max=MINUTE_MS)
    health_timeout_ms: int = setting(
        SECOND_MS, "How long it may take to answer.", min=10, max=MINUTE_MS
    )
    health_failures: int = setting(
        3,
        "How many failures in a row make it unwell. A refused connection counts at once: nobody "
        "listens.",
        min=1,
        max=100,
    )
    down_leases: DownLeases = setting(
        "keep",
        "What becomes of open leases when nobody listens there any more: they run to their "
        "deadlines (`keep`), or end at once with an attempt that counts (`retry`). A restart that "
        "is over within `health_every_ms` is not noticed.",
    )
