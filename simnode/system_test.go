// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simnode_test

import (
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/published"
	"github.com/csi-proxy/csi-proxy/simnode"
)

func TestSystem(t *testing.T) {
	n := simnode.New(t)
	ctx := t.Context()
	machine := n.Operations().System
	n.SetBIOSSerial("serial-1")
	if serial, err := machine.GetBIOSSerialNumber(ctx); err != nil || serial != "serial-1" {
		t.Errorf("serial number %q, %v", serial, err)
	}
	n.AddService(simnode.Service{Name: "base", DisplayName: "The base", Automatic: true, Running: true})
	n.AddService(simnode.Service{Name: "top", DependsOn: []string{"base"}, Running: true})
	n.AddService(simnode.Service{Name: "broken", StartError: 1069})
	n.AddService(simnode.Service{Name: "disabled", Disabled: true})
	for name, want := range map[string]published.Service{
		"base":     {DisplayName: "The base", StartType: published.StartTypeAutomatic, Status: published.ServiceRunning},
		"top":      {DisplayName: "top", StartType: published.StartTypeManual, Status: published.ServiceRunning},
		"disabled": {DisplayName: "disabled", StartType: published.StartTypeDisabled, Status: published.ServiceStopped},
	} {
		if s, err := machine.GetService(ctx, name); err != nil || s != want {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
	if number, _ := csiproxy.WindowsErrorOf(machine.StartService(ctx, "broken")); number != 1069 {
		t.Errorf("start of what can't: Windows error %d", number)
	}
	n.RemoveService("top")
	if err := machine.StopService(ctx, "base", false); err != nil {
		t.Errorf("stop of what nothing needs any longer: %v", err)
	}
}
