// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"

	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
)

// history is a scenario that the seed makes up: pods come and go on a few volumes, which grow, while
// parts of the node crash and answers are lost.
type history struct {
	*scenario
	running []*pod
	data    map[*volume]*contents
	process *simv1.Process // has a file open; nil: none
}

// contents are those of a volume's file.
type contents struct {
	now    string   // empty: there is no file
	before []string // since it was last flushed for certain; a loss of power may bring one of them back
	unsure bool     // whether one of these is what is there
}

// histories returns n of them.
func histories(n int) (all []definition) {
	for i := range n {
		all = append(all, definition{
			name: fmt.Sprintf("history-%d", i+1), what: "what the seed makes up", unrecorded: true, history: true,
			run: func(s *scenario) { (&history{scenario: s, data: map[*volume]*contents{}}).run() },
		})
	}
	return all
}

func (h *history) run() {
	for range 3 {
		h.data[h.newVolume(volumeOptions{})] = &contents{}
	}
	steps := []func(){
		h.start, h.start, h.start, h.end, h.end, h.change, h.change, h.change, h.enlarge, h.open, h.close,
		h.crashNow, h.crashLater, h.lose, h.forget, h.loseDirectory,
	}
	h.start()
	for range 14 {
		steps[h.random.IntN(len(steps))]()
		h.look()
	}
	for len(h.running) > 0 {
		h.end()
		h.look()
	}
	h.close()
	for _, v := range h.volumes {
		h.awaitDetached(v)
	}
}

// expect has calls fail and events come from now on, as a fault leads to them.
func (h *history) expect(methods []string, events ...string) {
	h.expected.failing = append(slices.Clone(h.expected.failing), methods...)
	h.expected.events = append(slices.Clone(h.expected.events), events...)
}

// start starts a pod on some of the volumes.
func (h *history) start() {
	if len(h.running) == 4 {
		return
	}
	var some []*volume
	for _, i := range h.random.Perm(len(h.volumes))[:1+h.random.IntN(len(h.volumes))] {
		some = append(some, h.volumes[i])
	}
	h.note("a pod starts on %d volumes", len(some))
	h.running = append(h.running, h.startPod(some...))
}

// any returns one of the running pods; nil if there is none.
func (h *history) any() *pod {
	if len(h.running) == 0 {
		return nil
	}
	return h.running[h.random.IntN(len(h.running))]
}

// using reports whether a running pod uses a volume.
func (h *history) using(v *volume) bool {
	return slices.ContainsFunc(h.running, func(p *pod) bool { return slices.Contains(p.volumes, v) })
}

func (h *history) end() {
	if p := h.any(); p != nil {
		h.endOne(p)
	}
}

// endOne ends a running pod.
func (h *history) endOne(p *pod) {
	h.note("%s ends", p.name)
	h.endPod(p)
	h.running = slices.DeleteFunc(h.running, func(other *pod) bool { return other == p })
	if h.process != nil || h.random.IntN(2) == 0 { // the next pod may come while kubelet unstages
		return
	}
	for _, v := range p.volumes {
		if !h.using(v) {
			h.awaitDetached(v)
			h.data[v].before = nil
		}
	}
}

// change has a pod write to its volumes.
func (h *history) change() {
	if p := h.any(); p != nil {
		text := h.text()
		h.write(p, "data", text)
		for _, v := range p.volumes {
			c := h.data[v]
			c.before, c.now = append(c.before, c.now), text
		}
	}
}

// look notes what a pod sees that it shouldn't.
func (h *history) look() {
	for _, p := range h.running {
		for _, v := range p.volumes {
			c := h.data[v]
			text, err := h.read(p, v, "data")
			switch {
			case err != nil && c.now == "":
			case err == nil && text == c.now:
			case c.unsure && slices.Contains(c.before, text): // which is empty if there is no file
				c.now = text
			default:
				h.wrong("%s sees %q in the place of %q, %v", p.name, text, c.now, err)
			}
			c.unsure = false
		}
	}
}

func (h *history) enlarge() {
	if p := h.any(); p != nil {
		h.note("%s gets a larger volume", p.name)
		h.grow(p.volumes[0])
	}
}

// open has a process open a file, so that its volume can't be unstaged.
func (h *history) open() {
	p := h.any()
	if p == nil || h.process != nil || h.data[p.volumes[0]].now == "" {
		return
	}
	h.note("a process opens a file of %s", p.name)
	h.process = ask[simv1.Process](h.scenario, "StartProcess", &simv1.Process{
		Program: `C:\app\app.exe`, Paths: []string{p.file(p.volumes[0], "data")},
	})
	h.expect([]string{unstage})
}

// close ends the process.
func (h *history) close() {
	if h.process == nil {
		return
	}
	ask[simv1.Empty](h.scenario, "EndProcess", h.process)
	h.process = nil
}

// anyCrash returns one.
func (h *history) anyCrash() crash { return h.guarded(crashes[h.random.IntN(len(crashes))]) }

// guarded returns a crash for which all is ready. If it makes kubelet forget what it has to unstage,
// nothing is to be unstaged.
func (h *history) guarded(c crash) crash {
	if c.gentle && h.windows { // Linux can't ask Wine's programs to end
		c = daemonDies
	}
	if c.kubelet {
		h.close()
		for _, v := range h.volumes {
			if !h.using(v) {
				h.awaitDetached(v)
			}
		}
	}
	h.expect(append([]string{grow}, cycle...), append([]string{"VolumeResizeFailed", "FailedAttachVolume"}, kubeletStarts...)...)
	return c
}

// ended notes what has ended with Windows.
func (h *history) ended(c crash) {
	if !c.windows {
		return
	}
	h.process = nil
	for _, content := range h.data {
		content.unsure = true
	}
}

// loseDirectory has kubelet lose its directories of pods, which run on.
func (h *history) loseDirectory() { h.crash(h.guarded(directoryLost), h.running...) }

func (h *history) crashNow() {
	c := h.anyCrash()
	h.crash(c, h.running...)
	h.ended(c)
}

// crashLater has something crash in the middle of a call for a pod that starts or ends.
func (h *history) crashLater() {
	c, methods := h.anyCrash(), ofNode
	if c.windows {
		methods = beforeUnstage
	}
	disarm := h.crashDuring(c, methods[h.random.IntN(len(methods))])
	// When a pod with several volumes ends, kubelet may have one that it has only to unstage.
	p := h.any()
	if p == nil || c.kubelet && len(p.volumes) > 1 || h.random.IntN(2) == 0 {
		h.start()
	} else {
		h.endOne(p)
	}
	if at := disarm(); !at.IsZero() {
		h.back(c, at, h.running...)
		h.ended(c)
	}
}

// forget has the driver lose its records.
func (h *history) forget() {
	h.note("the driver loses its records")
	h.expect(append([]string{attach, detach}, ofNode...), failedMount)
	h.must(h.loseRecords())
}

// lose has the answer to the next call of a method be lost.
func (h *history) lose() {
	method := cycle[h.random.IntN(len(cycle))]
	h.note("the next answer to %s is lost", method)
	h.expect([]string{method}, failedMount, "FailedAttachVolume")
	h.loseAnswers(method)
}
