"""The tables of parts: who asks for a subscription that is not here hears that, by its name."""

from __future__ import annotations

from dataclasses import fields

import pytest

from ackd.engine.parts_by_name import ByName, PartsByName
from ackd.errors import UnknownSubscriptionError


def test_a_subscription_that_is_not_here_is_named() -> None:
    table: ByName[int] = ByName({"orders": 1})
    assert table["orders"] == 1
    with pytest.raises(UnknownSubscriptionError, match="'order'"):
        table["order"]


def test_asking_whether_it_is_here_is_no_mistake() -> None:
    """A subscription that is not built yet is shown by its configuration."""
    table: ByName[int] = ByName()
    assert table.get("orders") is None
    assert "orders" not in table
    assert len(table) == 0, "nothing is made by asking"


def test_a_subscription_that_is_built_again_replaces_its_parts() -> None:
    """Whoever was given the table before finds the new part in it."""
    parts = PartsByName()
    given = parts.lags
    parts.lags["orders"] = "first"  # type: ignore[assignment]
    parts.lags["orders"] = "second"  # type: ignore[assignment]
    assert given["orders"] == "second"  # type: ignore[comparison-overlap]


def test_each_kind_of_part_has_a_table_of_its_own() -> None:
    one, other = PartsByName(), PartsByName()
    tables = [getattr(of, each.name) for of in (one, other) for each in fields(PartsByName)]
    assert len({id(each) for each in tables}) == len(tables)
    for each in tables:
        with pytest.raises(UnknownSubscriptionError):
            each["orders"]
