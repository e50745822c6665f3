"""What the injector puts into pods, as the chart renders it: the sidecar's container with
placeholders, its volumes, what the application's containers get, and the annotations that fill the
placeholders.

The chart renders the webhook's settings and the admission policy from the same text, so both make
the same pod. A placeholder is a whole value `<<name>>`, where `name` is an annotation's.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from ackd.errors import ConfigError
from ackd.unreadable import UNREADABLE

DOMAIN = "ackd.dev"
CONTAINER = "ackd"
"""Name of the sidecar's container; its volumes' names start with this and `-`."""
INJECT = "inject"
APP_ENV = "app-env"
CONFIG = "config"
CONFIG_LABEL = f"{DOMAIN}/config"
"""Label of a pod with a sidecar: its ConfigMap, by which a NetworkPolicy selects who is linked."""
VERSION = f"{DOMAIN}/version"
HASH = f"{DOMAIN}/config-hash"
STATUS = frozenset({VERSION, HASH})
BYTES_MAX = 1024 * 1024

Json = dict[str, Any]
_PLACE = re.compile(r"<<([a-z-]+)>>")


class Known(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An annotation: a pattern for the whole value, the pattern in words, and the default value."""

    pattern: str
    words: str
    default: str


class InjectSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of `injector.json`. Keys of `annotations` are names without `ackd.dev/`.

    `hash` identifies all other fields but `configs`: a pod with another hash has an older sidecar.
    `configs` has the hash of each ConfigMap that the chart writes, by its name.
    """

    version: str
    hash: str
    container: Json
    volumes: list[Json]
    app_env: list[Json]
    app_mounts: list[Json]
    ports: list[int]
    annotations: dict[str, Known]
    pull_secrets: list[str] = []
    configs: dict[str, str] = {}

    def hash_with(self, config_map: str) -> str:
        """What the annotation of a new pod with this ConfigMap says."""
        config = self.configs.get(config_map)
        return f"{self.hash}-{config}" if config else self.hash

    def filled(self, values: dict[str, str]) -> InjectSettings:
        """A copy with every placeholder replaced by the value of its annotation. A variable that is
        empty says nothing and is left out: a team may have said it in its own ackd.toml.
        """
        container = _fill(self.container, values)
        container["env"] = [each for each in container.get("env", []) if each.get("value") != ""]
        return msgspec.structs.replace(
            self,
            container=container,
            volumes=_fill(self.volumes, values),
            app_env=_fill(self.app_env, values),
            app_mounts=_fill(self.app_mounts, values),
        )


def load(file: Path) -> InjectSettings:
    """Read and check the injector's settings (JSON). Raises ConfigError."""
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
    except UNREADABLE as error:
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
    if not {INJECT, APP_ENV, CONFIG} <= settings.annotations.keys():
        wrong.append(f"annotations: {INJECT}, {APP_ENV} and {CONFIG} must be among them")
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
