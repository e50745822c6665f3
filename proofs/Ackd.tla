---- MODULE Ackd ----
(* ackd's protocol for one partition and its retry topic: sidecars that own, settle and repair, a
   store that fails over to an older state, applications that outlive every fault. `docs/develop/proof.md`
   says what is left out, and what is assumed. *)
EXTENDS Record, TLC

CONSTANTS Sidecars,      \* their names
          Verbs,         \* what applications ask: a subset of the settle verbs
          MaxTakes, MaxFences, MaxFailovers, MaxKills, MaxLost,  \* bounds on what happens in a run
          ClockBack      \* TRUE: a failover may come with a clock that was set back

VARIABLES db,      \* the store's data: the record
          run,     \* the store's server run; a failover begins a new one
          saved,   \* what a replica has, an earlier `db`; <<>> while it has none that is of use
          topic,   \* the retry topic: what is in each copy's headers, in order
          dlq,     \* messages in the dead-letter topic
          commits, \* offsets that the broker has as committed: position and ranges
          sc,      \* the sidecars
          late,    \* owners' calls that are still on their way, unanswered; at most one
          toks,    \* leases that applications have been told of. `live`: the holder counts on it
          told,    \* messages for which an application has heard `acked`
          ever,    \* messages for which some ack was decided
          since,   \* <<s, m>>: what s has confirmed of m, the replica lacks
          dead,    \* messages of which a sidecar that died had confirmed something like that
          loose,   \* messages whose only witness died at a failover (guarantees: "What is not kept")
          handed,  \* copies handed out in this server run
          bad,     \* promises that were broken by an answer or a delivery
          n        \* how often what happened: the bounds

vars == <<db, run, saved, topic, dlq, commits, sc, late, toks, told, ever, since, dead, loose, handed,
          bad, n>>

NoMove == [gen |-> 0, rb |-> 0, stored |-> FALSE, own |-> FALSE, at |-> 0]

(* What a sidecar knows. `own`: the term under which it believes to own the partition, 0 = none.
   `dirty`: an answer is unknown, so it reads the record again first (R12). `fin`, `conf`: finished
   offsets and the watermark that the store confirmed. `leases`: leases it knows as owner or has
   extended. `moved[m]`: the move it has begun or goes on with (`own`: it began it); `stored`: done;
   `at`: the term under which it knows of it (a partition that is taken anew starts with the record).
   `pub`: messages whose copy it knows to be in its topic. `acks`, `cacks`: acks that were answered
   here, of messages (with the generation) and of copies. `claims`: claims that were confirmed here.
   `done`: the server run for which it has replayed all that. *)
NewSidecar == [own |-> 0, dirty |-> FALSE, fin |-> {}, conf |-> 0, leases |-> {},
               moved |-> [m \in Messages |-> NoMove], pub |-> {}, acks |-> {}, cacks |-> {},
               claims |-> {}, done |-> 1]

Init ==
    /\ db = NewRecord /\ run = 1 /\ saved = <<>> /\ topic = <<>> /\ dlq = {} /\ commits = {}
    /\ sc = [s \in Sidecars |-> NewSidecar]
    /\ late = {} /\ toks = {} /\ told = {} /\ ever = {} /\ since = {} /\ dead = {} /\ loose = {}
    /\ handed = {} /\ bad = {}
    /\ n = [takes |-> 0, fences |-> 0, kills |-> 0, lost |-> 0]

(* --- numbers from the store's clock, which is ahead of all that were given: unless it is set back.
   Two apart, as the real ones are microseconds apart: a generation may be one after a fence. *)
Behind == run > 1 /\ ClockBack
NextFence == IF Behind THEN db.fence + 1
             ELSE IF Mistake = "fences come from memory" THEN db.fence + 2 ELSE 2 * (n.fences + 1)
NextTerm == IF Behind THEN db.term + 1 ELSE n.takes + 1
Fenced == n' = [n EXCEPT !.fences = @ + 1]
CanFence == n.fences < MaxFences
CanMove == CanFence
CanTake == n.takes < MaxTakes

(* --- what is known and by whom *)
AllOver == {m \in Messages : Over(db, m)}
Live == {t \in toks : t.live}
LeaseOf(t) == [m |-> t.m, c |-> t.c, f |-> t.f, rb |-> t.rb]
(* `due`: what became of its deadline; only a failover to an older state asks. *)
Due(what) == IF run - 1 < MaxFailovers THEN what ELSE "as told"
Tok(m, c, f) == [m |-> m, c |-> c, f |-> f, rb |-> db.run, live |-> TRUE, due |-> "as told"]
(* Nobody remembers a lease that its holder does not count on. *)
Lasting(book, tokens) ==
    LET on == {LeaseOf(t) : t \in {u \in tokens : u.live}}
    IN [s \in Sidecars |-> [book[s] EXCEPT !.leases = @ \cap on]]
(* What is for replays only is dropped when none is to come: fewer states to tell apart. *)
Trimmed(me) ==
    IF run - 1 < MaxFailovers \/ me.done # run THEN me
    ELSE [me EXCEPT !.leases = {}, !.acks = {}, !.cacks = {}, !.claims = {},
                    !.moved = [m \in Messages |-> IF @[m].stored THEN NoMove ELSE @[m]],
                    !.pub = {m \in @ : ~me.moved[m].stored},
                    !.fin = IF me.own = 0 THEN {} ELSE @, !.conf = IF me.own = 0 THEN 0 ELSE @]
Remembered(book, tokens) ==
    LET kept == Lasting(book, tokens) IN [s \in Sidecars |-> Trimmed(kept[s])]
Saw(s, m) == IF MaxFailovers > run - 1 THEN {<<s, m>>} ELSE {}
Kept(s) == sc[s].done = run  \* it has told the store's present run all that it knows

Owns(s) == sc[s].own # 0 /\ ~sc[s].dirty /\ Kept(s)  \* an owner repairs first (`Partition.repair`)
Accepts(s) == sc[s].own = db.term /\ db.run = run  \* or FENCED, MOVED
Staled == {[c EXCEPT !.fresh = @ /\ c.term # db.term] : c \in late}

(* What is repeated of an ack that was confirmed. *)
AckOf(t, gen) == [m |-> t.m, gen |-> gen]
Faults == <<run, saved, dead, loose>>
Ghosts == <<told, ever, handed, bad>>

(* --- ownership *)

(* A sidecar takes the partition (R5), whoever has it, and reads the record: `Recovery.take`. What
   only the commit knows to be finished is finished by a repair. *)
Opened(r) == IF r.run = run THEN r ELSE [r EXCEPT !.run = run, !.rep = TRUE, !.again = TRUE]

RECURSIVE FinishAll(_, _)
FinishAll(r, ms) ==
    IF ms = {} THEN r
    ELSE LET m == CHOOSE x \in ms : TRUE IN FinishAll(ReplayFinished(r, m), ms \ {m})

Read(s, r, term) ==
    LET open == {m \in Messages : ~Over(r, m)}
        seen == {[m |-> m, c |-> 0, f |-> r.slot[m].f, rb |-> r.slot[m].rb] :
                    m \in {x \in open : r.slot[x].st = "LEASED"}}
        moving(m) == IF m \in open /\ r.slot[m].st = "MOVING"
                     THEN IF sc[s].moved[m].gen = r.slot[m].f
                          THEN [sc[s].moved[m] EXCEPT !.at = term]
                          ELSE [gen |-> r.slot[m].f, rb |-> r.slot[m].rb, stored |-> FALSE,
                                own |-> FALSE, at |-> term]
                     ELSE IF m \in open /\ r.slot[m].f > sc[s].moved[m].gen THEN NoMove
                     ELSE sc[s].moved[m]
    IN [sc[s] EXCEPT !.own = term, !.dirty = FALSE, !.fin = @ \cup (Messages \ open),
                     !.conf = Max(@, r.wm), !.leases = @ \cup seen,
                     !.moved = [m \in Messages |-> moving(m)],
                     !.pub = {m \in @ : moving(m).gen = sc[s].moved[m].gen}]

Take(s) ==
    /\ CanTake
    /\ sc[s].own # db.term \/ db.term = 0
    /\ LET opened == [Opened(db) EXCEPT !.term = NextTerm]
           r == FinishAll(opened, {m \in commits : ~Over(db, m)})
       IN /\ db' = r
          /\ sc' = Remembered([sc EXCEPT ![s] = Read(s, r, NextTerm)], toks)
    /\ n' = [n EXCEPT !.takes = @ + 1]
    /\ UNCHANGED <<topic, dlq, commits, late, toks, since, Faults, Ghosts>>

(* It hears FENCED, and gives the partition up. *)
Fence(s) ==
    /\ sc[s].own # 0 /\ sc[s].own # db.term
    /\ sc' = Remembered([sc EXCEPT ![s].own = 0, ![s].dirty = FALSE], toks)
    /\ UNCHANGED <<db, topic, dlq, commits, late, toks, since, n, Faults, Ghosts>>

(* Read the record again under the same term: after an unknown answer, or a change of the run. What
   the record lacks, `Replay` writes back. *)
Reread(s) ==
    /\ sc[s].own # 0 /\ sc[s].own = db.term
    /\ sc[s].dirty \/ db.run # run
    /\ db' = Opened(db)
    /\ sc' = Remembered([sc EXCEPT ![s] = Read(s, db, db.term)], toks)
    /\ late' = Staled
    /\ UNCHANGED <<topic, dlq, commits, toks, since, n, Faults, Ghosts>>

(* The owner's next reply brings what others have settled (R16: the journal). *)
Hear(s) ==
    /\ Owns(s) /\ Accepts(s)
    /\ ~(AllOver \subseteq sc[s].fin)
    /\ Mistake # "the journal is not read"
    /\ sc' = Remembered([sc EXCEPT ![s].fin = @ \cup AllOver], toks)
    /\ late' = Staled
    /\ UNCHANGED <<db, topic, dlq, commits, toks, since, n, Faults, Ghosts>>

(* --- delivery: the owner grants, for a receive at itself or at a peer. `heard` FALSE: the answer is
   lost, on the way from the store or from the owner to a peer; then nobody holds the token. *)
Broken(s, m, c) ==
    (IF m \in told /\ m \notin loose THEN {"I2"} ELSE {})
    \cup (IF c # 0 /\ \E d \in handed \ {c} : topic[d].m = m THEN {"R2"} ELSE {})

GrantMessage(s, m, heard) ==
    LET a == Grant(db, m, NextFence)
    IN /\ Owns(s) /\ Accepts(s) /\ CanFence
       /\ m \notin sc[s].fin
       /\ a.out = "GRANTED"
       /\ heard \/ n.lost < MaxLost
       /\ db' = a.r
       /\ toks' = IF heard THEN toks \cup {Tok(m, 0, a.f)} ELSE toks
       /\ sc' = Remembered(IF heard
                           THEN [sc EXCEPT ![s].leases = {l \in @ : l.m # m \/ l.c # 0} \cup
                                                         {LeaseOf(Tok(m, 0, a.f))}]
                           ELSE [sc EXCEPT ![s].dirty = TRUE], toks')
       /\ since' = IF heard THEN since \cup Saw(s, m) ELSE since
       /\ n' = [n EXCEPT !.fences = @ + 1, !.lost = IF heard THEN @ ELSE @ + 1]
       /\ late' = Staled
       /\ bad' = IF heard THEN bad \cup Broken(s, m, 0) ELSE bad
       /\ UNCHANGED <<topic, dlq, commits, told, ever, handed, Faults>>

(* Copies: their partition's owner is left out, so any sidecar may grant them. *)
GrantACopy(s, c) ==
    LET m == topic[c].m
        a == GrantCopy(db, c, NextFence)
        t == Tok(m, c, a.f)
    IN /\ c \in DOMAIN topic /\ CanFence /\ db.run = run
       /\ db.cs[c].st # "NONE"
       /\ a.out = "GRANTED"
       /\ db' = a.r
       /\ toks' = toks \cup {t}
       /\ sc' = Remembered([sc EXCEPT ![s].leases = {l \in @ : l.c # c} \cup {LeaseOf(t)}], toks')
       /\ since' = since \cup Saw(s, m)
       /\ handed' = handed \cup {c}
       /\ bad' = bad \cup Broken(s, m, c)
       /\ Fenced
       /\ UNCHANGED <<topic, dlq, commits, late, told, ever, Faults>>

(* --- settles, at any sidecar, with any token that an application ever got *)

Decide(t, verb) ==
    IF t.c = 0 THEN Settle(db, t, verb, FALSE) ELSE SettleCopy(db, t, verb, FALSE)

(* The application's view after an answer. *)
Told(t, verb, out) ==
    CASE out = "EXTENDED" -> (toks \ {t}) \cup {[t EXCEPT !.live = TRUE, !.due = Due("extended")]}
      [] out = "UNREPAIRED" -> toks  \* 503
      [] OTHER -> (toks \ {t}) \cup {[t EXCEPT !.live = FALSE]}

(* Nobody extends a lease that ran out before a failover (guarantees: "What is not kept"). *)
TooLate(t) == t.due = "past" /\ t.rb # run

ApplySettle(s, t, verb) ==
    LET a == Decide(t, verb)
        m == t.m
        yes == a.out \in {"ACKED", "ALREADY_ACKED"}
        book == CASE a.out = "ACKED" /\ t.c = 0 -> [sc EXCEPT ![s].acks = @ \cup {AckOf(t, a.f)}]
                  [] yes /\ t.c # 0 -> [sc EXCEPT ![s].cacks = @ \cup {t.c}]
                  [] a.out = "EXTENDED" -> [sc EXCEPT ![s].leases = @ \cup {LeaseOf(t)}]
                  [] OTHER -> sc
    IN /\ db.run = run
       /\ verb = "EXTEND" => ~TooLate(t)
       /\ db' = a.r
       /\ toks' = Told(t, verb, a.out)
       /\ sc' = Remembered(book, toks')
       /\ told' = IF yes THEN told \cup {m} ELSE told
       /\ ever' = IF a.out = "ACKED" THEN ever \cup {m} ELSE ever
       /\ bad' = IF a.out = "ALREADY_ACKED" /\ m \notin ever THEN bad \cup {"I7"} ELSE bad
       /\ since' = IF a.out \in {"ACKED", "EXTENDED"} \/ (yes /\ m \notin told)
                   THEN since \cup Saw(s, m) ELSE since
       /\ UNCHANGED <<topic, dlq, commits, late, handed, n, Faults>>

(* Its answer is lost: the application hears 503, nobody remembers it. A settle that comes late is
   the same, as applications may settle at any time. *)
SettleUnheard(t, verb) ==
    LET a == Decide(t, verb)
    IN /\ db.run = run
       /\ verb = "EXTEND" => ~TooLate(t)
       /\ n.lost < MaxLost
       /\ a.r # db
       /\ db' = a.r
       /\ ever' = IF a.out = "ACKED" THEN ever \cup {t.m} ELSE ever
       /\ n' = [n EXCEPT !.lost = @ + 1]
       /\ UNCHANGED <<topic, dlq, commits, sc, late, toks, told, since, handed, bad, Faults>>

(* Planted: the answer does not wait for the store. *)
AnsweredTooEarly(t) ==
    /\ Mistake = "an ack is answered before the store has it"
    /\ t.live /\ t.c = 0
    /\ told' = told \cup {t.m}
    /\ toks' = Told(t, "ACK", "ACKED")
    /\ UNCHANGED <<db, topic, dlq, commits, sc, late, ever, since, handed, bad, n, Faults>>

(* --- time: a deadline passes, for the holder and in the record; the grace is left out *)

Ended(slot, t) ==
    IF slot.st = "LEASED" /\ slot.f = t.f /\ slot.rb = t.rb THEN [slot EXCEPT !.live = FALSE] ELSE slot

Expire(t) ==
    /\ t.live
    /\ toks' = (toks \ {t}) \cup {[t EXCEPT !.live = FALSE, !.due = Due("past")]}
    /\ sc' = Remembered(sc, toks')
    /\ db' = [db EXCEPT !.slot[t.m] = IF t.c = 0 THEN Ended(@, t) ELSE @,
                        !.org[t.m] = IF t.c = 0 THEN Ended(@, t) ELSE @,
                        !.cs = [c \in Copies |-> IF t.c = c THEN Ended(@[c], t) ELSE @[c]]]
    /\ UNCHANGED <<topic, dlq, commits, late, since, n, Faults, Ghosts>>

(* A lease on which nobody counts: its answer was lost, or a replica shows it as it was long ago. *)
NobodyHas(slot, m, c) ==
    slot.st = "LEASED" /\ slot.live
    /\ ~\E t \in Live : t.m = m /\ t.c = c /\ t.f = slot.f /\ t.rb = slot.rb

Lapse ==
    /\ \/ \E m \in Messages : NobodyHas(db.slot[m], m, 0) /\ db' = [db EXCEPT !.slot[m].live = FALSE]
       \/ \E m \in Messages : NobodyHas(db.org[m], m, 0) /\ db' = [db EXCEPT !.org[m].live = FALSE]
       \/ \E c \in DOMAIN topic :
            NobodyHas(db.cs[c], topic[c].m, c) /\ db' = [db EXCEPT !.cs[c].live = FALSE]
    /\ UNCHANGED <<topic, dlq, commits, sc, late, toks, since, n, Faults, Ghosts>>

(* --- a stuck message moves to the retry topic (R2) *)

Move(s, m) ==
    LET a == MoveToRetry(db, m, NextFence)
    IN /\ Owns(s) /\ Accepts(s) /\ CanMove
       /\ m \notin sc[s].fin
       /\ Phase(db, m) = "LEASED" => Mistake # "the move waits for the lease"
       /\ a.out = "SENT" /\ a.r # db
       /\ db' = a.r
       /\ sc' = [sc EXCEPT ![s].moved[m] = [gen |-> a.f, rb |-> db.run, stored |-> FALSE,
                                           own |-> TRUE, at |-> sc[s].own],
                           ![s].pub = @ \ {m}]
       /\ since' = since \cup Saw(s, m)
       /\ Fenced
       /\ late' = Staled
       /\ UNCHANGED <<topic, dlq, commits, toks, Faults, Ghosts>>

(* The broker stores the copy. `heard` FALSE: the producer does not know; it stores it again. Also by
   one that owns the partition no more. *)
Publish(s, m, heard) ==
    LET k == sc[s].moved[m]
    IN /\ k.gen # 0 /\ ~k.stored /\ m \notin sc[s].pub
       /\ Len(topic) < Cardinality(Copies)
       /\ heard \/ n.lost < MaxLost
       /\ topic' = Append(topic, [m |-> m, gen |-> k.gen, rb |-> k.rb])
       /\ sc' = IF heard THEN [sc EXCEPT ![s].pub = @ \cup {m}] ELSE sc
       /\ n' = IF heard THEN n ELSE [n EXCEPT !.lost = @ + 1]
       /\ UNCHANGED <<db, dlq, commits, late, toks, since, Faults, Ghosts>>

FinishMoved(s, m) ==
    LET k == sc[s].moved[m]
        a == Finish(db, m, [f |-> k.gen, rb |-> k.rb])
    IN /\ Owns(s) /\ Accepts(s)
       /\ k.gen # 0 /\ ~k.stored
       /\ m \in sc[s].pub \/ Mistake = "a moved message is finished before its copy is stored"
       /\ a.out \in {"DONE", "FINISHED"}
       /\ db' = a.r
       /\ sc' = Remembered([sc EXCEPT ![s].moved[m].stored = TRUE, ![s].fin = @ \cup {m}], toks)
       /\ since' = since \cup Saw(s, m)
       /\ late' = Staled
       /\ UNCHANGED <<topic, dlq, commits, toks, n, Faults, Ghosts>>

(* A copy claims its origin record and gets its slot (PLACE_COPY); the two calls are one step here
   when `placed`, else the sidecar dies or is cut off between them. *)
ClaimCopy(s, c, placed) ==
    LET k == topic[c]
        a == IF Mistake = "a copy is handed out without a claim" THEN Answer(db, "LOST", 0)
             ELSE Claim(db, k, c)
        state == CASE a.out = "CLAIMED" -> "WAITING"
                   [] a.out = "LOST" -> "READY"
                   [] OTHER -> "FINISHED"
    IN /\ c \in DOMAIN topic /\ db.run = run
       /\ db.cs[c].st = "NONE"
       /\ a.out # "HELD"
       /\ placed \/ (a.out = "CLAIMED" /\ n.lost < MaxLost)
       /\ db' = IF placed THEN [a.r EXCEPT !.cs[c] = [NoSlot EXCEPT !.st = state, !.f = k.gen,
                                                                   !.rb = a.r.run]]
                ELSE a.r
       /\ sc' = CASE a.out = "CLAIMED" ->
                       Remembered([sc EXCEPT ![s].claims = @ \cup {[m |-> k.m, gen |-> k.gen,
                                                                     rb |-> k.rb, by |-> c]}], toks)
                  [] a.out = "FINISHED" ->  \* it has learned of an ack
                       Remembered([sc EXCEPT ![s].acks = @ \cup {AckOf(k, k.gen)}], toks)
                  [] OTHER -> sc
       /\ since' = IF a.out \in {"CLAIMED", "LOST"} THEN since \cup Saw(s, k.m) ELSE since
       /\ n' = IF placed THEN n ELSE [n EXCEPT !.lost = @ + 1]
       /\ UNCHANGED <<topic, dlq, commits, late, toks, Faults, Ghosts>>

(* --- a message that was given up: dead letter first, then it is finished (R25) *)

Bury(m) ==
    /\ ~Over(db, m) /\ db.slot[m].st = "DEAD" /\ m \notin dlq
    /\ dlq' = dlq \cup {m}
    /\ UNCHANGED <<db, topic, commits, sc, late, toks, since, n, Faults, Ghosts>>

FinishDead(s, m) ==
    LET a == Finish(db, m, [f |-> db.slot[m].f, rb |-> db.slot[m].rb])
    IN /\ Owns(s) /\ Accepts(s)
       /\ ~Over(db, m) /\ db.slot[m].st = "DEAD" /\ m \in dlq
       /\ a.out = "DONE"
       /\ db' = a.r
       /\ sc' = [sc EXCEPT ![s].fin = @ \cup {m}]
       /\ since' = since \cup Saw(s, m)
       /\ late' = Staled
       /\ UNCHANGED <<topic, dlq, commits, toks, n, Faults, Ghosts>>

(* --- progress *)

(* The watermark that an owner knows. *)
Mark(s) ==
    LET up == {k \in Messages \cup {0} : \A m \in Messages : m <= k => m \in sc[s].fin}
        far == CHOOSE k \in up : \A j \in up : j <= k
    IN IF Mistake = "the watermark passes over a gap" /\ sc[s].fin # {}
       THEN CHOOSE k \in sc[s].fin : \A j \in sc[s].fin : j <= k
       ELSE far

AdvanceWatermark(s) ==
    /\ Owns(s) /\ Accepts(s)
    /\ Mark(s) > db.wm
    /\ db' = Advance(db, Mark(s), FALSE)
    /\ sc' = [sc EXCEPT ![s].conf = Max(@, Mark(s))]
    /\ late' = Staled
    /\ UNCHANGED <<topic, dlq, commits, toks, since, n, Faults, Ghosts>>

(* It commits what the store has confirmed; the metadata has the ranges above the watermark. An
   owner that lost the partition may not: the group has a new generation. *)
Commit(s) ==
    /\ Owns(s)
    /\ sc[s].own = db.term
    /\ LET now == {m \in Messages : m <= sc[s].conf} \cup
                  (IF Mark(s) = sc[s].conf THEN sc[s].fin ELSE {})
       IN now # commits /\ commits' = now
    /\ UNCHANGED <<db, topic, dlq, sc, late, toks, since, n, Faults, Ghosts>>

(* --- owners' calls that come late (R12): the sidecar hears nothing and becomes dirty *)

Lose(s, call) ==
    /\ Owns(s) /\ n.lost < MaxLost /\ late = {} /\ CanFence
    /\ call.m \notin sc[s].fin
    /\ late' = {[call EXCEPT !.term = sc[s].own, !.fresh = TRUE, !.gen = sc[s].moved[call.m].gen,
                             !.rb = sc[s].moved[call.m].rb]}
    /\ call.do = "FINISH" => call.m \in sc[s].pub
    /\ sc' = [sc EXCEPT ![s].dirty = TRUE]
    /\ n' = [n EXCEPT !.lost = @ + 1]
    /\ UNCHANGED <<db, topic, dlq, commits, toks, since, Faults, Ghosts>>

LateCalls == [do : {"GRANT", "MOVE", "FINISH"}, m : Messages, term : {0}, fresh : {TRUE}, gen : {0},
              rb : {0}]

Arrive(call) ==
    LET a == CASE call.do = "GRANT" -> Grant(db, call.m, NextFence)
               [] call.do = "MOVE" -> MoveToRetry(db, call.m, NextFence)
               [] OTHER -> Finish(db, call.m, [f |-> call.gen, rb |-> call.rb])
        takes == \/ call.term = db.term /\ db.run = run /\ call.fresh
                 \/ Mistake = "late calls of an earlier term count"
    IN /\ late' = late \ {call}
       /\ CanFence
       /\ db' = IF takes THEN a.r ELSE db
       /\ n' = IF db' = db THEN n ELSE [n EXCEPT !.fences = @ + 1]
       /\ UNCHANGED <<topic, dlq, commits, sc, toks, since, Faults, Ghosts>>

(* --- repair (R10) *)

RECURSIVE RestoreAll(_, _), ExtendAll(_, _), AckAll(_, _), AckCopies(_, _)
RestoreAll(r, ops) ==
    IF ops = {} THEN r
    ELSE LET o == CHOOSE x \in ops : \A y \in ops : x.gen <= y.gen
         IN RestoreAll(Restore(r, o.m, o.gen, o.rb, o.by, o.stored, o.released), ops \ {o})
ExtendAll(r, leases) ==
    IF leases = {} THEN r
    ELSE LET t == CHOOSE x \in leases : TRUE
             a == IF t.c = 0 THEN Settle(r, t, "EXTEND", TRUE) ELSE SettleCopy(r, t, "EXTEND", TRUE)
         IN ExtendAll(a.r, leases \ {t})
AckAll(r, acks) ==
    IF acks = {} THEN r
    ELSE LET a == CHOOSE x \in acks : TRUE IN AckAll(ReplayAck(r, a.m, a.gen), acks \ {a})
AckCopies(r, cs) ==
    IF cs = {} THEN r
    ELSE LET c == CHOOSE x \in cs : TRUE
         IN AckCopies([r EXCEPT !.cs[c] = [NoSlot EXCEPT !.st = "FINISHED"]], cs \ {c})

(* All that a sidecar repeats, in its order: origin records and claims, finishes, acks, leases. A
   forwarded lease follows its origin record. *)
Repeated(s, r) ==
    LET me == sc[s]
        known == {m \in Messages : me.moved[m].gen # 0 /\ (me.moved[m].own \/ me.moved[m].stored)}
        moves == {[m |-> m, gen |-> me.moved[m].gen, rb |-> me.moved[m].rb, by |-> 0,
                   stored |-> me.moved[m].stored,
                   released |-> ~(db.term = me.own /\ me.own = me.moved[m].at)] : m \in known}
        claims == {[m |-> c.m, gen |-> c.gen, rb |-> c.rb, by |-> c.by, stored |-> FALSE,
                    released |-> FALSE] : c \in me.claims}
        restored == IF Mistake = "a forgotten origin record is not written again" THEN r
                    ELSE RestoreAll(r, moves \cup claims)
        lost == {m \in me.fin : ~Over(restored, m) /\ ~(m \in known /\ me.moved[m].stored)}
        acked == AckCopies(AckAll(FinishAll(restored, lost), me.acks), me.cacks)
    IN IF Mistake = "nothing is repaired after a rollback" THEN r
       ELSE ExtendAll(acked, me.leases)

(* Mended: an owner also asks the broker for the commit. A failover may have given it its term back,
   and forgotten who took the partition from it and finished more. *)
AskCommit(s, r) ==
    IF sc[s].own # db.term \/ ~Mended THEN r
    ELSE FinishAll(r, {m \in commits : ~Over(r, m)})

Replay(s) ==
    /\ sc[s].done # run /\ db.run = run
    /\ ~sc[s].dirty
    /\ db' = AskCommit(s, Repeated(s, db))
    /\ sc' = Remembered([sc EXCEPT ![s].done = run], toks)
    /\ since' = {w \in since : w[1] # s}
    /\ UNCHANGED <<topic, dlq, commits, late, toks, n, Faults, Ghosts>>

(* All living sidecars have replayed (SETTLED). *)
EndRepair(s) ==
    /\ Owns(s) /\ Accepts(s) /\ db.rep
    /\ \A each \in Sidecars : Kept(each)
    /\ db' = [db EXCEPT !.rep = FALSE, !.again = FALSE]
    /\ late' = Staled
    /\ UNCHANGED <<topic, dlq, commits, sc, toks, since, n, Faults, Ghosts>>

(* --- faults *)

(* The replica has everything up to now, and nothing that comes. *)
FallBehind ==
    /\ run - 1 < MaxFailovers /\ saved = <<>>
    /\ saved' = <<db>> /\ since' = {} /\ dead' = {}
    /\ UNCHANGED <<db, run, topic, dlq, commits, sc, late, toks, n, loose, Ghosts>>

(* What the replica shows of a lease: its deadline has passed if it had passed for the holder, unless
   the clock was set back; the replica may not know that it was extended. *)
Shown(slot, m, c, known) ==
    LET gone(t) == t.m = m /\ t.c = c /\ t.f = slot.f /\ t.rb = slot.rb /\ t \notin known
    IN IF slot.st = "LEASED" /\ \E t \in toks : gone(t) THEN [slot EXCEPT !.live = FALSE] ELSE slot

ShownBy(r, known) ==
    [r EXCEPT !.slot = [m \in Messages |-> Shown(@[m], m, 0, known)],
              !.org = [m \in Messages |-> Shown(@[m], m, 0, known)],
              !.cs = [c \in Copies |->
                         IF c \in DOMAIN topic THEN Shown(@[c], topic[c].m, c, known) ELSE @[c]]]

Failover ==
    /\ saved # <<>>
    /\ \E known \in SUBSET {t \in toks : t.due = "extended"} :
         db' = ShownBy(saved[1], known \cup {t \in toks : t.due = "as told" \/ ClockBack})
    /\ saved' = <<>> /\ run' = run + 1
    /\ late' = {}
    /\ handed' = {}
    /\ loose' = loose \cup dead
    /\ UNCHANGED <<topic, dlq, commits, sc, toks, told, ever, since, dead, bad, n>>

(* kill -9 and a restart: all that it knew is gone. *)
Kill(s) ==
    LET mine == {w[2] : w \in {x \in since : x[1] = s}}
    IN /\ n.kills < MaxKills
       /\ sc[s] # NewSidecar
       /\ sc' = [sc EXCEPT ![s] = [NewSidecar EXCEPT !.done = run]]
       /\ since' = {w \in since : w[1] # s}
       /\ dead' = dead \cup mine
       /\ loose' = IF ~Kept(s) THEN loose \cup mine ELSE loose
       /\ n' = [n EXCEPT !.kills = @ + 1]
       /\ UNCHANGED <<db, run, saved, topic, dlq, commits, late, toks, Ghosts>>

(* --- all of it *)

Works(s) ==
    \/ Take(s) \/ Fence(s) \/ Reread(s) \/ Hear(s) \/ Replay(s) \/ EndRepair(s)
    \/ AdvanceWatermark(s) \/ Commit(s)
    \/ \E m \in Messages : GrantMessage(s, m, TRUE) \/ Move(s, m) \/ Publish(s, m, TRUE)
                           \/ FinishMoved(s, m) \/ FinishDead(s, m)
    \/ \E c \in Copies : ClaimCopy(s, c, TRUE) \/ GrantACopy(s, c)

Applications ==
    \E t \in toks :
        \/ \E verb \in Verbs : (\E s \in Sidecars : ApplySettle(s, t, verb)) \/ SettleUnheard(t, verb)
        \/ AnsweredTooEarly(t)
        \/ Expire(t)

Trouble ==
    \/ FallBehind \/ Failover
    \/ \E s \in Sidecars :
        \/ Kill(s)
        \/ \E m \in Messages : GrantMessage(s, m, FALSE) \/ Publish(s, m, FALSE)
        \/ \E c \in Copies : ClaimCopy(s, c, FALSE)
        \/ \E call \in LateCalls : Lose(s, call)
    \/ \E call \in late : Arrive(call)

Next == (\E s \in Sidecars : Works(s)) \/ (\E m \in Messages : Bury(m)) \/ Applications \/ Lapse
        \/ Trouble

Symmetry == Permutations(Sidecars)  \* sidecars are alike

Spec == Init /\ [][Next]_vars

(* A story to which the scopes with two copies keep, as all orders of so many events are too many:
   the replica falls behind before a message moves, whoever moved it dies, and no copy has claimed
   before the failover. *)
Story ==
    /\ run = 1 /\ saved = <<>> => n.fences <= 1 /\ topic = <<>>
    /\ run = 1 => \A m \in Messages : db.org[m].by = 0
    /\ run = 1 /\ n.kills = 1 => topic # <<>>
    /\ run = 2 => n.kills >= 1

(* --- what is promised *)

(* I1: what the record has as finished was acked, or a copy of it is to come, or it is a dead letter.
   A commit counts when an owner takes the partition, and so finishes it in the record. *)
NothingLost ==
    \A m \in Messages :
        Over(db, m) =>
            \/ m \in ever \/ m \in dlq
            \/ \E c \in DOMAIN topic : topic[c].m = m /\ db.cs[c].st # "FINISHED"
NoAckedAgain == "I2" \notin bad
OneHolder == \A m \in Messages \ loose : Cardinality({t \in Live : t.m = m}) <= 1
NoFalseYes == "I7" \notin bad
(* R2: of the copies of a message one is handed out, even when its witness died. *)
OneCopy == "R2" \notin bad
====
