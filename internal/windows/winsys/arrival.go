// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import "time"

// pollInterval is the interval for listing device interfaces if Windows sends no notices of
// arrivals.
const pollInterval = time.Second

// poll signals changed whenever the result of list has changed, until stop is closed. After an
// error of list, poll tries again.
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

// signal sends a notice, or merges it with an unreceived previous notice.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
