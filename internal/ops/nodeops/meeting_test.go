// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
)

// meeting is acts that meet on a node in some state.
type meeting struct {
	start  start
	acts   []act
	two    bool // processes: each act has one of its own
	delays winsim.Delays

	known map[string]outcome // of the acts one after the other, by their order
}

func (s start) meeting(two bool, acts ...act) *meeting {
	return &meeting{start: s, acts: acts, two: two, known: make(map[string]outcome)}
}

func (m *meeting) String() string {
	var names []string
	for _, a := range m.acts {
		names = append(names, a.name)
	}
	return fmt.Sprintf("%s: %s; in processes of their own: %v", m.start.name, strings.Join(names, " + "), m.two)
}

// outcome is what each act has answered last, and how the node is then.
type outcome struct {
	answers []string
	observation
	calls int // to Windows, that the acts have made
}

func (o outcome) same(p outcome) bool {
	return slices.Equal(o.answers, p.answers) && o.state == p.state
}

func (o outcome) lines() []string {
	return append(slices.Clone(o.answers), strings.Split(o.state, "\n")...)
}

func isError(answer string) bool { return strings.HasPrefix(answer, errorPrefix) }

// isRefusal reports whether an act says that it was refused, and why.
func isRefusal(answer string) bool {
	return answer == answerOf(nil, csiproxy.ErrUnavailable) || answer == answerOf(nil, csiproxy.ErrFailedPrecondition)
}

// play runs a script on a node in the start state.
func (m *meeting) play(t *testing.T, script func(r *rig, o *outcome)) (o outcome) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := m.start.rig(t, m.delays)
		o.answers = make([]string, len(m.acts))
		before := total(r.sim.Calls())
		script(r, &o)
		o.calls = total(r.sim.Calls()) - before
		synctest.Wait()
		r.sim.Settle()
		o.observation = r.observe()
	})
	return o
}

func total(counts map[string]int) (n int) {
	for _, count := range counts {
		n += count
	}
	return n
}

// act runs one of the acts.
func (m *meeting) act(r *rig, i int, n *nodeops.Node) string {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	answer := answerOf(m.acts[i].run(ctx, r, n))
	if m.acts[i].undo != nil {
		r.sim.Settle() // what comes and goes with a disk is a part of it
	}
	return answer
}

// undo stands in an order for taking back what has happened to the node.
const undo = -1

// inTurn runs acts one after the other, in a new process each.
func (m *meeting) inTurn(r *rig, o *outcome, order []int) {
	for _, i := range order {
		r.sim.Settle()
		if i != undo {
			o.answers[i] = m.act(r, i, r.process())
			continue
		}
		for _, a := range m.acts {
			if a.undo != nil {
				r.must(a.undo(r))
			}
		}
	}
}

// turn returns the outcome of acts one after the other on a node in the start state.
func (m *meeting) turn(t *testing.T, order []int) outcome {
	t.Helper()
	key := fmt.Sprint(order)
	if _, ok := m.known[key]; !ok {
		m.known[key] = m.play(t, func(r *rig, o *outcome) { m.inTurn(r, o, order) })
	}
	return m.known[key]
}

// orders returns all orders of all subsets of 0 to n-1, those with all of them first.
func orders(n int) (all [][]int) {
	var add func(chosen []int)
	add = func(chosen []int) {
		all = append(all, slices.Clone(chosen))
		for i := range n {
			if !slices.Contains(chosen, i) {
				add(append(chosen, i))
			}
		}
	}
	add(nil)
	slices.SortStableFunc(all, func(a, b []int) int { return len(b) - len(a) })
	return all
}

// judge has the acts meet, as together does it, and says what is wrong with the outcome; ""
// if nothing is. The outcome is that of the acts one after the other in some order: what
// they answer, and all that can be seen of the node. Or some are refused, and the others
// have the outcome that they have without them. Or some have another error, and when
// they are repeated, the node is as if all had come in turn and these had been repeated. So
// it is with those that sweep.
// together reports whether the acts have met.
func (m *meeting) judge(t *testing.T,
	together func(r *rig, o *outcome, processes []*nodeops.Node) bool) (outcome, string) {
	t.Helper()
	met := false
	meet := func(r *rig, o *outcome) {
		processes := []*nodeops.Node{r.process()}
		for range m.acts[1:] {
			n := processes[0]
			if m.two {
				n = r.process()
			}
			processes = append(processes, n)
		}
		met = together(r, o, processes)
	}
	got := m.play(t, meet)
	if !met {
		return got, ""
	}
	for _, answer := range got.answers {
		if answer == answerOf(nil, errors.New("of no class")) {
			got.broken = append(got.broken, "an answer is an error of no class")
		}
	}
	if len(got.broken) > 0 {
		return got, strings.Join(got.broken, "\n")
	}
	var nearest []string
	for _, order := range orders(len(m.acts)) {
		refused := true
		for i, answer := range got.answers {
			refused = refused && (isRefusal(answer) || slices.Contains(order, i))
		}
		if !refused {
			continue
		}
		want := m.turn(t, order)
		want.answers = slices.Clone(want.answers)
		for i, answer := range got.answers {
			if !slices.Contains(order, i) {
				want.answers[i] = answer
			}
		}
		if want.same(got) {
			return got, ""
		}
		nearest = closer(nearest, got, want, order)
	}
	isSweep := func(a act) bool { return a.sweeps }
	if !slices.ContainsFunc(got.answers, isError) && !slices.ContainsFunc(m.acts, isSweep) {
		return got, strings.Join(nearest, "\n")
	}

	var repeated []int
	again := m.play(t, func(r *rig, o *outcome) {
		if meet(r, o); !met {
			return
		}
		if slices.ContainsFunc(m.acts, func(a act) bool { return a.undo != nil }) {
			repeated = append(repeated, undo)
		}
		for i, answer := range o.answers {
			if isError(answer) || m.acts[i].sweeps {
				repeated = append(repeated, i)
			}
		}
		synctest.Wait()
		m.inTurn(r, o, repeated)
	}).regardless(repeated)
	if !met { // the first act has made fewer calls this time
		return got, ""
	}
	for _, order := range orders(len(m.acts)) {
		if len(order) < len(m.acts) {
			break
		}
		want := m.turn(t, append(order, repeated...)).regardless(repeated)
		if want.same(again) {
			return got, ""
		}
		nearest = closer(nearest, again, want, append(order, repeated...))
	}
	return got, strings.Join(nearest, "\n")
}

// regardless returns the outcome without what repeated acts have done themselves: that
// they have succeeded counts, and the state.
func (o outcome) regardless(repeated []int) outcome {
	o.answers = slices.Clone(o.answers)
	for _, i := range repeated {
		if i != undo && !isError(o.answers[i]) {
			o.answers[i] = "success"
		}
	}
	return o
}

// closer returns how an outcome differs from another one, or the difference so far if that
// is smaller.
func closer(soFar []string, got, want outcome, order []int) []string {
	lines := []string{fmt.Sprintf("as by the order %v, but for:", order)}
	for _, line := range want.lines() {
		if !slices.Contains(got.lines(), line) {
			lines = append(lines, "- "+line)
		}
	}
	for _, line := range got.lines() {
		if !slices.Contains(want.lines(), line) {
			lines = append(lines, "+ "+line)
		}
	}
	if soFar != nil && len(soFar) <= len(lines) {
		return soFar
	}
	return lines
}
