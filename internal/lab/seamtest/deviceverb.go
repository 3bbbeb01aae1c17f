// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package seamtest

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// runDetach takes the test's disk away, and waits until it has left.
func runDetach(t *testing.T, r *oracleRun, _ OracleStep) error {
	d := r.drive(t)
	d.Detach()
	r.f.await(t, "the disk has left", func() bool {
		h, err := r.f.System.OpenDevice(t.Context(), physicalDrive(d.Number), win.AccessNone)
		if err == nil {
			closing(t, h)
		}
		return err != nil
	})
	return nil
}

// runProtect makes the disk of a volume read-only before its file system is mounted.
func runProtect(t *testing.T, r *oracleRun, s OracleStep) error {
	volume := r.volume(t, s.Args[0])
	path := physicalDrive(r.drive(t).Number)
	both := win.DiskOffline | win.DiskReadOnly
	for _, set := range []win.SetDiskAttributes{{Attributes: both, Mask: both}, {Mask: win.DiskOffline}} {
		if _, err := r.f.control(t, path, win.IoctlDiskSetDiskAttributes, set.Encode(), 0); err != nil {
			return err
		}
	}
	r.f.await(t, "the volume has come again", func() bool {
		_, err := r.f.System.VolumeInformation(t.Context(), volume)
		return err == nil
	})
	return nil
}

// runDevice opens "disk", the device of V:, R: or C:, the root directory C:\, or, after abs:, a path.
func runDevice(t *testing.T, r *oracleRun, s OracleStep) error {
	var path string
	switch arg := s.Args[0]; arg {
	case "disk":
		path = physicalDrive(r.drive(t).Number)
	case "V:", "R:", "C:":
		path = deviceOf(r.path(t, arg))
	default:
		path = r.path(t, arg)
	}
	var access win.Access
	for _, word := range s.Args[1:] {
		access |= rights[word]
	}
	d, err := r.f.System.OpenDevice(t.Context(), path, access)
	return r.keep(t, s, d, err)
}

// runControl sends a control code by its name. What follows is in=N or out=N, a number of zero bytes, in=
// with the name of an input, or n=N, how many bytes must be in out. If out is too small, nothing must be.
func runControl(t *testing.T, r *oracleRun, s OracleStep) error {
	var code win.IoctlCode
	for _, c := range win.IoctlCodes() {
		if name, _ := c.Name(); name == s.Args[1] {
			code = c
		}
	}
	if code == 0 {
		t.Fatalf("there is no control code %s", s.Args[1])
	}
	var in, out []byte
	want := -1
	for _, arg := range s.Args[2:] {
		key, value, _ := strings.Cut(arg, "=")
		switch {
		case key == "in" && value == "property":
			in = win.EncodePropertyQuery(win.PropertyDevice)
		case key == "in" && value == "beyond": // a growth of the first partition by more than the disk has
			in = win.GrowPartition{PartitionNumber: 1, BytesToGrow: 1 << 50}.Encode()
		case key == "in" && value == "sectors": // of the whole partition
			in = win.EncodeInt64(partitionSize / 512)
		case key == "in" && value == "offline":
			in = win.SetDiskAttributes{Attributes: win.DiskOffline, Mask: win.DiskOffline}.Encode()
		case key == "in" && value == "readonly":
			in = win.SetDiskAttributes{Attributes: win.DiskReadOnly, Mask: win.DiskReadOnly}.Encode()
		case key == "in":
			in = make([]byte, number(t, value))
		case key == "out":
			out = make([]byte, number(t, value))
		case key == "n":
			want = number(t, value)
		default:
			t.Fatalf("a control code has no %q", arg)
		}
	}
	d := r.device(t, s.Args[0])
	if code == win.FsctlLockVolume && len(s.Want) == 0 {
		return r.f.lock(t, d)
	}
	n, err := d.Control(t.Context(), code, in, out)
	if err == nil && want >= 0 && n != want {
		t.Errorf("%s: %d bytes", s, n)
	}
	if errors.Is(err, winerr.ErrorInsufficientBuffer) && slices.ContainsFunc(out, func(b byte) bool { return b != 0 }) {
		t.Errorf("%s: there are % x", s, out)
	}
	return err
}

// runRead reads at an offset, with how many bytes come if a fourth argument says so.
func runRead(t *testing.T, r *oracleRun, s OracleStep) error {
	n, err := r.device(t, s.Args[0]).ReadAt(t.Context(), make([]byte, number(t, s.Args[2])), int64(number(t, s.Args[1])))
	if err == nil && len(s.Args) > 3 && n != number(t, s.Args[3]) {
		t.Errorf("%s: %d bytes", s, n)
	}
	return err
}

func runFlush(t *testing.T, r *oracleRun, s OracleStep) error {
	return r.device(t, s.Args[0]).Flush(t.Context())
}

func runMount(t *testing.T, r *oracleRun, s OracleStep) error {
	return r.f.System.SetVolumeMountPoint(t.Context(), r.path(t, s.Args[0]), r.path(t, s.Args[1]))
}

func runUnmount(t *testing.T, r *oracleRun, s OracleStep) error {
	return r.f.System.DeleteVolumeMountPoint(t.Context(), r.path(t, s.Args[0]))
}

// runVolumeName asks which volume is mounted, and compares it if a second argument says so.
func runVolumeName(t *testing.T, r *oracleRun, s OracleStep) error {
	name, err := r.f.System.VolumeNameForMountPoint(t.Context(), r.path(t, s.Args[0]))
	if err == nil && len(s.Args) > 1 && !strings.EqualFold(name, r.path(t, s.Args[1])) {
		t.Errorf("%s: it is %s", s, name)
	}
	return err
}

// runPaths asks where a volume is mounted, and looks for a path if a second argument says so.
func runPaths(t *testing.T, r *oracleRun, s OracleStep) error {
	paths, err := r.f.System.VolumePathNames(t.Context(), r.path(t, s.Args[0]))
	if err == nil && len(s.Args) > 1 {
		mounted := slices.ContainsFunc(paths, func(p string) bool { return strings.EqualFold(p, r.path(t, s.Args[1])) })
		if mounted != (s.Verb == "paths") {
			t.Errorf("%s: there are %q", s, paths)
		}
	}
	return err
}

// runVolumeInformation compares the file system, and its label, if more arguments say so.
func runVolumeInformation(t *testing.T, r *oracleRun, s OracleStep) error {
	info, err := r.f.System.VolumeInformation(t.Context(), r.path(t, s.Args[0]))
	want := s.Args[1:]
	if got := []string{info.FileSystem, info.Label}; err == nil && !slices.Equal(got[:len(want)], want) {
		t.Errorf("%s: it has %q", s, got)
	}
	return err
}

// runFormat formats a volume with a file system, and with label= and cluster=.
func runFormat(t *testing.T, r *oracleRun, s OracleStep) error {
	o := win.FormatOptions{FileSystem: s.Args[1]}
	for _, arg := range s.Args[2:] {
		switch key, value, _ := strings.Cut(arg, "="); key {
		case "label":
			o.Label = value
		case "cluster":
			o.ClusterSize = uint32(number(t, value))
		default:
			t.Fatalf("a format has no %q", arg)
		}
	}
	if slices.Contains(s.Errnos(), winerr.ErrorRetry) {
		return r.f.System.FormatVolume(t.Context(), r.path(t, s.Args[0]), o)
	}
	return r.f.format(t, r.path(t, s.Args[0]), o)
}

// runRepair scans or repairs a volume, which must have no errors.
func runRepair(t *testing.T, r *oracleRun, s OracleStep) error {
	mode, ok := map[string]win.RepairMode{"scan": win.RepairScan, "spotfix": win.RepairSpotFix}[s.Args[1]]
	if !ok {
		t.Fatalf("there is no repair %q", s.Args[1])
	}
	result, err := r.f.System.RepairVolume(t.Context(), r.path(t, s.Args[0]), mode)
	if err == nil && result != win.RepairNoErrors {
		t.Errorf("%s: result %d", s, result)
	}
	return err
}

func runFree(t *testing.T, r *oracleRun, s OracleStep) error {
	_, err := r.f.System.DiskFreeSpace(t.Context(), r.path(t, s.Args[0]))
	return err
}
