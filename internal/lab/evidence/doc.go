// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package evidence has tests that compare our code with what Windows and other programs did on real
// machines. testdata/disks.json has what Windows' partition manager wrote into public event logs for
// each disk: how it is connected, its names, and its partition table as
// IOCTL_DISK_GET_DRIVE_LAYOUT_EX returned it. testdata/traces.txt has the calls of other programs
// that run on Windows.
package evidence
