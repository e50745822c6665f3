"""The clients of `make bench` are answered: nobody runs it for each change."""

import json

import pytest

from tests.bench.load import Job, run
from tests.integration.http.conftest import Sidecar, call

COUNT = 40


@pytest.mark.parametrize("shape", ["separate", "joined"])
async def test_its_requests_settle_what_they_receive(sidecar: Sidecar, shape: str) -> None:
    batch = json.dumps({"messages": [{"json": each} for each in range(COUNT)]}).encode()
    path = "/v1/topics/orders/messages:batch"
    assert call(sidecar.port, "POST", path, batch, Content_Type="application/json")[0] == 200
    job = Job(sidecar.port, "orders", 2, 8, shape, COUNT, seconds=20, wait_ms=1_000)
    tally = await run(job)
    assert (tally.done, tally.bad) == (COUNT, 0)
