// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package winsim is a simulated Windows node: the storage stack below the seam of
// package win, in memory, for any operating system.
//
// From the bottom up it has hardware (disks on storage adapters, with their
// identifiers and a sparse image of their bytes), a partition manager that reads
// and writes real partition tables on those images, a volume manager with
// asynchronous arrival, NTFS volumes with their namespaces, a mount manager, and
// the resolution of whole paths over drive letters, links and mount points.
//
// Beside that stack there are parts in packages of their own, which know nothing of
// each other or of System: the SMB servers and mappings (smbserver), the iSCSI
// initiator and the targets on its network (iscsitarget), and the service manager
// (services). System wires them: it opens \\server\share as the file system that
// smbserver gives, makes the LUNs of targets disks of the node, and lets the initiator
// work while its service runs.
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
//     supply do; those of the parts are behind SMB, ISCSI and Services
//   - rules and hooks, which make calls fail, take time, or meet a change while they
//     are under way
//
// With a state file the node outlives the process: what a call changed is in the
// file when the call returns.
package winsim
