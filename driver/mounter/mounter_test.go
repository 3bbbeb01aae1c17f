// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package mounter_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	mount "k8s.io/mount-utils"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/driver/mounter"
	"github.com/csi-proxy/csi-proxy/simnode"
)

// Paths as kubelet writes them: staging paths without a drive.
const (
	staging = `\var\lib\kubelet\plugins\kubernetes.io\csi\disk.example.com\0123\globalmount`
	target  = `c:\var\lib\kubelet\pods\4567\volumes\kubernetes.io~csi\pv-1\mount`
	other   = `c:\var\lib\kubelet\pods\89ab\volumes\kubernetes.io~csi\pv-1\mount`
)

// both runs a test in process and over the daemon's endpoints.
func both(t *testing.T, test func(t *testing.T, sim *simnode.Node, m *mounter.Mounter)) {
	t.Run("node", func(t *testing.T) {
		sim := simnode.New(t)
		n := sim.Operations()
		test(t, sim, mounter.New(mounter.Operations{Disk: n.Disk, Filesystem: n.Filesystem, Storage: n.Storage}))
	})
	t.Run("client", func(t *testing.T) {
		sim := simnode.New(t)
		c := sim.Client()
		test(t, sim, mounter.New(mounter.Operations{Disk: c.Disk, Filesystem: c.Filesystem, Storage: c.Storage}))
	})
}

func TestNewWithoutOperations(t *testing.T) {
	all := simnode.New(t).Operations()
	for want, o := range map[string]mounter.Operations{
		"mounter: Operations.Disk is missing":       {Filesystem: all.Filesystem, Storage: all.Storage},
		"mounter: Operations.Filesystem is missing": {Disk: all.Disk, Storage: all.Storage},
		"mounter: Operations.Storage is missing":    {Disk: all.Disk, Filesystem: all.Filesystem},
	} {
		func() {
			defer func() {
				if got := recover(); got != want {
					t.Errorf("panic %v, want %q", got, want)
				}
			}()
			mounter.New(o)
		}()
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func isMountPoint(t *testing.T, m mount.Interface, path string, want bool) {
	t.Helper()
	is, err := m.IsMountPoint(path)
	not, notErr := m.IsLikelyNotMountPoint(path)
	if is != want || not == want || err != nil || notErr != nil {
		t.Errorf("%s is a mount point: %t, %v; is none: %t, %v; want %t", path, is, err, not, notErr, want)
	}
}

func refused(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, csiproxy.ErrFailedPrecondition) {
		t.Errorf("%s gave %v", what, err)
	}
}

// Unmount of a staging path takes the disk offline, unless the driver wants it online.
func TestKeepOnline(t *testing.T) {
	both(t, func(t *testing.T, sim *simnode.Node, m *mounter.Mounter) {
		number := sim.AttachDisk(simnode.Disk{Serial: "vol-1", SizeBytes: 10 << 30})
		for _, keep := range []bool{true, false} {
			d := m
			if keep {
				d = m.KeepOnline().WithContext(t.Context())
			}
			must(t, d.FormatAndMount(number.String(), staging, "ntfs", nil))
			must(t, d.Mount(staging, target, "", nil))
			refused(t, "Unmount of a published volume", d.Unmount(staging))
			for _, path := range []string{target, staging, staging} {
				must(t, d.Unmount(path))
			}
			if online, err := m.Disk.GetDiskState(t.Context(), number); online != keep || err != nil {
				t.Errorf("online: %t, %v; kept online: %t", online, err, keep)
			}
		}
	})
}

// A volume's life in the order of the EBS driver's calls, each of them twice.
func TestEBS(t *testing.T) {
	both(t, func(t *testing.T, sim *simnode.Node, m *mounter.Mounter) {
		d := ebs{m}
		sim.AttachDisk(simnode.Disk{Serial: "vol0abc1234def567890", SizeBytes: 10 << 30})
		var device string
		for range 2 { // NodeStageVolume
			exists, err := d.PathExists(staging)
			must(t, err)
			if !exists {
				must(t, d.MakeDir(staging))
			}
			staged, _, err := d.GetDeviceNameFromMount(staging)
			must(t, err)
			device, err = d.FindDevicePath("/dev/xvdaa", "vol-0abc1234def567890", "", "")
			must(t, err)
			if staged != "" && staged != device {
				t.Fatalf("device %s is mounted, not %s", staged, device)
			}
			must(t, d.FormatAndMountSensitiveWithFormatOptions(device, staging, "ntfs", nil, nil, nil))
			_, err = d.Resize(device, staging, 10<<30)
			must(t, err)
		}
		for range 2 { // NodePublishVolume
			must(t, d.PreparePublishTarget(target))
			must(t, d.Mount(staging, target, "ntfs", []string{"bind"}))
		}
		isMountPoint(t, d, staging, true)
		isMountPoint(t, d, target, true)
		must(t, sim.WriteFile(target+`\data`, []byte("kept")))

		sim.GrowDisk(1, 20<<30) // NodeExpandVolume
		grown, err := d.Resize(device, target, 20<<30)
		must(t, err)
		size, err := d.GetBlockSizeBytes(device)
		must(t, err)
		stats, err := d.GetVolumeStats(target)
		must(t, err)
		if !grown || size != 20<<30 || stats.TotalBytes < 19<<30 || stats.UsedBytes+stats.AvailableBytes != stats.TotalBytes {
			t.Errorf("grown: %t; the disk has %d bytes, and the file system %+v", grown, size, stats)
		}

		refused(t, "Unstage of a published volume", d.Unstage(staging))
		isMountPoint(t, d, target, true)
		for range 2 { // NodeUnpublishVolume, NodeUnstageVolume
			must(t, d.Unpublish(target))
		}
		for range 2 {
			must(t, d.Unstage(staging))
		}
		for _, path := range []string{staging, target} {
			if _, err := d.IsMountPoint(path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s: %v", path, err)
			}
		}
		if !sim.Disks()[1].Offline {
			t.Error("the disk is online after Unstage")
		}
	})
}

// The same for the Azure Disk driver, on a machine with NVMe. The volume is staged again elsewhere.
func TestAzureDisk(t *testing.T) {
	both(t, func(t *testing.T, sim *simnode.Node, m *mounter.Mounter) {
		d := azureDisk{m}
		if _, err := d.FindDiskByLun("1"); !errors.Is(err, csiproxy.ErrNotFound) {
			t.Errorf("without a disk: %v", err)
		}
		for _, namespace := range []uint32{2, 3} {
			sim.AttachDisk(simnode.Disk{SizeBytes: 10 << 30, ProductID: "MSFT NVMe Accele",
				NVMe: &simnode.NVMe{Controller: "azure", Namespace: namespace}})
		}
		must(t, d.Rescan())
		device, err := d.FindDiskByLun("1")
		if err != nil || device != "2" {
			t.Fatalf("LUN 1 is disk %s, %v", device, err)
		}
		must(t, d.FormatAndMount(device, staging, "", nil))
		must(t, d.Mount(strings.ReplaceAll(staging, `\`, "/"), strings.ReplaceAll(target, `\`, "/"), "", []string{"bind"}))
		must(t, sim.WriteFile(target+`\data`, []byte("kept")))

		sim.GrowDisk(2, 20<<30)
		at, err := d.GetDeviceNameFromMount(target, "")
		must(t, err)
		must(t, d.ResizeVolume(at))
		if size, err := d.GetVolumeSizeInBytes(at); err != nil || size < 19<<30 {
			t.Errorf("the volume has %d bytes, %v", size, err)
		}
		must(t, d.Unmount(target))
		must(t, d.Rmdir(target))
		must(t, d.Rmdir(staging))
		must(t, d.FormatAndMount(device, other, "ntfs", nil))
		if data, err := sim.ReadFile(other + `\data`); string(data) != "kept" {
			t.Errorf("the volume has %q, %v", data, err)
		}
	})
}

// The life of a share, as mount-utils maps one.
func TestShare(t *testing.T) {
	both(t, func(t *testing.T, sim *simnode.Node, m *mounter.Mounter) {
		sim.AddSMBShare(simnode.SMBShare{Server: "filer", Name: "data"})
		sim.SetSMBUser("filer", `EXAMPLE\app`, csiproxy.NewSecret("password"))
		options, password := []string{`EXAMPLE\app`}, []string{"password"}
		if err := m.MountSensitive(`\\filer\data`, staging, "cifs", options, nil); !errors.Is(err, csiproxy.ErrInvalidArgument) {
			t.Errorf("without a password: %v", err)
		}
		for range 2 {
			must(t, m.MountSensitive("//filer/data", staging, "cifs", options, password))
			must(t, m.Mount(staging, target, "", []string{"bind"}))
			must(t, m.Mount(staging, other, "", []string{"bind"}))
		}
		isMountPoint(t, m, target, true)
		must(t, sim.WriteFile(target+`\data`, []byte("kept")))

		refused(t, "Unmount of a published share", m.Unmount(staging))
		must(t, m.Unmount(target))
		refused(t, "Unmount of a share that is still published", m.Unmount(staging))
		isMountPoint(t, m, other, true)
		must(t, m.Unmount(other))
		must(t, m.Unmount(staging))
		if list, err := m.Storage.ListVolumes(t.Context()); err != nil || len(list.Mounts) != 0 {
			t.Errorf("after Unmount there is %+v, %v", list, err)
		}
	})
}

func TestList(t *testing.T) {
	both(t, func(t *testing.T, sim *simnode.Node, m *mounter.Mounter) {
		sim.AttachDisk(simnode.Disk{Serial: "vol-1", SizeBytes: 10 << 30})
		must(t, m.FormatAndMount("1", staging, "ReFS", nil))
		must(t, m.Mount(staging, target, "", nil))
		must(t, m.Mount(staging, other, "", nil))
		list, err := m.List()
		must(t, err)
		var got []string
		for _, at := range list {
			got = append(got, strings.ToLower(at.Device+" "+at.Path+" "+at.Type))
		}
		slices.Sort(got)
		want := []string{`1 c:` + staging + ` refs`, `1 ` + target + ` refs`, `1 ` + other + ` refs`}
		if slices.Sort(want); !slices.Equal(got, want) {
			t.Errorf("List gave %q, want %q", got, want)
		}
		refs, err := m.GetMountRefs(staging)
		if err != nil || len(refs) != 2 || !strings.EqualFold(refs[0], target) || !strings.EqualFold(refs[1], other) {
			t.Errorf("GetMountRefs gave %q, %v", refs, err)
		}
	})
}

func TestRefusals(t *testing.T) {
	both(t, func(t *testing.T, sim *simnode.Node, m *mounter.Mounter) {
		like := csiproxy.Selector{Vendor: "Msft", Product: "Virtual Disk"} // as the disk of Windows
		sim.AttachDisk(simnode.Disk{Serial: "vol-1", SizeBytes: 1 << 30})
		if device, err := m.FindDisk(like); err != nil || device != "1" {
			t.Errorf("FindDisk gave %s, %v", device, err)
		}
		sim.AttachDisk(simnode.Disk{Serial: "vol-2", SizeBytes: 1 << 30})
		if device, err := m.FindDisk(like); !errors.Is(err, csiproxy.ErrFailedPrecondition) {
			t.Errorf("FindDisk of two gave %s, %v", device, err)
		}
		for what, err := range map[string]error{
			"a device that is no number": m.FormatAndMount(`C:\`, staging, "", nil),
			"sensitive options":          m.FormatAndMountSensitive("1", staging, "", nil, []string{"s"}),
		} {
			if !errors.Is(err, csiproxy.ErrInvalidArgument) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if err := m.FormatAndMount("9", staging, "", nil); !errors.Is(err, csiproxy.ErrNotFound) {
			t.Errorf("a disk that isn't there: %v", err)
		}
		refused(t, "a raw disk, read-only", m.FormatAndMount("1", staging, "", []string{"ro"}))
		refused(t, "publishing nothing", m.Mount(staging, target, "", nil))
		must(t, m.MakeDir(other))
		isMountPoint(t, m, other, false)
		must(t, sim.WriteFile(other+`\data`, []byte("kept")))
		must(t, m.Unmount(other))
		if _, err := sim.ReadFile(other + `\data`); err != nil {
			t.Errorf("Unmount of a plain directory took its files: %v", err)
		}

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := m.WithContext(ctx).PathExists(other); !errors.Is(err, context.Canceled) {
			t.Errorf("after the end of the context: %v", err)
		}
	})
}

// A raw disk is formatted as options of format.com say.
func TestFormatOptions(t *testing.T) {
	both(t, func(t *testing.T, sim *simnode.Node, m *mounter.Mounter) {
		sim.AttachDisk(simnode.Disk{SizeBytes: 1 << 30})
		format := func(fstype string, options ...string) error {
			return m.FormatAndMountSensitiveWithFormatOptions("1", staging, fstype, nil, nil, options)
		}
		for _, options := range [][]string{
			{"-L"}, {"/L"}, {"/A:65"}, {"/A"}, {"/S:enable"}, {"/I:disable"}, {"/FS:ext4"}, {"/I:enable"}, {"/Q:x"}, {"64K"},
			{"/writers:Nobody"}, {"/writers"},
		} {
			err := format("", options...)
			if !errors.Is(err, csiproxy.ErrInvalidArgument) {
				t.Errorf("%q: %v", options, err)
			}
			if options[0] == "/L" && !strings.Contains(err.Error(), "/A:64K") {
				t.Errorf("no list of what is known: %v", err)
			}
		}
		if err := format("ntfs", "/FS:ReFS"); !errors.Is(err, csiproxy.ErrInvalidArgument) {
			t.Errorf("two file systems: %v", err)
		}
		if volumes := sim.Volumes(); len(volumes) != 1 {
			t.Fatalf("what was refused is formatted: %+v", volumes)
		}
		must(t, format("ntfs", "/A:64K", "/v:sql: data", "/S:disable", "/Q", "/fs:ntfs"))
		if v := sim.Volumes()[1]; v.FileSystem != "NTFS" || v.ClusterBytes != 64<<10 || v.Label != "sql: data" || !v.NoShortNames {
			t.Errorf("the volume is %+v", v)
		}
		must(t, m.Unmount(staging))
		sim.DetachDisk(1)
		sim.AttachDisk(simnode.Disk{SizeBytes: 1 << 30})
		must(t, format("", "/FS:ReFS", "/I:enable", "/writers:Users,S-1-5-11"))
		must(t, sim.As(simnode.ContainerUser).WriteFile(`C:`+staging+`\of ContainerUser`, nil))
		if v := sim.Volumes()[1]; v.FileSystem != "ReFS" || !v.IntegrityStreams {
			t.Errorf("the volume is %+v", v)
		}
	})
}

// A list of mounts from which something is missing isn't returned as whole: what isn't in it would be
// taken for unmounted.
func TestListThatIsNotWhole(t *testing.T) {
	both(t, func(t *testing.T, sim *simnode.Node, m *mounter.Mounter) {
		sim.AttachDisk(simnode.Disk{SizeBytes: 1 << 30})
		must(t, m.FormatAndMount("1", staging, "", nil))
		must(t, m.Mount(staging, target, "", nil))
		sim.Fail("NtQueryDirectoryFile", 1117, 0)
		listed, listErr := m.Storage.ListVolumes(t.Context())
		if listErr != nil || listed.Complete() {
			t.Fatalf("the node's list is %+v, %v; want one that isn't complete", listed, listErr)
		}
		if list, err := m.List(); !errors.Is(err, csiproxy.ErrUnavailable) {
			t.Errorf("List gave %+v, %v", list, err)
		}
		if refs, err := m.GetMountRefs(staging); err == nil {
			t.Errorf("GetMountRefs gave %q", refs)
		}
	})
}
