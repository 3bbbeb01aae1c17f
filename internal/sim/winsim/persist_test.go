// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/iscsitarget"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/services"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/smbserver"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/volumes"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/simnode/hardware"
)

// reopened opens a copy of a node's state file, as after the process was killed.
func reopened(t *testing.T, file string) map[string]any {
	t.Helper()
	b, err := os.ReadFile(file)
	must(t, err)
	copied := filepath.Join(t.TempDir(), "copy")
	must(t, os.WriteFile(copied, b, 0o600))
	s := openNode(t, Config{StateFile: copied, Delays: Delays{VolumeArrival: time.Hour, DiskArrival: time.Hour}})
	defer closeHandle(t, s)
	return dump(s)
}

// TestKill: what a call changed is in the file when it returns.
func TestKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "state")
		s := openNode(t, Config{StateFile: file, Delays: Delays{VolumeArrival: time.Second, DiskArrival: time.Second}})
		ctx := t.Context()
		var n csiproxy.DiskNumber
		var name string
		var session win.ISCSISessionID
		var held interface{ Close() error }
		var process win.ProcessID
		for _, step := range []struct {
			what string
			do   func() error
		}{
			{"new node", func() error { return nil }},
			{"settings", func() error { return s.SetSettings(Settings{AutomaticMSR: true}) }},
			{"attach", func() (err error) { n, err = s.AttachDisk(DiskSpec{SizeBytes: gib, Serial: "a"}); return err }},
			{"disk arrival", func() error { s.Settle(); return nil }},
			{"attach without a scan", func() error {
				_, err := s.AttachDisk(DiskSpec{SizeBytes: gib, NeedsRescan: true})
				return err
			}},
			{"rescan", func() error { return s.ReenumerateDevice(ctx, "") }},
			{"second arrival", func() error { s.Settle(); return nil }},
			{"initialise", func() error { createGPT(t, s, n); return nil }},
			{"partition", func() error { return setLayout(s, t, n, data(16*mib, 100*mib)) }},
			{"volume arrival", func() error { s.Settle(); name = s.VolumesOfDisk(n)[0]; return nil }},
			{"format", func() error { return s.FormatVolume(ctx, name, win.FormatOptions{FileSystem: "NTFS"}) }},
			{"directory", func() error { return s.MkdirAll(stage) }},
			{"mount", func() error { return s.SetVolumeMountPoint(ctx, stage+`\`, name) }},
			{"file", func() error { return s.WriteFile(stage+`\file`, bytes.Repeat([]byte("x"), 100000)) }},
			{"file again", func() error { return s.WriteFile(stage+`\file`, []byte("y")) }},
			{"hold", func() (err error) {
				held, err = s.Hold(stage+`\file`, existing(win.Delete, 0))
				return err
			}},
			{"delete a held file", func() error { return s.Remove(stage + `\file`) }},
			{"close it", func() error { return held.Close() }},
			{"failed call", func() error { _ = s.WriteFile(stage+`\big`, make([]byte, 200*mib)); return nil }},
			{"grow", func() error { return s.GrowDisk(n, 2*gib) }},
			{"see the growth", func() error { mustControl(t, s, drivePath(n), win.IoctlDiskUpdateDriveSize, nil); return nil }},
			{"grow partition", func() error {
				mustControl(t, s, drivePath(n), win.IoctlDiskGrowPartition,
					win.GrowPartition{PartitionNumber: 1, BytesToGrow: gib}.Encode())
				return nil
			}},
			{"extend", func() error {
				mustControl(t, s, device1(name), win.FsctlExtendVolume, win.EncodeInt64((gib+100*mib)/512))
				return nil
			}},
			{"read-only", func() error {
				return s.SetDiskAttributes(n, win.SetDiskAttributes{Mask: win.DiskReadOnly, Attributes: win.DiskReadOnly,
					Persist: true})
			}},
			{"plant bytes", func() error { return s.WriteImage(n, []byte("x"), 150*mib) }},
			{"take them away", func() error { return s.WriteImage(n, []byte{0}, 150*mib) }},
			{"offline", func() error {
				return s.SetDiskAttributes(n, win.SetDiskAttributes{Mask: 3, Attributes: win.DiskOffline})
			}},
			{"online", func() error { return s.SetDiskAttributes(n, win.SetDiskAttributes{Mask: 3}) }},
			{"third arrival", func() error { s.Settle(); return nil }},
			{"lock", func() error { return s.SetVolumeLocked(name, true) }},
			{"unlock", func() error { return s.SetVolumeLocked(name, false) }},
			{"letter", func() error { return s.SetVolumeMountPoint(ctx, `X:\`, name) }},
			{"format again", func() error {
				return s.FormatVolume(ctx, name,
					win.FormatOptions{FileSystem: "ReFS", Label: "l"})
			}},
			{"dirty", func() error { return s.SetVolumeDirty(name, true) }},
			{"read-only volume", func() error { return s.SetVolumeReadOnly(name, true) }},
			{"writable volume", func() error { return s.SetVolumeReadOnly(name, false) }},
			{"format with NTFS again", func() error {
				return s.FormatVolume(ctx, name, win.FormatOptions{FileSystem: "NTFS", NoShortNames: true})
			}},
			{"damage", func() error { return s.SetVolumeDamage(name, volumes.SpotDamage) }},
			{"scan", func() error { _, err := s.RepairVolume(ctx, name, win.RepairScan); return err }},
			{"spot fix", func() error { _, err := s.RepairVolume(ctx, name, win.RepairSpotFix); return err }},
			{"process", func() (err error) { process, err = s.StartProcess(podImage, `C:\Windows`); return err }},
			{"no process", func() error { return s.EndProcess(process) }},
			{"clone", func() error { _, err := s.CloneDisk(n, DiskSpec{Serial: "clone", Late: time.Second}); return err }},
			{"arrival of the clone", func() error { s.Settle(); return nil }},
			{"attributes of instances", func() error { return s.SetSettings(Settings{AttributesOfInstance: true}) }},
			{"attributes of one", func() error {
				return s.SetDiskAttributes(n, win.SetDiskAttributes{Mask: win.DiskReadOnly, Persist: true})
			}},
			{"another clone in its place", func() error { return s.SwapDisk(n, DiskSpec{Serial: "a"}, false) }},
			{"its arrival", func() error { s.Settle(); return nil }},
			{"NVMe disk", func() error {
				_, err := s.AttachDisk(DiskSpec{SizeBytes: gib, Serial: "nvme", NVMe: &hardware.NVMe{EUI64: [8]byte{1}}})
				return err
			}},
			{"its arrival", func() error { s.Settle(); return nil }},
			{"offline by itself", func() error { return s.SetOfflineReason(s.Disks()[4].Number, win.OfflineWriteFailures) }},
			{"access list", func() error { return denyCreation(ctx, s, stage, true) }},
			{"private file", func() error { return makePrivate(ctx, s, kubelet+`\private`) }},
			{"unmount", func() error { return s.DeleteVolumeMountPoint(ctx, stage+`\`) }},
			{"remove", func() error { return s.Remove(stage) }},
			{"BIOS serial number", func() error { return s.SetBIOSSerial("x") }},
			{"service", func() error { return s.Services().Add(services.Spec{Name: "x", StartType: win.ServiceAutoStart}) }},
			{"iSCSI target", func() error {
				return s.ISCSI().AddTarget(iscsitarget.Target{IQN: iqn, Portals: []win.ISCSIPortal{portal1}},
					DiskSpec{SizeBytes: gib})
			}},
			{"start the initiator", func() error { return s.StartService(ctx, services.ISCSIInitiator) }},
			{"discover", func() error { return s.AddISCSISendTargetPortal(ctx, portal1) }},
			{"initiator's secret", func() error { return s.SetISCSIInitiatorCHAPSecret(ctx, mutualSecret) }},
			{"persistent login", func() error {
				return s.ISCSI().SetPersistentLogin(
					win.ISCSILogin{Target: iqn, Portal: portal1})
			}},
			{"log in", func() (err error) {
				session, err = s.LoginISCSITarget(ctx, win.ISCSILogin{Target: iqn, Portal: portal1})
				return err
			}},
			{"arrival of the LUN", func() error { s.Settle(); return nil }},
			{"another LUN", func() error { return s.ISCSI().AddLUN(iqn, DiskSpec{SizeBytes: gib}) }},
			{"its arrival", func() error { s.Settle(); return nil }},
			{"lose the portal", func() error { return s.ISCSI().SetPortal(portal1, false) }},
			{"find it again", func() error { return s.ISCSI().SetPortal(portal1, true) }},
			{"return of the LUNs", func() error { s.Settle(); return nil }},
			{"log out", func() error { return s.LogoutISCSITarget(ctx, session) }},
			{"remove service", func() error { return s.Services().Remove("x") }},
			{"share", func() error {
				return s.SMB().AddShare(smbserver.Share{Server: "server", Name: "share", Users: []string{"user"}})
			}},
			{"larger share", func() error { return s.SMB().GrowShare("server", "share", 2<<40) }},
			{"user", func() error { return s.SMB().SetUser("server", "user", password) }},
			{"mapping", func() error { return s.CreateSMBGlobalMapping(ctx, share, credentials) }},
			{"file on the share", func() error { return s.WriteFile(share+`\file`, []byte("x")) }},
			{"server down", func() error { return s.SMB().SetState("server", smbserver.State{Unreachable: true}) }},
			{"mapping is down", func() error { _, _ = s.ReadFile(share + `\file`); return nil }},
			{"server up", func() error { return s.SMB().SetState("server", smbserver.State{NoEncryption: true}) }},
			{"mapping is up", func() error { return s.Remove(share + `\file`) }},
			{"second share", func() error { return s.SMB().AddShare(smbserver.Share{Server: "server", Name: "second"}) }},
			{"no second share", func() error { return s.SMB().RemoveShare("server", "second") }},
			{"other password", func() error { return s.SMB().SetUser("server", "user", csiproxy.NewSecret("other")) }},
			{"no user", func() error { return s.SMB().RemoveUser("server", "user") }},
			{"no mapping", func() error { return s.RemoveSMBGlobalMapping(ctx, share) }},
			{"loss of power", func() error { return s.PowerLoss() }},
			{"restart", func() error { return s.Reboot() }},
			{"remove target", func() error { return s.ISCSI().RemoveTarget(iqn) }},
			{"detach", func() error { return s.DetachDisk(n) }},
			{"delete", func() error { return s.DeleteDisk("a") }},
		} {
			if err := step.do(); err != nil {
				t.Fatalf("%s: %v", step.what, err)
			}
			if diff := cmp.Diff(dump(s), reopened(t, file)); diff != "" {
				t.Errorf("%s: the file has another node (-in memory +in file):\n%s", step.what, diff)
			}
		}
		must(t, s.Close())
	})
}

// Names that JSON can't have outlive the process, too.
func TestHalfPairIsKept(t *testing.T) {
	s := newNode(t, Delays{})
	for _, name := range []string{"\xed\xa0\xbd", "\xed\xa0\xbe", "x\xed\xb2\xbe"} {
		must(t, s.WriteFile(kubelet+`\`+name, nil))
	}
}

// TestKillOnTheWay: what was on its way arrives after the process is back.
func TestKillOnTheWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Config{StateFile: filepath.Join(t.TempDir(), "state"),
			Delays: Delays{VolumeArrival: time.Second, DiskArrival: time.Second}}
		s := openNode(t, c)
		n := attach(t, s, DiskSpec{})
		must(t, s.Close())
		s = openNode(t, c)
		s.Settle()
		createGPT(t, s, n)
		must(t, setLayout(s, t, n, data(mib, gib)))
		must(t, s.Close())
		s = openNode(t, c)
		if v := s.VolumesOfDisk(n); len(v) != 0 {
			t.Errorf("at once: %q", v)
		}
		s.Settle()
		if v := s.VolumesOfDisk(n); len(v) != 1 {
			t.Errorf("a second later: %q", v)
		}
		must(t, s.Close())
	})
}

// TestCopyOf: any number of nodes may begin as copies of a file, and none changes it.
func TestCopyOf(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state")
	s := openNode(t, Config{StateFile: file})
	n, _ := newVolume(t, s, true)
	want := dump(s)
	must(t, s.Close())
	before, err := os.ReadFile(file)
	must(t, err)
	copies := []*System{openNode(t, Config{CopyOf: file}), openNode(t, Config{CopyOf: file})}
	must(t, copies[0].DetachDisk(n))
	if diff := cmp.Diff(want, dump(copies[1])); diff != "" {
		t.Errorf("the copy is another node (-want +got):\n%s", diff)
	}
	for _, c := range copies {
		must(t, c.Close())
	}
	if after, err := os.ReadFile(file); err != nil || !bytes.Equal(before, after) {
		t.Errorf("a copy has changed the file, %v", err)
	}
	if _, err := Open(Config{CopyOf: file + ".none"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a copy of no file: %v", err)
	}
}

// TestCommitSize: a small change of a big node writes little.
func TestCommitSize(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state")
	s := openNode(t, Config{StateFile: file})
	defer closeHandle(t, s)
	_, name := newVolume(t, s, true)
	must(t, s.FormatVolume(t.Context(), name, win.FormatOptions{FileSystem: "NTFS"}))
	for i := range 200 {
		must(t, s.WriteFile(fmt.Sprint(kubelet, `\pods\`, i), make([]byte, 10000)))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	op, err := s.paths.Open(kubelet+`\pods\7`, win.OpenOptions{Access: win.GenericWrite, Disposition: win.FileOpen})
	must(t, err)
	must(t, op.SetContents([]byte("x")))
	op.Close()
	s.save()
	if n := s.file.Pending(); n != 1 {
		t.Errorf("one changed file makes %d changes", n)
	}
}

func TestStateFileIsLocked(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state")
	s := openNode(t, Config{StateFile: file})
	if other, err := Open(Config{StateFile: file}); err == nil {
		closeHandle(t, other)
		t.Error("the file was opened twice")
	} else if !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "another process") {
		t.Errorf("the error doesn't say why: %v", err)
	}
	must(t, s.Close())
	closeHandle(t, openNode(t, Config{StateFile: file}))
	if err := s.Close(); err == nil {
		t.Error("closed twice")
	}
	_, err := s.FindVolumes(t.Context())
	if err == nil {
		t.Error("a closed node answers")
	}
}

// edited changes a database, which it makes if there is none, and returns what its file has then.
func edited(t *testing.T, file string, change func(*bbolt.Tx) error) []byte {
	t.Helper()
	db, err := bbolt.Open(file, 0o600, nil)
	must(t, err)
	must(t, db.Update(change))
	must(t, db.Close())
	b, err := os.ReadFile(file)
	must(t, err)
	return b
}

// TestForeignStateFile: what isn't a state file is refused and left as it is.
func TestForeignStateFile(t *testing.T) {
	state := func(t *testing.T, name string) []byte {
		t.Helper()
		file := filepath.Join(t.TempDir(), name)
		s := openNode(t, Config{StateFile: file})
		n, _ := newVolume(t, s, true)
		must(t, s.WriteImage(n, bytes.Repeat([]byte("x"), 1<<20), 5*gib))
		must(t, s.Close())
		b, err := os.ReadFile(file)
		must(t, err)
		return b
	}
	says := map[string]string{
		"empty": "it is empty", "empty database": "not the state of a simulated node",
		"another database": "not the state of a simulated node", "another format": "format 99", "cut off": "cut off",
		"wrong page number": "damaged", "damaged list of free pages": "damaged",
	}
	for name, contents := range map[string]func(*testing.T) []byte{
		"empty": func(*testing.T) []byte { return nil },
		"text":  func(*testing.T) []byte { return []byte("a text") },
		"empty database": func(t *testing.T) []byte {
			return edited(t, filepath.Join(t.TempDir(), "other"), func(*bbolt.Tx) error { return nil })
		},
		"zeros": func(*testing.T) []byte { return make([]byte, 64<<10) },
		"another database": func(t *testing.T) []byte {
			return edited(t, filepath.Join(t.TempDir(), "other"), func(tx *bbolt.Tx) error {
				_, err := tx.CreateBucket([]byte("disks"))
				return err
			})
		},
		"another format": func(t *testing.T) []byte {
			file := filepath.Join(t.TempDir(), "newer")
			closeHandle(t, openNode(t, Config{StateFile: file}))
			return edited(t, file, func(tx *bbolt.Tx) error {
				return tx.Bucket([]byte("node")).Put([]byte("csi-proxy simulated node"), []byte("99"))
			})
		},
		"cut off": func(t *testing.T) []byte {
			b := state(t, "whole")
			return b[:len(b)*3/4]
		},
		"wrong page number": func(t *testing.T) []byte {
			b := state(t, "whole")
			const branch, header, number = 0x01, 16, 8 // flag of a page, and where its first child's number is
			for page := 0; page < len(b); page += os.Getpagesize() {
				if b[page+8] == branch {
					b[page+header+number+2] = 0x10
				}
			}
			return b
		},
		"damaged list of free pages": func(t *testing.T) []byte {
			b := state(t, "whole")
			const idSize, freelist = 8, 0x10 // of a page's header, and the flag of that page
			for page := 0; page < len(b); page += os.Getpagesize() {
				if b[page+idSize] == freelist {
					b[page+idSize] = 0
				}
			}
			return b
		},
		"damaged": func(t *testing.T) []byte {
			b := state(t, "whole")
			for i := 16 << 10; i < len(b); i += 100 {
				b[i] ^= 0x55
			}
			return b
		},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "damaged list of free pages" && runtime.GOOS == "windows" {
				t.Skip("bbolt keeps such a file open after it has failed, and Windows removes no open file")
			}
			if name == "damaged" && raceDetector {
				t.Skip("bbolt may fault in the mapped file, and within the race detector that can't be caught")
			}
			want := contents(t)
			file := filepath.Join(t.TempDir(), "state")
			must(t, os.WriteFile(file, want, 0o600))
			s, err := Open(Config{StateFile: file})
			if err == nil {
				closeHandle(t, s)
				t.Fatal("it was opened")
			}
			for _, want := range []string{file, says[name]} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error doesn't say %q: %v", want, err)
				}
			}
			if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
				t.Errorf("the file was changed, %v", err)
			}
		})
	}
	if _, err := Open(Config{StateFile: t.TempDir()}); err == nil {
		t.Error("a directory was opened")
	}
}

// TestDamagedRecords: no record is believed just because the database is sound.
func TestDamagedRecords(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state")
	s := openNode(t, Config{StateFile: file})
	_, name := newVolume(t, s, true)
	must(t, s.MkdirAll(stage))
	must(t, s.SetVolumeMountPoint(t.Context(), stage+`\`, name))
	newMapping(t, s)
	must(t, s.Close())
	whole, err := os.ReadFile(file)
	must(t, err)
	for _, bucket := range []string{
		"node", bucketSystem, "disks", "blocks", "volumes", "mounts", "trees", "files",
		"smb servers", "smb mappings", "smb files", "services", "iscsi",
	} {
		for what, damage := range map[string]func(b *bbolt.Bucket, k, v []byte) error{
			"value": func(b *bbolt.Bucket, k, v []byte) error { return b.Put(k, []byte("{")) },
			"key":   func(b *bbolt.Bucket, k, v []byte) error { return b.Put([]byte("key"), v) },
			"disk":  func(b *bbolt.Bucket, k, v []byte) error { return b.Put(bytes.Repeat([]byte{0xFF}, len(k)), v) },
		} {
			byKey := slices.Contains([]string{
				"disks", "blocks", "trees", "files", "smb servers", "smb mappings", "smb files", "services",
			}, bucket)
			if what != "value" && (!byKey || bucket == "disks" && what == "disk") {
				continue // these keys are no more than names
			}
			copied := filepath.Join(t.TempDir(), "copy")
			must(t, os.WriteFile(copied, whole, 0o600))
			edited(t, copied, func(tx *bbolt.Tx) error {
				b := tx.Bucket([]byte(bucket))
				k, v := b.Cursor().First()
				return damage(b, k, v)
			})
			s, err := Open(Config{StateFile: copied})
			if err == nil {
				closeHandle(t, s)
				t.Errorf("a bad %s in %s was believed", what, bucket)
			}
		}
	}
}

// TestFailedCommit: what couldn't be written is an error of the call.
func TestFailedCommit(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state")
	s := openNode(t, Config{StateFile: file})
	must(t, s.file.Close())
	if err := s.MkdirAll(stage); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a call that wasn't made durable gave the error %v", err)
	}
	must(t, s.Close())
}
