---- MODULE Live ----
(* I5: while store and broker answer, no message holds the watermark for ever, whatever applications
   do: they may never ack, or extend their leases without end.

   What a sidecar can do, it does in the end (weak fairness), and somebody asks for messages: one that
   nobody ever got does not move. Nobody owes an ack or a deadline that passes. Faults are finite, as
   in each scope; but there is a fence for a message that nobody got, one for a move, and a partition
   that nobody owns is taken, however often that has happened before. *)
EXTENDS Ackd

LiveCanFence ==
    \/ n.fences < MaxFences
    \/ n.fences < MaxFences + MaxFailovers + 1 /\ \E m \in Messages : Phase(db, m) = "READY"
LiveCanMove == n.fences < MaxFences + MaxFailovers + 2
LiveCanTake == n.takes < MaxTakes \/ ~\E s \in Sidecars : sc[s].own # 0 /\ sc[s].own = db.term

Fair ==
    /\ \A s \in Sidecars :
        /\ WF_vars(Take(s)) /\ WF_vars(Fence(s)) /\ WF_vars(Reread(s)) /\ WF_vars(Hear(s))
        /\ WF_vars(Replay(s)) /\ WF_vars(EndRepair(s))
        /\ WF_vars(AdvanceWatermark(s)) /\ WF_vars(Commit(s))
        /\ \A m \in Messages :
            WF_vars(GrantMessage(s, m, TRUE)) /\ WF_vars(Move(s, m)) /\ WF_vars(Publish(s, m, TRUE))
            /\ WF_vars(FinishMoved(s, m)) /\ WF_vars(FinishDead(s, m))
    /\ \A m \in Messages : WF_vars(Bury(m))

LiveSpec == Spec /\ Fair

Passed == \A m \in Messages : m <= db.wm
Progress == <>[]Passed
Committed == <>[](commits = Messages)
====
