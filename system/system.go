// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package system holds the words for the machine that the node is: Windows services,
// and the operations on the machine.
package system

// Status is the state of a service, with the numbers of the service manager.
type Status uint32

// States of a service.
const (
	Unknown         Status = 0
	Stopped         Status = 1
	StartPending    Status = 2
	StopPending     Status = 3
	Running         Status = 4
	ContinuePending Status = 5
	PausePending    Status = 6
	Paused          Status = 7
)

// StartType says when a service starts, with the numbers of the service manager.
type StartType uint32

// Start types of a service.
const (
	Boot      StartType = 0 // a driver that the boot loader starts
	System    StartType = 1 // a driver that the kernel starts
	Automatic StartType = 2 // when the node starts
	Manual    StartType = 3 // when somebody starts it
	Disabled  StartType = 4 // never
)

// Service is a Windows service.
type Service struct {
	DisplayName string
	StartType   StartType
	Status      Status
}
