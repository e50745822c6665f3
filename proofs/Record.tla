---- MODULE Record ----
(* The store's half: one partition's record, and what each operation does to it. Operators have the
   names of sidecar/ackd/core/record: Grant and Settle (decide.py), MoveToRetry, Claim, Replay and
   Restore (copies.py, maintenance.py, doubt.py). Each takes a record and returns an answer, which
   has the record after it.

   A record `r`:
     term      the ownership term                run    the server run that it was last used on; it
     fence     the last fence                           stands for the rollback epoch, too
     rep       replays are awaited (R10)         wm     the watermark: 1..wm is finished
     again     origin records may be restored yet: also for a while after the wait has timed out
     fin       finished offsets                  sent, dead   those that no ack finished (R15)
     doubt     finished by a repair that does not know how
     slot[m]   lease or state of a message       org[m] its origin record; st = "NONE": it has none
     cs[c]     slot of a retry copy in the record of the retry topic's partition; "NONE": not fetched *)
EXTENDS Naturals, FiniteSets, Sequences, Table

CONSTANTS Messages,  \* 1..n, offsets
          Copies,    \* 1..n, places in the retry topic
          Mended,    \* TRUE: as the code is; FALSE: with the loss that `term.cfg` shows
          Mistake    \* the planted mistake, "none" for none

NoSlot == [st |-> "READY", f |-> 0, rb |-> 0, live |-> FALSE]
NoOrigin == [st |-> "NONE", f |-> 0, rb |-> 0, live |-> FALSE, gen |-> 0, by |-> 0]
NoCopy == [NoSlot EXCEPT !.st = "NONE"]

NewRecord == [term |-> 0, run |-> 1, fence |-> 0, rep |-> FALSE, again |-> FALSE, wm |-> 0, fin |-> {},
              sent |-> {}, dead |-> {}, doubt |-> {}, slot |-> [m \in Messages |-> NoSlot],
              org |-> [m \in Messages |-> NoOrigin], cs |-> [c \in Copies |-> NoCopy]]

Max(a, b) == IF a > b THEN a ELSE b
Answer(r, out, f) == [r |-> r, out |-> out, f |-> f]

Over(r, m) == m <= r.wm \/ m \in r.fin

SlotPhase(slot) ==
    CASE slot.st = "LEASED" -> IF slot.live THEN "LEASED" ELSE "EXPIRED"
      [] slot.st = "FINISHED" -> "ACKED"
      [] slot.st = "NONE" -> "READY"
      [] OTHER -> slot.st

Phase(r, m) ==
    IF Over(r, m)
    THEN IF m \in r.sent \cup r.dead /\ Mistake # "below the watermark all is acked"
         THEN "GONE" ELSE "ACKED"
    ELSE SlotPhase(r.slot[m])

Settled == {"ACKED", "GONE", "DEAD", "MOVING"}

(* Whether the owner may not be granted it now (`held_until`). The grace is left out: it is time. *)
Held(r, phase) ==
    /\ phase \notin Settled
    /\ \/ r.rep /\ Mistake # "grants do not wait for the repair"
       \/ phase = "LEASED"

(* The phase as a token sees it (`seen_by`). *)
SeenBy(r, t, phase, slot) ==
    IF (t.f = slot.f /\ t.rb = slot.rb) \/ Mistake = "any token counts" THEN phase
    ELSE LET since == phase = "LEASED" /\ slot.rb = r.run /\ t.rb # r.run
         IN IF t.f > slot.f /\ ~since /\ phase # "DEAD"
            THEN IF r.rep THEN "FORGOTTEN" ELSE "EXPIRED"
            ELSE "GONE"

(* --- grants *)

Lease(f, run) == [st |-> "LEASED", f |-> f, rb |-> run, live |-> TRUE]

(* `f`: the fence that a grant would get. *)
Grant(r, m, f) ==
    LET phase == Phase(r, m)
        row == IF phase = "LEASED" /\ Mistake = "a grant does not ask for the deadline"
               THEN Step("EXPIRED", "GRANT") ELSE Step(phase, "GRANT")
    IN IF Held(r, phase) /\ ~(phase = "LEASED" /\ row.changes) THEN Answer(r, "HELD", 0)
       ELSE IF row.changes
            THEN Answer([r EXCEPT !.slot[m] = Lease(f, r.run), !.fence = f], row.outcome, f)
            ELSE Answer(r, row.outcome, 0)

GrantCopy(r, c, f) ==
    LET phase == SlotPhase(r.cs[c])
        row == Step(phase, "GRANT")
    IN IF Held(r, phase) THEN Answer(r, "HELD", 0)
       ELSE IF row.changes
            THEN Answer([r EXCEPT !.cs[c] = Lease(f, r.run), !.fence = f], row.outcome, f)
            ELSE Answer(r, row.outcome, 0)

(* --- settles *)

AckedAs(r, m, gen) == [r EXCEPT !.org[m] = [NoOrigin EXCEPT !.st = "FINISHED", !.gen = gen]]

(* A settle's effect on a slot, or on the lease in an origin record (`PartitionRecord.settle`). *)
SettledSlot(slot, t, verb, state) ==
    IF verb = "EXTEND" THEN [slot EXCEPT !.st = state, !.f = t.f, !.rb = t.rb, !.live = TRUE]
    ELSE [slot EXCEPT !.st = state, !.live = FALSE]

(* Nobody can rule out yet that a copy has claimed this lease, which has ended. A repair need not
   wait: it is an EXTEND that is not counted. *)
PerhapsClaimed(r, t, repair) ==
    ~repair /\ t.rb # r.run /\ r.rep /\ Mistake # "late acks overtake claims"

(* The origin record decides (`copies.settle`). *)
OriginSettle(r, t, verb, repair) ==
    LET m == t.m
        o == r.org[m]
        phase0 == SlotPhase(o)
        ended == phase0 \in {"EXPIRED", "READY"}
        phase == IF phase0 = "ACKED" THEN phase0 ELSE SeenBy(r, t, phase0, o)
        row0 == Step(phase, verb)
        row == IF o.by # 0 /\ (row0.changes \/ phase \in {"WAITING", "RELEASED"})
               THEN LostStep ELSE row0
    IN IF o.st = "NONE"
       THEN Answer(r, IF Over(r, m) /\ m \notin r.sent \cup r.dead THEN "UNREPAIRED" ELSE "LOST", 0)
       ELSE IF ended /\ o.by = 0 /\ PerhapsClaimed(r, t, repair) THEN Answer(r, "UNREPAIRED", 0)
       ELSE IF row.changes /\ row.state = "FINISHED"
       THEN Answer([r EXCEPT !.org[m].st = "FINISHED", !.org[m].live = FALSE,
                             !.sent = @ \ {m}, !.fin = @ \cup {m}], row.outcome, o.gen)
       ELSE IF row.changes
       THEN Answer([r EXCEPT !.org[m] = SettledSlot(@, t, verb, row.state),
                             !.fence = IF verb = "EXTEND" THEN Max(@, t.f) ELSE @], row.outcome, 0)
       ELSE Answer(r, row.outcome, 0)

(* A settle of the message itself (`decide._settle`, `doubt.settle`). *)
Settle(r, t, verb, repair) ==
    LET m == t.m
        phase0 == Phase(r, m)
        slot == r.slot[m]
        old == t.rb # r.run
        elsewhere == \/ phase0 = "ACKED" /\ old /\ r.rep /\ verb # "ACK"
                     \/ phase0 = "GONE" /\ m \in r.sent
                     \/ phase0 = "MOVING"
        unknown == phase0 = "ACKED" /\ m \in r.doubt /\ r.org[m].st = "NONE"
                   /\ Mistake # "what is repaired was acked"
        phase == IF phase0 \in {"ACKED", "GONE"} THEN phase0 ELSE SeenBy(r, t, phase0, slot)
        row == IF phase = "DEAD" /\ verb = "ACK" /\ Mistake = "an ack counts after dead"
               THEN Step("LEASED", "ACK") ELSE Step(phase, verb)
        keep == old /\ r.again /\ r.org[m].st = "NONE"
    IN IF elsewhere THEN OriginSettle(r, t, verb, repair)
       ELSE IF verb = "ACK" /\ unknown /\ old
       THEN IF r.rep THEN Answer(r, "UNREPAIRED", 0)
            ELSE Answer(AckedAs(r, m, t.f + 1), "ACKED", t.f + 1)
       ELSE IF phase = "EXPIRED" /\ PerhapsClaimed(r, t, repair) THEN Answer(r, "UNREPAIRED", 0)
       ELSE IF row.changes /\ row.state = "FINISHED"
       THEN LET done == [r EXCEPT !.fin = @ \cup {m}]
            IN IF keep THEN Answer(AckedAs(done, m, t.f + 1), row.outcome, t.f + 1)
               ELSE Answer(done, row.outcome, 0)
       ELSE IF row.changes
       THEN Answer([r EXCEPT !.slot[m] = SettledSlot(@, t, verb, row.state),
                             !.fence = IF verb = "EXTEND" THEN Max(@, t.f) ELSE @], row.outcome, 0)
       ELSE Answer(r, row.outcome, 0)

(* A settle of a lease of a retry copy, in the copy's own record. *)
SettleCopy(r, t, verb, repair) ==
    LET slot == r.cs[t.c]
        phase0 == SlotPhase(slot)
        phase == IF phase0 = "ACKED" THEN phase0 ELSE SeenBy(r, t, phase0, slot)
        row == Step(phase, verb)
    IN IF phase = "EXPIRED" /\ PerhapsClaimed(r, t, repair) THEN Answer(r, "UNREPAIRED", 0)
       ELSE IF row.changes
       THEN Answer([r EXCEPT !.cs[t.c] = SettledSlot(@, t, verb, row.state)], row.outcome, 0)
       ELSE Answer(r, row.outcome, 0)

(* --- the owner moves a stuck message to the retry topic (R2, R4) *)

MoveToRetry(r, m, gen) ==
    LET phase == Phase(r, m)
        row == Step(phase, "MOVE_TO_RETRY")
        s == r.slot[m]
        live == s.live /\ Mistake # "the move ends the lease"
    IN IF phase = "READY" THEN Answer(r, "LOST", 0)
       ELSE IF phase \notin Settled /\ r.rep THEN Answer(r, "HELD", 0)
       ELSE IF row.changes
       THEN Answer([r EXCEPT !.org[m] = [st |-> s.st, f |-> s.f, rb |-> s.rb, live |-> live,
                                         gen |-> gen, by |-> 0],
                             !.slot[m] = [st |-> "MOVING", f |-> gen, rb |-> r.run, live |-> FALSE],
                             !.fence = gen], row.outcome, gen)
       ELSE Answer(r, row.outcome, r.slot[m].f)

(* Its copy is durable: the message leaves the window (`FinishOrigin`). `key`: generation and
   rollback epoch of the slot that the owner means. *)
Finish(r, m, key) ==
    LET phase0 == Phase(r, m)
        phase == IF phase0 \in {"ACKED", "GONE"} THEN phase0 ELSE SeenBy(r, key, phase0, r.slot[m])
        row == IF phase = "GONE" /\ ~Over(r, m) THEN LostStep ELSE Step(phase, "FINISH")
    IN IF ~row.changes THEN Answer(r, row.outcome, 0)
       ELSE IF phase = "DEAD"
       THEN Answer([r EXCEPT !.fin = @ \cup {m}, !.dead = @ \cup {m}], row.outcome, 0)
       ELSE Answer([r EXCEPT !.fin = @ \cup {m}, !.sent = @ \cup {m}], row.outcome, 0)

(* A retry copy asks its origin record whether it may be delivered. `k`: message, generation and
   rollback epoch in the copy's headers. *)
Claim(r, k, c) ==
    LET o == r.org[k.m]
        waits == SlotPhase(o) = "LEASED"
        taken == [r EXCEPT !.org[k.m].gen = k.gen, !.org[k.m].by = c]
    IN IF o.st = "NONE"
       THEN IF k.rb = r.run THEN Answer(r, "REFUSED", 0)
            ELSE IF r.rep \/ ~Over(r, k.m) THEN Answer(r, "HELD", 0)
            ELSE Answer([r EXCEPT !.org[k.m] = [NoOrigin EXCEPT !.st = "READY", !.gen = k.gen,
                                                                !.by = c],
                                  !.sent = @ \cup {k.m}], "LOST", 0)
       ELSE IF k.gen < o.gen /\ Mistake # "any copy may claim" THEN Answer(r, "REFUSED", 0)
       ELSE IF k.gen > o.gen /\ o.st # "FINISHED" /\ r.rep THEN Answer(r, "HELD", 0)
       ELSE IF k.gen > o.gen /\ o.st # "FINISHED" /\ o.by # 0 THEN Answer(r, "LOST", 0)
       ELSE IF o.st = "FINISHED" THEN Answer(r, "FINISHED", 0)
       ELSE IF o.by # 0
       THEN Answer(r, IF o.by = c \/ Mistake = "any copy may claim" THEN "CLAIMED" ELSE "REFUSED", 0)
       ELSE IF waits \/ r.rep THEN Answer(r, "HELD", 0)
       ELSE Answer(taken, "CLAIMED", 0)

(* --- watermark and repair *)

Advance(r, upto, repair) ==
    [r EXCEPT !.wm = Max(@, upto),
              !.doubt = IF repair THEN @ \cup {m \in Messages : r.wm < m /\ m <= upto} ELSE @]

(* A confirmed ack. `gen`: of the origin record that took it, 0 = the ack came in the window. *)
ReplayAck(r, m, gen) ==
    LET o == r.org[m]
        done == [r EXCEPT !.fin = @ \cup {m}]
    IN IF gen > o.gen THEN [AckedAs(done, m, gen) EXCEPT !.sent = @ \ {m}, !.dead = @ \ {m}]
       ELSE IF o.st \in {"NONE", "FINISHED"} THEN done
       ELSE LET heard == [done EXCEPT !.sent = @ \ {m}, !.dead = @ \ {m}]
            IN IF o.by = 0 \/ gen = o.gen
               THEN [heard EXCEPT !.org[m].st = "FINISHED", !.org[m].live = FALSE] ELSE heard

(* Finished, and nobody knows how. *)
ReplayFinished(r, m) ==
    LET s == r.slot[m]
        lives == ~Over(r, m) /\ r.org[m].st = "NONE" /\ SlotPhase(s) = "LEASED"
        r1 == IF Over(r, m) THEN r ELSE [r EXCEPT !.doubt = @ \cup {m}]
        r2 == IF lives
              THEN [r1 EXCEPT !.org[m] = [st |-> s.st, f |-> s.f, rb |-> s.rb, live |-> s.live,
                                          gen |-> s.f, by |-> 0]]
              ELSE r1
        r3 == IF r2.org[m].st \in {"NONE", "FINISHED"} THEN r2
              ELSE [r2 EXCEPT !.sent = @ \cup {m}]
    IN [r3 EXCEPT !.fin = @ \cup {m}]

(* An origin record that a rollback may have erased (`restore`, `_made_again`). `by`: the copy
   whose claim was confirmed; 0 = by the sidecar that moved the message, which knows that its copy
   is `stored`, and whether it has `released` the partition. *)
Restore(r, m, gen, rb, by, stored, released) ==
    LET o == r.org[m]
        s == r.slot[m]
        lives == s.f < gen /\ SlotPhase(s) = "LEASED" /\ ~Over(r, m)
        unknown == Mended /\ m \in r.doubt  \* so says a successor, which the rollback forgot
        acked == m > r.wm /\ m \in r.fin /\ ~released /\ ~unknown /\ m \notin r.sent \cup r.dead
        fresh == [NoOrigin EXCEPT !.st = "READY", !.gen = gen]
        made == IF o.st = "FINISHED" THEN [o EXCEPT !.gen = gen]
                ELSE IF by # 0 THEN fresh
                ELSE IF acked THEN [fresh EXCEPT !.st = "FINISHED"]
                ELSE IF lives THEN [fresh EXCEPT !.st = s.st, !.f = s.f, !.rb = s.rb, !.live = s.live]
                ELSE fresh
        found0 == IF o.st = "NONE" \/ o.gen < gen THEN made ELSE o
        open == found0.st # "FINISHED"
        found == IF open /\ by # 0 /\ found0.by = 0 THEN [found0 EXCEPT !.by = by] ELSE found0
        r1 == [r EXCEPT !.org[m] = found,
                        !.fence = IF found0 = o THEN @ ELSE Max(@, gen)]
    IN IF found.gen > gen THEN r
       ELSE IF Over(r, m) \/ by # 0 \/ stored
       THEN [r1 EXCEPT !.sent = IF open THEN @ \cup {m} ELSE @, !.fin = @ \cup {m}]
       ELSE IF s.st # "MOVING" \/ s.f < gen
       THEN [r1 EXCEPT !.slot[m] = [st |-> "MOVING", f |-> gen, rb |-> rb, live |-> FALSE]]
       ELSE r1
====
