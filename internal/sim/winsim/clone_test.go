// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/csi-proxy/csi-proxy/simnode/hardware"
)

// reasons are those of the disks that are offline.
func reasons(t *testing.T, s *System) map[csiproxy.DiskNumber]win.OfflineReason {
	t.Helper()
	reasons := map[csiproxy.DiskNumber]win.OfflineReason{}
	for _, d := range s.Disks() {
		if d.Attributes&win.DiskOffline != 0 {
			reasons[d.Number] = d.OfflineReason
		}
	}
	return reasons
}

func TestClone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state")
	s := openNode(t, Config{StateFile: file})
	n, volume := newVolume(t, s, true)
	must(t, s.WriteFile(volume+"file", []byte("content")))
	must(t, s.SetSettings(Settings{ClonesStayOffline: true}))
	copied, err := s.CloneDisk(n, DiskSpec{Serial: "clone"})
	must(t, err)
	s.Settle()
	if got, want := layoutOf(t, s, copied), layoutOf(t, s, n); !cmp.Equal(got, want) {
		t.Errorf("its table is %+v, want %+v", got, want)
	}
	collision := map[csiproxy.DiskNumber]win.OfflineReason{copied: win.OfflineCollision}
	if diff := cmp.Diff(collision, reasons(t, s)); diff != "" || len(s.VolumesOfDisk(copied)) != 0 {
		t.Errorf("beside its original: volumes %q, offline (-want +got):\n%s", s.VolumesOfDisk(copied), diff)
	}
	online := win.SetDiskAttributes{Mask: win.DiskOffline}
	must(t, s.SetDiskAttributes(copied, online))
	s.Settle()
	if diff := cmp.Diff(collision, reasons(t, s)); diff != "" {
		t.Errorf("brought online beside its original (-want +got):\n%s", diff)
	}
	must(t, s.WriteFile(volume+"file", []byte("changed")))

	must(t, s.Close())
	s = openNode(t, Config{StateFile: file})
	defer closeHandle(t, s)
	if diff := cmp.Diff(collision, reasons(t, s)); diff != "" {
		t.Errorf("from the state file (-want +got):\n%s", diff)
	}
	must(t, s.DetachDisk(n))
	must(t, s.SetDiskAttributes(copied, online))
	s.Settle()
	if v := s.VolumesOfDisk(copied); !slices.Equal(v, []string{volume}) {
		t.Errorf("alone it has the volumes %q", v)
	}
	wantText(t, s, volume+"file", "content")
	_, err = s.CloneDisk(copied, DiskSpec{Serial: "clone"})
	wantErr(t, "a serial number that is taken", err, winerr.ErrorAlreadyExists)
	wantErr(t, "clone no disk", errorOf(s.CloneDisk(77, DiskSpec{})), winerr.ErrorNotFound)

	// After a restart the first one is online.
	_, err = s.AttachDisk(DiskSpec{Serial: s.Disks()[1].Spec.Serial, Offline: false})
	must(t, err)
	must(t, s.Reboot())
	if r := reasons(t, s); len(r) != 1 {
		t.Errorf("after a restart offline are %v", r)
	}
}

// TestMoveDisk: a disk that goes to another node has there what it had, except for what wasn't flushed,
// and the first node has no disk of that serial number.
func TestMoveDisk(t *testing.T) {
	dir := t.TempDir()
	moved, kept := filepath.Join(dir, "moved"), filepath.Join(dir, "state")
	first, second := newNode(t, Delays{}), openNode(t, Config{StateFile: kept})
	n, volume := newVolume(t, first, true)
	serial := first.Disks()[1].Spec.Serial
	must(t, first.WriteFile(volume+"file", []byte("content")))
	must(t, first.Reboot()) // flushes
	must(t, first.WriteFile(volume+"lost", []byte("content")))
	must(t, first.SetVolumeDirty(volume, true))
	want := layoutOf(t, first, n)

	wantErr(t, "take an attached disk", first.TakeDisk(serial, moved), winerr.ErrorDeviceInUse)
	must(t, first.DetachDisk(n))
	must(t, first.TakeDisk(serial, moved))
	wantErr(t, "take it again", first.TakeDisk(serial, moved+"-again"), winerr.ErrorNotFound)
	if disks := first.Disks(); len(disks) != 1 {
		t.Errorf("the first node has %+v", disks)
	}

	must(t, second.GiveDisk(moved))
	wantErr(t, "give it again", second.GiveDisk(moved), winerr.ErrorAlreadyExists)
	must(t, os.WriteFile(moved+"-damaged", []byte("{"), 0o600))
	wantErr(t, "give no disk", second.GiveDisk(moved+"-damaged"), winerr.ErrorInvalidParameter)
	must(t, second.Close())
	second = openNode(t, Config{StateFile: kept})
	defer closeHandle(t, second)
	n, err := second.AttachDisk(DiskSpec{Serial: serial})
	must(t, err)
	second.Settle()
	if diff := cmp.Diff(want, layoutOf(t, second, n)); diff != "" {
		t.Errorf("its table (-want +got):\n%s", diff)
	}
	volume = second.VolumesOfDisk(n)[0]
	wantText(t, second, volume+"file", "content")
	wantText(t, second, volume+"lost", "")
	if v := second.Volumes(); !v[len(v)-1].Dirty {
		t.Errorf("the volumes are %+v, and none is dirty", v)
	}
}

func TestOfflineReasons(t *testing.T) {
	s := newNode(t, Delays{})
	byPolicy := attach(t, s, DiskSpec{Offline: true})
	byHand := attach(t, s, DiskSpec{})
	full := attach(t, s, DiskSpec{})
	attach(t, s, DiskSpec{})
	must(t, s.SetDiskAttributes(byHand, win.SetDiskAttributes{Attributes: win.DiskOffline, Mask: win.DiskOffline}))
	must(t, s.SetOfflineReason(full, win.OfflineResourceExhaustion))
	want := map[csiproxy.DiskNumber]win.OfflineReason{
		byPolicy: win.OfflinePolicy, byHand: win.OfflinePolicy, full: win.OfflineResourceExhaustion,
	}
	if diff := cmp.Diff(want, reasons(t, s)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What a device says of an NVMe namespace, in the forms in which drivers look for it.
func TestNVMe(t *testing.T) {
	s := newNode(t, Delays{})
	eui := [8]byte{0x00, 0x25, 0x38, 0x5B, 0x71, 0xB0, 0x16, 0xAA}
	nguid := [16]byte{0xE8, 0x23, 0x8F, 0xA6, 0xBF, 0x53, 0, 1, 0, 0x1B, 0x44, 0x8B, 0x4A, 0x1A, 0x1B, 0x2B}
	binary := func(id []byte) win.Identifier {
		return win.Identifier{CodeSet: win.CodeSetBinary, Type: win.IdentifierEUI64, ID: id}
	}
	for name, tt := range map[string]struct {
		spec   DiskSpec
		serial string
		ids    []win.Identifier
		lun    byte
	}{
		"EBS": {
			DiskSpec{Serial: "vol0abc", ProductID: "Amazon Elastic B", NVMe: &hardware.NVMe{}}, "vol0abc_00000001.",
			[]win.Identifier{{CodeSet: win.CodeSetUTF8, Type: win.IdentifierSCSIName,
				ID: []byte("1414Amazon Elastic B" + strings.Repeat(" ", 24) + "0001vol0abc" + strings.Repeat(" ", 13))}}, 0,
		},
		"EUI-64": {
			DiskSpec{NVMe: &hardware.NVMe{EUI64: eui}}, "0025_385B_71B0_16AA.",
			[]win.Identifier{binary(eui[:])}, 0,
		},
		"NGUID, third namespace": {
			DiskSpec{NVMe: &hardware.NVMe{Controller: "c", Namespace: 3, EUI64: eui, NGUID: nguid}},
			"E823_8FA6_BF53_0001_001B_448B_4A1A_1B2B.", []win.Identifier{binary(nguid[:]), binary(eui[:])}, 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := attach(t, s, tt.spec)
			query := func(in []byte) []byte {
				t.Helper()
				return mustControl(t, s, drivePath(n), win.IoctlStorageQueryProperty, in)
			}
			device, err := win.DecodeDeviceDescriptor(query(win.EncodePropertyQuery(win.PropertyDevice)))
			if err != nil || device.SerialNumber != tt.serial || device.BusType != win.BusTypeNVMe || device.VendorID != "NVMe" {
				t.Errorf("%+v, %v", device, err)
			}
			ids, err := win.DecodeDeviceIDs(query(win.EncodePropertyQuery(win.PropertyDeviceID)))
			if diff := cmp.Diff(tt.ids, ids); err != nil || diff != "" {
				t.Errorf("page 83: %v (-want +got):\n%s", err, diff)
			}
			address, err := win.DecodeSCSIAddress(mustControl(t, s, drivePath(n), win.IoctlScsiGetAddress, nil))
			if err != nil || address.LUN != tt.lun || address.PortNumber < 2 {
				t.Errorf("address %+v, %v", address, err)
			}
			location, err := win.DecodeDeviceLocation(query(win.EncodePropertyQuery(win.PropertyDeviceLocation)))
			if err != nil || !strings.Contains(location.Text, "Bus 12606208 ") || strings.Contains(location.Text, "LUN") {
				t.Errorf("location %+v, %v", location, err)
			}
			spec := s.Disks()[n].Spec
			namespace, err := win.DecodeNVMeNamespace(query(win.EncodeNVMeNamespaceQuery(spec.NVMe.Namespace)))
			if err != nil || namespace != (win.NVMeNamespace{EUI64: spec.NVMe.EUI64, NGUID: spec.NVMe.NGUID}) {
				t.Errorf("namespace %+v, %v", namespace, err)
			}
			_, err = control(t, s, drivePath(n), win.IoctlStorageQueryProperty, win.EncodeNVMeNamespaceQuery(9))
			wantErr(t, "another namespace", err, winerr.ErrorInvalidParameter)
		})
	}
	// Namespaces of one controller have one adapter.
	a := attach(t, s, DiskSpec{NVMe: &hardware.NVMe{Controller: "azure", Namespace: 2}})
	b := attach(t, s, DiskSpec{NVMe: &hardware.NVMe{Controller: "azure", Namespace: 4}})
	if x, y := s.Disks()[a].Spec.SCSI, s.Disks()[b].Spec.SCSI; x.PortNumber != y.PortNumber || x.LUN != 1 || y.LUN != 3 {
		t.Errorf("addresses %+v and %+v", x, y)
	}
	_, err := s.AttachDisk(DiskSpec{SizeBytes: gib, NVMe: &hardware.NVMe{Controller: "azure", Namespace: 4}})
	wantErr(t, "a namespace that is there", err, winerr.ErrorBusy)
	_, err = s.AttachDisk(DiskSpec{SizeBytes: gib, NVMe: &hardware.NVMe{Namespace: 256}})
	wantErr(t, "a namespace without a LUN", err, winerr.ErrorInvalidParameter)
	_, err = s.AttachDisk(DiskSpec{SizeBytes: gib, NVMe: &hardware.NVMe{Controller: strings.Repeat("x", 21)}})
	wantErr(t, "a long serial number", err, winerr.ErrorInvalidParameter)

	query := win.EncodeNVMeNamespaceQuery(2)
	scsi := attach(t, s, DiskSpec{})
	_, err = control(t, s, drivePath(scsi), win.IoctlStorageQueryProperty, query)
	wantErr(t, "a SCSI disk", err, winerr.ErrorInvalidFunction)
	silent := attach(t, s, DiskSpec{NVMe: &hardware.NVMe{Namespace: 2}, NVMeError: winerr.ErrorNotSupported})
	_, err = control(t, s, drivePath(silent), win.IoctlStorageQueryProperty, query)
	wantErr(t, "a driver that doesn't know the query", err, winerr.ErrorNotSupported)
	must(t, s.SetSettings(Settings{NoNVMeIdentify: true}))
	_, err = control(t, s, drivePath(a), win.IoctlStorageQueryProperty, query)
	wantErr(t, "a Windows that doesn't know the query", err, winerr.ErrorInvalidFunction)
}

func TestLateAndNumbered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openNode(t, Config{Delays: Delays{DiskArrival: time.Second}})
		began := time.Now()
		seven := csiproxy.DiskNumber(7)
		late := attach(t, s, DiskSpec{Serial: "late", Late: time.Minute, Number: &seven})
		next := attach(t, s, DiskSpec{})
		if late != 7 || next != 1 {
			t.Errorf("numbers %d and %d", late, next)
		}
		wantErr(t, "a number that is taken", errorOf(s.AttachDisk(DiskSpec{SizeBytes: gib, Number: &seven})), winerr.ErrorBusy)
		wantErr(t, "an early disk", errorOf(s.AttachDisk(DiskSpec{SizeBytes: gib, Late: -1})), winerr.ErrorInvalidParameter)
		s.Settle()
		if took := time.Since(began); took != time.Minute+time.Second {
			t.Errorf("it arrived after %v", took)
		}
		// Again, under another number.
		two := csiproxy.DiskNumber(2)
		must(t, s.DetachDisk(late))
		if n := attach(t, s, DiskSpec{Serial: "late", Number: &two}); n != 2 {
			t.Errorf("it has the number %d", n)
		}
		must(t, s.Close())
	})
}

// More disks than one SCSI target has logical units.
func TestManyDisks(t *testing.T) {
	s := newNode(t, Delays{})
	for range 300 {
		attach(t, s, DiskSpec{SizeBytes: mib})
	}
	seen := map[win.SCSIAddress]bool{}
	for _, d := range s.Disks() {
		if seen[*d.Spec.SCSI] {
			t.Fatalf("two disks at %+v", *d.Spec.SCSI)
		}
		seen[*d.Spec.SCSI] = true
	}
}

func TestVolumePathNames(t *testing.T) {
	s := newNode(t, Delays{})
	_, volume := newVolume(t, s, true)
	_, other := newVolume(t, s, true)
	must(t, s.MkdirAll(stage))
	must(t, s.MkdirAll(volume+`below\there`))
	must(t, s.SetVolumeMountPoint(t.Context(), stage+`\`, volume))
	must(t, s.SetVolumeMountPoint(t.Context(), volume+`below\there\`, other))
	names := func(volume string) []string {
		t.Helper()
		paths, err := s.VolumePathNames(t.Context(), volume)
		must(t, err)
		return paths
	}
	must(t, s.SetVolumeMountPoint(t.Context(), `X:\`, volume))
	if want := []string{`X:\`, stage + `\`}; !slices.Equal(names(volume), want) {
		t.Errorf("%q, want %q", names(volume), want)
	}
	if want := []string{`X:\below\there\`}; !slices.Equal(names(other), want) {
		t.Errorf("%q, want %q", names(other), want)
	}
	must(t, s.DeleteVolumeMountPoint(t.Context(), `X:\`))
	if want := []string{volume + `below\there\`}; !slices.Equal(names(other), want) {
		t.Errorf("on a volume without a letter: %q, want %q", names(other), want)
	}
}

func TestSMBConnections(t *testing.T) {
	s := newNode(t, Delays{})
	connections := func() []win.SMBConnection {
		t.Helper()
		c, err := s.SMBConnections(t.Context())
		must(t, err)
		return c
	}
	newMapping(t, s)
	held, err := s.Hold(share, existing(win.FileListDirectory, 0))
	must(t, err)
	want := []win.SMBConnection{{
		Server: "server", Share: "share", UserName: `NT AUTHORITY\SYSTEM`, Credential: credentials.Username, Opens: 1,
	}}
	if diff := cmp.Diff(want, connections()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	closeHandle(t, held)
	if c := connections(); len(c) != 1 || c[0].Opens != 0 {
		t.Errorf("nothing open: %+v", c)
	}
	must(t, s.SMB().GrowShare("server", "share", 3<<40))
	if space, err := s.DiskFreeSpace(t.Context(), share+`\`); err != nil || space.Total != 3<<40 {
		t.Errorf("its size is %+v, %v", space, err)
	}
	must(t, s.SetSettings(Settings{NoSMBConnections: true}))
	if c := connections(); len(c) != 0 {
		t.Errorf("Windows lists %+v", c)
	}
	must(t, s.SetSettings(Settings{}))
	must(t, s.RemoveSMBGlobalMapping(t.Context(), share))
	if c := connections(); len(c) != 0 {
		t.Errorf("without a mapping: %+v", c)
	}
}

func TestSwapDisk(t *testing.T) {
	for _, keep := range []bool{false, true} {
		s := newNode(t, Delays{})
		n, volume := newVolume(t, s, true)
		must(t, s.WriteFile(volume+"file", []byte("content")))
		other := attach(t, s, DiskSpec{Serial: "other"})
		before := s.Disks()[1]
		d := openDevice(t, s, drivePath(n), readWrite)
		v := openDevice(t, s, device1(volume), readWrite)
		serial := func(d win.Device) (string, error) {
			out := make([]byte, 1024)
			length, err := d.Control(t.Context(), win.IoctlStorageQueryProperty, win.EncodePropertyQuery(win.PropertyDevice),
				out)
			if err != nil {
				return "", err
			}
			descriptor, err := win.DecodeDeviceDescriptor(out[:length])
			return descriptor.SerialNumber, err
		}
		wantErr(t, "with a serial number that there is", s.SwapDisk(n, DiskSpec{Serial: "other"}, keep),
			winerr.ErrorAlreadyExists)
		wantErr(t, "Windows' own", s.SwapDisk(0, DiskSpec{}, keep), winerr.ErrorNotSupported)
		wantErr(t, "none", s.SwapDisk(77, DiskSpec{}, keep), winerr.ErrorNotFound)
		must(t, s.SwapDisk(n, DiskSpec{Serial: "clone"}, keep))
		s.Settle()
		var want winerr.Errno
		if !keep {
			want = winerr.ErrorDeviceNotConnected
		}
		got, err := serial(d)
		if wantErr(t, "through the handle", err, want); keep && got != "clone" {
			t.Errorf("the handle leads to the disk %q", got)
		}
		wantErr(t, "through the volume's handle", v.Flush(t.Context()), want)
		now := s.Disks()[1]
		before.Spec.Serial, before.Spec.Number, now.Spec.Number = "clone", nil, nil
		if diff := cmp.Diff(before, now); diff != "" {
			t.Errorf("kept %t (-before +now):\n%s", keep, diff)
		}
		wantText(t, s, volume+"file", "content")
		must(t, s.SwapDisk(n, DiskSpec{}, keep)) // nobody can tell
		s.Settle()
		if diff := cmp.Diff(before.Spec.Page83, s.Disks()[1].Spec.Page83); diff != "" || s.Disks()[1].Spec.Serial != "clone" {
			t.Errorf("kept %t: the serial number %q, identifiers:\n%s", keep, s.Disks()[1].Spec.Serial, diff)
		}
		must(t, s.DetachDisk(other))
		closeHandle(t, d)
		closeHandle(t, v)
	}
}
