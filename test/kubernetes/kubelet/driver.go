// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/csi-proxy/csi-proxy/test/kubernetes/kubelet/controlplane"
)

// A driver that ends is started again at once, and then after these times, as kubelet does with a
// container. Kubelet's own are longer: from 10 seconds to 5 minutes.
const (
	firstBackOff = time.Second
	lastBackOff  = 10 * time.Second
)

// driver is the driver's program, which is started again when it ends by itself.
type driver struct {
	start func() (*controlplane.Program, error)
	ended chan struct{} // closed when it has ended by itself for the first time
	stop  chan struct{}
	once  sync.Once
	done  chan struct{} // closed when nothing runs after stop

	mu      sync.Mutex
	program *controlplane.Program
}

func startDriver(start func() (*controlplane.Program, error)) (*driver, error) {
	program, err := start()
	if err != nil {
		return nil, err
	}
	d := &driver{start: start, ended: make(chan struct{}), stop: make(chan struct{}), done: make(chan struct{}), program: program}
	go d.keepUp()
	return d, nil
}

// keepUp starts the driver again until it is to stop.
func (d *driver) keepUp() {
	defer close(d.done)
	backOff := time.Duration(0)
	for again := false; ; again = true {
		program := d.current()
		select {
		case <-program.Exited():
		case <-d.stop:
			program.Kill()
			return
		}
		if !again {
			close(d.ended)
		}
		select {
		case <-time.After(backOff):
		case <-d.stop:
			return
		}
		backOff = min(max(firstBackOff, 2*backOff), lastBackOff)
		program, err := d.start()
		if err != nil {
			fmt.Fprintf(os.Stderr, "kubelet-lab: the driver isn't started again: %v\n", err)
			<-d.stop
			return
		}
		d.mu.Lock()
		d.program = program
		d.mu.Unlock()
	}
}

func (d *driver) current() *controlplane.Program {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.program
}

// Kill ends it without warning, for good.
func (d *driver) Kill() {
	if d == nil {
		return
	}
	d.once.Do(func() { close(d.stop) })
	<-d.done
}

// LastLog says where its log is, and how that ends.
func (d *driver) LastLog() string { return d.current().LastLog() }
