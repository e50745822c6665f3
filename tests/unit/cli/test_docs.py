"""`ackd docs` prints the pages that `docs/reference` keeps; tests/tidy compares the two."""

import pytest

from ackd.cli.commands.docs import OWN_ADAPTERS, PAGES
from ackd.cli.main import main
from ackd.config.fields import FieldKind, Spec, specs
from ackd.config.reference import page
from ackd.config.schema import Settings


@pytest.mark.parametrize("name", sorted(PAGES))
def test_the_command_prints_a_page(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs", name]) == 0
    assert capsys.readouterr().out == PAGES[name](OWN_ADAPTERS)


def test_every_setting_is_a_row_with_its_default_and_bounds() -> None:
    rows = [line for line in page(OWN_ADAPTERS).splitlines() if line.startswith("| `")]
    for spec in _all(specs(Settings)):
        (row, *_) = [row for row in rows if row.startswith(f"| `{spec.name}` |")]
        assert spec.doc.replace("|", "\\|") in "\n".join(rows), spec.name
        assert row.count("|") - row.count("\\|") == 6, row
    assert any("`lease_ms` | duration | `30s` | 100ms to 12h |" in row for row in rows)
    assert any("`body_bytes_max` | size | `16MiB` | 1KiB to 1GiB |" in row for row in rows)


def test_the_options_of_all_installed_adapters_can_be_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["docs", "configuration", "--adapters", "all"]) == 0
    shown = capsys.readouterr().out
    for name in ("kafka", "local"):
        assert f'with `adapter = "{name}"`' in shown


def _all(known: tuple[Spec, ...]) -> list[Spec]:
    found: list[Spec] = []
    for spec in known:
        if spec.section is not None:
            found += _all(specs(spec.section))
        elif spec.kind is not FieldKind.OPTIONS:
            found.append(spec)
    return found
