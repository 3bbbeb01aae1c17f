// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import "time"

// pollInterval is how often device interfaces are listed if Windows sends no notices
// of arrivals.
const pollInterval = time.Second

// poll signals changed whenever the result of list has changed, until stop is closed.
// It ignores errors of list, and tries again.
func poll(list func() ([]string, error), changed chan<- struct{}, stop <-chan struct{}) {
	known, err := list()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-stop:
			return
		}
		interfaces, listErr := list()
		if listErr != nil {
			continue
		}
		if err != nil || !sameInterfaces(known, interfaces) {
			signal(changed)
		}
		known, err = interfaces, nil
	}
}

// signal sends a notice, unless the previous one wasn't received yet.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
