"""One call again and again: which errors, how long between, and until when."""

import asyncio

import pytest

from ackd.core.backoff import Backoff
from ackd.errors import BrokerError, StoreError, StoreSetupError
from ackd.retries import repeating
from tests.unit.engine.clock import TestTimeLoop

AWAY, WRONG = StoreError("away"), StoreSetupError("wrong password")


class Call:
    """Fails as told, then answers. `times_ms`: when it was called, from the first call on."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)
        self.times_ms: list[int] = []

    async def __call__(self) -> str:
        self.times_ms.append(round(asyncio.get_running_loop().time() * 1000))
        if self._errors:
            raise self._errors.pop(0)
        return "done"

    @property
    def waits_ms(self) -> list[int]:
        return [b - a for a, b in zip(self.times_ms, self.times_ms[1:], strict=False)]


def run(call: Call, **more: object) -> object:
    """Repeat it on test time."""

    async def main() -> object:
        return await repeating(StoreError, Backoff(100, 400), **more)(call)  # type: ignore[arg-type]

    with asyncio.Runner(loop_factory=TestTimeLoop) as runner:
        return runner.run(main())


def test_it_is_called_until_it_succeeds_after_growing_waits() -> None:
    call, told = Call(*[AWAY] * 5), list[Exception]()
    assert run(call, failed=told.append) == "done"
    assert call.waits_ms == [100, 200, 400, 400, 400]
    assert told == [AWAY] * 5


def test_other_errors_are_raised_at_once() -> None:
    call, told = Call(AWAY, BrokerError("other")), list[Exception]()
    with pytest.raises(BrokerError, match="other"):
        run(call, failed=told.append)
    assert told == [AWAY]


def test_an_error_that_is_not_selected_is_raised_at_once() -> None:
    with pytest.raises(StoreSetupError):
        run(Call(AWAY, WRONG), only=lambda error: not isinstance(error, StoreSetupError))


def test_after_its_time_the_error_is_raised() -> None:
    with pytest.raises(StoreError, match="away"):
        run(Call(*[AWAY] * 9), within_s=0.0)


def test_a_cancelled_call_ends() -> None:
    async def main() -> None:
        async with asyncio.timeout(1):
            await repeating(StoreError, Backoff.constant(10))(Call(*[AWAY] * 100_000))

    with asyncio.Runner(loop_factory=TestTimeLoop) as runner, pytest.raises(TimeoutError):
        runner.run(main())
