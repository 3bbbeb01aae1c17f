// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package winsim is a simulated Windows node: the storage stack below the seam of
// package win, in memory, for any operating system.
//
// From the bottom up it has hardware (disks on storage adapters, with their
// identifiers and a sparse image of their bytes), a partition manager that reads
// and writes real partition tables on those images, a volume manager with
// asynchronous arrival, NTFS volumes with their namespaces, a mount manager, and
// the resolution of whole paths over drive letters, links and mount points. Beside
// that stack there are the service manager, the firmware, the iSCSI initiator
// with the targets on its network, whose LUNs are disks of the node, and the SMB
// redirector with the servers and shares that paths lead to.
//
// Each call answers with the Windows error number that the documentation or a
// public observation gives for it. System has three faces: the seam, which the
// node operations use; control calls, which play the cloud, the administrator,
// the pods and the power supply; and rules and hooks, which make calls fail, take
// time, or meet a change in their middle.
//
// With a state file the node outlives the process: what a call changed is in the
// file when the call returns.
package winsim
