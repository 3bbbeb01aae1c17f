// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubernetes-csi/csi-proxy/v2/pkg/wmi"
)

func TestWaitUntilServiceState(t *testing.T) {
	refused := errors.New("refused")
	for name, test := range map[string]struct {
		doneAt     int // the check that says so
		transition error
		took       time.Duration
		fails      bool
	}{
		"already":      {1, refused, 0, false},
		"refused":      {2, refused, 0, true},
		"at the third": {3, nil, 2 * time.Second, false},
		"never":        {100, nil, 5 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				checks, start := 0, time.Now()
				check := func(*wmi.Scope, wmi.ServiceInterface, string) (bool, string, error) {
					checks++
					return checks == test.doneAt, "Some", nil
				}
				state, err := ServiceManagerImpl{}.WaitUntilServiceState(nil, nil,
					func(*wmi.Scope, wmi.ServiceInterface) error { return test.transition }, check, time.Second, 5*time.Second)
				if state != "Some" || (err != nil) != test.fails || time.Since(start) != test.took {
					t.Errorf("%q, %v, after %v", state, err, time.Since(start))
				}
			})
		})
	}
}
