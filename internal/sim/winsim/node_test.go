// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"fmt"
	"hash/crc32"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/lab/seamtest"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/ntfs"
	"github.com/csi-proxy/csi-proxy/internal/windows/handletrack"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
)

// Errors that package win has no constant for.
const (
	errorDirNotRoot           winerr.Errno = 144
	errorNotLocked            winerr.Errno = 158
	errorSymlinkClassDisabled winerr.Errno = 1463
	errorCantAccessFile       winerr.Errno = 1920
	errorCantResolveFilename  winerr.Errno = 1921
)

const (
	dataPartitionName = "Basic data partition"

	mib     = 1 << 20
	gib     = 1 << 30
	kubelet = `C:\var\lib\kubelet`
)

// newNode opens a node with a state file. At the end of the test nothing may be
// open, and a node from the same file must be the same.
func newNode(t *testing.T, delays Delays) *System {
	t.Helper()
	file := filepath.Join(t.TempDir(), "state")
	handles := handletrack.New()
	s := openNode(t, Config{StateFile: file, Delays: delays, Handles: handles})
	t.Cleanup(func() {
		s.Settle()
		if err := handles.Err(); err != nil {
			t.Error(err)
		}
		want := dump(s)
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		again, err := Open(Config{StateFile: file})
		if err != nil {
			t.Fatalf("open again: %v", err)
		}
		if diff := cmp.Diff(want, dump(again)); diff != "" {
			t.Errorf("the state file has another node (-in memory +in file):\n%s", diff)
		}
		if err := again.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func openNode(t *testing.T, c Config) *System {
	t.Helper()
	s, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// dump is all that must outlive the process, in a form that can be compared.
func dump(s *System) map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string]any{"node": []any{s.disks.Kept, s.settings, s.biosSerial, s.registry.Registry, s.registry.Numbers}}
	for d := range s.disks.All() {
		blocks := blockSums{}
		if err := d.Image.Export(blocks); err != nil {
			panic(err)
		}
		all[fmt.Sprint("disk ", d.ID)] = d.Record
		all[fmt.Sprint("image ", d.ID)] = blocks
	}
	records, trees := s.volumes.Contents()
	maps.Copy(all, records)
	for name, fs := range trees {
		all["contents of "+name] = []any{fs.Capacity(), fs.Used(), dumpTree(fs.Root())}
	}
	for _, spec := range s.services.List() {
		state, err := s.services.Query(spec.Name)
		all["service "+spec.Name] = []any{spec, state, err}
	}
	all["iSCSI network"] = []any{s.iscsi.Targets(), s.iscsi.Portals()}
	all["iSCSI initiator"] = []any{s.iscsi.SendTargetPortals(), s.iscsi.KnownTargets(), s.iscsi.Sessions(),
		s.iscsi.PersistentLogins()}
	all["processes"] = s.processes.list()
	all["SMB servers"] = s.smb.Servers()
	all["SMB mappings"] = s.smb.Mappings()
	for _, m := range s.smb.Mappings() {
		if m.Status != win.SMBMappingOK {
			continue
		}
		server, share, _ := strings.Cut(m.RemotePath[2:], `\`)
		if fs, _, err := s.smb.Connect(server, share); err == nil {
			all["SMB share "+m.RemotePath] = []any{fs.Capacity(), fs.Used(), dumpTree(fs.Root())}
		}
	}
	return all
}

// blockSums are the checksums of blocks by offset.
type blockSums map[int64]uint32

func (b blockSums) WriteAt(p []byte, off int64) (int, error) {
	b[off] = crc32.ChecksumIEEE(p)
	return len(p), nil
}

func dumpTree(n *ntfs.Node) []string {
	lines := []string{fmt.Sprint(n.Path(), n.ID(), n.Info(), n.Size(), n.Reparse(), n.CreationDenied(), n.Private())}
	for _, c := range n.Children() {
		lines = append(lines, dumpTree(c)...)
	}
	return lines
}

func attach(t *testing.T, s *System, spec DiskSpec) csiproxy.DiskNumber {
	t.Helper()
	if spec.SizeBytes == 0 {
		spec.SizeBytes = 10 * gib
	}
	n, err := s.AttachDisk(spec)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func drivePath(n csiproxy.DiskNumber) string { return fmt.Sprintf(`\\.\PhysicalDrive%d`, n) }

const readWrite = win.GenericRead | win.GenericWrite

func openDevice(t *testing.T, s *System, path string, access win.Access) win.Device {
	t.Helper()
	d, err := s.OpenDevice(t.Context(), path, access)
	if err != nil {
		t.Fatalf("open %s: %v", path, err)
	}
	return d
}

func closeHandle(t *testing.T, c interface{ Close() error }) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// control is DeviceIoControl on a path with as large an answer as may come.
func control(t *testing.T, s *System, path string, code win.IoctlCode, in []byte) ([]byte, error) {
	t.Helper()
	d := openDevice(t, s, path, readWrite)
	defer closeHandle(t, d)
	out := make([]byte, 64<<10)
	n, err := d.Control(t.Context(), code, in, out)
	return out[:n], err
}

func mustControl(t *testing.T, s *System, path string, code win.IoctlCode, in []byte) []byte {
	t.Helper()
	out, err := control(t, s, path, code, in)
	if err != nil {
		t.Fatalf("%s on %s: %v", controlName(code), path, err)
	}
	return out
}

func layoutOf(t *testing.T, s *System, n csiproxy.DiskNumber) *win.DriveLayout {
	t.Helper()
	l, err := win.DecodeDriveLayout(mustControl(t, s, drivePath(n), win.IoctlDiskGetDriveLayoutEx, nil))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// wantNoTable wants the answer that Windows 10 gave for a blank disk.
func wantNoTable(t *testing.T, s *System, n csiproxy.DiskNumber) {
	t.Helper()
	if l := layoutOf(t, s, n); l.Style != win.StyleMBR || l.Signature != 0 || len(l.Partitions) != 0 {
		t.Errorf("a disk without a table has the layout %+v", l)
	}
}

func createGPT(t *testing.T, s *System, n csiproxy.DiskNumber) {
	t.Helper()
	c := win.CreateDisk{Style: win.StyleGPT, DiskID: winid.NewGUID(), MaxPartitionCount: 128}
	mustControl(t, s, drivePath(n), win.IoctlDiskCreateDisk, c.Encode())
}

// data is a data partition without a drive letter.
func data(offset, length int64) win.Partition {
	return win.Partition{
		Style: win.StyleGPT, StartingOffset: offset, Length: length, Type: win.PartitionTypeBasicData, ID: winid.NewGUID(),
		Attributes: win.GPTAttributeNoDriveLetter, RewritePartition: true, Name: dataPartitionName,
	}
}

func setLayout(s *System, t *testing.T, n csiproxy.DiskNumber, parts ...win.Partition) error {
	t.Helper()
	l := win.DriveLayout{Style: win.StyleGPT, Partitions: parts}
	_, err := control(t, s, drivePath(n), win.IoctlDiskSetDriveLayoutEx, l.Encode())
	return err
}

// newVolume attaches a disk of 10 GiB with one data partition of 4 GiB and returns
// the name of its volume, which is formatted if format is set.
func newVolume(t *testing.T, s *System, format bool) (n csiproxy.DiskNumber, volume string) {
	t.Helper()
	n = attach(t, s, DiskSpec{})
	createGPT(t, s, n)
	if err := setLayout(s, t, n, data(16*mib, 4*gib)); err != nil {
		t.Fatal(err)
	}
	s.Settle()
	names := s.VolumesOfDisk(n)
	if len(names) != 1 {
		t.Fatalf("disk %d has the volumes %q", n, names)
	}
	if format {
		if err := s.FormatVolume(t.Context(), names[0], win.FormatOptions{FileSystem: "NTFS"}); err != nil {
			t.Fatal(err)
		}
	}
	return n, names[0]
}

func device1(volume string) string { return volume[:len(volume)-1] }

// Short names for what tests of calls share.
var (
	must    = seamtest.Must
	wantErr = seamtest.WantErrno
)

// errorOf is the error of a call, of which nothing else counts.
func errorOf[T any](_ T, err error) error { return err }

// wantText wants a file to hold a text.
func wantText(t *testing.T, s *System, path, want string) {
	t.Helper()
	if got, err := s.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s holds %q, %v, want %q", path, got, err, want)
	}
}
