"""Fetch sessions of one simulated consumer, exactly as the port describes them (rule R7)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ackd.core.ids import TopicPartition
from ackd.ports import ConsumerEvent, EndReached, Fetched, OutOfRange
from tests.simulation.foreign_delays import told
from tests.simulation.log import Log
from tests.simulation.world import MS

if TYPE_CHECKING:
    from tests.simulation.broker import SimBroker

BATCH_MAX = 20
UNREACHABLE_US = 50 * MS


@dataclass(slots=True)
class Session:
    """One session of one partition."""

    number: int
    log: Log
    position: int
    end_told: int = -1
    pulling: bool = False


class Fetcher:
    """Reads logs for one process. What is under way when a session ends is dropped."""

    def __init__(self, broker: SimBroker, put: Callable[[ConsumerEvent], None]) -> None:
        self._broker = broker
        self._world = broker.cluster.world
        self._put = put
        self._sessions: dict[TopicPartition, Session] = {}
        self._paused: set[TopicPartition] = set()
        self._blind: set[str] = set()
        self._numbers = 0
        self._batch_max = broker.random.choice([2, BATCH_MAX])
        self._closed = False

    def start(self, tp: TopicPartition, offset: int) -> int:
        """A new session."""
        self.stop(tp)
        self._numbers += 1
        session = Session(self._numbers, self._broker.cluster.log(tp), offset)
        if tp.topic not in self._blind:
            self._sessions[tp] = session
            session.log.listeners.append(lambda: self._pull(tp, session))
            self._pull(tp, session)
        return session.number

    def stop(self, tp: TopicPartition) -> None:
        """End a session."""
        self._sessions.pop(tp, None)
        self._paused.discard(tp)

    def pause(self, tp: TopicPartition) -> None:
        """The session rests."""
        self._paused.add(tp)

    def resume(self, tp: TopicPartition) -> None:
        """The session goes on."""
        self._paused.discard(tp)
        session = self._sessions.get(tp)
        if session is not None:
            self._pull(tp, session)

    def blind(self, topic: str) -> None:
        """The topic is gone: its sessions end; new ones read nothing until `see`."""
        self._blind.add(topic)
        for tp in [tp for tp in self._sessions if tp.topic == topic]:
            self.stop(tp)

    def see(self, topic: str) -> None:
        """The client knows the new topic."""
        self._blind.discard(topic)

    def close(self) -> None:
        """Nothing more is fetched."""
        self._closed = True
        self._sessions.clear()

    def _pull(self, tp: TopicPartition, session: Session) -> None:
        """Ask the broker once; the answer comes in order of the session."""
        if session.pulling or tp in self._paused or not self._current(tp, session):
            return
        session.pulling = True
        latency_us = self._broker.random.randint(*self._broker.faults.latency_us)
        self._world.after(latency_us * 2, self._pulled, tp, session)

    def _current(self, tp: TopicPartition, session: Session) -> bool:
        return self._sessions.get(tp) is session and not self._closed

    def _pulled(self, tp: TopicPartition, session: Session) -> None:
        if not self._current(tp, session) or not self._broker.process.alive:
            return
        if not self._broker.cluster.up:
            self._world.after(UNREACHABLE_US, self._pulled, tp, session)
            return
        self._broker.process.post(self._arrived, tp, session)

    def _arrived(self, tp: TopicPartition, session: Session) -> None:
        """In the process: hand over what the broker has now."""
        session.pulling = False
        if not self._current(tp, session) or tp in self._paused:
            return
        log, number = session.log, session.number
        if not log.start <= session.position <= log.end:
            self._put(OutOfRange(tp, number, log.start, log.end))
            return
        most = self._broker.random.randint(1, self._batch_max)
        records = log.following(session.position, most)
        if records:
            session.position = records[-1].offset + 1
            delays = told(tp, records) if self._broker.cluster.foreign_delays else None
            self._put(Fetched(tp, number, records, delays))
            self._pull(tp, session)
        elif session.end_told != log.end:
            session.end_told = session.position = log.end
            self._put(EndReached(tp, number, log.end))
