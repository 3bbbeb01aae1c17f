// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package winsim is a simulated Windows node: the storage stack below the seam of
// package win, in memory, for any operating system.
//
// Its parts are packages of their own. From the bottom up, disks has the hardware, the disk
// driver and the partition manager, volumes the volume manager and the mount manager, and
// paths the way from a path to a file. Beside these, smbserver has the SMB servers and
// mappings, iscsitarget the iSCSI initiator and the targets on its network, and services the
// service manager. A part knows those below it at most, and never System.
//
// System has what is open, processes, the registry and the firmware. It hands each call to
// its part, and wires the parts: it opens \\server\share as the file system that smbserver
// gives, makes the LUNs of targets disks of the node, lets volumes follow their disks, and
// lets the initiator work while its service runs.
//
// Each call answers as the contract of package win promises, with the Windows error
// number that the documentation or a public observation gives for it; package seamtest is
// the suite over that. What nobody has promised is marked with "Guess:" in the code. Where
// the code above the seam must be able to live with more than one answer, it is a switch
// of Settings.
//
// System has three groups of methods:
//   - the seam, which the node operations use
//   - control calls, for what the cloud, the administrator, the pods and the power
//     supply do; those of the parts beside are behind SMB, ISCSI and Services
//   - rules and hooks, which make calls fail, take time, or meet a change while they
//     are under way
//
// With a state file the node outlives the process: what a call changed is in the
// file when the call returns.
package winsim
