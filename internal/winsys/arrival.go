// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import "time"

// pollInterval is how often device interfaces are listed where Windows gives no
// notice of arrivals.
const pollInterval = time.Second

// poll signals changed whenever list differs from what it was before, until stop is
// closed. An error of list is passed over: nobody knows yet what is there.
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
		now, listErr := list()
		if listErr != nil {
			continue
		}
		if err != nil || !sameInterfaces(known, now) {
			signal(changed)
		}
		known, err = now, nil
	}
}

// signal leaves a notice, unless there is one that wasn't taken yet.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
