// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"errors"
	"io/fs"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/ops/scope"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// The directories in which an administrator mounts volumes for sig-storage-local-static-provisioner.
const (
	localDisks  = `C:\mnt\disks`
	localVolume = localDisks + `\ssd0`
	tenantFile  = `\of-tenant-1`
)

// localDisk attaches a disk of a vendor with a volume, and mounts that as an administrator does, with a file.
func localDisk(t *testing.T, sim *winsim.System, vendor, path string) csiproxy.VolumeID {
	t.Helper()
	admin, err := nodeops.New(sim, nodeops.Options{WorkingDirs: []string{`C:\mnt`}})
	simtest.Must(t, err)
	number := simtest.Attach(t, sim, winsim.DiskSpec{SizeBytes: 1 << 30, VendorID: vendor})
	simtest.Must(t, admin.Disk.PartitionDisk(t.Context(), number))
	id, err := admin.Volume.DataVolumeOfDisk(t.Context(), number)
	simtest.Must(t, err)
	simtest.Must(t, admin.Volume.FormatVolume(t.Context(), id))
	simtest.Must(t, sim.MkdirAll(path))
	simtest.Mount(t, sim, path, string(id))
	simtest.Must(t, sim.WriteFile(path+tenantFile, []byte("secret")))
	return id
}

// wantFile checks whether the first tenant's file is still there.
func wantFile(t *testing.T, sim *winsim.System, path string, isThere bool) {
	t.Helper()
	if _, err := sim.ReadFile(path + tenantFile); isThere != (err == nil) || err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file of the first tenant: %v, want it there: %v", err, isThere)
	}
}

// reclaim is what sig-storage-local-static-provisioner 2.9.0 calls to discover a volume, and to empty it when it is
// released (its pkg/util/volume_util_windows.go).
func reclaim(t *testing.T, o nodeops.Operations, path string) error {
	t.Helper()
	isLink, err := o.Filesystem.IsSymlink(t.Context(), path)
	simtest.Must(t, err)
	simtest.Want(t, "IsSymlink of "+path, isLink, true)
	id, err := o.Volume.GetVolumeIDFromTargetPath(t.Context(), path)
	simtest.Must(t, err)
	_, err = o.Volume.GetVolumeStats(t.Context(), id)
	simtest.Must(t, err)
	return o.Volume.FormatVolume(t.Context(), id)
}

// A released volume is emptied where an administrator allows that, as often as it is released, and stays mounted.
func TestReformat(t *testing.T) {
	sim := simtest.Open(t, winsim.Delays{})
	localDisk(t, sim, "LOCAL", localVolume)
	o := nodeops.Options{WorkingDirs: []string{`C:\mnt`}}
	for _, o.ReformatDirs = range [][]string{nil, {`C:\mnt`}, {`C:\mnt\other`}, {localVolume}} {
		node, err := nodeops.New(sim, o)
		simtest.Must(t, err)
		simtest.WantError(t, reclaim(t, node.Operations, localVolume), csiproxy.ErrFailedPrecondition, "it holds an NTFS file system")
		wantFile(t, sim, localVolume, true)
	}
	o.ReformatDirs = []string{localDisks}
	for range 2 {
		node, err := nodeops.New(sim, o)
		simtest.Must(t, err)
		simtest.Must(t, reclaim(t, node.Operations, localVolume))
		wantFile(t, sim, localVolume, false)
		simtest.Must(t, sim.WriteFile(localVolume+tenantFile, []byte("of the next tenant")))
	}
}

// The administrator's directory may be reached by a link.
func TestReformatBelowLink(t *testing.T) {
	sim := simtest.Open(t, winsim.Delays{})
	localDisk(t, sim, "LOCAL", `C:\elsewhere\ssd0`)
	simtest.Must(t, sim.MkdirAll(`C:\mnt`))
	simtest.Must(t, sim.Symlink(localDisks, `C:\elsewhere`, true))
	node, err := nodeops.New(sim, nodeops.Options{WorkingDirs: []string{localDisks}, ReformatDirs: []string{localDisks}})
	simtest.Must(t, err)
	simtest.Must(t, reclaim(t, node.Operations, localVolume))
	wantFile(t, sim, localVolume, false)
}

// A volume that somebody may use isn't emptied.
func TestReformatOfUsedVolume(t *testing.T) {
	const elsewhere = simtest.Kubelet + `\plugins\kubernetes.io\csi\driver\1\globalmount`
	for name, c := range map[string]struct {
		use  func(t *testing.T, sim *winsim.System, id csiproxy.VolumeID) error
		o    nodeops.Options
		says string
	}{
		"a pod has it": {use: func(_ *testing.T, sim *winsim.System, _ csiproxy.VolumeID) error {
			pod := simtest.Kubelet + `\pods\uid\volumes\kubernetes.io~local-volume`
			return errors.Join(sim.MkdirAll(pod), sim.Symlink(pod+`\pv-1`, localVolume, true))
		}, says: `kubernetes.io~local-volume\pv-1`},
		"it is mounted elsewhere": {use: func(t *testing.T, sim *winsim.System, id csiproxy.VolumeID) error {
			simtest.Must(t, sim.MkdirAll(elsewhere))
			simtest.Mount(t, sim, elsewhere, string(id))
			return nil
		}, says: "is mounted at several places"},
		"it is mounted at many places": {use: func(_ *testing.T, sim *winsim.System, id csiproxy.VolumeID) error {
			return sim.Fail(winsim.Match{Call: win.CallVolumePathNames, Object: string(id)}, winerr.ErrorMoreData)
		}, says: "more directories than can be listed"},
		"it has a drive letter": {use: func(_ *testing.T, sim *winsim.System, _ csiproxy.VolumeID) error {
			return sim.SetVolumeLetter(localVolume, "X:")
		}, says: `X:\`},
		"a file is open": {use: func(t *testing.T, sim *winsim.System, _ csiproxy.VolumeID) error {
			process, err := sim.StartProcess(`C:\app.exe`, localVolume)
			t.Cleanup(func() { simtest.Must(t, sim.EndProcess(process)) })
			return err
		}, says: `is in use by process`},
		"it is protected": {use: func(_ *testing.T, sim *winsim.System, _ csiproxy.VolumeID) error {
			return sim.SetVolumeLetter(localVolume, "X:")
		}, o: nodeops.Options{ProtectedVolumes: []string{"X:"}}, says: "it is protected"},
	} {
		t.Run(name, func(t *testing.T) {
			sim := simtest.Open(t, winsim.Delays{})
			id := localDisk(t, sim, "LOCAL", localVolume)
			simtest.Must(t, c.use(t, sim, id))
			c.o.WorkingDirs, c.o.ReformatDirs = []string{`C:\mnt`}, []string{localDisks}
			node, err := nodeops.New(sim, c.o)
			simtest.Must(t, err)
			simtest.WantError(t, node.Volume.FormatVolume(t.Context(), id), csiproxy.ErrFailedPrecondition, c.says)
			wantFile(t, sim, localVolume, true)
		})
	}
}

// Of two drivers with endpoints of their own, the one that may empties its own volumes in its own directories, and the
// administrator's directories count for neither.
func TestReformatOfDriver(t *testing.T) {
	const local, other = "local.example.com", "other.example.com"
	const dirOfOther = `C:\mnt\other`
	drivers := []nodeops.Driver{
		{Driver: scope.Driver{Name: local, Disks: []scope.DiskPattern{{Vendor: "LOCAL"}}}, Dirs: []string{localDisks}, Reformat: true},
		{Driver: scope.Driver{Name: other, Disks: []scope.DiskPattern{{Vendor: "OTHER"}}}, Dirs: []string{dirOfOther}},
	}
	sim := simtest.Open(t, winsim.Delays{})
	localDisk(t, sim, "LOCAL", localVolume)
	staged := localDisk(t, sim, "LOCAL", simtest.Kubelet+`\plugins\`+local+`\staged`)
	others := localDisk(t, sim, "OTHER", dirOfOther+`\ssd0`)
	planted := localDisk(t, sim, "OTHER", localDisks+`\planted`)
	nobodys := localDisk(t, sim, "NOBODY", `C:\mnt\admin\ssd0`)
	node, err := nodeops.New(sim, nodeops.Options{WorkingDirs: []string{`C:\mnt`}, ReformatDirs: []string{`C:\mnt\admin`}}, drivers...)
	simtest.Must(t, err)
	simtest.Must(t, reclaim(t, node.Driver(local), localVolume))
	wantFile(t, sim, localVolume, false)

	ctx := t.Context()
	for what, id := range map[string]csiproxy.VolumeID{"another's": others, "another's in its directory": planted, "nobody's": nobodys} {
		simtest.WantErrorOf(t, what, node.Driver(local).Volume.FormatVolume(ctx, id), csiproxy.ErrNotFound)
	}
	for what, err := range map[string]error{
		"its own where kubelet stages": node.Driver(local).Volume.FormatVolume(ctx, staged),
		"a driver that may not":        node.Driver(other).Volume.FormatVolume(ctx, others),
		"an administrator":             node.Volume.FormatVolume(ctx, others),
	} {
		simtest.WantErrorOf(t, what, err, csiproxy.ErrFailedPrecondition, "it holds an NTFS file system")
	}
	wantFile(t, sim, dirOfOther+`\ssd0`, true)
	simtest.Must(t, reclaim(t, node.Operations, `C:\mnt\admin\ssd0`))
	wantFile(t, sim, `C:\mnt\admin\ssd0`, false)
}

// No directory of kubelet, of the pods or of a driver is one in which all volumes may be emptied.
func TestReformatDirectories(t *testing.T) {
	drivers := []nodeops.Driver{{Driver: scope.Driver{Name: red}, Dirs: []string{`C:\mnt\red`}}}
	for _, dir := range []string{"", "disks", `C:\mnt`, `C:\mnt\red\disks`, `C:\elsewhere`, `C:\mnt\DISKS~1`, simtest.Kubelet, simtest.Kubelet + `\pods`,
		simtest.Kubelet + `\plugins`, simtest.Kubelet + `\plugins\kubernetes.io\csi`, simtest.Kubelet + `\plugins\` + red} {
		_, err := nodeops.New(nil, nodeops.Options{WorkingDirs: []string{`C:\mnt`}, ReformatDirs: []string{dir}}, drivers...)
		simtest.WantErrorOf(t, dir, err, csiproxy.ErrInvalidArgument)
	}
}
