// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
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
	start   func() (*controlplane.Program, error)
	program atomic.Pointer[controlplane.Program]
	ended   context.Context // is done when it has ended by itself for the first time
	stop    context.CancelFunc
	stopped chan struct{} // closed when nothing runs after stop
}

func startDriver(start func() (*controlplane.Program, error)) (*driver, error) {
	program, err := start()
	if err != nil {
		return nil, err
	}
	d := &driver{start: start, stopped: make(chan struct{})}
	d.program.Store(program)
	var running context.Context
	running, d.stop = context.WithCancel(context.Background())
	var end context.CancelFunc
	d.ended, end = context.WithCancel(context.Background())
	go func() {
		defer close(d.stopped)
		d.keepUp(running, end)
		d.program.Load().Kill()
	}()
	return d, nil
}

// keepUp starts the driver again until it is to stop.
func (d *driver) keepUp(running context.Context, end context.CancelFunc) {
	for backOff := time.Duration(0); ; backOff = min(max(firstBackOff, 2*backOff), lastBackOff) {
		select {
		case <-d.program.Load().Exited():
			end()
		case <-running.Done():
			return
		}
		select {
		case <-time.After(backOff):
		case <-running.Done():
			return
		}
		program, err := d.start()
		if err != nil {
			fmt.Fprintf(os.Stderr, "kubelet-lab: the driver isn't started again: %v\n", err)
			return
		}
		d.program.Store(program)
	}
}

// Kill ends it without warning, for good.
func (d *driver) Kill() {
	if d == nil {
		return
	}
	d.stop()
	<-d.stopped
}

// LastLog says where its log is, and how that ends.
func (d *driver) LastLog() string { return d.program.Load().LastLog() }
