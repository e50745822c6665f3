"""Checks of `docs/brokers/compared.md`: each cell has a verdict, and tests show what it claims."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.tidy import rules

PAGE = "docs/brokers/compared.md"
BROKERS = ("Kafka", "Pulsar", "RocketMQ", "local queue")
SHOWN = ("yes", "adapter", "differs")
VERDICTS = (*SHOWN, "no", "none", "not tested here")
_NOTE = re.compile(r"\[\^([\w-]+)\]")
_DEFINED = re.compile(r"^\[\^([\w-]+)\]: (.+(?:\n {4}.+)*)", re.MULTILINE)


class Cell(NamedTuple):
    """What the page says of one broker. `verdict`: empty if it is none of the page's."""

    row: str
    broker: str
    verdict: str
    notes: tuple[str, ...]


def cells(page: str) -> Iterator[Cell]:
    """Those of all tables that have a column for each broker; a row that lacks some has empty ones
    in their place.
    """
    inside = False
    for line in page.splitlines():
        parts = [part.strip() for part in line.strip("|").split("|")]
        if not line.startswith("|"):
            inside = False
        elif tuple(parts[1:]) == BROKERS:
            inside = True
        elif inside and set(line) != {"|", "-"}:
            said = [*parts[1:], *[""] * len(BROKERS)]
            for broker, text in zip(BROKERS, said, strict=False):
                first = re.split(r"[:,]", _NOTE.sub("", text))[0].strip()
                verdict = first if first in VERDICTS else ""
                yield Cell(parts[0], broker, verdict, tuple(_NOTE.findall(text)))


def complaints(repo: Path) -> Iterator[str]:
    """Cells without a verdict or, if they claim something, without a test; notes that are used and
    not there, or there and not used, or twice.
    """
    page = (repo / PAGE).read_text()
    defined = _DEFINED.findall(page)
    notes, names = dict(defined), [name for name, _ in defined]
    yield from (f"[^{name}] twice" for name in notes if names.count(name) > 1)
    found = list(cells(page))
    if not found:
        yield "no table"
    for cell in found:
        at = f"{cell.row}, {cell.broker}"
        if not cell.verdict:
            yield f"{at}: none of {', '.join(VERDICTS)}"
        yield from (f"{at}: there is no note [^{name}]" for name in cell.notes if name not in notes)
        named = [file for name in cell.notes for file, _ in rules.tests_in(notes.get(name, ""))]
        if cell.verdict in SHOWN and not any(rules.is_test(file) for file in named):
            yield f"{at}: {cell.verdict}, and no test shows it"
    used = {name for cell in found for name in cell.notes}
    yield from (f"[^{name}] is not used" for name in notes if name not in used)
