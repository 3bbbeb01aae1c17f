// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// systemDisks are the volumes and disks of Windows itself, with the reasons: they hold its
// directory, its system partition, its page files and its dedicated crash dump file. Operations
// leave the disks unchanged and keep their volumes away from pods.
//
// Never keep a systemDisks for a later step: a page file may be added at any time.
type systemDisks struct {
	volumes map[string]string              // by the volume's name in lower case
	disks   map[csiproxy.DiskNumber]string // by the disk's number
	ignored []error                        // errors of files outside disks

	mountPoints map[string]string // known volumes by directory
}

// systemFile is a file, directory or partition that Windows runs from.
type systemFile struct {
	what, path string
	// mayLack allows the file to be missing, such as a file on a temporary disk lost by the
	// machine. A file that is missing, or not on a disk, protects no disk.
	mayLack bool
}

// reason names the file in refusals.
func (s systemFile) reason() string {
	return fmt.Sprintf("Windows runs from this disk: %s %s", s.what, s.path)
}

// SystemDisks returns the disks that Windows runs from, with the reasons. If a query fails, the
// error is csiproxy.ErrUnavailable.
func (f *Finder) SystemDisks(ctx context.Context) (map[csiproxy.DiskNumber]string, error) {
	found, err := findSystemDisks(ctx, f.whole)
	if err != nil {
		return nil, err
	}
	for _, ignoredErr := range found.ignored {
		if _, logged := f.ignored.LoadOrStore(ignoredErr.Error(), true); !logged {
			f.log.Warn("a file that Windows runs from is on no disk, so no disk is protected for it", "err", ignoredErr)
		}
	}
	return found.disks, nil
}

// CheckSystemDisk returns csiproxy.ErrFailedPrecondition with the reason if Windows runs from a
// disk. If a query fails, the error is csiproxy.ErrUnavailable.
func (f *Finder) CheckSystemDisk(ctx context.Context, n csiproxy.DiskNumber) error {
	all, err := f.SystemDisks(ctx)
	if err == nil && all[n] != "" {
		err = csiproxy.Errorf(csiproxy.ErrFailedPrecondition, "refused, since %s", all[n])
	}
	return err
}

// SystemVolumes returns a check for pathpolicy.Policy.Protects. The check refuses Windows' own
// volumes: every volume with any part on a disk of Windows. sys is the node's system; volumes opens
// the volumes to check.
func SystemVolumes(sys System, volumes win.DeviceOpener) pathpolicy.VolumeCheck {
	return func(ctx context.Context, volumeName string) (reason string, volumeOf map[string]string, err error) {
		f, err := findSystemDisks(ctx, sys)
		if err != nil {
			return "", nil, err
		}
		if reason := f.volumes[strings.ToLower(volumeName)]; reason != "" {
			return reason, nil, nil
		}
		extents, err := win.ExtentsOf(ctx, volumes, win.VolumePath(volumeName))
		if err != nil && !winerr.IsGone(err) { // Windows never runs from a missing volume
			return "", nil, err
		}
		for _, e := range extents {
			if reason := f.disks[e.DiskNumber]; reason != "" {
				return reason, nil, nil
			}
		}
		return "", f.mountPoints, nil
	}
}

// findSystemDisks asks Windows for its own disks. If a query fails, the error is
// csiproxy.ErrUnavailable.
func findSystemDisks(ctx context.Context, sys System) (systemDisks, error) {
	f := systemDisks{volumes: make(map[string]string), disks: make(map[csiproxy.DiskNumber]string),
		mountPoints: make(map[string]string)}
	files, err := systemFiles(ctx, sys)
	for _, s := range files {
		if err = f.add(ctx, sys, s); err == nil {
			continue
		}
		err = fmt.Errorf("%s %s: %w", s.what, s.path, err)
		if !s.mayLack || !winerr.IsAny(err, notOnDisk...) {
			break
		}
		f.ignored, err = append(f.ignored, err), nil
	}
	if err != nil && ctx.Err() == nil {
		err = &csiproxy.Error{
			Kind: csiproxy.ErrUnavailable, Err: err,
			Detail: "Windows doesn't say which disks it runs from, and CSI Proxy must not change these",
		}
	}
	return f, err
}

// systemFiles asks Windows for its own files. If a value is missing from the registry, Windows has
// no file of the kind.
func systemFiles(ctx context.Context, sys System) ([]systemFile, error) {
	windowsDir, err := sys.SystemWindowsDirectory(ctx)
	if err != nil {
		return nil, err
	}
	files := []systemFile{{"its directory", windowsDir, false}}
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
			files = append(files, systemFile{v.what, plainPath(path, windowsDir), v.key != win.RegistrySetup})
		}
	}
	return files, nil
}

// Paths of system files, as returned by plainPath.
var (
	onVolume = regexp.MustCompile(`(?i)^([a-z]:|\\\\\?\\Volume{[^\\]*})\\`)
	onDevice = regexp.MustCompile(`^\\[^\\]+\\[^\\]+`) // such as \Device\HarddiskVolume1
)

// plainPath returns the path of a system file, with a drive, a volume's name or a device at the
// beginning. In the registry the path may also begin with a prefix of the kernel or of Win32, or
// with a placeholder for a directory.
func plainPath(path, windows string) string {
	for _, prefix := range []string{`\??\`, `\\?\`, `\\.\`} {
		path = strings.TrimPrefix(path, prefix)
	}
	for name, value := range map[string]string{"%systemroot%": windows, "%windir%": windows, `\SystemRoot`: windows,
		"%systemdrive%": windows[:min(2, len(windows))], `Volume{`: `\\?\Volume{`} {
		if len(path) >= len(name) && strings.EqualFold(path[:len(name)], name) {
			return value + path[len(name):]
		}
	}
	return path
}

// notOnDisk are the errors of a query for the place of a file that is on no disk: the path is
// missing, the drive has no medium or is a drive without a disk, such as a DVD drive, or the path
// has an unknown form.
var notOnDisk = []winerr.Errno{winerr.ErrorFileNotFound, winerr.ErrorPathNotFound,
	winerr.ErrorInvalidFunction, winerr.ErrorNotReady, winerr.ErrorInvalidName}

// add adds the volume and the disks of a file.
func (f systemDisks) add(ctx context.Context, sys System, s systemFile) error {
	volume := `\\?\GLOBALROOT` + onDevice.FindString(s.path)
	isOnVolume := onVolume.MatchString(s.path)
	if !isOnVolume && !onDevice.MatchString(s.path) {
		return fmt.Errorf("the path is on no volume, and isn't a device: %w", winerr.ErrorInvalidName)
	}
	if isOnVolume {
		name, err := f.volumeOfPath(ctx, sys, s.path)
		if err != nil {
			return err
		}
		key := strings.ToLower(name)
		if f.volumes[key] != "" {
			return nil
		}
		if s.mayLack {
			// A page file in use may refuse the query. It then exists.
			if _, err := sys.FileAttributes(ctx, s.path); winerr.IsAny(err, notOnDisk...) {
				return err
			}
		}
		f.volumes[key] = s.reason()
		volume = win.VolumePath(name)
	}
	extents, err := win.ExtentsOf(ctx, sys, volume)
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

// volumeOfPath returns the name of the volume under a path: the volume of its drive, the volume at
// its beginning, or a volume mounted at a directory of the path.
func (f systemDisks) volumeOfPath(ctx context.Context, sys System, path string) (string, error) {
	root := onVolume.FindString(path)
	for {
		path = path[:strings.LastIndexByte(path, '\\')]
		if name := f.mountPoints[path]; name != "" {
			return name, nil
		}
		name, err := sys.VolumeNameForMountPoint(ctx, path+`\`)
		if err == nil {
			f.mountPoints[path] = name
			return name, nil
		}
		if len(path) < len(root) || !winerr.IsAny(err, noMountPoint...) {
			return name, err
		}
	}
}

// noMountPoint are the errors of a query for the volume mounted at a path, if there is no volume:
// the path is missing, or is something else. The last two mean a file. Errors about a removed device
// are excluded.
var noMountPoint = []winerr.Errno{winerr.ErrorFileNotFound, winerr.ErrorPathNotFound,
	winerr.ErrorNotAReparsePoint, winerr.ErrorInvalidReparseData, winerr.ErrorInvalidParameter,
	winerr.ErrorDirectory, winerr.ErrorInvalidName}
