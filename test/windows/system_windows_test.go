// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package windows

import (
	"strings"
	"testing"

	"golang.org/x/sys/windows/svc"
	"golang.org/x/sys/windows/svc/mgr"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// The system group against Windows itself.
func TestNativeSystem(t *testing.T) {
	s := install(t)
	s.start()
	t.Run("service", func(t *testing.T) { nativeService(t, s) })
	t.Run("stop and start", nativeStopAndStart)
	t.Run("BIOS", nativeBIOS)
}

// The daemon tells of its own service, and takes no other name for one.
func nativeService(t *testing.T, s *service) {
	c := newest(t, "system")
	got := c.call("GetService", fields{"name": s.Name})
	name, kind, state := got.get("display_name").String(), got.get("start_type").Enum(), got.get("status").Enum()
	if name != s.displayName || kind != mgr.StartManual || state != protoreflect.EnumNumber(svc.Running) {
		t.Errorf("the service is %q, start type %d, in state %d", name, kind, state)
	}
	c.call("StartService", fields{"name": s.Name}) // it runs already
	for _, method := range []string{"GetService", "StartService", "StopService"} {
		c.fail(codes.NotFound, method, fields{"name": "csi-proxy-no-such-service"})
		c.fail(codes.InvalidArgument, method, fields{"name": ""})
	}
}

// The installer's service, which ends by itself too when it has nothing to do.
func nativeStopAndStart(t *testing.T) {
	const name = "msiserver"
	c := newest(t, "system")
	state := func() svc.State {
		t.Helper()
		got := c.call("GetService", fields{"name": name})
		if onWine() {
			return svc.State(got.get("status").Enum())
		}
		var want []struct {
			DisplayName       string
			Status, StartType protoreflect.EnumNumber
		}
		powershell(t, &want, "Get-Service %s | Select-Object "+
			"DisplayName,@{n='Status';e={[int]$_.Status}},@{n='StartType';e={[int]$_.StartType}}", name)
		if len(want) != 1 || got.get("display_name").String() != want[0].DisplayName ||
			got.get("status").Enum() != want[0].Status || got.get("start_type").Enum() != want[0].StartType {
			t.Errorf("GetService says %v, Get-Service says %+v", got.m, want)
		}
		return svc.State(got.get("status").Enum())
	}
	afterwards := "StartService"
	if state() != svc.Running {
		afterwards = "StopService"
	}
	t.Cleanup(func() {
		if _, err := c.try(afterwards, fields{"name": name}); err != nil {
			t.Error(err)
		}
	})
	for range 2 {
		c.call("StopService", fields{"name": name})
	}
	if got := state(); got != svc.Stopped {
		t.Errorf("in state %d after StopService", got)
	}
	for range 2 {
		c.call("StartService", fields{"name": name})
	}
	if got := state(); got != svc.Running {
		t.Errorf("in state %d after StartService", got)
	}
}

func nativeBIOS(t *testing.T) {
	got := newest(t, "system").call("GetBIOSSerialNumber", nil).get("serial_number").String()
	if onWine() {
		return // whose firmware is made up, also that of WMI
	}
	var bios []struct{ SerialNumber string }
	powershell(t, &bios, "Get-CimInstance Win32_BIOS | Select-Object SerialNumber")
	if len(bios) != 1 || got != strings.TrimRight(bios[0].SerialNumber, " ") {
		t.Errorf("the serial number is %q, Windows says %+v", got, bios)
	}
}
