"""Bodies and answers of the addresses for dead letters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from ackd.api.dead_letters import DeadFilter, DeadRequest, DeadView, Kind, To
from ackd.http.formats.model import HEADERS_MAX, Base64Text

IDS_MAX = 100
ID_PATTERN = "^[0-9]{1,18}-[0-9]{1,18}$"
TIME_MS_MAX = 1 << 52
COUNT_MAX = 1 << 40
RATE_MAX = 100_000
TEXT_MAX = 4096

DeadId = Annotated[str, Meta(pattern=ID_PATTERN, description="As listed.", examples=["0-17"])]
Text = Annotated[str, Meta(max_length=TEXT_MAX)]
TimeMs = Annotated[int, Meta(ge=0, le=TIME_MS_MAX, description="Unix time in milliseconds.")]
Name = Annotated[str, Meta(min_length=1, max_length=TEXT_MAX)]


class Filter(Struct, forbid_unknown_fields=True, frozen=True):
    """Which dead letters; all that is given must hold. `topic` and `key` must be equal, `reason`
    and `error` (the last one) contained; `after_ms` <= given up < `before_ms`.
    """

    topic: Text | None = None
    key: Text | None = None
    reason: Text | None = None
    error: Text | None = None
    after_ms: TimeMs | None = None
    before_ms: TimeMs | None = None

    def plain(self) -> DeadFilter:
        return DeadFilter(
            self.topic, self.key, self.reason, self.error, self.after_ms, self.before_ms
        )


class _Selection(Struct, forbid_unknown_fields=True, frozen=True):
    ids: (
        Annotated[
            list[DeadId],
            Meta(min_length=1, max_length=IDS_MAX, description="Exactly these; no filter then."),
        ]
        | None
    ) = None
    filter: Filter | None = None
    max: (
        Annotated[int, Meta(ge=1, le=COUNT_MAX, description="The most dead letters to take.")]
        | None
    ) = None
    dry_run: Annotated[bool, Meta(description="Only say what would happen.")] = False
    rate_per_s: Annotated[int, Meta(ge=1, le=RATE_MAX, description="The most a second.")] | None = (
        None
    )
    confirm: Annotated[
        Text,
        Meta(
            description="The subscription's name. A purge needs it, and a redrive without `ids`, "
            "`filter` and `max`; a dry run does not."
        ),
    ] = ""


class RedriveBody(_Selection, frozen=True):
    """Dead letters to deliver again. Without `ids`, `filter` and `max`: all, with `confirm`."""

    to: Annotated[
        Literal["group", "origin"],
        Meta(description="`group`: this group only. `origin`: their topic, so every group of it."),
    ] = "group"
    set_headers: Annotated[
        dict[Name, Text], Meta(max_length=HEADERS_MAX, description="In place of those headers.")
    ] = {}
    remove_headers: Annotated[
        list[Name], Meta(max_length=HEADERS_MAX, description="Without these headers.")
    ] = []

    def request(self) -> DeadRequest:
        return DeadRequest(
            Kind.REDRIVE,
            ids=tuple(dict.fromkeys(self.ids or ())),
            filter=(self.filter or Filter()).plain(),
            max=self.max,
            dry_run=self.dry_run,
            rate_per_s=self.rate_per_s,
            to=To(self.to),
            confirm=self.confirm,
            set_headers=tuple(self.set_headers.items()),
            remove_headers=tuple(self.remove_headers),
        )


class PurgeBody(_Selection, frozen=True):
    """Dead letters to forget. Without `ids` and `filter`: all of them."""

    def request(self) -> DeadRequest:
        return DeadRequest(
            Kind.PURGE,
            ids=tuple(dict.fromkeys(self.ids or ())),
            filter=(self.filter or Filter()).plain(),
            max=self.max,
            dry_run=self.dry_run,
            rate_per_s=self.rate_per_s,
            confirm=self.confirm,
        )


@dataclass(slots=True, kw_only=True)
class DeadMessage(DeadView):
    """A dead letter with its content. Exactly one of `json`, `text`, `base64` holds the value."""

    key: str | Base64Text | None
    headers: list[tuple[str, str | Base64Text | None]]
    tombstone: bool | UnsetType = UNSET
    json: msgspec.Raw | UnsetType = UNSET
    text: str | UnsetType | None = UNSET
    base64: str | UnsetType | None = UNSET
