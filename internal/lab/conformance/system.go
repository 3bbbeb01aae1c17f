// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"google.golang.org/grpc/codes"
)

// Services that a Windows has, one at least.
var usualServices = []string{"EventLog", "RpcSs", "MSiSCSI"}

// States of services on the wire.
const (
	serviceStopped = 1
	serviceRunning = 4
)

var systemChecks = []Check{
	{
		Name: "system.bios-serial-number", Group: "system", Methods: []string{"GetBIOSSerialNumber"},
		Promise: "GetBIOSSerialNumber gives the serial number of the node's firmware, the same each time.",
		run: func(t *trial) {
			serial := t.do("GetBIOSSerialNumber", nil).text("serial_number")
			t.want(serial != "", "the serial number is empty")
			again := t.do("GetBIOSSerialNumber", nil).text("serial_number")
			t.want(serial == again, "the serial number is %q and then %q", serial, again)
		},
	},
	{
		Name: "system.service", Group: "system", Methods: []string{"GetService"},
		Promise: "GetService gives the name for people, the start type and the state of a Windows service.",
		run: func(t *trial) {
			for _, name := range usualServices {
				a, err := t.call("GetService", fields{"name": name})
				if err != nil {
					continue
				}
				t.want(a.text("display_name") != "" && a.number("status") != 0, "service %s: %v", name, a)
				return
			}
			t.failf("the node has none of the services %q", usualServices)
		},
	},
	{
		Name: "system.start-and-stop", Group: "system", Methods: []string{"StartService", "StopService", "GetService"},
		Promise: "StartService and StopService wait for the state, and may be repeated.",
		run: func(t *trial) {
			if t.Service == "" {
				t.notApplicable("it needs a Windows service that may be stopped: name one with --service")
			}
			service := fields{"name": t.Service}
			state := func() int64 { return t.do("GetService", service).number("status") }
			before := state()
			t.later(func() {
				if before == serviceRunning {
					t.do("StartService", service)
				} else {
					t.do("StopService", service)
				}
			})
			for _, step := range []struct {
				method string
				fields fields
				want   int64
			}{
				{"StartService", service, serviceRunning}, {"StartService", service, serviceRunning},
				{"StopService", service, serviceStopped}, {"StopService", service, serviceStopped},
				{"StartService", service, serviceRunning}, {"StopService", service.With("force", true), serviceStopped},
			} {
				t.do(step.method, step.fields)
				got := state()
				t.want(got == step.want, "after %s the service is in state %d, want %d", step.method, got, step.want)
			}
		},
	},
	{
		Name: "system.unknown-service", Group: "system", Methods: []string{"GetService", "StartService", "StopService"},
		Promise: "A service that doesn't exist is not found, in each call.",
		run: func(t *trial) {
			for _, method := range []string{"GetService", "StartService", "StopService"} {
				t.refused(codes.NotFound, method, fields{"name": unknownService})
			}
		},
	},
}
