// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package use

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/ops/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/windows/device"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// systemDisks are the volumes and disks that Windows runs from, with the reasons: those that hold its
// directory, its system partition, its page files and its dedicated crash dump file. No operation
// changes such a disk or presents a volume of it to a pod.
//
// They are never kept for a later step, since a page file may be added at any time.
type systemDisks struct {
	volumes map[string]string      // by the volume's name in lower case
	disks   map[disk.Number]string // by the disk's number
}

// systemFile is a file, directory or partition that Windows runs from.
type systemFile struct {
	what, path string
	// mayLack says that the file may be missing, such as one on a temporary disk that the machine has
	// lost. A file that is missing protects no disk.
	mayLack bool
}

// reason names the file in refusals.
func (s systemFile) reason() string {
	return fmt.Sprintf("Windows runs from this disk: %s %s", s.what, s.path)
}

// SystemDisks returns the disks that Windows runs from, with the reasons. If they can't be found
// out, the error is csiproxy.ErrUnavailable.
func (o *Owner) SystemDisks(ctx context.Context) (map[disk.Number]string, error) {
	f, err := findSystemDisks(ctx, o.sys)
	if err != nil {
		return nil, err
	}
	return f.disks, nil
}

// checkSystemDisk returns csiproxy.ErrFailedPrecondition with the reason if Windows runs from a
// disk. If that can't be found out, it returns csiproxy.ErrUnavailable.
func (o *Owner) checkSystemDisk(ctx context.Context, n disk.Number) error {
	all, err := o.SystemDisks(ctx)
	if err == nil && all[n] != "" {
		err = csiproxy.Errorf(csiproxy.ErrFailedPrecondition, "%s", all[n])
	}
	return err
}

// SystemVolumes returns the check for pathpolicy.Policy.Protect of the volumes that Windows runs
// from: those of which any part lies on one of its disks.
func SystemVolumes(sys System) pathpolicy.VolumeCheck {
	return func(ctx context.Context, volumeName string) (reason string, err error) {
		f, err := findSystemDisks(ctx, sys)
		if err != nil {
			return "", err
		}
		if reason := f.volumes[strings.ToLower(volumeName)]; reason != "" {
			return reason, nil
		}
		extents, err := device.ExtentsOf(ctx, sys, device.VolumePath(volumeName))
		if win.IsGone(err) {
			return "", nil // Windows doesn't run from a volume that isn't there
		}
		if err != nil {
			return "", err
		}
		for _, e := range extents {
			if reason := f.disks[e.DiskNumber]; reason != "" {
				return reason, nil
			}
		}
		return "", nil
	}
}

// findSystemDisks asks Windows for the disks that it runs from. If they can't be found out, the error
// is csiproxy.ErrUnavailable.
func findSystemDisks(ctx context.Context, sys System) (systemDisks, error) {
	f := systemDisks{volumes: make(map[string]string), disks: make(map[disk.Number]string)}
	files, err := systemFiles(ctx, sys)
	for _, s := range files {
		if err = f.add(ctx, sys, s); s.mayLack && errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		if err != nil {
			err = fmt.Errorf("%s %s: %w", s.what, s.path, err)
			break
		}
	}
	if err != nil && ctx.Err() == nil {
		err = &csiproxy.Error{
			Kind: csiproxy.ErrUnavailable, Err: err,
			Detail: "which disks Windows runs from can't be found out, and these must not be touched",
		}
	}
	return f, err
}

// systemFiles asks Windows for the files that it runs from. If a value is missing from the
// registry, Windows has no file of that kind.
func systemFiles(ctx context.Context, sys System) ([]systemFile, error) {
	windows, err := sys.SystemWindowsDirectory(ctx)
	if err != nil {
		return nil, err
	}
	files := []systemFile{{"its directory", windows, false}}
	for _, v := range []struct{ what, key, value string }{
		{"its system partition", win.RegistrySetup, win.RegistrySystemPartition},
		{"its page file", win.RegistryMemoryManagement, win.RegistryExistingPageFiles},
		{"its crash dump file", win.RegistryCrashControl, win.RegistryDedicatedDumpFile},
	} {
		paths, err := sys.RegistryStrings(ctx, v.key, v.value)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf(`HKLM\%s\%s: %w`, v.key, v.value, err)
		}
		for _, path := range paths {
			files = append(files, systemFile{v.what, plainPath(path, windows), v.key != win.RegistrySetup})
		}
	}
	return files, nil
}

// plainPath removes \??\ from the beginning of a path, and expands the variables that a path
// of the system may begin with.
func plainPath(path, windows string) string {
	path = strings.TrimPrefix(path, `\??\`)
	for variable, value := range map[string]string{"%systemroot%": windows, "%windir%": windows,
		"%systemdrive%": windows[:min(2, len(windows))]} {
		if len(path) >= len(variable) && strings.EqualFold(path[:len(variable)], variable) {
			return value + path[len(variable):]
		}
	}
	return path
}

// add adds the volume and the disks of a file, which is given by a path on a drive or as
// \Device\HarddiskVolumeN. If the file isn't there, the error is fs.ErrNotExist.
func (f systemDisks) add(ctx context.Context, sys System, s systemFile) error {
	var volume string
	switch {
	case len(s.path) >= 3 && s.path[1:3] == `:\`:
		if s.mayLack {
			// A page file that is in use may refuse the query. Then it is there.
			if _, err := sys.FileAttributes(ctx, s.path); errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		name, err := driveVolume(ctx, sys, s.path)
		if err != nil {
			return err
		}
		key := strings.ToLower(name)
		if f.volumes[key] != "" {
			return nil
		}
		f.volumes[key] = s.reason()
		volume = device.VolumePath(name)
	case len(s.path) >= 8 && strings.EqualFold(s.path[:8], `\Device\`):
		name, _, _ := strings.Cut(s.path[8:], `\`)
		volume = `\\?\GLOBALROOT` + s.path[:8] + name
	case !strings.Contains(s.path, `\`): // Windows finds no file by a name alone
		return fmt.Errorf("it is not a whole path: %w", win.ErrorFileNotFound)
	default:
		return fmt.Errorf("the path is neither on a drive nor that of a device: %w", win.ErrorInvalidName)
	}
	extents, err := device.ExtentsOf(ctx, sys, volume)
	if err != nil {
		return err
	}
	for _, e := range extents {
		if f.disks[e.DiskNumber] == "" {
			f.disks[e.DiskNumber] = s.reason()
		}
	}
	return nil
}

// driveVolume returns the name of the volume that a path on a drive lies on: that of the drive, or one
// that is mounted at a directory of the path.
func driveVolume(ctx context.Context, sys System, path string) (string, error) {
	for {
		path = path[:strings.LastIndexByte(path, '\\')]
		name, err := sys.VolumeNameForMountPoint(ctx, path+`\`)
		if err == nil || len(path) <= len(`C:`) || !opendisk.IsNoMountPoint(err) {
			return name, err
		}
	}
}
