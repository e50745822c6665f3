"""Build the settings from the merged tree of file and environment; go on after each mistake.

A default replaces a value that can't be used, so that one run reads the rest and finds every
mistake. The caller gets the settings only if there was none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import Any, TypeVar, cast

from ackd.config import renamed
from ackd.config.adapters import Adapter, adapter_names, check_options, find_adapter
from ackd.config.conversion import Wrong, convert, from_env
from ackd.config.environment import EnvText
from ackd.config.fields import FieldKind, Spec, specs
from ackd.config.mistakes import EnvPlace, FilePlace, Mistake, Path, dotted, nearest, shown
from ackd.config.schema import NAME, NAME_DOC, BrokerSettings, Settings
from ackd.errors import ConfigError

S = TypeVar("S")

# Stands in for a required value that is missing or wrong; never leaves a failed load.
_STAND_IN: Mapping[FieldKind, object] = {
    FieldKind.BOOL: False,
    FieldKind.INT: 0,
    FieldKind.FLOAT: 0.0,
    FieldKind.TEXT: "",
    FieldKind.PATH: FilePath(),
    FieldKind.LIST: (),
}


@dataclass(slots=True)
class SettingsReader:
    """Reads one tree of settings. `folder`: where relative paths of the file start."""

    origins: Mapping[Path, FilePlace | EnvPlace]
    folder: FilePath
    check_files: bool = True
    mistakes: list[Mistake] = field(default_factory=list)
    wrong: set[Path] = field(default_factory=set)
    unknown: dict[Path, int] = field(default_factory=dict)
    """Keys that there are not, and where they stand in `mistakes`."""
    sources: dict[str, str] = field(default_factory=dict)
    _state_dir: FilePath = field(default_factory=FilePath)

    def settings(self, tree: Mapping[str, object]) -> Settings:
        """Make all settings; check `mistakes` afterwards."""
        return replace(self.section(Settings, tree, ()), sources=self.sources)

    def section(self, cls: type[S], raw: object, path: Path) -> S:
        """Make a dataclass from a table and fill in defaults."""
        table = self._table_of(raw, path)
        known = specs(cls)
        self._unknown_keys(table, known, path)
        values: dict[str, object] = {}
        for spec in known:
            if spec.kind is FieldKind.OPTIONS:
                continue
            here = (*path, spec.name)
            values[spec.name] = self._field(spec, table, here)
            if here == ("state_dir",):
                self._state_dir = cast("FilePath", values[spec.name])
        built = cls(**values)
        if isinstance(built, BrokerSettings):
            options = self._options(built.adapter, table, path)
            return cast("S", replace(built, options=options))
        return built

    def mistake(
        self,
        path: Path,
        problem: str,
        *,
        value: str | None = None,
        allowed: str | None = None,
        hint: str | None = None,
    ) -> None:
        """Record a mistake at a key path; its place is that of the nearest key that exists."""
        self.wrong.add(path)
        self.mistakes.append(
            Mistake(dotted(path), problem, self.origin(path), value, allowed, hint)
        )

    def explain(self, path: Path, problem: str) -> None:
        """Replace the list of known keys, for an unknown key, by a better explanation."""
        index = self.unknown[path]
        self.mistakes[index] = replace(
            self.mistakes[index], problem=problem, allowed=None, hint=None
        )

    def origin(self, path: Path) -> FilePlace | EnvPlace | None:
        """Return where a key path, or a section around it, was set; None for defaults."""
        for length in range(len(path), 0, -1):
            found = self.origins.get(path[:length])
            if found is not None:
                return found
        return None

    def given(self, path: Path) -> bool:
        """Whether the operator set this key."""
        return self.sources.get(dotted(path), "default") != "default"

    def clean(self, *paths: Path) -> bool:
        """Whether there is no mistake at, in or around these key paths."""
        return not any(
            bad[: len(path)] == path or path[: len(bad)] == bad
            for path in paths
            for bad in self.wrong
        )

    def _field(self, spec: Spec, table: Mapping[str, object], path: Path) -> object:
        if spec.kind is FieldKind.SECTION:
            return self.section(cast("type[Any]", spec.section), table.get(spec.name, {}), path)
        if spec.kind is FieldKind.SECTIONS:
            return self._sections(spec, table.get(spec.name, {}), path)
        if spec.name not in table:
            if spec.required and path[:-1] not in self.wrong:
                self.mistake(path, f"is required: {spec.doc}" if spec.doc else "is required")
            self.sources[dotted(path)] = "default"
            return self._located(spec, self._default(spec), path, given=False)
        origin = self.origin(path)
        self.sources[dotted(path)] = "env" if isinstance(origin, EnvPlace) else "file"
        if origin is None:
            self.sources[dotted(path)] = "default"
        try:
            return self._located(spec, convert(spec, table[spec.name]), path, given=True)
        except Wrong as wrong:
            self._refuse(spec, table[spec.name], path, wrong)
            return self._default(spec)

    def _refuse(self, spec: Spec, raw: object, path: Path, wrong: Wrong) -> None:
        if wrong.index is not None:
            path = (*path, wrong.index)
            if isinstance(raw, EnvText):
                raw = from_env(spec, raw)
            if isinstance(raw, list):
                raw = raw[wrong.index]
        hint = nearest(raw, spec.choices) if isinstance(raw, str) else None
        value = None if spec.secret or spec.kind is FieldKind.TABLE else shown(raw)
        allowed = spec.allowed(item=wrong.index is not None)
        self.mistake(path, wrong.problem, value=value, allowed=allowed, hint=hint)

    def _default(self, spec: Spec) -> object:
        return _STAND_IN.get(spec.kind, {}) if spec.required else spec.default()

    def _located(self, spec: Spec, value: object, path: Path, *, given: bool) -> object:
        """Make a path absolute, and check that a file which ackd must read is readable."""
        if spec.kind is not FieldKind.PATH or not isinstance(value, FilePath):
            return value
        if str(value).startswith("~"):
            try:
                value = value.expanduser()
            except RuntimeError:
                self.mistake(path, "no home folder for ~", value=shown(str(value)))
        if spec.facts.get("base") == "state_dir":
            value = self._state_dir / value
        elif given:
            here = isinstance(self.origin(path), EnvPlace)
            value = (FilePath.cwd() if here else self.folder) / value
        if given and self.check_files and spec.name.endswith("_file"):
            self._readable(value, path)
        return value

    def _readable(self, file: FilePath, path: Path) -> None:
        try:
            with file.open("rb") as opened:
                empty = not opened.read(1)
        except OSError as error:
            problem = f"can't be read: {error.strerror or error}"
            self.mistake(path, problem, value=shown(str(file)))
        else:
            if empty:
                self.mistake(path, "the file is empty", value=shown(str(file)))

    def _sections(self, spec: Spec, raw: object, path: Path) -> dict[str, object]:
        table = self._table_of(raw, path)
        most = spec.facts.get("len_max")
        if most is not None and len(table) > most:
            self.mistake(path, f"has more than {most} names")
        built: dict[str, object] = {}
        for name, each in table.items():
            here = (*path, name)
            if not re.fullmatch(NAME, name):
                self.mistake(here, "not a name", allowed=NAME_DOC)
            built[name] = self.section(cast("type[Any]", spec.section), each, here)
        return built

    def _table_of(self, raw: object, path: Path) -> dict[str, object]:
        if isinstance(raw, EnvText):
            try:
                raw = from_env(_ANY_SECTION, raw)
            except Wrong as wrong:
                self.mistake(path, wrong.problem)
                return {}
        if isinstance(raw, dict):
            return raw
        self.mistake(path, "expected a table (a section)", value=shown(raw))
        return {}

    def _unknown_keys(
        self, table: Mapping[str, object], known: tuple[Spec, ...], path: Path
    ) -> None:
        names = [spec.name for spec in known]
        for key in table:
            new = renamed.new_name((*path, key), names)
            if new is not None:
                self.mistake((*path, key), renamed.problem(key, new))
            elif (gone := renamed.removal((*path, key))) is not None:
                self.mistake((*path, key), gone)
            elif key not in names:
                # The value stays out of the report: a misspelt key may hold a password.
                hint = nearest(key, names)
                self.unknown[*path, key] = len(self.mistakes)
                self.mistake(
                    (*path, key),
                    "unknown key",
                    allowed=None if hint else ", ".join(names),
                    hint=hint,
                )

    def _options(self, name: str, table: Mapping[str, object], path: Path) -> object:
        """The adapter's own options, as its dataclass defines them."""
        if not self.clean((*path, "adapter")):
            return None
        try:
            adapter: Adapter = find_adapter(name)
            specs(adapter.options)
        except (ConfigError, TypeError) as error:
            names = adapter_names()
            detail = error.detail if isinstance(error, ConfigError) else str(error)
            self.mistake(
                (*path, "adapter"),
                detail,
                value=shown(name),
                allowed=None if name in names else ", ".join(names) or None,
                hint=None if name in names else nearest(name, names),
            )
            return None
        here = (*path, "options")
        options = self.section(adapter.options, table.get("options", {}), here)
        problem = check_options(adapter, options) if self.clean(here) else None
        if problem is not None:
            self.mistake(here, problem)
        return options


_ANY_SECTION = next(spec for spec in specs(Settings) if spec.kind is FieldKind.SECTION)
