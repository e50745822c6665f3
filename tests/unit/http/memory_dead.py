"""Test support: dead letters in memory, so that their addresses can be tested by themselves."""

from __future__ import annotations

from collections.abc import Callable

from ackd.api.dead_letters import (
    DeadLetter,
    DeadPage,
    DeadRequest,
    DeadView,
    DryRun,
    Kind,
    OperationView,
)
from ackd.errors import (
    BadParameterError,
    OperationRunningError,
    UnknownDeadLetterError,
    UnknownOperationError,
)
from ackd.ports import Record


class MemoryDesk:
    """One dead letter in each subscription, and operations that run until they are cancelled."""

    def __init__(self, check: Callable[[str], object]) -> None:
        self._check = check
        self.begun: list[DeadRequest] = []
        self.operations: dict[str, OperationView] = {}
        self.value: bytes | None = b'{"n":1.0}'

    def _view(self, name: str) -> DeadView:
        self._check(name)
        return DeadView("0-0", f"{name}/0/7", "dead", 17, "no", "first", "last", 1, 2, 3, None)

    async def page(self, name: str, cursor: str | None, limit: int) -> DeadPage:
        """Everything on the first page."""
        view = self._view(name)
        return DeadPage([view][:limit] if cursor is None else [])

    async def peek(self, name: str, dead_id: str) -> DeadLetter:
        """The one."""
        view = self._view(name)
        if dead_id != view.id:
            raise UnknownDeadLetterError
        headers = (("a", b"b"), ("bin", b"\xff"))
        return DeadLetter(view, Record(0, b"\xfe", self.value, headers, 3), headers)

    async def begin(self, name: str, request: DeadRequest) -> DryRun | OperationView:
        """One at a time."""
        view = self._view(name)
        if request.dry_run:
            return DryRun(1, 1, complete=True, messages=[view])
        if request.kind is Kind.PURGE and request.confirm != name:
            raise BadParameterError
        if any(each.state == "running" for each in self.operations.values()):
            raise OperationRunningError(operation="op")
        self.begun.append(request)
        made = OperationView("op", name, request.kind.value, "running", None, 1, 2, 1, 0, 0, 0, 0)
        self.operations["op"] = made
        return made

    async def operation(self, operation_id: str) -> OperationView:
        """As it stands."""
        if operation_id not in self.operations:
            raise UnknownOperationError
        return self.operations[operation_id]

    async def cancel(self, operation_id: str) -> OperationView:
        """At once."""
        found = await self.operation(operation_id)
        found.state = "cancelled"
        return found
