"""Queues: which subscription a client receives from, and to which topic it sends, by a name.

A queue is a subscription of this sidecar, or a topic that applications may publish to. The queue
`<subscription>-dead` stands for its dead letters. FIFO clients add `.fifo` to the name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from ackd.api.messages import Engine
from ackd.sqs.fault import Fault, wrong

FIFO = ".fifo"
DEAD = "-dead"
_PATTERN = "^"
KEPT_MAX = 1_000


@dataclass(frozen=True, slots=True)
class SqsQueue:
    """`name`: as the client wrote it. `subscription`: what a receive reads, empty if there is none;
    with `dead`, whose dead letters the queue stands for. `topic`: where a send goes, empty if that
    is not one topic.
    """

    name: str
    subscription: str = ""
    topic: str = ""
    ordered: bool = False
    dead: bool = False

    def receives(self) -> str:
        """The subscription to receive from. Raises Fault."""
        if self.subscription and not self.dead:
            return self.subscription
        if self.dead:
            raise Fault(
                "UnsupportedOperation",
                "Dead letters are listed and redriven (StartMessageMoveTask), not received.",
            )
        raise Fault(
            "UnsupportedOperation",
            f"{self.name} is a topic to send to; to receive, name a subscription.",
        )

    def sends(self) -> str:
        """The topic to send to. Raises Fault."""
        if self.topic:
            return self.topic
        raise Fault(
            "UnsupportedOperation",
            f"{self.name} does not stand for one topic; to send, name the topic.",
        )


class Queues:
    """Finds queues by name, URL or ARN. `topics`: those that applications may publish to, empty:
    those of the subscriptions.
    """

    def __init__(self, engine: Engine, topics: Sequence[str], account: str, region: str) -> None:
        self._engine = engine
        self._listed = [each for each in topics if not each.startswith(_PATTERN)]
        self._patterns = [re.compile(each) for each in topics if each.startswith(_PATTERN)]
        self._account = account
        self._arn = f"arn:aws:sqs:{region}:{account}:"
        self._known: dict[str, SqsQueue] = {}

    def url(self, queue: SqsQueue, host: str) -> str:
        """The URL by which clients call this queue at this address."""
        return f"http://{host}/{self._account}/{queue.name}"

    def arn(self, name: str) -> str:
        return f"{self._arn}{name}"

    def at(self, url: str) -> SqsQueue:
        """The queue of a URL, whatever address it names: a client may come by a port that is
        forwarded. Raises Fault.
        """
        if "/" not in url:
            return self.named(url)
        try:
            path = urlsplit(url).path
        except ValueError:
            raise wrong("QueueUrl", url, "It is not a URL.") from None
        return self.named(unquote(path.rpartition("/")[2]))

    def of_arn(self, name: str, arn: str) -> SqsQueue:
        """The queue of an ARN. Raises Fault."""
        if not arn.startswith(self._arn):
            raise wrong(name, arn, f"The ARN of a queue here begins with {self._arn}.")
        return self.named(arn.removeprefix(self._arn))

    def named(self, name: str) -> SqsQueue:
        """Raises Fault."""
        known = self._known.get(name)
        if known is None:
            known = self._find(name)
            if len(self._known) < KEPT_MAX:
                self._known[name] = known
        return known

    def _find(self, name: str) -> SqsQueue:
        views = {view.name: view for view in self._engine.subscriptions()}
        bare = name.removesuffix(FIFO)
        for each in dict.fromkeys((name, bare)):
            view = views.get(each)
            if view is not None:
                topic = view.topics[0] if len(view.topics) == 1 else ""
                return SqsQueue(
                    name,
                    view.name,
                    "" if topic.startswith(_PATTERN) else topic,
                    ordered=view.settings.get("ordering", "none") != "none",
                )
        for each in dict.fromkeys((name, bare)):
            readers = [view for view in views.values() if each in view.topics]
            if readers or self._publishable(each):
                reader = readers[0] if len(readers) == 1 else None
                ordered = any(view.settings.get("ordering", "none") != "none" for view in readers)
                return SqsQueue(name, reader.name if reader else "", each, ordered=ordered)
        owner = views.get(bare.removesuffix(DEAD)) if bare.endswith(DEAD) else None
        if owner is not None:
            return SqsQueue(name, owner.name, dead=True)
        raise Fault("QueueDoesNotExist", f"The specified queue does not exist: {name[:200]}.")

    def _publishable(self, topic: str) -> bool:
        return topic in self._listed or any(each.match(topic) for each in self._patterns)

    def all(self) -> Iterator[SqsQueue]:
        """Every queue whose name is known: subscriptions, their dead letters, topics to send to."""
        names: dict[str, None] = {}
        for view in self._engine.subscriptions():
            names[view.name] = None
            names[f"{view.name}{DEAD}"] = None
        names |= dict.fromkeys(self._listed)
        for name in sorted(names):
            yield self.named(name)
