"""Requests made from the OpenAPI document find no 5xx and nothing that is not documented."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import CheckFunction, load_all_checks
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from ackd.http.openapi import document
from ackd.http.routes import ROUTES
from tests.integration.http.conftest import TOPICS, Sidecar

load_all_checks()

# A lease, a subscription or a topic that fits the schema need not exist.
SKIPPED: list[CheckFunction] = [positive_data_acceptance]
# A raw publish takes any body, and headers that nobody knows are no mistake in HTTP.
TAKES_ANYTHING = "/v1/topics/{topic}/messages"
STREAM = "/v1/subscriptions/{subscription}/stream"
FEW = settings(
    max_examples=40,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)

data = schemathesis.openapi.from_dict(document(ROUTES, "data"))
admin = schemathesis.openapi.from_dict(document(ROUTES, "admin")).exclude(path="/v1/drain")
"""A drained sidecar is not ready any more, so that call has tests of its own."""


@data.parametrize()
@FEW
def test_data_port_keeps_to_its_document(case: schemathesis.Case[Any], sidecar: Sidecar) -> None:
    skipped = [*SKIPPED]
    if case.path == TAKES_ANYTHING:
        skipped.append(negative_data_rejection)
    if case.path == STREAM and _known(case):
        case.headers["Ackd-Worker"] = "schema"
        case.query["duration_ms"] = 20  # it would last for an hour
        skipped.append(negative_data_rejection)
    case.call_and_validate(base_url=sidecar.url, excluded_checks=skipped)


def _known(case: schemathesis.Case[Any]) -> bool:
    return case.path_parameters.get("subscription") in TOPICS


@admin.parametrize()
@FEW
def test_admin_port_keeps_to_its_document(case: schemathesis.Case[Any], sidecar: Sidecar) -> None:
    answer = case.call(base_url=sidecar.admin_url)
    skipped = [*SKIPPED]
    if answer.status_code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        # A list that is longer than the schema allows may be longer than a body, too: refused all
        # the same, but the check does not know of this status.
        skipped.append(negative_data_rejection)
    case.validate_response(answer, excluded_checks=skipped)
