"""Texts must not name what belongs to one machine: its folders, or a package registry's host."""

import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

# Written in pieces, so that this file does not hold what it forbids.
_HOSTS = (
    "py" + "pi.org",
    "files.python" + "hosted",
    "repo.ma" + "ven",
    "repo1.ma" + "ven",
    "registry.npm" + "js",
)
FORBIDDEN = re.compile(
    "|".join(
        [
            *(re.escape(host) for host in _HOSTS),
            r"(?<![\w.$}\])])/(?:wo" + r"rk|ro" + r"ot|ho" + r"me/\w+|Us" + r"ers/\w+)/",
            r"/tm" + r"p/\w",
        ]
    )
)
SKIPPED = (".lock", ".jar", ".png", ".svg")


def tracked_files(repo: Path) -> list[Path]:
    """What git tracks, or would (not ignored), that still exists."""
    done = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=repo,
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return [repo / name for name in sorted(set(done.stdout.split("\0"))) if (repo / name).is_file()]


def forbidden_words(files: Iterable[Path]) -> Iterator[str]:
    """Lines that name a folder of some machine or the host of a registry.

    A line that must (a default inside a container, say) ends with `tidy: path -- why`.
    """
    for path in files:
        if path.name.endswith(SKIPPED):
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            found = FORBIDDEN.search(line)
            if found and not re.search(r"tidy: path -- \S", line):
                yield f"{path}:{number}: {found.group()}"
