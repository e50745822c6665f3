"""Checks of the Markdown pages: links that lead somewhere, commands and tests that exist."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_SHELL = ("sh", "bash", "shell", "console")
_TEST = re.compile(r"test_\w+")
_FILE = re.compile(r"[\w./-]+/[\w-]+\.(?:py|lua|md)")
_SECTION = re.compile(
    r"^\[(?:brokers|subscriptions|server|store|publish|peers|traces|app)\b", re.MULTILINE
)
_NAMED = re.compile(r"(?<![\w/.])docs/[\w/-]+\.md")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_TARGET = re.compile(r"\]\([^)]*\)")
RUN = {
    "README.md": "tests/e2e/test_readme.py",
    "docs/quickstart.md": "tests/e2e/test_quickstart.py",
    "docs/guides/failures.md": "tests/integration/http/test_dead.py",
    "docs/guides/progress.md": "tests/integration/http/test_progress.py",
    "docs/guides/consume.md": "tests/integration/http/test_page.py",
    "docs/guides/flow.md": "tests/integration/http/test_flow_page.py",
    "docs/guides/publish.md": "tests/integration/http/test_outbox_page.py",
    "docs/guides/long-work.md": "tests/integration/http/test_long_work.py",
}
"""Pages with commands of any kind, and the test that runs them."""


def pages(repo: Path) -> list[Path]:
    """Every page of the documentation."""
    return sorted([*repo.glob("*.md"), *(repo / "docs").rglob("*.md")])


def make_targets(repo: Path) -> set[str]:
    """The targets that the Makefile declares."""
    text = (repo / "Makefile").read_text()
    return set(re.findall(r"^([a-z][a-z.-]*|\.venv):", text, re.MULTILINE))


def broken(
    paths: Iterable[Path],
    *,
    repo: Path,
    targets: Collection[str],
    help_of: Callable[[str], str],
) -> Iterator[str]:
    """Links to files that are not there; `make` targets, files, `ackd` commands and options that do
    not exist; other commands on pages whose commands no test runs.

    `help_of` a command of `ackd` is empty if there is none.
    """
    for path in paths:
        text = path.read_text()
        yield from _dead_links(path, text)
        for command in shell_commands(text):
            words = command.split()
            if words[0] == "make":
                asked = [w for w in words[1:] if re.fullmatch(r"[a-z.][a-z.-]*", w)][:1]
                if asked and asked[0] not in targets:
                    yield f"{path}: {command}: no such target"
            elif words[0] == "ackd":
                if _unknown(words[1:], help_of):
                    yield f"{path}: {command}: no such command or option"
            elif words[0].startswith("."):
                yield from (
                    f"{path}: {command}: no {word}"
                    for word in words
                    if "/" in word and not (repo / word).exists()
                )
            elif path.relative_to(repo).as_posix() not in RUN:
                yield f"{path}: {command}: no test runs it"


def pages_named(text: str) -> set[str]:
    """Pages that a text names by their path in the repository."""
    return set(_NAMED.findall(text))


def configurations(text: str) -> Iterator[str]:
    """TOML blocks that are a configuration of ackd (and not of something else)."""
    for language, body in _FENCE.findall(text):
        if language == "toml" and _SECTION.search(body):
            yield body


def _dead_links(path: Path, text: str) -> Iterator[str]:
    for link in _LINK.findall(_FENCE.sub("", text)):
        target, _, anchor = link.partition("#")
        page = path.parent / target if target else path
        if "://" in link:
            continue
        if not page.exists():
            yield f"{path}: no {target}"
        elif anchor and page.suffix == ".md" and anchor not in anchors(page.read_text()):
            yield f"{path}: no section #{anchor} in {page.name}"


def anchors(text: str) -> set[str]:
    """What the headings of a page are linked by: small letters, hyphens for spaces."""
    plain = (
        re.sub(r"[^\w\- ]", "", _TARGET.sub("", heading).lower()).strip()
        for heading in _HEADING.findall(_FENCE.sub("", text))
    )
    return {name.replace(" ", "-") for name in plain}


def hard_to_read(text: str, *, lines_max: int, columns_max: int) -> Iterator[str]:
    """Paragraphs and list items with too many lines, and lines that are too long. Tables, code and
    headings are what they are.
    """
    plain = re.sub(r"^(?: {4}.*\n)+", "", _FENCE.sub("\n", text), flags=re.MULTILINE)
    for part in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", plain):
        lines = [line for line in part.splitlines() if not line.lstrip().startswith(("|", "#"))]
        if len(lines) > lines_max:
            yield f"{len(lines)} lines: {lines[0]}"
        yield from (f"{len(line)} columns: {line}" for line in lines if len(line) > columns_max)


def _unknown(words: list[str], help_of: Callable[[str], str]) -> bool:
    if not words or not re.fullmatch(r"[a-z][a-z-]*", words[0]):
        return False
    text = help_of(words[0])
    options = [word.partition("=")[0] for word in words if word.startswith("--")]
    return not text or any(not re.search(rf"{option}\b", text) for option in options)


def tests_named(text: str) -> set[str]:
    """Names of tests in inline code."""
    return {code for code in _INLINE.findall(_FENCE.sub("", text)) if _TEST.fullmatch(code)}


def files_named(text: str) -> set[str]:
    """Files with their folders in inline code: `core/backoff.py`."""
    return {code for code in _INLINE.findall(_FENCE.sub("", text)) if _FILE.fullmatch(code)}


def linked(page: Path) -> set[Path]:
    """The files that a page links to."""
    links = _LINK.findall(_FENCE.sub("", page.read_text()))
    return {(page.parent / link.partition("#")[0]).resolve() for link in links if "://" not in link}


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
