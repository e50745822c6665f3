"""One action on its way: what every action is given."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from ackd.api.messages import Engine, Received
from ackd.errors import AckdError
from ackd.http.server.service import HandlerCall
from ackd.sqs.fault import Fault, fault_of
from ackd.sqs.parameters import Parameters
from ackd.sqs.queues import Queues, SqsQueue

Result = Mapping[str, object]
"""The members of an answer in the JSON protocol."""


@dataclass(slots=True)
class ActionCall:
    """`operator`: whether clients may change queues and redrive. `path_queue`: the name in the
    request's path. `received`: messages of the answer, whose leases go back if no byte of it is
    sent (R21).
    """

    call: HandlerCall
    parameters: Parameters
    queues: Queues
    operator: bool
    path_queue: str = ""
    received: Received | None = None

    @property
    def engine(self) -> Engine:
        return self.call.service.engine

    @property
    def host(self) -> str:
        """The address that the client called."""
        return self.call.header("Host")

    def queue(self) -> SqsQueue:
        """The queue that the request names. Raises Fault."""
        url = self.parameters.optional_text("QueueUrl") or self.path_queue
        if not url:
            raise Fault("MissingParameter", "The request must contain the parameter QueueUrl.")
        return self.queues.at(url)

    def operators_only(self) -> None:
        """Raises Fault."""
        if not self.operator:
            raise Fault(
                "AccessDenied",
                "Clients of this port may not do this: the setting `sqs.operator` is off.",
            )


Action = Callable[[ActionCall], Awaitable[Result]]


def failed(entry_id: str, error: AckdError | Fault) -> dict[str, object]:
    """An entry of a batch that failed."""
    fault = fault_of(error) if isinstance(error, AckdError) else error
    return {
        "Id": entry_id,
        "SenderFault": fault.by_sender,
        "Code": fault.query_code,
        "Message": fault.message,
    }


def batch(done: list[dict[str, object]], failures: list[dict[str, object]]) -> Result:
    """The answer to a batch. Both lists are there, also empty: some clients expect that."""
    return {"Successful": done, "Failed": failures}
