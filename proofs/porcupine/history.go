package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"

	"github.com/anishathalye/porcupine"
	"olympos.io/encoding/edn"
)

// ackd tells deadlines in whole milliseconds, so an instant that follows from one is known to no less.
const slack = 2_000_000

const never = math.MaxInt64

// One event of Jepsen's history. Times are ns since its begin.
type event struct {
	Type    edn.Keyword `edn:"type"`
	Process interface{} `edn:"process"`
	F       edn.Keyword `edn:"f"`
	Value   value       `edn:"value"`
	Time    int64       `edn:"time"`
}

type value struct {
	Sub      string    `edn:"sub"`
	Msg      string    `edn:"msg"`
	ID       string    `edn:"id"`
	Lease    string    `edn:"lease"`
	Do       string    `edn:"do"`
	Status   string    `edn:"status"`
	Note     string    `edn:"note"`
	Deadline int64     `edn:"deadline"`
	LeaseNs  int64     `edn:"lease-ns"`
	Messages []message `edn:"messages"`
}

type message struct {
	ID       string `edn:"id"`
	Msg      string `edn:"msg"`
	Lease    string `edn:"lease"`
	Deadline int64  `edn:"deadline"`
	LeaseNs  int64  `edn:"lease-ns"`
}

// An operation: what was asked and what was answered. `end` never: nobody knows whether it happened.
type call struct {
	f          edn.Keyword
	asked      value
	told       value
	ok, failed bool
	begin, end int64
}

type lossOrDrain struct {
	begin, end int64
}

type history struct {
	calls   []*call
	losses  []lossOrDrain
	drained map[string]bool
	last    int64
}

func read(path string) (*history, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	found := &history{drained: map[string]bool{}}
	open := map[string]*call{}
	lost := map[string]int{}
	for decoder := edn.NewDecoder(file); ; {
		var each event
		if err := decoder.Decode(&each); errors.Is(err, io.EOF) {
			return found, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		found.last = max(found.last, each.Time)
		process := fmt.Sprint(each.Process)
		switch {
		case each.F == "drained":
			found.drained[each.Value.Sub] = true
		case each.F == "data-lost":
			lost[each.Value.Note] = len(found.losses)
			found.losses = append(found.losses, lossOrDrain{each.Time, never})
		case each.F == "healed":
			if index, known := lost[each.Value.Note]; known {
				found.losses[index].end = each.Time
				delete(lost, each.Value.Note)
			}
		case each.F == "fault":
		case each.Type == "invoke":
			open[process] = &call{f: each.F, asked: each.Value, begin: each.Time, end: never}
			found.calls = append(found.calls, open[process])
		default:
			begun := open[process]
			if begun == nil {
				return nil, fmt.Errorf("%s: process %s ends what it did not begin", path, process)
			}
			delete(open, process)
			begun.told, begun.ok, begun.failed = each.Value, each.Type == "ok", each.Type == "fail"
			if each.Type != "info" {
				begun.end = each.Time
			}
		}
	}
}

// One delivery. The grant was within begin..end; `stated` is its instant by ackd's clock.
type delivery struct {
	sub        string
	message    message
	begin, end int64
	stated     int64
	first      bool
}

type builder struct {
	history *history
	made    []porcupine.Operation
	holders map[string]*delivery
	unclear map[string]bool
	least   int64
}

// What the history says of each message, as operations of the model.
func (all *history) operations() []porcupine.Operation {
	build := &builder{history: all, holders: map[string]*delivery{}, unclear: map[string]bool{}}
	deliveries := all.deliveries(build.holders)
	most := build.narrow(deliveries)
	subs := map[string]bool{}
	for sub := range all.drained {
		subs[sub] = true
	}
	places := map[string]string{}
	for _, each := range deliveries {
		subs[each.sub] = true
		build.granted(each, most)
		places[place(each.sub, each.message.ID)] = each.sub
	}
	for _, each := range all.calls {
		if each.f == "settle" {
			build.settled(each)
		}
	}
	for object, sub := range places {
		build.end(object, sub)
	}
	for sub := range subs {
		build.published(sub)
	}
	return build.made
}

func place(sub, id string) string { return "place\x00" + sub + "\x00" + id }

func name(sub, msg string) string { return "name\x00" + sub + "\x00" + msg }

// A person's word for an object.
func told(object string) string { return strings.ReplaceAll(object, "\x00", " ") }

func (all *history) deliveries(holders map[string]*delivery) []*delivery {
	var found []*delivery
	for _, each := range all.calls {
		if each.f != "receive" || !each.ok {
			continue
		}
		for _, message := range each.told.Messages {
			one := &delivery{sub: each.told.Sub, message: message, begin: each.begin, end: each.end}
			one.stated = message.Deadline - message.LeaseNs
			one.first = holders[message.Lease] == nil
			if one.first {
				holders[message.Lease] = one
			}
			found = append(found, one)
		}
	}
	return found
}

// How far ackd's clock is behind the clients': at least `least`, at most what it returns. No grant was
// before its request and none after its answer.
func (build *builder) narrow(deliveries []*delivery) int64 {
	low, high, known := int64(math.MinInt64), int64(math.MaxInt64), false
	for _, each := range deliveries {
		if each.first && each.message.LeaseNs != 0 {
			known = true
			low, high = max(low, each.begin-each.stated), min(high, each.end-each.stated)
		}
	}
	if !known {
		return 0
	}
	build.least = min(low, high)
	return max(low, high)
}

func (build *builder) add(in input, begin, end int64) {
	in.begin, in.end = begin, end
	build.made = append(build.made, porcupine.Operation{Input: in, Call: begin, Return: end})
}

func (build *builder) granted(each *delivery, most int64) {
	object := place(each.sub, each.message.ID)
	in := input{object: object, kind: deliver, lease: each.message.Lease, msg: each.message.Msg}
	build.add(input{object: name(each.sub, each.message.Msg), kind: seen}, each.begin, each.end)
	if !each.first {
		in.kind = again
		build.add(in, each.begin, each.end)
		return
	}
	begin, end := each.begin, each.end
	if each.message.LeaseNs != 0 {
		begin = max(begin, each.stated+build.least-slack)
		end = min(end, each.stated+most+slack)
	}
	in.deadline = each.message.Deadline + build.least
	build.add(in, begin, max(begin, end))
}

func (build *builder) settled(each *call) {
	holder := build.holders[each.asked.Lease]
	if holder == nil {
		return // of a lease that no answer brought
	}
	object := place(holder.sub, holder.message.ID)
	in := input{object: object, kind: settle, lease: each.asked.Lease, do: each.asked.Do, msg: holder.message.Msg}
	end := each.end
	if each.ok {
		in.status = each.told.Status
	}
	if in.do == "extend" && (in.status == "" || in.status == "extended") {
		in.deadline = each.begin + each.asked.LeaseNs // at the earliest
		if in.status == "extended" {
			in.deadline = each.told.Deadline + build.least
		}
	}
	// Of equal settles that are not answered the first one says all: it can take effect whenever a later one can, and
	// an extension by the later one only lasts longer, which explains nothing more. Each would double the search.
	if in.status == "" && end == never {
		repeat := fmt.Sprint(in.lease, " ", in.do, " ", each.asked.LeaseNs)
		if build.unclear[repeat] {
			return
		}
		build.unclear[repeat] = true
	}
	if in.status == "lost" {
		end += slack // it may have been lost at a deadline that was told rounded
	}
	build.add(in, each.begin, end)
}

// What holds of a place in the end, and what the store lost meanwhile.
func (build *builder) end(object, sub string) {
	for _, loss := range build.history.losses {
		build.add(input{object: object, kind: forget}, loss.begin, loss.end)
	}
	if build.history.drained[sub] {
		at := build.history.last + slack + 1
		build.add(input{object: object, kind: finish}, at, at)
	}
}

// What publishers know of each name. Of several tries without a yes the first one stands for all.
func (build *builder) published(sub string) {
	tried := map[string]bool{}
	for _, each := range build.history.calls {
		if each.f != "publish" {
			continue
		}
		object := name(sub, each.asked.Msg)
		if each.ok {
			build.add(input{object: object, kind: stored}, each.begin, each.end)
		} else if !tried[object] {
			build.add(input{object: object, kind: attempt}, each.begin, never)
		}
		if build.history.drained[sub] && !tried[object] {
			at := build.history.last + slack + 1
			build.add(input{object: object, kind: finish}, at, at)
		}
		tried[object] = true
	}
}
