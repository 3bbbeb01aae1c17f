// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	systemv1alpha1 "github.com/kubernetes-csi/csi-proxy/client/api/system/v1alpha1"
)

// Every method of every version of the system group: what it does, and how it fails.
func TestSystem(t *testing.T) {
	t.Parallel()
	for _, v := range versionsOf("system", "GetService") {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			c := n.client(v)
			t.Run("GetBIOSSerialNumber", func(t *testing.T) { testBIOS(n.in(t), c.in(t)) })
			t.Run("services", func(t *testing.T) { testServices(n.in(t), c.in(t)) })
			t.Run("dependents", func(t *testing.T) { testDependents(n.in(t), c.in(t)) })
			t.Run("names", func(t *testing.T) { testServiceNames(n.in(t), c.in(t)) })
			c.wantAllSeen()
		})
	}
}

func testBIOS(n *node, c *client) {
	for _, serial := range []string{"VMware-56 4d 0f 1e 2d 3c 4b 5a-69 78 87 96 a5 b4 c3 d2", "", "7"} {
		n.simCall("SetBiosSerial", fields{"serial_number": serial})
		if got := c.succeed("GetBIOSSerialNumber", nil).text("serial_number"); got != serial {
			c.t.Errorf("the serial number is %q, want %q", got, serial)
		}
	}
	n.failNext("GetSystemFirmwareTable", errorAccessDenied)
	c.fail(codes.PermissionDenied, "GetBIOSSerialNumber", nil)
}

// serviceState is a service as GetService tells of it.
type serviceState struct {
	name          string
	start, status int
}

// The numbers of the service manager.
const (
	automatic, manual, disabled = 2, 3, 4
	stopped, running            = 1, 4
)

func (c *client) wantService(name string, want serviceState) {
	c.t.Helper()
	a := c.succeed("GetService", fields{"name": name})
	got := serviceState{a.text("display_name"), int(a.get("start_type").Enum()), int(a.get("status").Enum())}
	if got != want {
		c.t.Errorf("the service %s is %+v, want %+v", name, got, want)
	}
}

// addService adds a service; its start type is demand start unless more has one.
func addService(n *node, name string, more fields) {
	n.t.Helper()
	n.simCall("AddService", more.with("name", name))
}

func testServices(n *node, c *client) {
	addService(n, "plain", fields{"display_name": "A plain service"})
	addService(n, "off", fields{"start_type": uint32(disabled)})
	addService(n, "auto", fields{"start_type": uint32(automatic), "running": true})
	addService(n, "mute", fields{"start_error": uint32(errorServiceRequestTimeout)})
	addService(n, "locked out", fields{"start_error": uint32(errorServiceLogonFailed)})
	addService(n, "failing", fields{"start_error": uint32(errorServiceSpecificError)})
	c.wantService("plain", serviceState{"A plain service", manual, stopped})
	c.wantService("PLAIN", serviceState{"A plain service", manual, stopped})
	c.wantService("off", serviceState{"off", disabled, stopped})
	c.wantService("auto", serviceState{"auto", automatic, running})
	for range 2 { // the second time it runs already
		c.succeed("StartService", fields{"name": "plain"})
		c.wantService("plain", serviceState{"A plain service", manual, running})
	}
	for range 2 { // the second time it is stopped already
		c.succeed("StopService", fields{"name": "plain"})
		c.wantService("plain", serviceState{"A plain service", manual, stopped})
	}
	c.fail(codes.FailedPrecondition, "StartService", fields{"name": "off"})
	c.fail(codes.Unavailable, "StartService", fields{"name": "mute"})
	c.fail(codes.FailedPrecondition, "StartService", fields{"name": "locked out"})
	c.fail(codes.FailedPrecondition, "StartService", fields{"name": "failing"})
	c.wantService("failing", serviceState{"failing", manual, stopped})
}

func testDependents(n *node, c *client) {
	addService(n, "base", nil)
	addService(n, "middle", fields{"depends_on": []string{"base"}})
	addService(n, "top", fields{"depends_on": []string{"middle"}})
	c.succeed("StartService", fields{"name": "top"}) // and those below it
	for _, name := range []string{"base", "middle", "top"} {
		c.wantService(name, serviceState{name, manual, running})
	}
	c.fail(codes.FailedPrecondition, "StopService", fields{"name": "base"})
	for _, name := range []string{"base", "middle", "top"} {
		c.wantService(name, serviceState{name, manual, running})
	}
	for range 2 {
		c.succeed("StopService", fields{"name": "base", "force": true})
		for _, name := range []string{"base", "middle", "top"} {
			c.wantService(name, serviceState{name, manual, stopped})
		}
	}
}

func testServiceNames(n *node, c *client) {
	for _, method := range []string{"GetService", "StartService", "StopService"} {
		c.fail(codes.NotFound, method, fields{"name": "none"})
		c.fail(codes.NotFound, method, fields{"name": "x' OR Name LIKE '%"})
		for _, name := range []string{"", `a\b`, "a/b", "a\x00b"} {
			c.fail(codes.InvalidArgument, method, fields{"name": name})
		}
	}
}

// A service that hangs while it starts keeps its caller no longer than that wants.
func TestServiceHangs(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	addService(n, "slow", nil)
	n.hangNext("StartServiceW")
	system := systemv1alpha1.NewSystemClient(n.mustDial("system", "v1alpha1"))
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_, err := system.StartService(ctx, &systemv1alpha1.StartServiceRequest{Name: "slow"})
	if status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("starting it gives %v, want %v", err, codes.DeadlineExceeded)
	}
	const startPending = 2
	c := n.client(version{"system", "v1alpha1", systemv1alpha1.NewSystemClient})
	c.wantService("slow", serviceState{"slow", manual, startPending})
}
