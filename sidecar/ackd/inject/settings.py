"""What the injector puts into pods, as the chart renders it: the sidecar's container with places
left open, its volumes, what the application's containers get, and the annotations that may fill in
those places.

The chart makes the webhook's settings and the admission policy from the same text, so both inject
the same pod. An open place is a text that is wholly `<<name>>`, `name` being an annotation's.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from ackd.errors import ConfigError

DOMAIN = "ackd.dev"
CONTAINER = "ackd"
"""Name of the sidecar's container, and with `-` behind it the start of its volumes' names."""
INJECT = "inject"
APP_ENV = "app-env"
VERSION = f"{DOMAIN}/version"
HASH = f"{DOMAIN}/config-hash"
STATUS = frozenset({VERSION, HASH})
BYTES_MAX = 1024 * 1024

Json = dict[str, Any]
_PLACE = re.compile(r"<<([a-z-]+)>>")


class Known(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An annotation: what its whole value must match, that in words, and what counts without it."""

    pattern: str
    words: str
    default: str


class InjectSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of `injector.json`. `annotations` are keyed by what follows `ackd.dev/`.

    `hash` stands for everything else in here: a pod with another one has an older sidecar.
    """

    version: str
    hash: str
    container: Json
    volumes: list[Json]
    app_env: list[Json]
    app_mounts: list[Json]
    ports: list[int]
    annotations: dict[str, Known]

    def filled(self, values: dict[str, str]) -> InjectSettings:
        """The same with every open place filled in by the annotations' values."""
        return msgspec.structs.replace(
            self,
            container=_fill(self.container, values),
            volumes=_fill(self.volumes, values),
            app_env=_fill(self.app_env, values),
            app_mounts=_fill(self.app_mounts, values),
        )


def load(file: Path) -> InjectSettings:
    """Raises ConfigError."""
    try:
        with file.open("rb") as opened:
            data = opened.read(BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{file}: can't be read: {error.strerror or error}") from error
    if len(data) > BYTES_MAX:
        raise ConfigError(f"{file}: more than {BYTES_MAX} bytes")
    return parse(data, str(file))


def parse(data: bytes, name: str) -> InjectSettings:
    """Raises ConfigError with the place of the mistake."""
    try:
        settings = msgspec.json.decode(data, type=InjectSettings)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{name}: {error}") from error
    wrong = list(_wrong(settings))
    if wrong:
        raise ConfigError(f"{name}: {'; '.join(wrong)}")
    return settings


def _wrong(settings: InjectSettings) -> list[str]:
    wrong = []
    if settings.container.get("name") != CONTAINER:
        wrong.append(f"container.name: must be {CONTAINER}")
    if settings.container.get("restartPolicy") != "Always":
        wrong.append("container.restartPolicy: must be Always, else pods would wait for its end")
    wrong += [
        f"volumes: {each.get('name')!r} must start with {CONTAINER}-"
        for each in settings.volumes
        if not str(each.get("name", "")).startswith(f"{CONTAINER}-")
    ]
    for name, each in settings.annotations.items():
        try:
            re.compile(each.pattern)
        except re.error as error:
            wrong.append(f"annotations.{name}.pattern: {error}")
    if INJECT not in settings.annotations or APP_ENV not in settings.annotations:
        wrong.append(f"annotations: {INJECT} and {APP_ENV} must be among them")
    text = msgspec.json.encode([settings.container, settings.volumes, settings.app_env]).decode()
    unknown = sorted(set(_PLACE.findall(text)) - settings.annotations.keys())
    return wrong + [f"<<{name}>>: no such annotation" for name in unknown]


def _fill(value: Any, values: dict[str, str]) -> Any:
    match value:
        case dict():
            return {key: _fill(each, values) for key, each in value.items()}
        case list():
            return [_fill(each, values) for each in value]
        case str() if found := _PLACE.fullmatch(value):
            return values[found[1]]
        case _:
            return value
