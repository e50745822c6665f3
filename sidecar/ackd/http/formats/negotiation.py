"""Choose an answer's form: `Accept` (RFC 9110 section 12.5.1), `Prefer: wait` (RFC 7240)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ackd.errors import NotAcceptableError

JSON = "application/json"
OCTETS = "application/octet-stream"
TEXT = "text/plain"
NDJSON = "application/x-ndjson"
SSE = "text/event-stream"
CE_JSON = "application/cloudevents+json"
CE_BATCH = "application/cloudevents-batch+json"

_CACHE_MAX = 256
_PREFER_WAIT = re.compile(r"(?:^|,)\s*wait\s*=\s*\"?(\d{1,9})\"?\s*(?=[;,]|$)", re.IGNORECASE)
_PREFER_ASYNC = re.compile(r"(?:^|,)\s*respond-async\s*(?=[;,]|$)", re.IGNORECASE)
_PREFER_EVENT = re.compile(r"(?:^|,)\s*cloudevents\s*=\s*\"?binary\"?\s*(?=[;,]|$)", re.IGNORECASE)


class Negotiator:
    """Chooses among the media types that an address can make, the server's favourite first."""

    def __init__(self, offers: Sequence[str]) -> None:
        self.offers = tuple(offers)
        # Clients send the same header again and again; a bounded memory of answers makes it one
        # look-up.
        self._known: dict[str, str] = {"": offers[0], "*/*": offers[0]}
        self._known.update((offer, offer) for offer in offers)

    def choose(self, accept: str) -> str:
        """Return the media type to answer with. Raises NotAcceptableError."""
        known = self._known.get(accept)
        if known is not None:
            return known
        chosen = self._weigh(accept)
        if len(self._known) < _CACHE_MAX:
            self._known[accept] = chosen
        return chosen

    def _weigh(self, accept: str) -> str:
        ranges = [_range(part) for part in accept.split(",") if part.strip()]
        best, best_weight = "", 0.0
        for offer in self.offers:
            weight = _weight(offer, ranges)
            if weight > best_weight:
                best, best_weight = offer, weight
        if not best:
            raise NotAcceptableError(
                f"This address answers with {', '.join(self.offers)}.", offers=list(self.offers)
            )
        return best


def _range(part: str) -> tuple[str, float]:
    """Parse (media range, weight). Ignores parameters but `q`; a broken `q` means refusal."""
    media, *parameters = (piece.strip().lower() for piece in part.split(";"))
    weight = 1.0
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            found = re.fullmatch(r"\s*(0(\.\d{0,3})?|1(\.0{0,3})?)\s*", value)
            weight = float(value) if found else 0.0
    return media, weight


def _weight(offer: str, ranges: Sequence[tuple[str, float]]) -> float:
    """Return the weight of the most specific range that covers `offer`."""
    for covering in (offer, offer.split("/", maxsplit=1)[0] + "/*", "*/*"):
        weights = [weight for media, weight in ranges if media == covering]
        if weights:
            return max(weights)
    return 0.0


def preferred_wait_ms(prefer: str | None) -> int | None:
    """Return the ms of `Prefer: wait=<seconds>`; None without it, or if it can't be read."""
    if prefer is None:
        return None
    found = _PREFER_WAIT.search(prefer)
    return int(found[1]) * 1000 if found else None


def prefers_binary_event(prefer: str | None) -> bool:
    """Whether `Prefer: cloudevents=binary` asks for a CloudEvent in binary mode."""
    return prefer is not None and _PREFER_EVENT.search(prefer) is not None


def prefers_async(prefer: str | None) -> bool:
    """Whether `Prefer: respond-async` (RFC 7240 section 4.1) lets the work be done later."""
    return prefer is not None and _PREFER_ASYNC.search(prefer) is not None


def media_type(content_type: str | None) -> str:
    """Return `application/json` of `Application/JSON; charset=utf-8`; empty without the header."""
    if content_type is None:
        return ""
    return content_type.partition(";")[0].strip().lower()
