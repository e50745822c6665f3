"""What the APIs of dead letters and progress look up by the name of a subscription."""

from __future__ import annotations

from typing import Protocol

from ackd.engine.operations.operation_runner import Operations
from ackd.engine.operations.parts import OperationParts


class Operated(Protocol):
    """The parts of a subscription that operations work on."""

    @property
    def operation_parts(self) -> OperationParts: ...
    @property
    def operations(self) -> Operations: ...
