"""A message of a transaction: stored, seen by nobody, then committed or taken back."""

from ackd_adapters.rocketmq.message import MessageIds, MessageToSend, wire
from ackd_adapters.rocketmq.protocol import service_pb2 as pb
from ackd_adapters.rocketmq.protocol.definition_pb2 import (
    MessageType,
    TransactionResolution,
    TransactionSource,
)
from ackd_adapters.rocketmq.rpc import SEND, Method, ensure
from tests.support.rocketmq.bare import Bare, now_ms

END = Method(
    "EndTransaction",
    pb.EndTransactionRequest.SerializeToString,
    pb.EndTransactionResponse.FromString,
)


async def transact(it: Bare, body: bytes, *, commit: bool) -> None:
    """One message and its end."""
    message = wire(
        MessageToSend(it.topic, body), "", MessageIds().make(now_ms()), now_ms(), "127.0.0.1"
    )
    message.system_properties.message_type = MessageType.TRANSACTION
    sent = await it.rpc.call(SEND, pb.SendMessageRequest(messages=[message]))
    ensure("send", sent.status)
    (entry,) = sent.entries
    how = TransactionResolution.COMMIT if commit else TransactionResolution.ROLLBACK
    ended = await it.rpc.call(
        END,
        pb.EndTransactionRequest(
            topic=message.topic,
            message_id=entry.message_id,
            transaction_id=entry.transaction_id,
            resolution=how,
            source=TransactionSource.SOURCE_CLIENT,
        ),
    )
    ensure("end of a transaction", ended.status)
