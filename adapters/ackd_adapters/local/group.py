"""Membership of groups, shared by all processes on one queue (tables `members` and `claims`).

A partition changes hands in two steps, so that it is assigned to one member at a time: its holder
gets `Revoked` and gives its claim up (`done()`, or 2 s later, rule R34); only a partition that
nobody claims, or whose holder's process is gone, is claimed again. There is no leader: each process
applies the same pure function (`assign`) to the same table, inside a transaction.

What a process has reported to a member changes only after the deciding transaction is durable.
"""

from __future__ import annotations

import json
import re
import secrets
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from ackd.core.ids import TopicPartition
from ackd.errors import BrokerError, BugError
from ackd.ports import (
    Assigned,
    Condition,
    ConsumerEvent,
    Lost,
    Revoked,
    TopicReplaced,
)
from ackd.ports.own_topics import is_own_topic, is_retry_topic
from ackd_adapters.local import schema, topics
from ackd_adapters.local.alive import LOOK_MS, Watch
from ackd_adapters.local.assign import assign
from ackd_adapters.local.log import Transaction
from ackd_adapters.local.topics import Topic

REVOKE_MS: Final = 2_000
"""How long `done()` of a `Revoked` may take (rule R34)."""

Emit = Callable[[list[ConsumerEvent], str], None]


@dataclass(slots=True)
class Member:
    """One consumer of this process. `emit` gets events and the member's id, in the writer's thread.

    `held` and `revoking` (with the time at which it ends without `done`) go by the log's number.
    """

    group: str
    topics: tuple[str, ...]
    static_id: str | None
    emit: Emit
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    held: dict[int, TopicPartition] = field(default_factory=dict)
    revoking: dict[int, int] = field(default_factory=dict)
    known: dict[str, bytes] = field(default_factory=dict)
    missing: frozenset[str] = frozenset()
    leaving: bool = False


@dataclass(slots=True)
class Plan:
    """What to report to a member once the transaction is durable."""

    member_id: str
    events: list[ConsumerEvent] = field(default_factory=list)
    gone: set[int] = field(default_factory=set)
    fresh: dict[int, TopicPartition] = field(default_factory=dict)
    revoked: list[int] = field(default_factory=list)
    known: dict[str, bytes] = field(default_factory=dict)
    missing: frozenset[str] = frozenset()
    fenced: bool = False


class Release:
    """`Revoked.done()`: gives the claims up. It is also the job that does it."""

    weight = 0

    def __init__(self, submit: Callable[[Release], None], member: str, logs: list[int]) -> None:
        self._submit = submit
        self._member = member
        self._logs = logs
        self._fired = False

    def set(self) -> None:
        """Note that the hand-over is finished."""
        if not self._fired:
            self._fired = True
            self._submit(self)

    def run(self, tx: Transaction) -> None:
        """Delete the claims, unless another member has them by now."""
        removed = tx.db.executemany(
            "DELETE FROM claims WHERE log = ? AND member = ?",
            [(log, self._member) for log in self._logs],
        ).rowcount
        if removed:
            schema.bump(tx.db)

    def succeed(self) -> None:
        """The member learns it at the next check of the tables."""

    def fail(self, error: BrokerError | BugError) -> None:
        """The claims end by themselves when the time for the hand-over is up."""


class Groups:
    """All members of this process; lives in the writer's thread."""

    def __init__(self, instance: str, watch: Watch, submit: Callable[[Release], None]) -> None:
        self._instance = instance
        self._watch = watch
        self._submit = submit
        self._members: list[Member] = []
        self._seen = -1
        self._look_ms = 0
        self._dead: set[str] = set()
        self._new = False

    def join(self, tx: Transaction, member: Member) -> None:
        """Add a consumer. A static id takes over what its predecessor held."""
        if member.static_id is not None:
            self._inherit(tx.db, member)
        self._insert(tx.db, member, member.id)
        schema.bump(tx.db)
        # From now on it may fetch: it must also learn of a topic that is made again before the
        # first check.
        member.known = {
            topic.name: topic.identity
            for topic in topics.every(tx.db)
            if matches(member.topics, topic.name)
        }
        tx.after.append(lambda: self._joined(member))

    def read(self, tx: Transaction, member: Member, names: tuple[str, ...]) -> None:
        """Change what a member reads, whether it has joined already or not."""
        tx.db.execute("UPDATE members SET topics = ? WHERE id = ?", (json.dumps(names), member.id))
        schema.bump(tx.db)
        tx.after.append(lambda: setattr(member, "topics", names))

    def leave(self, tx: Transaction, member: Member) -> None:
        """Remove a consumer and everything that it holds; `look` tries again if it fails."""
        member.leaving = True
        tx.db.execute("DELETE FROM claims WHERE grp = ? AND member = ?", (member.group, member.id))
        tx.db.execute("DELETE FROM members WHERE id = ?", (member.id,))
        schema.bump(tx.db)
        tx.after.append(lambda: self._remove(member))

    def needs(self, db: sqlite3.Connection, now_ms: int) -> bool:
        """Whether `look` has something to do. Reads only."""
        if not self._members:
            return False
        if now_ms >= self._look_ms:
            self._look_ms = now_ms + LOOK_MS
            marks = ",".join("?" for _ in self._members)
            rows = db.execute(
                f"SELECT DISTINCT instance FROM members WHERE grp IN ({marks})",  # noqa: S608
                [member.group for member in self._members],
            )
            self._dead |= self._watch.dead({name for (name,) in rows}, now_ms)
        if self._new or self._dead or schema.version(db) != self._seen:
            return True
        deadline_ms = self.deadline_ms()
        return deadline_ms is not None and deadline_ms <= now_ms

    def deadline_ms(self) -> int | None:
        """When `look` has to be called at the latest (monotonic time): a hand-over ends, say."""
        if self._new or (self._members and self._seen < 0):
            return 0
        return min((at for each in self._members for at in each.revoking.values()), default=None)

    def forget(self) -> None:
        """The transaction was rolled back: check again."""
        self._seen = -1

    def look(self, tx: Transaction, now_ms: int) -> None:
        """Update claims and members to match the processes that are alive."""
        before = schema.version(tx.db)
        # A member that joins in this very transaction is not among ours yet: it sets this anew.
        self._new = False
        for name in self._dead:
            tx.db.execute(
                "DELETE FROM claims WHERE member IN (SELECT id FROM members WHERE instance = ?)",
                (name,),
            )
            if tx.db.execute("DELETE FROM members WHERE instance = ?", (name,)).rowcount:
                schema.bump(tx.db)
        every = topics.every(tx.db)
        for member in list(self._members):
            if member.leaving:
                self.leave(tx, member)
            else:
                self._sync(tx, member, every, now_ms)
        # Changed in here: check once more, because it may concern members of this process as well.
        seen = before if schema.version(tx.db) == before else -1
        tx.after.append(lambda: self._looked(seen))

    def _joined(self, member: Member) -> None:
        self._members.append(member)
        self._new = True

    def _looked(self, seen: int) -> None:
        self._seen = seen
        self._dead.clear()

    def _sync(self, tx: Transaction, member: Member, every: list[Topic], now_ms: int) -> None:
        db = tx.db
        plan = Plan(member.id)
        if db.execute("SELECT 1 FROM members WHERE id = ?", (member.id,)).fetchone() is None:
            self._rejoin(db, member, plan)
        claims = dict(
            db.execute("SELECT log, member FROM claims WHERE grp = ?", (member.group,)).fetchall()
        )
        for log, until_ms in member.revoking.items():
            if until_ms <= now_ms and claims.get(log) == member.id:
                db.execute("DELETE FROM claims WHERE grp = ? AND log = ?", (member.group, log))
                schema.bump(db)
                del claims[log]
        gone = {log for log in member.held if claims.get(log) != member.id}
        lost = sorted(member.held[log] for log in gone if log not in member.revoking)
        plan.gone = gone
        if lost:
            plan.events.append(Lost(tuple(lost)))
        self._match(member, plan, every)
        if not plan.fenced:
            self._share(db, member, plan, claims, every, now_ms)
        tx.after.append(lambda: self._tell(member, plan, now_ms))

    def _rejoin(self, db: sqlite3.Connection, member: Member, plan: Plan) -> None:
        """Other processes considered this one dead (it was frozen), or its static id is used
        again.
        """
        if member.static_id is not None:
            other = db.execute(
                "SELECT 1 FROM members WHERE grp = ? AND static_id = ?",
                (member.group, member.static_id),
            ).fetchone()
            if other is not None:
                plan.fenced = True
                return
        plan.member_id = secrets.token_hex(8)
        self._insert(db, member, plan.member_id)
        schema.bump(db)

    def _match(self, member: Member, plan: Plan, every: list[Topic]) -> None:
        """Find topics that were made again, and topics that do not exist."""
        mine = [topic for topic in every if matches(member.topics, topic.name)]
        for topic in mine:
            if member.known.get(topic.name, topic.identity) != topic.identity:
                plan.events.append(TopicReplaced(topic.name, topic.identity))
        plan.known = {**member.known, **{topic.name: topic.identity for topic in mine}}
        names = {topic.name for topic in mine}
        plan.missing = frozenset(
            name for name in member.topics if not name.startswith("^") and name not in names
        )
        if plan.missing != member.missing:
            text = "no such topic yet: " + ", ".join(sorted(plan.missing))
            plan.events.append(Condition("unknown-topic", text, cleared=not plan.missing))

    def _share(
        self,
        db: sqlite3.Connection,
        member: Member,
        plan: Plan,
        claims: dict[int, str],
        every: list[Topic],
        now_ms: int,
    ) -> None:
        names = {
            log: TopicPartition(topic.name, number)
            for topic in every
            for number, log in enumerate(topic.logs)
        }
        retry = {log for each in every if is_retry_topic(each.name) for log in each.logs}
        share = assign(_wanted(db, member.group, every), claims, retry)[plan.member_id]
        holding = member.held.keys() - plan.gone
        plan.revoked = sorted(holding - share - member.revoking.keys())
        if plan.revoked:
            release = Release(self._submit, plan.member_id, plan.revoked)
            partitions = tuple(sorted(member.held[log] for log in plan.revoked))
            plan.events.append(Revoked(partitions, release))
        for log in sorted(share - holding):
            holder = claims.get(log)
            if holder is None:
                db.execute(
                    "INSERT INTO claims(grp, log, member) VALUES(?, ?, ?)",
                    (member.group, log, plan.member_id),
                )
                claims[log] = plan.member_id
                schema.bump(db)
            elif holder != plan.member_id:
                continue
            plan.fresh[log] = names[log]
        if plan.fresh:
            plan.events.append(Assigned(tuple(sorted(plan.fresh.values()))))

    def _tell(self, member: Member, plan: Plan, now_ms: int) -> None:
        """The transaction is durable: report it to the members."""
        for log in plan.gone:
            del member.held[log]
            member.revoking.pop(log, None)
        member.held.update(plan.fresh)
        member.revoking.update(dict.fromkeys(plan.revoked, now_ms + REVOKE_MS))
        member.known, member.missing, member.id = plan.known, plan.missing, plan.member_id
        if plan.fenced:
            self._remove(member)
            text = f"another member joined with the static id {member.static_id!r}"
            plan.events.append(Condition("fenced", text, fatal=True))
        if plan.events:
            member.emit(plan.events, member.id)

    def _inherit(self, db: sqlite3.Connection, member: Member) -> None:
        row = db.execute(
            "SELECT id FROM members WHERE grp = ? AND static_id = ?",
            (member.group, member.static_id),
        ).fetchone()
        if row is not None:
            db.execute("UPDATE claims SET member = ? WHERE member = ?", (member.id, row[0]))
            db.execute("DELETE FROM members WHERE id = ?", (row[0],))

    def _insert(self, db: sqlite3.Connection, member: Member, name: str) -> None:
        db.execute(
            "INSERT INTO members(id, grp, instance, static_id, topics) VALUES(?, ?, ?, ?, ?)",
            (name, member.group, self._instance, member.static_id, json.dumps(member.topics)),
        )

    def _remove(self, member: Member) -> None:
        self._members = [each for each in self._members if each is not member]


def matches(patterns: Iterable[str], topic: str) -> bool:
    """Whether a subscription to these names and `^` expressions takes a topic in.

    An expression never matches a topic of ackd's own (rule R25): reading them would be a loop.
    """
    own = is_own_topic(topic)
    return any(
        not own and re.match(each, topic) is not None if each.startswith("^") else each == topic
        for each in patterns
    )


def _wanted(db: sqlite3.Connection, group: str, every: list[Topic]) -> dict[str, set[int]]:
    rows = db.execute("SELECT id, topics FROM members WHERE grp = ?", (group,)).fetchall()
    return {
        name: {
            log
            for topic in every
            if matches(json.loads(patterns), topic.name)
            for log in topic.logs
        }
        for name, patterns in rows
    }
