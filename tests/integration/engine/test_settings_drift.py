"""Sidecars of one subscription with different settings find out, and say so."""

import pytest

from tests.integration.engine.together import NAME, Sidecar, Together
from tests.support.wait import wait_until_async

pytestmark = pytest.mark.redis


def differing(sidecar: Sidecar) -> float:
    """The metric, as a scrape gives it."""
    sidecar.runtime.metrics.render("")
    labels = {"subscription": NAME}
    value = sidecar.runtime.metrics.registry.get_sample_value("ackd_settings_differ", labels)
    assert value is not None
    return value


async def test_a_difference_is_told_and_forgotten(together: Together) -> None:
    """Both serve, and both say with whom they differ, as long as they do."""
    one = await together.start("one")
    other = await together.start("other", stuck_after_ms=5_000, lease_ms=5_000)
    assert "other in stuck_after_ms" in await one.says("warning: other sidecars")
    assert "one in stuck_after_ms" in await other.says("warning: other sidecars")
    assert (differing(one), differing(other)) == (1, 1)
    for sidecar in (one, other):
        await sidecar.ready()  # a warning holds no readiness back
    await other.runtime.stop()

    async def forgotten() -> bool:
        return not differing(one)

    await wait_until_async(forgotten, "the warning to go with its cause")


async def test_who_differs_in_what_decides_about_messages_serves_too(together: Together) -> None:
    """A rolling update of such a setting goes through: each serves by its file, and is named."""
    one = await together.start("one", rate_per_s=500.0)
    other = await together.start("other", attempts_max=3)
    await other.says("warning: other sidecars have other settings: one in attempts_max, rate_per_s")
    await one.says("other in attempts_max, rate_per_s")
    await one.ready()
    await other.ready()
    await one.publish(20)
    got = await one.collect(10) + await other.collect(10)
    assert len({each.id for each in got}) == 20
    assert (differing(one), differing(other)) == (1, 1)


async def test_what_was_changed_live_is_agreed(together: Together) -> None:
    """Files may differ in it: the live value holds for all."""
    one = await together.start("one")
    await one.runtime.configure(NAME, {"attempts_max": 5})
    other = await together.start("other", attempts_max=3)

    async def same() -> bool:
        views = [each.runtime.subscription(NAME).settings for each in (one, other)]
        return all(view["attempts_max"] == 5 for view in views)

    await wait_until_async(same, "the live value at both")
    assert (differing(one), differing(other)) == (0, 0)
    await one.runtime.configure(NAME, {"attempts_max": None})
    await other.says("warning: other sidecars", "one in attempts_max")
    await one.ready()
    await other.ready()
