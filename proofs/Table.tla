---- MODULE Table ----
(* The transition table of sidecar/ackd/core/record/transitions.py, row by row. Written from it by
   `python -m tests.proof.table`; a test compares the two. *)
Rows == {
    [phase |-> "READY", verb |-> "GRANT", outcome |-> "GRANTED", state |-> "LEASED", changes |-> TRUE],
    [phase |-> "RELEASED", verb |-> "GRANT", outcome |-> "GRANTED", state |-> "LEASED", changes |-> TRUE],
    [phase |-> "EXPIRED", verb |-> "GRANT", outcome |-> "GRANTED", state |-> "LEASED", changes |-> TRUE],
    [phase |-> "LEASED", verb |-> "GRANT", outcome |-> "HELD", state |-> "LEASED", changes |-> FALSE],
    [phase |-> "WAITING", verb |-> "GRANT", outcome |-> "GRANTED", state |-> "LEASED", changes |-> TRUE],
    [phase |-> "DEAD", verb |-> "GRANT", outcome |-> "REFUSED", state |-> "DEAD", changes |-> FALSE],
    [phase |-> "MOVING", verb |-> "GRANT", outcome |-> "REFUSED", state |-> "MOVING", changes |-> FALSE],
    [phase |-> "ACKED", verb |-> "GRANT", outcome |-> "FINISHED", state |-> "FINISHED", changes |-> FALSE],
    [phase |-> "GONE", verb |-> "GRANT", outcome |-> "FINISHED", state |-> "FINISHED", changes |-> FALSE],
    [phase |-> "LEASED", verb |-> "ACK", outcome |-> "ACKED", state |-> "FINISHED", changes |-> TRUE],
    [phase |-> "LEASED", verb |-> "RETRY", outcome |-> "RETRYING", state |-> "WAITING", changes |-> TRUE],
    [phase |-> "LEASED", verb |-> "EXTEND", outcome |-> "EXTENDED", state |-> "LEASED", changes |-> TRUE],
    [phase |-> "LEASED", verb |-> "DEAD", outcome |-> "DEAD", state |-> "DEAD", changes |-> TRUE],
    [phase |-> "LEASED", verb |-> "RELEASE", outcome |-> "RELEASED", state |-> "RELEASED", changes |-> TRUE],
    [phase |-> "EXPIRED", verb |-> "ACK", outcome |-> "ACKED", state |-> "FINISHED", changes |-> TRUE],
    [phase |-> "EXPIRED", verb |-> "EXTEND", outcome |-> "EXTENDED", state |-> "LEASED", changes |-> TRUE],
    [phase |-> "FORGOTTEN", verb |-> "ACK", outcome |-> "ACKED", state |-> "FINISHED", changes |-> TRUE],
    [phase |-> "FORGOTTEN", verb |-> "EXTEND", outcome |-> "EXTENDED", state |-> "LEASED", changes |-> TRUE],
    [phase |-> "FORGOTTEN", verb |-> "RETRY", outcome |-> "UNREPAIRED", state |-> "READY", changes |-> FALSE],
    [phase |-> "FORGOTTEN", verb |-> "DEAD", outcome |-> "UNREPAIRED", state |-> "READY", changes |-> FALSE],
    [phase |-> "FORGOTTEN", verb |-> "RELEASE", outcome |-> "UNREPAIRED", state |-> "READY", changes |-> FALSE],
    [phase |-> "WAITING", verb |-> "RETRY", outcome |-> "RETRYING", state |-> "WAITING", changes |-> FALSE],
    [phase |-> "RELEASED", verb |-> "RELEASE", outcome |-> "RELEASED", state |-> "RELEASED", changes |-> FALSE],
    [phase |-> "DEAD", verb |-> "DEAD", outcome |-> "DEAD", state |-> "DEAD", changes |-> FALSE],
    [phase |-> "ACKED", verb |-> "ACK", outcome |-> "ALREADY_ACKED", state |-> "FINISHED", changes |-> FALSE],
    [phase |-> "READY", verb |-> "MOVE_TO_RETRY", outcome |-> "SENT", state |-> "MOVING", changes |-> TRUE],
    [phase |-> "LEASED", verb |-> "MOVE_TO_RETRY", outcome |-> "SENT", state |-> "MOVING", changes |-> TRUE],
    [phase |-> "EXPIRED", verb |-> "MOVE_TO_RETRY", outcome |-> "SENT", state |-> "MOVING", changes |-> TRUE],
    [phase |-> "WAITING", verb |-> "MOVE_TO_RETRY", outcome |-> "SENT", state |-> "MOVING", changes |-> TRUE],
    [phase |-> "RELEASED", verb |-> "MOVE_TO_RETRY", outcome |-> "SENT", state |-> "MOVING", changes |-> TRUE],
    [phase |-> "MOVING", verb |-> "MOVE_TO_RETRY", outcome |-> "SENT", state |-> "MOVING", changes |-> FALSE],
    [phase |-> "DEAD", verb |-> "MOVE_TO_RETRY", outcome |-> "REFUSED", state |-> "DEAD", changes |-> FALSE],
    [phase |-> "ACKED", verb |-> "MOVE_TO_RETRY", outcome |-> "FINISHED", state |-> "FINISHED", changes |-> FALSE],
    [phase |-> "GONE", verb |-> "MOVE_TO_RETRY", outcome |-> "FINISHED", state |-> "FINISHED", changes |-> FALSE],
    [phase |-> "EXPIRED", verb |-> "MARK_DEAD", outcome |-> "DEAD", state |-> "DEAD", changes |-> TRUE],
    [phase |-> "WAITING", verb |-> "MARK_DEAD", outcome |-> "DEAD", state |-> "DEAD", changes |-> TRUE],
    [phase |-> "RELEASED", verb |-> "MARK_DEAD", outcome |-> "DEAD", state |-> "DEAD", changes |-> TRUE],
    [phase |-> "LEASED", verb |-> "MARK_DEAD", outcome |-> "HELD", state |-> "LEASED", changes |-> FALSE],
    [phase |-> "DEAD", verb |-> "MARK_DEAD", outcome |-> "DEAD", state |-> "DEAD", changes |-> FALSE],
    [phase |-> "MOVING", verb |-> "MARK_DEAD", outcome |-> "REFUSED", state |-> "MOVING", changes |-> FALSE],
    [phase |-> "ACKED", verb |-> "MARK_DEAD", outcome |-> "FINISHED", state |-> "FINISHED", changes |-> FALSE],
    [phase |-> "GONE", verb |-> "MARK_DEAD", outcome |-> "FINISHED", state |-> "FINISHED", changes |-> FALSE],
    [phase |-> "READY", verb |-> "PLACE_COPY", outcome |-> "DONE", state |-> "WAITING", changes |-> TRUE],
    [phase |-> "LEASED", verb |-> "PLACE_COPY", outcome |-> "DONE", state |-> "LEASED", changes |-> FALSE],
    [phase |-> "EXPIRED", verb |-> "PLACE_COPY", outcome |-> "DONE", state |-> "LEASED", changes |-> FALSE],
    [phase |-> "WAITING", verb |-> "PLACE_COPY", outcome |-> "DONE", state |-> "WAITING", changes |-> FALSE],
    [phase |-> "RELEASED", verb |-> "PLACE_COPY", outcome |-> "DONE", state |-> "RELEASED", changes |-> FALSE],
    [phase |-> "DEAD", verb |-> "PLACE_COPY", outcome |-> "DONE", state |-> "DEAD", changes |-> FALSE],
    [phase |-> "ACKED", verb |-> "PLACE_COPY", outcome |-> "FINISHED", state |-> "FINISHED", changes |-> FALSE],
    [phase |-> "GONE", verb |-> "PLACE_COPY", outcome |-> "FINISHED", state |-> "FINISHED", changes |-> FALSE],
    [phase |-> "DEAD", verb |-> "FINISH", outcome |-> "DONE", state |-> "FINISHED", changes |-> TRUE],
    [phase |-> "MOVING", verb |-> "FINISH", outcome |-> "DONE", state |-> "FINISHED", changes |-> TRUE],
    [phase |-> "ACKED", verb |-> "FINISH", outcome |-> "FINISHED", state |-> "FINISHED", changes |-> FALSE],
    [phase |-> "GONE", verb |-> "FINISH", outcome |-> "FINISHED", state |-> "FINISHED", changes |-> FALSE]}

StepOf == [key \in {<<r.phase, r.verb>> : r \in Rows} |->
              CHOOSE r \in Rows : r.phase = key[1] /\ r.verb = key[2]]

LostStep == [outcome |-> "LOST", state |-> "READY", changes |-> FALSE]

(* What a verb does to a message in a phase: `transitions.step`. *)
Step(phase, verb) ==
    IF <<phase, verb>> \in DOMAIN StepOf THEN StepOf[<<phase, verb>>] ELSE LostStep
====
