"""Sidecars of one subscription with different settings find out, say so, and go on serving."""

import logging
from collections.abc import Callable

import pytest

from ackd.engine.api import Reason
from tests.integration.engine.conftest import NAME, Sidecar, StartSidecar
from tests.support.kafka import Kafka
from tests.support.wait import wait_until_async

pytestmark = pytest.mark.kafka
MakeTopic = Callable[..., str]


def reason(sidecar: Sidecar) -> Reason:
    """What readiness says of the subscription."""
    (found,) = [r for r in sidecar.runtime.readiness() if r.name == f"subscription:{NAME}"]
    return found


def differing(sidecar: Sidecar) -> float:
    """The metric, as a scrape gives it."""
    sidecar.runtime.metrics.render("")
    labels = {"subscription": NAME}
    value = sidecar.runtime.metrics.registry.get_sample_value("ackd_settings_differ", labels)
    assert value is not None
    return value


async def test_other_settings_of_another_sidecar_are_told_and_forgotten(
    kafka: Kafka,  # noqa: ARG001 -- started before the sidecars
    start: StartSidecar,
    topic: MakeTopic,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Semantic settings are told, others are nobody's business; nobody refuses to serve."""
    name = topic(2)
    one = await start(name, name, name="one")
    same = await start(name, name, name="same", lease_ms=5_000)
    with caplog.at_level(logging.WARNING, "ackd.engine"):
        other = await start(name, name, name="other", attempts_max=3, lease_ms=5_000)

        async def told() -> bool:
            return all("other in attempts_max" in reason(each).detail for each in (one, same))

        await wait_until_async(told, "the others to notice", timeout_s=5)

        async def sees_both() -> bool:
            return differing(other) == 2

        await wait_until_async(sees_both, "the odd one to notice both", timeout_s=5)
        assert (differing(one), differing(same)) == (1, 1)
        assert "one in attempts_max; same in attempts_max" in reason(other).detail
        for sidecar in (one, same, other):
            await sidecar.ready()  # a warning holds no readiness back
        beats = [m for m in caplog.messages if "other sidecars have other settings" in m]
        assert len([m for m in beats if "other in attempts_max" in m]) == 2
    await other.runtime.stop()

    async def forgotten() -> bool:
        return not reason(one).detail and differing(same) == 0

    await wait_until_async(forgotten, "the warning to go with its cause", timeout_s=10)
