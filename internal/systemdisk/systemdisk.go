// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package systemdisk knows the disks that Windows runs from: those of its directory, of
// its system partition, of its page files and of its dedicated crash dump file. No
// operation changes such a disk or presents a volume of it to a pod.
package systemdisk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/device"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// System is what finding the disks takes of Windows.
type System interface {
	win.DeviceOpener
	win.VolumeNames
	win.Registry
}

// Disks are the disks that Windows runs from. All methods may be called concurrently.
//
// Each question reads again where Windows' files are, since a page file may be added at
// any time: four calls that reach no disk. On which disks these files lie is remembered
// for as long as the files stay the same. That can't change meanwhile: Windows neither
// lets go of such a disk nor gives its drive letters away.
type Disks struct {
	sys System

	mu    sync.Mutex
	known *found // nil before the first success
}

// found is which disks Windows runs from.
type found struct {
	files   []systemFile
	volumes map[string]string      // reasons by the volume's name in lower case
	disks   map[disk.Number]string // reasons by the disk's number
}

// systemFile is a file, directory or partition that Windows runs from.
type systemFile struct{ what, path string }

// reason names the file in refusals.
func (s systemFile) reason() string {
	return fmt.Sprintf("Windows runs from this disk: %s %s", s.what, s.path)
}

// New returns the disks that Windows runs from on the node sys.
func New(sys System) *Disks { return &Disks{sys: sys} }

// Disk returns why nothing may be done to a disk; "" if nothing stands against it.
func (d *Disks) Disk(ctx context.Context, n disk.Number) (reason string, err error) {
	f, err := d.find(ctx)
	if err != nil {
		return "", err
	}
	return f.disks[n], nil
}

// Check returns csiproxy.ErrFailedPrecondition with the reason if Windows runs from a
// disk, and csiproxy.ErrUnavailable if that can't be found out.
func (d *Disks) Check(ctx context.Context, n disk.Number) error {
	reason, err := d.Disk(ctx, n)
	if err == nil && reason != "" {
		err = csiproxy.Errorf(csiproxy.ErrFailedPrecondition, "%s", reason)
	}
	return err
}

// All returns the disks that Windows runs from, with the reasons.
func (d *Disks) All(ctx context.Context) (map[disk.Number]string, error) {
	f, err := d.find(ctx)
	if err != nil {
		return nil, err
	}
	return f.disks, nil
}

// Protected returns why nothing may be done to a volume, given by its name
// \\?\Volume{guid}\; "" if nothing stands against it. It is protected if any part of it
// lies on a disk that Windows runs from.
func (d *Disks) Protected(ctx context.Context, volumeName string) (reason string, err error) {
	f, err := d.find(ctx)
	if err != nil {
		return "", err
	}
	if reason := f.volumes[strings.ToLower(volumeName)]; reason != "" {
		return reason, nil
	}
	extents, err := device.ExtentsOf(ctx, d.sys, device.VolumePath(volumeName))
	if win.IsGone(err) {
		return "", nil // Windows doesn't run from what isn't there
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

// Once returns a context in which Windows is asked only once where it runs from: for an
// operation that is made of several others, or asks for many volumes.
func Once(ctx context.Context) context.Context { return context.WithValue(ctx, onceKey{}, new(once)) }

type onceKey struct{}

type once struct {
	mu    sync.Mutex // guards found; not held during calls to Windows
	found *found     // nil before the first success
}

// find returns which disks Windows runs from. That this can't be found out is
// csiproxy.ErrUnavailable.
func (d *Disks) find(ctx context.Context) (*found, error) {
	o, _ := ctx.Value(onceKey{}).(*once)
	if o != nil {
		o.mu.Lock()
		f := o.found
		o.mu.Unlock()
		if f != nil {
			return f, nil
		}
	}
	f, err := d.look(ctx)
	if o != nil && err == nil {
		o.mu.Lock()
		o.found = f
		o.mu.Unlock()
	}
	if err != nil && ctx.Err() == nil {
		err = &csiproxy.Error{
			Kind: csiproxy.ErrUnavailable, Err: err,
			Detail: "which disks Windows runs from can't be found out, and these must not be touched",
		}
	}
	return f, err
}

func (d *Disks) look(ctx context.Context) (*found, error) {
	files, err := d.systemFiles(ctx)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	known := d.known
	d.mu.Unlock()
	if known != nil && slices.Equal(known.files, files) {
		return known, nil
	}
	f := &found{files: files, volumes: make(map[string]string), disks: make(map[disk.Number]string)}
	for _, s := range files {
		if err := f.add(ctx, d.sys, s); err != nil {
			return nil, fmt.Errorf("%s %s: %w", s.what, s.path, err)
		}
	}
	d.mu.Lock()
	d.known = f
	d.mu.Unlock()
	return f, nil
}

// systemFiles asks Windows where it runs from. A value that the registry doesn't have means
// that Windows has nothing of that kind.
func (d *Disks) systemFiles(ctx context.Context) ([]systemFile, error) {
	windows, err := d.sys.SystemWindowsDirectory(ctx)
	if err != nil {
		return nil, err
	}
	files := []systemFile{{"its directory", windows}}
	for _, v := range []struct{ what, key, value string }{
		{"its system partition", win.RegistrySetup, win.RegistrySystemPartition},
		{"its page file", win.RegistryMemoryManagement, win.RegistryExistingPageFiles},
		{"its crash dump file", win.RegistryCrashControl, win.RegistryDedicatedDumpFile},
	} {
		paths, err := d.sys.RegistryStrings(ctx, v.key, v.value)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf(`HKLM\%s\%s: %w`, v.key, v.value, err)
		}
		for _, path := range paths {
			files = append(files, systemFile{v.what, plainPath(path, windows)})
		}
	}
	return files, nil
}

// plainPath takes \??\ off a path, and fills in the variables that a path of the system
// may begin with.
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

// add finds the disks of a file: of a path on a drive, or of \Device\HarddiskVolumeN.
// Page files and dump files are always on drives: Windows takes no mounted folders.
func (f *found) add(ctx context.Context, sys System, s systemFile) error {
	var volume string
	switch {
	case len(s.path) >= 3 && s.path[1:3] == `:\`:
		name, err := sys.VolumeNameForMountPoint(ctx, s.path[:3])
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
