"""Checks of the Markdown pages: links that lead somewhere, commands that exist."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_SHELL = ("sh", "bash", "shell", "console")


def pages(repo: Path) -> list[Path]:
    """Every page of the documentation."""
    return sorted([*repo.glob("*.md"), *(repo / "docs").rglob("*.md")])


def make_targets(repo: Path) -> set[str]:
    """The targets that the Makefile declares."""
    text = (repo / "Makefile").read_text()
    return set(re.findall(r"^([a-z][a-z.-]*|\.venv):", text, re.MULTILINE))


def broken(
    paths: Iterable[Path], *, targets: Collection[str], command_exists: Callable[[str], bool]
) -> Iterator[str]:
    """Links to files that are not there; `make` targets and `ackd` commands that do not exist."""
    for path in paths:
        text = path.read_text()
        for link in _LINK.findall(_FENCE.sub("", text)):
            target = link.partition("#")[0]
            if target and "://" not in target and not (path.parent / target).exists():
                yield f"{path}: no {target}"
        for command in shell_commands(text):
            words = command.split()
            if words[0] == "make":
                asked = [w for w in words[1:] if re.fullmatch(r"[a-z.][a-z.-]*", w)][:1]
                if asked and asked[0] not in targets:
                    yield f"{path}: {command}: no such target"
            elif words[0] == "ackd" and _unknown(words[1:], command_exists):
                yield f"{path}: {command}: no such command"


def _unknown(words: list[str], command_exists: Callable[[str], bool]) -> bool:
    return (
        bool(words)
        and bool(re.fullmatch(r"[a-z][a-z-]*", words[0]))
        and not command_exists(words[0])
    )


def shell_commands(text: str) -> Iterator[str]:
    """Commands in shell blocks (a `$ ` before them is a prompt) and in inline code."""
    for language, body in _FENCE.findall(text):
        if language in _SHELL:
            for line in body.splitlines():
                command = line.strip().removeprefix("$ ")
                if command and not command.startswith("#"):
                    yield command
    for code in _INLINE.findall(_FENCE.sub("", text)):
        if code.startswith(("make ", "ackd ")):
            yield code
