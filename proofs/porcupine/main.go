// Judges histories of `ackd torture --export` with Porcupine, a public checker of linearizability.
//
//	judge FILE...
//
// It prints a line of JSON for each file: whether some order of instants explains all answers, and the objects
// (a message's name, or its place at the broker) of which none does. It exits with 0 if all is explained, 4 if not.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

const each = 20 * time.Second

type verdict struct {
	File       string   `json:"file"`
	Kept       bool     `json:"kept"`
	Operations int      `json:"operations"`
	Objects    int      `json:"objects"`
	Blamed     []string `json:"blamed"`
	Undecided  []string `json:"undecided"`
}

func judge(path string) (verdict, error) {
	said := verdict{File: path, Blamed: []string{}, Undecided: []string{}}
	history, err := read(path)
	if err != nil {
		return said, err
	}
	model := queue()
	operations := history.operations()
	said.Operations = len(operations)
	for _, part := range model.Partition(operations) {
		said.Objects++
		object := told(part[0].Input.(input).object)
		switch porcupine.CheckOperationsTimeout(model, part, each) {
		case porcupine.Illegal:
			said.Blamed = append(said.Blamed, object)
		case porcupine.Unknown:
			said.Undecided = append(said.Undecided, object)
		}
	}
	sort.Strings(said.Blamed)
	sort.Strings(said.Undecided)
	said.Kept = len(said.Blamed)+len(said.Undecided) == 0
	return said, nil
}

func main() {
	status := 0
	out := json.NewEncoder(os.Stdout)
	for _, path := range os.Args[1:] {
		said, err := judge(path)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		if err := out.Encode(said); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		if !said.Kept {
			status = 4
		}
	}
	os.Exit(status)
}
