"""The general job for the writer: a function that runs in its transaction."""

from __future__ import annotations

from collections.abc import Callable

from ackd.errors import BrokerError, BugError
from ackd_adapters.local.log import Transaction


class Call:
    """Runs `work` in the transaction; `answer` gets None once it is durable, or the error."""

    weight = 0

    def __init__(
        self,
        work: Callable[[Transaction], None],
        answer: Callable[[BrokerError | BugError | None], None],
    ) -> None:
        self._work = work
        self._answer = answer

    def run(self, tx: Transaction) -> None:
        self._work(tx)

    def succeed(self) -> None:
        self._answer(None)

    def fail(self, error: BrokerError | BugError) -> None:
        """The transaction failed: the work has no effect, or (OutcomeUnknownError) may have one."""
        self._answer(error)
