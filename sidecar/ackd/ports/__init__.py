"""The ports: what the engine asks of a broker, a store and a clock. Adapters implement them.

Two rules hold for every implementation:

* **Assignment is not ownership.** A broker (its consumer group, say) only *assigns* partitions to
  a sidecar. The right to deliver messages is the store's ownership term (rule R5).
  So the fetching side (`Consumer.fetch_from`, `Consumer.stop_fetch`) works for every partition,
  assigned or not.
* **One stream of events.** A consumer reports everything in order through `Consumer.events()`, so
that a simulator can run the engine.
"""

from __future__ import annotations

from ackd.ports.broker import (
    Broker,
    Capabilities,
    Failure,
    NotStored,
    Outgoing,
    PublishResult,
    Stored,
)
from ackd.ports.broker_positions import BrokerPositions, HasPositions, LogPart
from ackd.ports.broker_side_acks import (
    BrokerSideAcks,
    KnownAt,
    KnownSource,
    LogCut,
    Placed,
    Places,
    Source,
    SourceRegistry,
    StoredAt,
)
from ackd.ports.clock import Clock
from ackd.ports.condition import Condition
from ackd.ports.consumer import Committed, Consumer, ConsumerSpec, StartPolicy, TopicInfo
from ackd.ports.dead_letter_origins import DeadLetterOrigins, DeadOrigin
from ackd.ports.events import (
    Arrival,
    Arrived,
    Assigned,
    AssignedPlace,
    ConsumerEvent,
    Delay,
    Done,
    Drew,
    EndReached,
    Fetched,
    Headers,
    LogEvent,
    Lost,
    OutOfRange,
    Record,
    Revoked,
    TopicReplaced,
)
from ackd.ports.operator import Groups, GroupTopics, SingleAcks, TopicLook, TopicSizes
from ackd.ports.outbox import DedupKeys, Outboxes
from ackd.ports.peers import PeerLink, PeerNetwork, PeerUser
from ackd.ports.store import NOTHING_READY, READY_MAX, Member, Members, ReadyReport, Store
from ackd.ports.transactions import SeesTransactions
from ackd.ports.truncation import SeesTruncation

__all__ = [
    "NOTHING_READY",
    "READY_MAX",
    "Arrival",
    "Arrived",
    "Assigned",
    "AssignedPlace",
    "Broker",
    "BrokerPositions",
    "BrokerSideAcks",
    "Capabilities",
    "Clock",
    "Committed",
    "Condition",
    "Consumer",
    "ConsumerEvent",
    "ConsumerSpec",
    "DeadLetterOrigins",
    "DeadOrigin",
    "DedupKeys",
    "Delay",
    "Done",
    "Drew",
    "EndReached",
    "Failure",
    "Fetched",
    "GroupTopics",
    "Groups",
    "HasPositions",
    "Headers",
    "KnownAt",
    "KnownSource",
    "LogCut",
    "LogEvent",
    "LogPart",
    "Lost",
    "Member",
    "Members",
    "NotStored",
    "OutOfRange",
    "Outboxes",
    "Outgoing",
    "PeerLink",
    "PeerNetwork",
    "PeerUser",
    "Placed",
    "Places",
    "PublishResult",
    "ReadyReport",
    "Record",
    "Revoked",
    "SeesTransactions",
    "SeesTruncation",
    "SingleAcks",
    "Source",
    "SourceRegistry",
    "StartPolicy",
    "Store",
    "Stored",
    "StoredAt",
    "TopicInfo",
    "TopicLook",
    "TopicReplaced",
    "TopicSizes",
]
