"""Dead letters that are put back to their group: each is a message of its own (R2, R29)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ackd.engine.partition.copy_headers import ORIGIN, REDRIVEN_FROM
from ackd.ports import Headers
from ackd.ports.own_topics import DEAD_PREFIX, is_own_topic
from tests.simulation.book import Book, name_of
from tests.simulation.log import Cluster
from tests.simulation.world import Violation, World

REDRIVEN = "ackd-redriven"
RUNNING, RIGHT = "dead-operation:", ":runner"


def origin_record_of(fields: Mapping[str, bytes | None]) -> tuple[str, str, int, int]:
    """(topic id, topic, partition, offset) of what a copy stands for: its dead letter, if it comes
    from one, else its origin.
    """
    text = fields.get(REDRIVEN) or fields[ORIGIN]
    assert text is not None
    _, topic_id, topic, partition, offset = text.decode().split("/")
    return topic_id, topic, int(partition), int(offset)


def under_way(values: Iterable[str]) -> bool:
    """An operation has not ended; the right to run it may outlive it."""
    return any(name.startswith(RUNNING) and not name.endswith(RIGHT) for name in values)


def reached(world: World, topic: str, headers: Headers) -> None:
    """R29: what is put back to its group is heard of by nobody else."""
    if not is_own_topic(topic) and any(name == REDRIVEN_FROM for name, _ in headers):
        world.fail("R29: a dead letter that was meant for its group was sent to all of them")


def redriven(book: Book, cluster: Cluster) -> int:
    """How many dead letters have left. Raises Violation: I1, one is neither finished nor dead
    again.
    """
    dead = {each.topic_id for each in cluster.topics.values() if each.name.startswith(DEAD_PREFIX)}
    left = [(at, each) for at, each in book.messages.items() if at.topic_id in dead and each.sent]
    for at, message in left:
        if not message.done:
            raise Violation(f"I1: {name_of(at)} was redriven and is never finished")
    return len(left)
