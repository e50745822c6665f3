"""Read the configuration: one TOML file (or none), overridden by the environment.

`load` gives settings that keep every bound and rule, or raises `MistakesError` with all mistakes.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path as FilePath

from ackd.config import able, known_elsewhere, rules
from ackd.config.environment import CONFIG, overlay
from ackd.config.mistakes import EnvPlace, FilePlace, Mistake, MistakesError, Path
from ackd.config.place import find_places
from ackd.config.reader import SettingsReader
from ackd.config.schema import Settings, resolved

FILE_BYTES_MAX = 4 * 1024 * 1024

_AT = re.compile(r" \(at line (\d+), column (\d+)\)$")


def load(
    file: FilePath | None, environ: Mapping[str, str], *, check_files: bool = True
) -> Settings:
    """Read a file and the environment. `file` None: the file that `ACKD_CONFIG` names, else none.
    Raises `MistakesError`.
    """
    if file is None and environ.get(CONFIG):
        file = FilePath(environ[CONFIG])
    if file is None:
        return load_text("", None, environ, check_files=check_files)
    return load_text(_text_of(file), file, environ, check_files=check_files)


def load_text(
    text: str,
    file: FilePath | None,
    environ: Mapping[str, str],
    *,
    check_files: bool = True,
) -> Settings:
    """Like `load`, with the text of the file. `file`: its name in reports, which also anchors
    relative paths.
    """
    name = "the configuration" if file is None else str(file)
    tree = _parse(text, name)
    origins: dict[Path, FilePlace | EnvPlace] = {
        path: FilePlace(name, line, column) for path, (line, column) in find_places(text).items()
    }
    unknown = overlay(tree, origins, environ)
    _complete(tree)
    folder = FilePath.cwd() if file is None else file.absolute().parent
    reader = SettingsReader(origins, folder, check_files, mistakes=unknown)
    settings = resolved(reader.settings(tree))
    rules.check(settings, reader)
    able.check(settings, reader)
    known_elsewhere.check(settings, reader)
    if reader.mistakes:
        raise MistakesError(sorted(reader.mistakes, key=_order))
    return settings


def _text_of(file: FilePath) -> str:
    try:
        with file.open("rb") as opened:
            data = opened.read(FILE_BYTES_MAX + 1)
        if len(data) > FILE_BYTES_MAX:
            raise MistakesError([Mistake("", f"{file}: more than {FILE_BYTES_MAX} bytes")])
        return data.decode()
    except OSError as error:
        problem = f"{file}: can't be read: {error.strerror or error}"
        raise MistakesError([Mistake("", problem)]) from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        place = FilePlace(str(file), line, 1)
        raise MistakesError([Mistake("", "not UTF-8 text", place)]) from error


def _parse(text: str, name: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        at = _AT.search(str(error))
        lines = text.split("\n")
        place = (
            FilePlace(name, int(at[1]), int(at[2]))
            if at
            else FilePlace(name, len(lines), len(lines[-1]) + 1)
        )
        problem = f"not TOML: {_AT.sub('', str(error)).removesuffix(' (at end of document)')}"
        raise MistakesError([Mistake("", problem, place)]) from error
    except RecursionError as error:
        problem = f"{name}: not TOML: nested too deeply"
        raise MistakesError([Mistake("", problem)]) from error


def _complete(tree: dict[str, object]) -> None:
    """Add a local broker and one subscription if nothing is configured."""
    if tree.get("brokers", {}) == {}:
        tree["brokers"] = {"local": {"adapter": "local"}}
        if tree.get("subscriptions", {}) == {}:
            tree["subscriptions"] = {"default": {"topics": ["default"]}}


def _order(mistake: Mistake) -> tuple[int, int, int, str]:
    """Sort key: mistakes of the file first, then of the environment, then missing settings."""
    place = mistake.place
    if isinstance(place, FilePlace):
        return (0, place.line, place.column, mistake.path)
    return (1 if isinstance(place, EnvPlace) else 2, 0, 0, str(place))
