// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simnode

import (
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/services"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// Service is a Windows service. A new node has some services, such as MSiSCSI (stopped) and kubelet
// (running).
type Service struct {
	Name        string
	DisplayName string // default: Name
	// Automatic: the service starts when the node starts. Disabled: every start fails. The default
	// is a manual start.
	Automatic, Disabled bool
	DependsOn           []string // names of services that must run before it starts
	Running             bool
	// StartError is the Windows error number with which the service's start fails, such as 1053 or
	// 1069, or with which the service stops while starting, such as 1066. 0: the start succeeds.
	StartError uint32
}

// AddService adds a service.
func (n *Node) AddService(s Service) {
	n.helper()
	spec := services.Spec{
		Name: s.Name, DisplayName: s.DisplayName, StartType: win.ServiceDemandStart,
		DependsOn: s.DependsOn, Running: s.Running, StartError: winerr.Errno(s.StartError),
	}
	switch {
	case s.Disabled:
		spec.StartType = win.ServiceDisabled
	case s.Automatic:
		spec.StartType = win.ServiceAutoStart
	}
	n.must(n.sys.Services().Add(spec))
}

// RemoveService removes a service in any state.
func (n *Node) RemoveService(name string) {
	n.helper()
	n.must(n.sys.Services().Remove(name))
}

// SetBIOSSerial changes the serial number in the node's firmware: up to 64 printable ASCII
// characters, or "" for a firmware without a serial number. A new node's serial number has the form
// of a virtual machine's on vSphere: "VMware-56 4d …".
func (n *Node) SetBIOSSerial(serial string) {
	n.helper()
	n.must(n.sys.SetBIOSSerial(serial))
}
