// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

func formattedDisk(t *testing.T, sim *winsim.System, spec winsim.DiskSpec) csiproxy.DiskNumber {
	n := attach(t, sim, spec)
	simtest.Partition(t, sim, n, 1)
	sim.Settle()
	simtest.Must(t, sim.FormatVolume(t.Context(), sim.VolumesOfDisk(n)[0], win.FormatOptions{FileSystem: "NTFS"}))
	return n
}

// blocking are the attributes that keep a disk from being used.
const diskBlocking = win.DiskOffline | win.DiskReadOnly

func setAttributes(t *testing.T, sim *winsim.System, n csiproxy.DiskNumber, attributes win.DiskAttributes) {
	simtest.Must(t, sim.SetDiskAttributes(n, win.SetDiskAttributes{Attributes: attributes, Mask: diskBlocking}))
}

// subject is a disk of a node that an operation is about.
type diskSubject struct {
	*nodeops.Disks
	n csiproxy.DiskNumber
}

// An error at any call to Windows of any operation reaches the caller, apart from few that
// don't matter, and nothing is left half-done that the operation doesn't complete when it is repeated.
func TestErrorAtEachCallOfDisks(t *testing.T) {
	raw := func(t *testing.T, sim *winsim.System) csiproxy.DiskNumber {
		return attach(t, sim, winsim.DiskSpec{Offline: true, ReadOnly: true})
	}
	online := func(t *testing.T, sim *winsim.System) csiproxy.DiskNumber {
		return formattedDisk(t, sim, winsim.DiskSpec{})
	}
	offline := func(t *testing.T, sim *winsim.System) csiproxy.DiskNumber {
		n := online(t, sim)
		setAttributes(t, sim, n, diskBlocking)
		return n
	}
	staged := func(attributes win.DiskAttributes) func(t *testing.T, sim *winsim.System) csiproxy.DiskNumber {
		return func(t *testing.T, sim *winsim.System) csiproxy.DiskNumber {
			n := online(t, sim)
			simtest.Mount(t, sim, simtest.Kubelet+`\mnt`, sim.VolumesOfDisk(n)[0])
			setAttributes(t, sim, n, attributes)
			return n
		}
	}
	copied := func(t *testing.T, sim *winsim.System) csiproxy.DiskNumber { return clone(t, sim, online(t, sim)) }
	setState := func(online bool) func(ctx context.Context, s diskSubject) (any, error) {
		return func(ctx context.Context, s diskSubject) (any, error) {
			return nil, s.SetDiskState(ctx, s.n, online)
		}
	}
	partition := func(ctx context.Context, s diskSubject) (any, error) {
		return nil, s.PartitionDisk(ctx, s.n)
	}
	hardware, describe := (*nodeops.Disks).Hardware, (*nodeops.Disks).Describe
	list := func(list func(*nodeops.Disks, context.Context, csiproxy.Selector) ([]csiproxy.Disk, error),
		wanted csiproxy.Selector) func(ctx context.Context, s diskSubject) (any, error) {
		return func(ctx context.Context, s diskSubject) (any, error) {
			all, err := list(s.Disks, ctx, wanted)
			for _, d := range all {
				if d.Error != "" {
					return nil, csiproxy.Errorf(csiproxy.ErrUnavailable, "%s", d.Error)
				}
			}
			text, _ := json.Marshal(all)
			return string(text), err
		}
	}
	// Which is asked for again.
	const arrival = "CM_Register_Notification, CreateFileW, 3 GetVolumeNameForVolumeMountPointW, " +
		"IOCTL_DISK_ARE_VOLUMES_READY"
	const attributes, changed = "IOCTL_DISK_GET_DISK_ATTRIBUTES", "2 IOCTL_DISK_SET_DISK_ATTRIBUTES, IOCTL_DISK_UPDATE_PROPERTIES, " +
		"IOCTL_STORAGE_GET_DEVICE_NUMBER, IOCTL_STORAGE_QUERY_PROPERTY"
	// A volume that can't be used is for the calls that need it.
	const arrivalOnline = "CM_Register_Notification, CreateFileW, GetVolumeInformationW, 3 GetVolumeNameForVolumeMountPointW, " +
		"IOCTL_DISK_ARE_VOLUMES_READY, " + attributes + ", IOCTL_DISK_GET_DRIVE_LAYOUT_EX, " + changed
	operations := make(map[string]func(t *testing.T) simtest.Attempt)
	for name, c := range map[string]struct {
		disk    func(t *testing.T, sim *winsim.System) csiproxy.DiskNumber
		operate func(ctx context.Context, s diskSubject) (any, error)
		passed  string // the calls whose errors don't reach the caller
	}{
		"GetDiskStats": {disk: online, operate: func(ctx context.Context, s diskSubject) (any, error) {
			return s.GetDiskStats(ctx, s.n)
		}, passed: "IOCTL_STORAGE_QUERY_PROPERTY"},
		"GetDiskState": {disk: online, operate: func(ctx context.Context, s diskSubject) (any, error) {
			return s.GetDiskState(ctx, s.n)
		}, passed: "IOCTL_STORAGE_QUERY_PROPERTY"},
		"online":           {disk: offline, operate: setState(true), passed: arrivalOnline},
		"online of a copy": {disk: copied, operate: setState(true), passed: arrivalOnline},
		"online, read-only": {disk: staged(win.DiskReadOnly), operate: setState(true),
			passed: "GetVolumeInformationW, 2 GetVolumeNameForVolumeMountPointW"},
		"online, was staged": {disk: staged(diskBlocking), operate: setState(true),
			passed: arrivalOnline},
		// A broken disk must get offline.
		"offline": {disk: online, operate: setState(false), passed: "CreateFileW, FlushFileBuffers, " +
			"GetVolumeNameForVolumeMountPointW, GetVolumePathNamesForVolumeNameW, " +
			"IOCTL_DISK_GET_DRIVE_LAYOUT_EX, IOCTL_STORAGE_GET_DEVICE_NUMBER, " +
			"IOCTL_STORAGE_QUERY_PROPERTY"},
		"offline, mounted": {disk: staged(0), operate: func(ctx context.Context, s diskSubject) (any, error) {
			err := s.SetDiskState(ctx, s.n, false)
			if csiproxy.KindOf(err) == csiproxy.ErrFailedPrecondition {
				return "refused", nil
			}
			return nil, err
		}, passed: "CreateFileW, FSCTL_GET_REPARSE_POINT, GetVolumeNameForVolumeMountPointW, " +
			"GetVolumePathNamesForVolumeNameW, IOCTL_DISK_GET_DRIVE_LAYOUT_EX, " +
			"IOCTL_STORAGE_GET_DEVICE_NUMBER, 2 IOCTL_STORAGE_QUERY_PROPERTY, NtCreateFile"},
		"PartitionDisk": {disk: raw, operate: partition, passed: arrival + ", IOCTL_DISK_CREATE_DISK, " + attributes +
			", IOCTL_DISK_GET_DRIVE_LAYOUT_EX, 2 IOCTL_DISK_SET_DISK_ATTRIBUTES, IOCTL_DISK_SET_DRIVE_LAYOUT_EX, " +
			"3 IOCTL_DISK_UPDATE_PROPERTIES, IOCTL_STORAGE_GET_DEVICE_NUMBER, IOCTL_STORAGE_QUERY_PROPERTY"},
		"PartitionDisk, read-only": {disk: staged(win.DiskReadOnly), operate: partition,
			passed: "2 GetVolumeNameForVolumeMountPointW"},
		"PartitionDisk, without automatic mounting": {disk: func(t *testing.T, sim *winsim.System) csiproxy.DiskNumber {
			simtest.Must(t, sim.SetSettings(winsim.Settings{NoAutomount: true}))
			return attach(t, sim, winsim.DiskSpec{})
		}, operate: partition, passed: arrival + ", IOCTL_DISK_CREATE_DISK, IOCTL_DISK_SET_DRIVE_LAYOUT_EX, " +
			"2 IOCTL_DISK_UPDATE_PROPERTIES, RegGetValueW"},
		// A sick disk keeps no other from being seen. One that refuses to say what it is isn't known as a
		// container's scratch disk.
		"Rescan": {disk: online, operate: func(ctx context.Context, s diskSubject) (any, error) {
			return nil, s.Rescan(ctx)
		}, passed: "2 CM_Reenumerate_DevNode, 4 CreateFileW, 2 IOCTL_DISK_UPDATE_DRIVE_SIZE, " +
			"2 IOCTL_DISK_UPDATE_PROPERTIES, 2 IOCTL_STORAGE_QUERY_PROPERTY"},
		"ListDiskIDs": {disk: online, operate: func(ctx context.Context, s diskSubject) (any, error) {
			return s.ListDiskIDs(ctx)
		}, passed: "2 CreateFileW partly, 2 IOCTL_STORAGE_GET_DEVICE_NUMBER partly, " +
			"4 IOCTL_STORAGE_QUERY_PROPERTY partly"},
		"ListDiskLocations": {disk: online, operate: func(ctx context.Context, s diskSubject) (any, error) {
			return s.ListDiskLocations(ctx)
		}, passed: "CreateFileW, CreateFileW partly, " +
			"IOCTL_STORAGE_GET_DEVICE_NUMBER, IOCTL_STORAGE_GET_DEVICE_NUMBER partly, " +
			"3 IOCTL_STORAGE_QUERY_PROPERTY, IOCTL_STORAGE_QUERY_PROPERTY partly"},
		"States": {disk: offline, operate: func(ctx context.Context, s diskSubject) (any, error) {
			online, offline, err := s.States(ctx)
			return []int{len(online), offline}, err
		}, passed: "2 CreateFileW partly, 2 IOCTL_DISK_GET_DISK_ATTRIBUTES partly, " +
			"2 IOCTL_STORAGE_GET_DEVICE_NUMBER partly, 2 IOCTL_STORAGE_QUERY_PROPERTY"},
		"AllOnline": {disk: online, operate: func(ctx context.Context, s diskSubject) (any, error) {
			return s.AllOnline(ctx, "")
		}, passed: "2 IOCTL_STORAGE_QUERY_PROPERTY"},
		"Hardware": {disk: online, operate: list(hardware, csiproxy.Selector{}), passed: "2 CreateFileW partly, " +
			"2 IOCTL_SCSI_GET_ADDRESS partly, 2 IOCTL_STORAGE_GET_DEVICE_NUMBER partly, " +
			"6 IOCTL_STORAGE_QUERY_PROPERTY partly"},
		"Hardware of one": {disk: online, operate: list(hardware, csiproxy.Selector{SerialNumber: "SIM00000001"}),
			passed: "CreateFileW, CreateFileW partly, IOCTL_STORAGE_GET_DEVICE_NUMBER, " +
				"IOCTL_STORAGE_GET_DEVICE_NUMBER partly, IOCTL_STORAGE_QUERY_PROPERTY, IOCTL_STORAGE_QUERY_PROPERTY partly"},
		"Describe": {disk: online, operate: list(describe, csiproxy.Selector{}), passed: "2 CreateFileW partly, " +
			"2 GetVolumeInformationW partly, " +
			"3 GetVolumeNameForVolumeMountPointW partly, " +
			"2 GetVolumePathNamesForVolumeNameW partly, 2 IOCTL_SCSI_GET_ADDRESS partly, " +
			"2 IOCTL_STORAGE_GET_DEVICE_NUMBER partly, " +
			"6 IOCTL_STORAGE_QUERY_PROPERTY partly"},
		"Describe a copy": {disk: copied, operate: list(describe, csiproxy.Selector{SerialNumber: "SIM00000002"}),
			passed: "4 CreateFileW, 2 CreateFileW partly, " +
				"2 IOCTL_DISK_GET_DISK_ATTRIBUTES, IOCTL_DISK_GET_DISK_ATTRIBUTES partly, " +
				"IOCTL_DISK_GET_DRIVE_LAYOUT_EX, IOCTL_DISK_GET_DRIVE_LAYOUT_EX partly, " +
				"IOCTL_SCSI_GET_ADDRESS partly, 4 IOCTL_STORAGE_GET_DEVICE_NUMBER, " +
				"2 IOCTL_STORAGE_GET_DEVICE_NUMBER partly, 5 IOCTL_STORAGE_QUERY_PROPERTY, " +
				"3 IOCTL_STORAGE_QUERY_PROPERTY partly"},
	} {
		operations[name] = func(t *testing.T) simtest.Attempt {
			sim := simtest.Open(t, winsim.Delays{VolumeArrival: time.Millisecond})
			s := diskSubject{groupsOf(t, sim, nodeops.Options{}).Disks, c.disk(t, sim)}
			return simtest.Attempt{Sys: sim, Run: func(ctx context.Context) (any, error) { return c.operate(ctx, s) },
				State: func() any { return simtest.State(sim) }, Passed: &c.passed}
		}
	}
	simtest.ErrorAtEachCall(t, operations)
}
