"""Operations of the store, places and leases, in the words of the model."""

from __future__ import annotations

from ackd.core.ids import LedgerKey
from ackd.core.record import operations as ops
from ackd.core.record.operations import Op
from ackd.core.record.protocol import Finish, OpResult
from ackd.core.record.state import PartitionRecord
from ackd.core.record.transitions import Outcome, Verb
from tests.proof.events import ORIGIN, Event, Token, fence
from tests.simulation.faults import TOPIC
from tests.simulation.log import is_retry
from tests.simulation.process import Process
from tests.simulation.run import NAME, Run


class Words:
    """The names that a run's messages, copies, server runs and leases have in its trace.

    `beyond`: why the trace ends early: the run did something that the model leaves out. `messages`:
    how many there are. `runs`: how many server runs there were. `epochs`: the run of a rollback
    epoch. `places`: the numbers of copies. `origins`: the message of a copy. `deadlines`: what was
    told of leases.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self.beyond = ""
        self.messages = 0
        self.runs = 1
        self.epochs: dict[tuple[bytes, int, int], int] = {}
        self.places: dict[tuple[int, int], int] = {}
        self.origins: dict[int, int] = {0: 0}
        self.deadlines: dict[Token, int] = {}

    def record(self, key: LedgerKey) -> int | None:
        """The number of a record; None: the model has not got it."""
        topic = self._run.cluster.of(key.topic_id)
        if topic is None:
            return None
        if topic.name == TOPIC:
            return ORIGIN
        return key.partition if is_retry(topic.name) else None

    def run_of(self, key: LedgerKey, rollback_epoch: int) -> int:
        """The server run of a record's rollback epoch."""
        return self.epochs.get((key.topic_id, key.partition, rollback_epoch), 0)

    def copy(self, partition: int, offset: int) -> int:
        """The number of a copy, 0 = it is none."""
        return self.places.get((partition, offset), 0)

    def message(self, offset: int) -> int:
        """The number of a message."""
        self.messages = max(self.messages, offset + 1)
        return offset + 1

    def lease(self, topic_id: bytes, partition: int, offset: int) -> tuple[int, int, LedgerKey]:
        """What a lease of this place is of: message, copy, and the record that has it."""
        key = LedgerKey(self._run.cluster.name, NAME, topic_id, partition)
        if self.record(key) == ORIGIN:
            return self.message(offset), 0, key
        c = self.copy(partition, offset)
        return self.origins[c], c, key

    def slot(self, key: LedgerKey, record: PartitionRecord, offset: int, now_ms: int) -> Event:
        """What a record has of a message."""
        slot, origin = record.slot(offset), record.origins.get(offset)
        of_origin: tuple[Event, ...] = ()
        if origin is not None:
            by = origin.claimed_by
            claimed = 0 if by is None else self.copy(by.partition, by.offset)
            phase = origin.slot.phase(now_ms).name
            of_origin = ({"gen": fence(origin.generation), "by": claimed, "phase": phase},)
        return {
            "phase": record.phase(offset, now_ms).name,
            "f": fence(slot.fence),
            "rb": self.run_of(key, slot.rollback_epoch),
            "org": of_origin,
        }

    # --- operations

    def operation(
        self, by: Process, key: LedgerKey, p: int, op: Op, result: OpResult
    ) -> Event:  # fmt: skip
        """What was asked, and what was decided."""
        if isinstance(op, ops.EndRepair):
            return {"do": "repaired", "p": p, "timeout": p != ORIGIN}
        c = 0 if p == ORIGIN else self.copy(p, op.offset)
        m = self.message(op.offset) if p == ORIGIN else self.origins[c]
        base: Event = {"s": by.name, "p": p, "m": m, "c": c, "out": result.outcome.name}
        match op:
            case ops.Grant():
                if result.outcome is Outcome.GRANTED:
                    epoch = self._run.server.data.records[key].rollback_epoch
                    self._promised(
                        Token(m, c, fence(result.fence), self.run_of(key, epoch)), result
                    )
                do = "grant" if p == ORIGIN else "grant copy"
                return {"do": do, **base, "f": fence(result.fence)}
            case ops.Settle():
                return self._settle(key, op, result, base)
            case _:
                here = self._of_message if p == ORIGIN else self._of_copy
                return here(key, op, result, base)

    def _settle(self, key: LedgerKey, op: ops.Settle, result: OpResult, base: Event) -> Event:
        token = Token(base["m"], base["c"], fence(op.fence), self.run_of(key, op.rollback_epoch))
        if result.outcome is Outcome.EXTENDED:
            self._promised(token, result)
        repair = op.verb is Verb.EXTEND and not op.counted
        shown = {"f": token.f, "rb": token.rb, "verb": op.verb.name, "repair": repair}
        return {"do": "settle", **base, **shown}

    def _of_message(self, key: LedgerKey, op: Op, result: OpResult, base: Event) -> Event:
        match op:
            case ops.MoveToRetry():
                return {"do": "move", **base, "f": fence(result.fence)}
            case ops.FinishOrigin() if op.reason in (Finish.SENT, Finish.DEAD):
                slot = {"f": fence(op.fence), "rb": self.run_of(key, op.rollback_epoch)}
                return {"do": "finish", **base, **slot, "dead": op.reason == Finish.DEAD}
            case ops.ClaimOrigin():
                c = self.copy(op.copy.partition, op.copy.offset)
                return {"do": "claim", **base, "c": c, "gen": fence(op.generation)}
            case ops.Advance() if not op.repair:
                return {"do": "advance", **base, "upto": op.offset}
            case ops.Gap() if not op.repair and not op.reason:
                holes = frozenset(map(self.message, range(op.start, op.end)))
                return {"do": "hole", **base, "ms": holes}
            case _:
                return {"do": "repair", **base, **self._repair(key, op)}

    def _repair(self, key: LedgerKey, op: Op) -> Event:
        match op:
            case ops.ReplayAck():
                return {"what": "ack", "gen": fence(op.generation)}
            case ops.ReplayFinished():
                return {"what": "finished"}
            case ops.Advance():
                return {"what": "advance", "m": op.offset}
            case ops.RestoreMoved() | ops.RestoreClaimed():
                rb = self.run_of(key, op.rollback_epoch)
                known: Event = {"gen": fence(op.generation), "rb": rb}
                if isinstance(op, ops.RestoreMoved):
                    return {
                        "what": "moved", **known, "stored": op.stored, "released": op.released
                    }  # fmt: skip
                c = self.copy(op.copy.partition, op.copy.offset)
                return {"what": "claimed", **known, "c": c}
            case _:
                self.beyond = self.beyond or type(op).__name__
                return {}

    def _of_copy(self, key: LedgerKey, op: Op, result: OpResult, base: Event) -> Event:
        del key
        match op:
            case ops.PlaceCopy():
                return {"do": "place", **base, "f": fence(op.generation)}
            case ops.FinishOrigin() | ops.Gap() if base["c"]:
                return {"do": "copy ended", **base, "dead": isinstance(op, ops.FinishOrigin)}
            case ops.ReplayAck() | ops.ReplayFinished() if base["c"]:
                return {"do": "repair", **base, "what": "copy"}
            case _:
                self.beyond = self.beyond or f"{type(op).__name__} in the retry topic"
                return {"do": "?"}

    def _promised(self, token: Token, result: OpResult) -> None:
        self.deadlines[token] = result.when_ms
