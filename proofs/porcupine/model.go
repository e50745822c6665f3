package main

import "github.com/anishathalye/porcupine"

// A kind of operation on one message. Each is decided at one instant between its call and its return.
type kind int

const (
	attempt kind = iota // somebody tried to publish the message
	stored              // its publish was confirmed
	seen                // it was delivered, anywhere
	deliver             // a lease was granted, and reached a client
	again               // an answer with this lease was repeated
	expire              // a deadline passes
	settle              // ack, retry, release, dead or extend
	forget              // the store's data was lost
	finish              // the run ended, drained
)

type input struct {
	object string // what the operation is on: one name, or one place at the broker
	kind   kind
	lease  string
	msg    string
	do     string
	status string // "" = not answered: it counted if it could
	// The lease's deadline, or with an extend the new one.
	deadline int64
	// When it was called and when it was answered. Porcupine orders by these; a deadline needs more, see `step`.
	begin, end int64
}

type phase int

const (
	ready     phase = iota // nobody has it
	leased                 // somebody has it; past the deadline the holder's settles count until it is granted again
	acked                  // it is over
	dead                   // it was given up
	forgotten              // the store lost its data: nothing is known
)

// The state of one object: of a name the first three fields, of a place the others.
type state struct {
	attempted, stored, seen bool

	phase    phase
	lease    string
	msg      string
	deadline int64
	clock    int64 // the earliest instant at which it can have come to this
}

// A queue with leases, one message at a time: what a client may be told, in which order of instants.
func queue() porcupine.Model {
	model := porcupine.NondeterministicModel{
		Init:  func() []interface{} { return []interface{}{state{}} },
		Equal: func(one, other interface{}) bool { return one == other },
		Step: func(now, in, _ interface{}) []interface{} {
			return step(now.(state), in.(input))
		},
		Partition: byObject,
	}
	return model.ToModel()
}

func byObject(history []porcupine.Operation) [][]porcupine.Operation {
	at := map[string]int{}
	var parts [][]porcupine.Operation
	for _, each := range history {
		object := each.Input.(input).object
		index, known := at[object]
		if !known {
			index = len(parts)
			at[object] = index
			parts = append(parts, nil)
		}
		parts[index] = append(parts[index], each)
	}
	return parts
}

func only(next state) []interface{} { return []interface{}{next} }

// The states after an operation; none if it cannot have been so.
//
// A lease can be over only from its deadline on. So the state has a clock: each operation is taken to have
// happened as early as its call and all before it allow. What is not possible then is not possible later either.
func step(now state, in input) []interface{} {
	now.clock = max(now.clock, in.begin)
	if now.clock > in.end {
		return nil
	}
	switch in.kind {
	case attempt:
		now.attempted = true
		return only(now)
	case stored:
		now.attempted, now.stored = true, true
		return only(now)
	case seen:
		if !now.attempted {
			return nil // nobody published it
		}
		now.seen = true
		return only(now)
	case deliver:
		return delivered(now, in)
	case again:
		if now.phase == forgotten || now.phase == leased && now.lease == in.lease && now.msg == in.msg {
			return only(now)
		}
		return nil
	case settle:
		return settled(now, in)
	case forget:
		gone := now
		gone.phase = forgotten
		return []interface{}{now, gone}
	case finish:
		if now.stored && !now.seen {
			return nil // it was confirmed, and never came
		}
		if now.phase == ready && now.lease == "" || now.phase == acked || now.phase == dead {
			return only(now)
		}
		return nil // it was delivered, and never finished
	}
	return nil
}

// Whether the lease is over by time, at the earliest instant at which it can be.
func lapsed(now *state, in input) bool {
	if now.deadline > in.end {
		return false
	}
	now.clock = max(now.clock, now.deadline)
	return true
}

func delivered(now state, in input) []interface{} {
	free := now.phase == ready || now.phase == forgotten || now.phase == leased && lapsed(&now, in)
	if !free || now.msg != "" && now.msg != in.msg { // one place has one content
		return nil
	}
	return only(state{phase: leased, lease: in.lease, msg: in.msg, deadline: in.deadline, clock: now.clock})
}

func settled(now state, in input) []interface{} {
	holds := now.phase == leased && now.lease == in.lease
	if now.phase == forgotten {
		if next, yes := yesses[in.status]; yes {
			now.phase, now.lease, now.deadline = next, in.lease, in.deadline
		}
		return only(now)
	}
	switch in.status {
	case "": // nobody knows
		if holds {
			return only(done(now, in))
		}
		return only(now)
	case "acked", "retrying", "released", "dead", "extended":
		if holds {
			return only(done(now, in))
		}
		return nil // a yes to somebody who does not hold it
	case "already_acked":
		if now.phase == acked {
			return only(now)
		}
		return nil
	case "lost":
		if holds && !lapsed(&now, in) {
			return nil // before its deadline
		}
		return only(now)
	}
	return only(now) // a refusal changes nothing
}

var yesses = map[string]phase{
	"acked": acked, "already_acked": acked, "retrying": ready, "released": ready, "dead": dead, "extended": leased,
}

func done(now state, in input) state {
	switch in.do {
	case "ack":
		now.phase = acked
	case "retry", "release":
		now.phase = ready
	case "dead":
		now.phase = dead
	case "extend":
		now.deadline = in.deadline
	}
	return now
}
