---- MODULE Trace ----
(* Is what the simulator did a behaviour of the model? Each trace is what one run of the production
   code did with the record of a partition: calls as the store decided them, and what brokers and
   processes did beside them. A trace goes on only while the model allows its next event, and each
   promise of the model is checked after each event. One that cannot go on is refused.

   `tests/proof/recorder.py` writes the events, `events.py` the module `Traces`. An event that has an
   action of its own in `Ackd.tla` is that action, with the fence, the term and the outcome that the
   run had. The rest is here: calls that nobody heard of, repairs, which are one step there and many
   in a run, and time, which a run has and the model has not. *)
EXTENDS Ackd, Traces

VARIABLES which,  \* the trace
          at,     \* its next event
          seq,    \* the last number of an owner's call under the present term (R12)
          copy,   \* of each partition of the retry topic: server run of its record, and if it waits
          gens,   \* moves that were decided: message and generation
          may,    \* copies whose claim was answered with yes
          kept,   \* sidecars that have told the present server run all that they know
          held    \* what a replica has of `seq` and `copy`

own == <<which, at, seq, copy, gens, may, kept, held>>

Trace == Traces[which]
Ev == Trace.events[at]

(* Instead of definitions of Ackd.tla, by the scope. *)
TraceFence == Ev.f
TraceTerm == Ev.term
TraceKept(s) == s \in kept
TraceOwns(s) == sc[s].own # 0  \* what waits in its queue goes out before it reads again

TraceInit ==
    /\ Init
    /\ which \in DOMAIN Traces /\ at = 1 /\ seq = 0
    /\ copy = [p \in 0..1 |-> [run |-> 0, rep |-> FALSE]]
    /\ gens = {} /\ may = {} /\ kept = Sidecars /\ held = <<>>

Quiet == UNCHANGED vars
Db(r) == db' = r

(* Variables that an event beside Ackd's actions leaves alone. *)
Rest == <<run, saved, dlq, commits, late, told, since, dead, loose, handed, bad, n>>

(* A condition as one value: TLC would follow each way in which it may be true. *)
Sure(condition) == condition = TRUE

(* --- calls: who may ask, and is the order of an owner's calls kept *)

Call == /\ Ev.do = "call" /\ Quiet
        /\ db.run = run
        /\ Sure(Ev.term # 0 => Ev.term = db.term /\ Ev.seq > seq)
        /\ Sure(Ev.heard /\ Ev.term # 0 => sc[Ev.s].own = Ev.term)
        /\ seq' = IF Ev.term # 0 THEN Ev.seq ELSE seq
        /\ UNCHANGED <<copy, gens, may, kept>>

Refused == /\ Ev.do = "refused"
           /\ Ev.why = IF Ev.term # 0 /\ Ev.term # db.term THEN "FENCED"
                       ELSE IF Ev.term # 0 /\ Ev.seq <= seq THEN "STALE"
                       ELSE IF db.run # run THEN "MOVED" ELSE "OK"
           /\ IF Ev.why = "FENCED" /\ Ev.heard /\ sc[Ev.s].own = Ev.term
              THEN sc' = [sc EXCEPT ![Ev.s].own = 0, ![Ev.s].dirty = FALSE] ELSE sc' = sc
           /\ UNCHANGED <<db, topic, toks, ever, Rest, seq, copy, gens, may, kept>>

(* Nobody heard the answer to an owner's call: it reads the record again before the next one. *)
Unheard == /\ Ev.do = "unheard"
           /\ sc' = IF sc[Ev.s].own = Ev.term THEN [sc EXCEPT ![Ev.s].dirty = TRUE] ELSE sc
           /\ UNCHANGED <<db, topic, toks, ever, Rest, seq, copy, gens, may, kept>>

(* --- ownership *)

(* A sidecar that gave the partition up by itself takes it again. *)
Leave == /\ Ev.do = "leave"
         /\ sc' = [sc EXCEPT ![Ev.s].own = 0, ![Ev.s].dirty = FALSE]
         /\ UNCHANGED <<db, topic, toks, ever, Rest, seq, copy, gens, may, kept>>

Took == /\ Ev.do = "take"
        /\ Ev.term > db.term
        /\ Ev.moved = (db.run # run /\ ~Ev.created)
        /\ LET r == [(IF Ev.created THEN [db EXCEPT !.run = run] ELSE Opened(db)) EXCEPT !.term = Ev.term]
           IN /\ db' = r
              /\ sc' = IF Ev.heard THEN Remembered([sc EXCEPT ![Ev.s] = Read(Ev.s, r, Ev.term)], toks)
                       ELSE sc
        /\ Sure(Ev.created => \A m \in Messages : ~Over(db, m) /\ db.slot[m] = NoSlot)
        /\ seq' = Ev.seq
        /\ UNCHANGED <<topic, toks, ever, Rest, copy, gens, may, kept>>

ReadAgain == /\ Ev.do = "reread"
             /\ Ev.term = db.term
             /\ Ev.moved = (db.run # run)
             /\ Ev.seq > seq
             /\ db' = Opened(db)
             /\ sc' = IF Ev.heard THEN Remembered([sc EXCEPT ![Ev.s] = Read(Ev.s, db', Ev.term)], toks)
                      ELSE sc
             /\ seq' = Ev.seq
             /\ UNCHANGED <<topic, toks, ever, Rest, copy, gens, may, kept>>

(* The record of a partition of the retry topic was opened. *)
CopyOpened == /\ Ev.do = "copies opened" /\ Quiet
              /\ copy' = [copy EXCEPT ![Ev.p] =
                             IF @.run = run THEN @ ELSE [run |-> run, rep |-> ~Ev.created]]
              /\ UNCHANGED <<seq, gens, may, kept>>

Heard == /\ Ev.do = "hear"
         /\ Ev.ms \subseteq AllOver
         /\ sc' = Remembered([sc EXCEPT ![Ev.s].fin = @ \cup Ev.ms], toks)
         /\ UNCHANGED <<db, topic, toks, ever, Rest, seq, copy, gens, may, kept>>

(* --- grants and settles of messages. That the owner may not have it yet is always allowed. *)

Waits(out) == Ev.out = "HELD" /\ out \in {"HELD", "GRANTED", "SENT", "CLAIMED"}

Granted == /\ Ev.do = "grant"
           /\ LET a == Grant(db, Ev.m, Ev.f)
              IN IF Waits(a.out) \/ (Ev.out = a.out /\ a.r = db) THEN Quiet
                 ELSE /\ a.out = Ev.out
                      /\ IF Ev.heard THEN GrantMessage(Ev.s, Ev.m, TRUE)
                         ELSE Db(a.r) /\ UNCHANGED <<sc, topic, toks, ever, Rest>>
           /\ UNCHANGED <<seq, copy, gens, may, kept>>

Token == {t \in toks : t.m = Ev.m /\ t.c = Ev.c /\ t.f = Ev.f /\ t.rb = Ev.rb}
ShownLease == [m |-> Ev.m, c |-> Ev.c, f |-> Ev.f, rb |-> Ev.rb]

(* The record of a copy is one of its own: its server run and its wait for repairs. *)
View(p) == [db EXCEPT !.run = copy[p].run, !.rep = copy[p].rep]
Back(r) == [db EXCEPT !.cs = r.cs]

Decided(t, verb, repair) ==
    IF t.c = 0 THEN Settle(db, t, verb, repair)
    ELSE LET a == SettleCopy(View(Ev.p), t, verb, repair) IN [a EXCEPT !.r = Back(a.r)]

SettleDecided ==
    /\ Ev.do = "settle"
    /\ LET a == Decided(ShownLease, Ev.verb, Ev.repair)
           yes == a.out \in {"ACKED", "ALREADY_ACKED"}
       IN /\ a.out = Ev.out
          /\ IF Ev.heard /\ Token # {} /\ ~Ev.repair /\ Ev.c = 0
             THEN \E t \in Token : ApplySettle(Ev.s, t, Ev.verb)
             ELSE /\ db' = a.r
                  /\ ever' = IF a.out = "ACKED" THEN ever \cup {Ev.m} ELSE ever
                  /\ told' = IF yes /\ Ev.heard /\ ~Ev.repair THEN told \cup {Ev.m} ELSE told
                  /\ bad' = IF a.out = "ALREADY_ACKED" /\ Ev.m \notin ever THEN bad \cup {"I7"} ELSE bad
                  /\ toks' = IF Ev.heard /\ ~Ev.repair
                             THEN UNION {{[t EXCEPT !.live =
                                              CASE a.out = "EXTENDED" -> TRUE
                                                [] a.out = "UNREPAIRED" -> t.live
                                                [] OTHER -> FALSE]} : t \in Token} \cup (toks \ Token)
                             ELSE toks
                  /\ sc' = IF ~Ev.heard \/ Ev.repair THEN sc
                           ELSE CASE yes /\ Ev.c # 0 -> [sc EXCEPT ![Ev.s].cacks = @ \cup {Ev.c}]
                                  [] a.out = "ACKED" ->
                                         [sc EXCEPT ![Ev.s].acks = @ \cup {AckOf(Ev, a.f)}]
                                  [] a.out = "EXTENDED" -> [sc EXCEPT ![Ev.s].leases = @ \cup {ShownLease}]
                                  [] OTHER -> sc
                  /\ since' = IF Ev.heard /\ ~Ev.repair THEN since \cup Saw(Ev.s, Ev.m) ELSE since
                  /\ UNCHANGED <<topic, run, saved, dlq, commits, late, dead, loose, handed, n>>
    /\ UNCHANGED <<seq, copy, gens, may, kept>>

(* --- the retry topic *)

Moved == /\ Ev.do = "move"
         /\ LET a == MoveToRetry(db, Ev.m, Ev.f)
            IN IF Waits(a.out) \/ (Ev.out = a.out /\ a.r = db) THEN Quiet /\ gens' = gens
               ELSE /\ a.out = Ev.out
                    /\ gens' = gens \cup {[m |-> Ev.m, gen |-> a.f]}
                    /\ IF Ev.heard THEN Move(Ev.s, Ev.m)
                       ELSE Db(a.r) /\ UNCHANGED <<sc, topic, toks, ever, Rest>>
         /\ UNCHANGED <<seq, copy, may, kept>>

(* A copy is stored, perhaps by somebody who is dead by now; only of a move that was decided. *)
Stored == /\ Ev.do = "publish"
          /\ [m |-> Ev.m, gen |-> Ev.gen] \in gens
          /\ topic' = Append(topic, [m |-> Ev.m, gen |-> Ev.gen, rb |-> Ev.rb])
          /\ sc' = [s \in Sidecars |-> IF sc[s].moved[Ev.m].gen = Ev.gen
                                       THEN [sc[s] EXCEPT !.pub = @ \cup {Ev.m}] ELSE sc[s]]
          /\ UNCHANGED <<db, toks, ever, Rest, seq, copy, gens, may, kept>>

Finished == /\ Ev.do = "finish"
            /\ LET a == Finish(db, Ev.m, [f |-> Ev.f, rb |-> Ev.rb])
                   stored == IF Ev.dead THEN Ev.m \in dlq
                             ELSE \E c \in DOMAIN topic : topic[c].m = Ev.m /\ topic[c].gen = Ev.f
               IN /\ a.out = Ev.out
                  /\ a.r # db => stored
                  /\ db' = a.r
                  /\ sc' = IF ~Ev.heard \/ a.out \notin {"DONE", "FINISHED"} THEN sc
                           ELSE IF Ev.dead \/ sc[Ev.s].moved[Ev.m].gen # Ev.f
                           THEN [sc EXCEPT ![Ev.s].fin = @ \cup {Ev.m}]
                           ELSE [sc EXCEPT ![Ev.s].fin = @ \cup {Ev.m}, ![Ev.s].moved[Ev.m].stored = TRUE]
                  /\ since' = IF Ev.heard THEN since \cup Saw(Ev.s, Ev.m) ELSE since
            /\ UNCHANGED <<topic, toks, ever, run, saved, dlq, commits, late, told, dead, loose, handed,
                           bad, n, seq, copy, gens, may, kept>>

Buried == /\ Ev.do = "bury"
          /\ dlq' = dlq \cup {Ev.m}
          /\ UNCHANGED <<db, sc, topic, toks, ever, run, saved, commits, late, told, since, dead, loose,
                         handed, bad, n, seq, copy, gens, may, kept>>

Claimed == /\ Ev.do = "claim"
           /\ LET k == topic[Ev.c]
                  a == Claim(db, k, Ev.c)
              IN /\ k.m = Ev.m /\ k.gen = Ev.gen
                 /\ IF Waits(a.out) THEN UNCHANGED <<vars, may>>
                    ELSE /\ a.out = Ev.out
                         /\ db' = a.r
                         /\ may' = IF a.out \in {"CLAIMED", "LOST"} THEN may \cup {Ev.c} ELSE may
                         /\ sc' = CASE a.out = "CLAIMED" /\ Ev.heard ->
                                         [sc EXCEPT ![Ev.s].claims = @ \cup
                                             {[m |-> k.m, gen |-> k.gen, rb |-> k.rb, by |-> Ev.c]}]
                                    [] a.out = "FINISHED" /\ Ev.heard ->
                                         [sc EXCEPT ![Ev.s].acks = @ \cup {AckOf(k, k.gen)}]
                                    [] OTHER -> sc
                         /\ since' = IF Ev.heard THEN since \cup Saw(Ev.s, Ev.m) ELSE since
                         /\ UNCHANGED <<topic, toks, ever, run, saved, dlq, commits, late, told, dead,
                                        loose, handed, bad, n>>
           /\ UNCHANGED <<seq, copy, gens, kept>>

Placed == /\ Ev.do = "place"
          /\ Ev.c \in may
          /\ LET row == Step(SlotPhase(db.cs[Ev.c]), "PLACE_COPY")
             IN /\ row.outcome = Ev.out
                /\ db' = IF row.changes
                         THEN [db EXCEPT !.cs[Ev.c] = [NoSlot EXCEPT !.st = row.state, !.f = Ev.f,
                                                                     !.rb = copy[Ev.p].run]]
                         ELSE db
          /\ UNCHANGED <<sc, topic, toks, ever, Rest, seq, copy, gens, may, kept>>

(* A copy that nobody gets ends: its message is over, or another copy has claimed it. *)
CopyEnded == /\ Ev.do = "copy ended"
             /\ Sure(db.cs[Ev.c].st # "LEASED" \/ ~db.cs[Ev.c].live)
             /\ Sure(
                \/ Ev.dead /\ Ev.m \in dlq
                \/ db.org[Ev.m].st = "FINISHED"
                \/ db.org[Ev.m].by \notin {0, Ev.c} \/ db.org[Ev.m].gen > topic[Ev.c].gen
                \/ db.cs[Ev.c].st = "FINISHED")
             /\ db' = [db EXCEPT !.cs[Ev.c] = [NoSlot EXCEPT !.st = "FINISHED"]]
             /\ UNCHANGED <<sc, topic, toks, ever, Rest, seq, copy, gens, may, kept>>

CopyGranted ==
    /\ Ev.do = "grant copy"
    /\ LET v == View(Ev.p)
           a == GrantCopy(v, Ev.c, Ev.f)
           t == [m |-> Ev.m, c |-> Ev.c, f |-> Ev.f, rb |-> v.run, live |-> TRUE, due |-> "as told"]
       IN IF Waits(a.out) \/ (a.out = Ev.out /\ a.r = v) THEN Quiet
          ELSE /\ a.out = Ev.out
               /\ Ev.c \in may
               /\ db' = Back(a.r)
               /\ toks' = IF Ev.heard THEN toks \cup {t} ELSE toks
               /\ sc' = IF Ev.heard THEN [sc EXCEPT ![Ev.s].leases = @ \cup {LeaseOf(t)}] ELSE sc
               /\ since' = IF Ev.heard THEN since \cup Saw(Ev.s, Ev.m) ELSE since
               /\ handed' = handed \cup {Ev.c}
               /\ bad' = IF Ev.heard THEN bad \cup Broken(Ev.s, Ev.m, Ev.c) ELSE bad
               /\ UNCHANGED <<topic, ever, run, saved, dlq, commits, late, told, dead, loose, n>>
    /\ UNCHANGED <<seq, copy, gens, may, kept>>

(* --- progress *)

Advanced == /\ Ev.do = "advance"
            /\ Sure(Ev.heard /\ Ev.upto > db.wm => ~sc[Ev.s].dirty)
            /\ Sure(Ev.heard => \A m \in Messages : m <= Ev.upto => m \in sc[Ev.s].fin)
            /\ db' = Advance(db, Ev.upto, FALSE)
            /\ sc' = IF Ev.heard THEN [sc EXCEPT ![Ev.s].conf = Max(@, Ev.upto)] ELSE sc
            /\ UNCHANGED <<topic, toks, ever, Rest, seq, copy, gens, may, kept>>

(* It commits what it knows to be finished: up to what the store has confirmed, and ranges. *)
Committed == /\ Ev.do = "commit"
             /\ Ev.s \in Sidecars
             /\ Ev.ms \subseteq Trace.holes \cup sc[Ev.s].fin \cup {m \in Messages : m <= sc[Ev.s].conf}
             /\ commits' = Ev.ms
             /\ UNCHANGED <<db, sc, topic, toks, ever, run, saved, dlq, late, told, since, dead, loose,
                            handed, bad, n, seq, copy, gens, may, kept>>

(* Places of the log that have no message. *)
Hole == /\ Ev.do = "hole"
        /\ Ev.ms \subseteq Trace.holes
        /\ db' = [db EXCEPT !.fin = @ \cup {m \in Ev.ms : m > db.wm}]
        /\ ever' = ever \cup Ev.ms
        /\ sc' = [sc EXCEPT ![Ev.s].fin = @ \cup Ev.ms]
        /\ UNCHANGED <<topic, toks, Rest, seq, copy, gens, may, kept>>

(* --- repair: each operation of a replay, by somebody who knows it *)

Witness(m) == \/ m \in Trace.holes \/ m \in sc[Ev.s].fin \/ m \in commits \/ m <= sc[Ev.s].conf

Repair == /\ Ev.do = "repair"
          /\ CASE Ev.what = "ack" ->
                     /\ \E a \in sc[Ev.s].acks : a.m = Ev.m
                     /\ db' = ReplayAck(db, Ev.m, Ev.gen)
               [] Ev.what = "finished" ->
                     /\ Sure(Witness(Ev.m))
                     /\ db' = ReplayFinished(db, Ev.m)
               [] Ev.what = "advance" ->
                     /\ Sure(\A m \in Messages : m <= Ev.m => Witness(m) \/ Over(db, m))
                     /\ db' = Advance(db, Ev.m, TRUE)
               [] Ev.what = "moved" ->
                     /\ [m |-> Ev.m, gen |-> Ev.gen] \in gens
                     /\ db' = Restore(db, Ev.m, Ev.gen, Ev.rb, 0, Ev.stored, Ev.released)
               [] Ev.what = "claimed" ->
                     /\ Ev.c \in may
                     /\ db' = Restore(db, Ev.m, Ev.gen, Ev.rb, Ev.c, FALSE, FALSE)
               [] Ev.what = "copy" ->
                     /\ db' = [db EXCEPT !.cs[Ev.c] = [NoSlot EXCEPT !.st = "FINISHED"]]
          /\ ever' = ever \cup ({Ev.m} \cap Trace.holes)
          /\ UNCHANGED <<sc, topic, toks, Rest, seq, copy, gens, may, kept>>

(* Grants go on: everybody has repeated what he knows, or the time for it is over. *)
Repaired == /\ Ev.do = "repaired"
            /\ Sure(Ev.timeout \/ Sidecars \subseteq kept)
            /\ db' = IF Ev.p = 2 THEN [db EXCEPT !.rep = FALSE, !.again = @ /\ Ev.timeout] ELSE db
            /\ copy' = IF Ev.p = 2 THEN copy ELSE [copy EXCEPT ![Ev.p].rep = FALSE]
            /\ UNCHANGED <<sc, topic, toks, ever, Rest, seq, gens, may, kept>>

Keeps == /\ Ev.do = "kept" /\ Quiet
         /\ kept' = kept \cup {Ev.s}
         /\ UNCHANGED <<seq, copy, gens, may>>

(* --- time and faults *)

Passed(slot, ended) == IF ended THEN [slot EXCEPT !.live = FALSE] ELSE slot

(* Deadlines that have passed: in the records, and those that were told. *)
Clock == /\ Ev.do = "clock"
         /\ db' = [db EXCEPT !.slot = [m \in Messages |-> Passed(@[m], m \in Ev.slots)],
                             !.org = [m \in Messages |-> Passed(@[m], m \in Ev.orgs)],
                             !.cs = [c \in Copies |-> Passed(@[c], c \in Ev.copies)]]
         /\ toks' = {IF [m |-> t.m, c |-> t.c, f |-> t.f, rb |-> t.rb] \in Ev.toks
                     THEN [t EXCEPT !.live = FALSE] ELSE t : t \in toks}
         /\ UNCHANGED <<sc, topic, ever, Rest, seq, copy, gens, may, kept>>

Killed == /\ Ev.do = "kill"
          /\ IF sc[Ev.s] = NewSidecar THEN Quiet ELSE Kill(Ev.s)
          /\ kept' = kept \cup {Ev.s}
          /\ UNCHANGED <<seq, copy, gens, may>>

FellBehind == /\ Ev.do = "behind" /\ FallBehind
              /\ held' = <<seq, copy>>
              /\ UNCHANGED <<seq, copy, gens, may, kept>>

FailedOver == /\ Ev.do = "failover"
              /\ saved # <<>>
              /\ db' = saved[1] /\ saved' = <<>> /\ run' = run + 1
              /\ handed' = {} /\ loose' = loose \cup dead
              /\ seq' = held[1] /\ copy' = held[2]
              /\ kept' = {s \in Sidecars : [sc[s] EXCEPT !.done = 1] = NewSidecar} /\ held' = <<>>
              /\ UNCHANGED <<topic, dlq, commits, sc, late, toks, told, ever, since, dead, bad, n, gens, may>>

(* --- what applications read *)

ToldAcked == /\ Ev.do = "told" /\ Quiet
         /\ Ev.m \in told
         /\ UNCHANGED <<seq, copy, gens, may, kept>>

Delivered == /\ Ev.do = "delivered" /\ Quiet
             /\ Token # {}
             /\ UNCHANGED <<seq, copy, gens, may, kept>>

(* --- the record of the run beside the model's *)

SameMessage(m, real) ==
    /\ Phase(db, m) = real.phase
    /\ \/ Over(db, m) \/ real.phase = "READY"
       \/ (db.slot[m].f = real.f /\ db.slot[m].rb = real.rb)
    /\ IF real.org = <<>> THEN db.org[m].st = "NONE"
       ELSE LET o == real.org[1]
            IN db.org[m].st # "NONE" /\ db.org[m].gen = o.gen /\ db.org[m].by = o.by
               /\ SlotPhase(db.org[m]) = o.phase

State == /\ Ev.do = "state" /\ Quiet
         /\ db.wm = Ev.wm /\ db.term = Ev.term
         /\ Sure(\A m \in Messages : m <= Len(Ev.ms) => SameMessage(m, Ev.ms[m]))
         /\ UNCHANGED <<seq, copy, gens, may, kept>>

CopyState == /\ Ev.do = "copy state" /\ Quiet
             /\ IF db.cs[Ev.c].st = "NONE" THEN Ev.phase = "READY"
                ELSE SlotPhase(db.cs[Ev.c]) = Ev.phase
             /\ UNCHANGED <<seq, copy, gens, may, kept>>

(* Nothing more was seen; the promises are checked once more. *)
AtEnd == Ev.do = "end" /\ Quiet /\ UNCHANGED <<seq, copy, gens, may, kept>>

Follow == \/ Call \/ Refused \/ Unheard \/ Leave \/ Took \/ ReadAgain \/ CopyOpened \/ Heard
          \/ Granted \/ SettleDecided \/ Moved \/ Stored \/ Finished \/ Buried \/ Claimed \/ Placed
          \/ CopyEnded \/ CopyGranted \/ Advanced \/ Committed \/ Hole \/ Repair \/ Repaired \/ Keeps
          \/ Clock \/ Killed \/ FellBehind \/ FailedOver \/ ToldAcked \/ Delivered \/ State \/ CopyState \/ AtEnd

Promises == NothingLost /\ NoAckedAgain /\ OneHolder /\ NoFalseYes /\ OneCopy

(* What has been followed is printed: a trace that stops before its end is refused. *)
TraceNext ==
    /\ at <= Len(Trace.events)
    /\ Sure(Promises)
    /\ Follow
    /\ IF Ev.do \in {"behind", "failover"} THEN TRUE ELSE held' = held
    /\ at' = at + 1 /\ which' = which
    /\ PrintT(<<"followed", which, at>>)

TraceSpec == TraceInit /\ [][TraceNext]_<<vars, own>>
====
