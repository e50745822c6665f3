"""Settings from the environment: `ACKD_SUBSCRIPTIONS__ORDERS__LEASE_MS=45s`.

The parts between `__` are the key path in capitals. A section's name (`orders`) is matched with
the names in the file, where `-` and `.` count as `_`; otherwise it is used in lower case. A value
is text for the setting's own kind; a list is `a,b` or a TOML array, a table or section an inline
TOML table.

`ACKD_DEFAULT__SERVER__STOP=release` counts where neither the file nor another variable says
anything, and an empty one says nothing: so an injector has its own defaults, and teams their say.

A misspelt variable is a mistake, as in the file. Not ours, and passed over: `ACKD_TEST_...`, what
Kubernetes sets for a Service named `ackd` (`ACKD_SERVICE_HOST`, `ACKD_PORT_7080_TCP`), and what an
application beside a sidecar is told (`ACKD_URL`, `ACKD_TOKEN_FILE`).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping

from ackd.config import renamed
from ackd.config.fields import FieldKind, Spec, specs
from ackd.config.mistakes import EnvPlace, FilePlace, Mistake, Path, dotted, nearest
from ackd.config.schema import Settings
from ackd.config.subscription import SubscriptionSettings

PREFIX = "ACKD_"
CONFIG = "ACKD_CONFIG"
DEFAULT = "ACKD_DEFAULT__"

_FOREIGN = re.compile(
    r"ACKD_(?:TEST_.*|URL|TOKEN_FILE"
    r"|(?:[A-Z0-9_]+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_[A-Z0-9_]+)?"
    r"|PORT(?:_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)?))"
)


class EnvText(str):
    """A value from the environment: text that still has to become the setting's kind."""

    __slots__ = ()


def overlay(
    tree: dict[str, object],
    origins: dict[Path, FilePlace | EnvPlace],
    environ: Mapping[str, str],
) -> list[Mistake]:
    """Merge the environment's settings into the file's tree; the environment wins."""
    mistakes: list[Mistake] = []
    # Shorter names first: a whole section given at once comes before one key of it.
    names = [name for name in environ if name.startswith(PREFIX) and name != CONFIG]
    # Defaults come last, when it is known what else was said.
    for name in sorted(names, key=lambda name: (name.startswith(DEFAULT), name.count("__"), name)):
        prefix = DEFAULT if name.startswith(DEFAULT) else PREFIX
        if _FOREIGN.fullmatch(name) or (prefix is DEFAULT and not environ[name]):
            continue
        path, hint = _resolve(name.removeprefix(prefix).split("__"), tree)
        if path is None:
            problem = _renamed(name, tree) if prefix is PREFIX else None
            hint = hint if problem is None and prefix is PREFIX else None
            mistakes.append(Mistake("", problem or "unknown variable", EnvPlace(name), hint=hint))
            continue
        if prefix is DEFAULT and _is_there(tree, path):
            continue
        if not _put(tree, path, EnvText(environ[name])):
            problem = f"{dotted(path[:-1])} is not a table, so nothing can be set in it"
            mistakes.append(Mistake("", problem, EnvPlace(name)))
            continue
        for below in [each for each in origins if each[: len(path)] == path]:
            del origins[below]
        origins[path] = EnvPlace(name)
    return mistakes


def _is_there(tree: Mapping[str, object], path: Path) -> bool:
    """Whether a key is there, be it in a table that a variable gives as a whole."""
    node: object = tree
    for part in path:
        node = _inline(node) if isinstance(node, EnvText) else node
        if not isinstance(node, dict) or part not in node:
            return False
        node = node[part]
    return True


def _put(tree: dict[str, object], path: Path, value: EnvText) -> bool:
    node = tree
    for part in path[:-1]:
        below = node.setdefault(str(part), {})
        if isinstance(below, EnvText):
            below = node[str(part)] = _inline(below)
        if not isinstance(below, dict):
            return False
        node = below
    node[str(path[-1])] = value
    return True


def _inline(text: EnvText) -> object:
    """Parse the value of a variable for a section as a table; return the text if it is none."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return text


def _resolve(parts: list[str], tree: Mapping[str, object]) -> tuple[Path | None, str | None]:
    """Find the key path of a variable's parts. Returns None and the variable that was probably
    meant if there is none.
    """
    fields: Iterable[Spec] = specs(Settings)
    node: object = tree
    path: Path = ()
    rest = iter(parts)
    for part in rest:
        names = [spec.name for spec in fields]
        spec = next((spec for spec in fields if spec.name.upper() == part), None)
        if spec is None:
            return None, _hint(parts, len(path), names)
        path, node = (*path, spec.name), _below(node, spec.name)
        if spec.kind is FieldKind.SECTION and spec.section is not None:
            fields = specs(spec.section)
        elif spec.kind is FieldKind.SECTIONS and spec.section is not None:
            name = next(rest, None)
            if name is None:
                break
            key = _section_name(name, node)
            path, node, fields = (*path, key), _below(node, key), specs(spec.section)
        else:
            return _leaf(path, spec, rest)
    return path, None


def _leaf(path: Path, spec: Spec, rest: Iterator[str]) -> tuple[Path | None, str | None]:
    """An adapter's options may have one more part; only the adapter knows its meaning."""
    more = list(rest)
    if not more:
        return path, None
    if spec.kind is FieldKind.OPTIONS and len(more) == 1:
        return (*path, more[0].lower()), None
    return None, None


def _section_name(part: str, node: object) -> str:
    names = node if isinstance(node, dict) else {}
    for name in names:
        if re.sub(r"[^A-Z0-9]", "_", str(name).upper()) == part:
            return str(name)
    return part.lower()


def _below(node: object, key: str) -> object:
    return node.get(key) if isinstance(node, dict) else None


def _renamed(variable: str, tree: Mapping[str, object]) -> str | None:
    """Say what to write instead of a variable whose setting was renamed or removed; None: there
    never was such a setting.
    """
    *above, last = variable.removeprefix(PREFIX).split("__")
    path, _ = _resolve(above, tree)
    fields = specs(SubscriptionSettings)
    new = path and renamed.new_name((*path, last.lower()), [each.name for each in fields])
    if not new:
        return renamed.removal((*path, last.lower())) if path else None
    now = PREFIX + "__".join([*above, new.upper()])
    return f"{renamed.problem(last.lower(), new)}: set {now}"


def _hint(parts: list[str], index: int, names: list[str]) -> str | None:
    found = nearest(parts[index], [name.upper() for name in names])
    if found is None:
        return None
    return PREFIX + "__".join([*parts[:index], found, *parts[index + 1 :]])


def variable(path: Path) -> str:
    """The variable of a key path, for documentation."""
    return PREFIX + "__".join(re.sub(r"[^A-Z0-9<>]", "_", str(part).upper()) for part in path)
