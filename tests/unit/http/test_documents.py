"""The documents that are made from the table of routes are complete and up to date."""

from __future__ import annotations

import re
from typing import Any, cast

import orjson
import pytest

from ackd.http import reference
from ackd.http.formats import problems
from ackd.http.openapi import document
from ackd.http.routes import ROUTES
from ackd.http.server.router import Router
from tests.support.paths import REPO
from tests.unit.http.conftest import Running


@pytest.mark.parametrize(
    ("name", "made"), [("routes", reference.page()), ("problems", problems.catalogue())]
)
def test_page_is_up_to_date(name: str, made: str) -> None:
    """Refresh with `ackd docs <name> > docs/reference/<name>.md`."""
    assert (REPO / "docs" / "reference" / f"{name}.md").read_text() == made


def test_each_route_is_in_the_document_once() -> None:
    whole = cast("dict[str, dict[str, Any]]", document(ROUTES)["paths"])
    names = [operation["operationId"] for path in whole.values() for operation in path.values()]
    assert len(names) == len(set(names))
    for route in ROUTES:
        assert route.method.lower() in whole[route.path]
    for port in ("data", "admin"):
        paths = cast("dict[str, object]", document(ROUTES, port)["paths"])
        assert set(paths) == {route.path for route in ROUTES if port in route.ports}


def test_references_lead_somewhere_and_every_schema_is_used() -> None:
    text = orjson.dumps(document(ROUTES)).decode()
    used = set(re.findall(r'"#/components/schemas/(\w+)"', text))
    components = cast("dict[str, dict[str, object]]", document(ROUTES)["components"])
    assert used == set(components["schemas"])


def test_names_and_paths_of_routes_are_unique_per_port() -> None:
    for port in ("data", "admin"):
        mine = [route for route in ROUTES if port in route.ports]
        assert len({(route.method, route.path) for route in mine}) == len(mine)
        router = Router(mine)
        for route in mine:
            filled = re.sub(r"\{\w+\}", "x", route.path)
            assert router.find(route.method, filled)[0] is route


async def test_each_port_serves_its_part(server: Running) -> None:
    async with server.data.get("/openapi.json") as answer:
        assert await answer.json() == document(ROUTES, "data")
    async with server.admin.get("/openapi.json") as answer:
        assert await answer.json() == document(ROUTES, "admin")


async def test_metrics_count_requests_by_route(server: Running) -> None:
    async with server.data.get("/v1/subscriptions/orders") as answer:
        assert answer.status == 200
    async with server.data.get("/nothing") as answer:
        assert answer.status == 404
    async with server.admin.get("/metrics") as answer:
        assert answer.status == 200
        text = await answer.text()
    route = 'route="/v1/subscriptions/{subscription}"'
    expected = f'ackd_http_requests_total{{method="GET",port="data",{route},status="200"}} 1.0'
    assert expected in text
    assert 'ackd_http_connections{port="data"} 1.0' in text
    assert 'status="404"' in text
