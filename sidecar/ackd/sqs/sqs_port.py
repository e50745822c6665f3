"""The port that SQS clients call: one address for all actions, in both protocols."""

from __future__ import annotations

import logging
from http import HTTPStatus
from uuid import uuid4

from ackd.api.messages import Received
from ackd.config.schema import PublishSettings
from ackd.config.sqs import SqsSettings
from ackd.errors import AckdError, ConfigError
from ackd.http.server.app import App
from ackd.http.server.auth import TokenFile
from ackd.http.server.reply import Reply
from ackd.http.server.router import Content, Route, RouteAnswer
from ackd.http.server.service import HandlerCall, Service, limits_of
from ackd.ports import Clock
from ackd.sqs import aws_json, aws_query
from ackd.sqs.action_call import ActionCall
from ackd.sqs.actions import action_named
from ackd.sqs.aws_signature import Credentials
from ackd.sqs.fault import Fault, fault_of
from ackd.sqs.parameters import Parameters
from ackd.sqs.queues import Queues

LOG = logging.getLogger("ackd.http")
_ANY = (Content(aws_json.MEDIA_TYPE, dict), Content(aws_query.FORM, dict))
_PATH_PARTS = 2


class SqsPort:
    """Answers SQS clients. `app` is served by a listener."""

    def __init__(
        self, service: Service, settings: SqsSettings, publish: PublishSettings, clock: Clock
    ) -> None:
        self._clock = clock
        self.credentials = Credentials(settings.credentials_file)
        self._queues = Queues(service.engine, publish.topics, settings.account, settings.region)
        self._operator = settings.operator
        routes = [self._route("/"), self._route("/{account}/{queue}")]
        self.app = App("sqs", service, TokenFile(None), limits_of(service.settings), routes)

    async def load(self) -> None:
        """Read the credentials. Raises ConfigError."""
        try:
            await self.credentials.load()
        except OSError as error:
            path = self.credentials.path
            raise ConfigError(f"credentials file {path}: {error.strerror}") from error

    def _route(self, path: str) -> Route:
        return Route(
            method="POST",
            path=path,
            name="sqs" if path == "/" else "sqs_queue",
            text="An action of SQS.",
            handler=self._handle,
            tag="sqs",
            answers=(RouteAnswer(200, "What the action gives.", _ANY),),
            ports=("sqs",),
            body=_ANY,
        )

    async def _handle(self, call: HandlerCall) -> Reply:
        """Answer one action. Every failure is one that SQS clients understand."""
        request_id = str(uuid4())
        target = call.header(aws_json.TARGET)
        in_json = bool(target) or not call.header("Content-Type").startswith(aws_query.FORM)
        name, action = "", None
        try:
            self.credentials.check(call.request, call.body, self._clock.wall_ms())
            if in_json:
                name, parameters = aws_json.read(target, call.body)
            else:
                name, parameters = aws_query.read(call.body)
            action = self._call(call, parameters)
            result = await action_named(name)(action)
        except Fault as fault:
            return _failure(fault, request_id, in_json=in_json)
        except AckdError as error:
            return _failure(fault_of(error), request_id, in_json=in_json)
        except Exception:
            LOG.exception("a request of an SQS client failed on a bug of ackd's: %s", name)
            bug = Fault("InternalFailure", "ackd's log has the details.", _BUG)
            return _failure(bug, request_id, in_json=in_json)
        if in_json:
            reply = aws_json.answer(result, request_id)
        else:
            reply = aws_query.answer(name, result, request_id)
        received: Received | None = action.received
        if received is not None and received.messages:
            reply.undelivered = lambda: call.service.abandon(received)
        return reply

    def _call(self, call: HandlerCall, parameters: Parameters) -> ActionCall:
        path_queue = call.params[1] if len(call.params) == _PATH_PARTS else ""
        return ActionCall(call, parameters, self._queues, self._operator, path_queue)


_BUG = HTTPStatus.INTERNAL_SERVER_ERROR


def _failure(fault: Fault, request_id: str, *, in_json: bool) -> Reply:
    if in_json:
        return aws_json.failure(fault, request_id)
    return aws_query.failure(fault, request_id)
