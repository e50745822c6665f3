"""The schema itself: every setting is documented, and every default keeps its own bounds."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import pytest

from ackd.config.adapters import find_adapter
from ackd.config.conversion import convert
from ackd.config.fields import FieldKind, Spec, Unit, specs
from ackd.config.schema import Settings
from ackd.config.subscription import RETRY_DELAYS_MS, SubscriptionSettings
from ackd.options import setting

SECTIONS = (FieldKind.SECTION, FieldKind.SECTIONS, FieldKind.OPTIONS)


def every(cls: type[Any]) -> Iterator[tuple[str, Spec]]:
    """All settings below a dataclass."""
    for spec in specs(cls):
        yield f"{cls.__name__}.{spec.name}", spec
        if spec.section is not None:
            yield from every(spec.section)


ALL = [*every(Settings)]
for _name in ("kafka", "local"):
    ALL += every(find_adapter(_name).options)


@pytest.mark.parametrize(("name", "spec"), ALL, ids=[name for name, _ in ALL])
def test_every_setting_is_documented_and_its_default_is_allowed(name: str, spec: Spec) -> None:
    assert spec.doc[:1].isupper() or spec.doc.startswith("`"), name
    assert spec.doc.endswith((".", ")")), name
    if spec.kind in SECTIONS or spec.required:
        return
    default = spec.default()
    if default is None:
        assert spec.optional, name
        return
    raw = list(default) if isinstance(default, tuple) else default
    raw = str(raw) if isinstance(raw, Path) else raw
    raw = raw.value if isinstance(raw, Enum) else raw
    assert convert(spec, raw) == default


def test_numbers_have_bounds() -> None:
    """I8: a setting that is a number can't be set to something that never ends."""
    for name, spec in ALL:
        if FieldKind.INT in (spec.kind, spec.item) or spec.kind is FieldKind.FLOAT:
            assert spec.facts.get("min") is not None, name
            assert spec.facts.get("max") is not None, name


def test_the_default_schedule_is_that_of_the_design() -> None:
    minutes = [delay / 60_000 for delay in RETRY_DELAYS_MS[2:]]
    assert RETRY_DELAYS_MS[:2] == (10_000, 30_000)
    assert minutes == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120]
    assert SubscriptionSettings(topics=("t",)).attempts_max == 17  # so that each delay has its turn


class Colour(Enum):
    """For the test below."""

    RED = "red"


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """Options as an adapter of somebody else may write them: no import of ours needed."""

    url: str = field(metadata={"doc": "Where."})
    colour: Colour = field(default=Colour.RED, metadata={"doc": "How."})
    ratio: float = field(default=0.5, metadata={"doc": "Share.", "min": 0, "max": 1})
    mode: Literal["a", "b"] = field(default="a", metadata={"doc": "Mode."})
    hosts: list[str] = field(default_factory=list, metadata={"doc": "Hosts."})
    password: str | None = field(default=None, metadata={"doc": "Secret.", "secret": True})
    wait_ms_max: int = setting(5, "Wait.", min=0, max=10)


def test_plain_dataclass_fields_are_understood() -> None:
    by_name = {spec.name: spec for spec in specs(Foreign)}
    assert by_name["url"].required
    assert convert(by_name["colour"], "red") is Colour.RED
    assert by_name["colour"].choices == ("red",)
    assert by_name["mode"].choices == ("a", "b")
    assert by_name["password"].secret
    assert by_name["password"].optional
    assert by_name["wait_ms_max"].unit is Unit.MS
    assert convert(by_name["ratio"], 1) == 1.0


def test_a_type_that_no_file_can_hold_is_a_bug_of_its_author() -> None:
    @dataclass
    class Bad:
        """Not readable from a file."""

        when: complex = 0j

    with pytest.raises(TypeError, match=r"Bad\.when"):
        specs(Bad)
