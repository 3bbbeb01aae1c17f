// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mounter is mount.Interface of k8s.io/mount-utils over CSI Proxy's operations, for
// drivers that are written around that interface. Formatting and growing, for which mount-utils
// runs PowerShell on Windows, are methods of the Mounter, too. A new driver calls the storage API.
package mounter

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"

	mount "k8s.io/mount-utils"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/published"
)

// Operations are what a Mounter needs: the fields of a node.Node or a client.Client.
type Operations struct {
	Disk       published.DiskOperations
	Filesystem published.FilesystemOperations
	Storage    csiproxy.StorageOperations
}

// Mounter mounts what a driver stages and publishes. A device is named by the number of a disk,
// or by \\server\share. Paths may have slashes. All methods may be called concurrently.
type Mounter struct {
	Operations
	ctx        context.Context
	keepOnline bool
}

var _ mount.Interface = (*Mounter)(nil)

// New returns a Mounter whose calls aren't bounded in time. It panics if a field of o is missing.
func New(o Operations) *Mounter {
	switch {
	case o.Disk == nil:
		panic("mounter: Operations.Disk is missing")
	case o.Filesystem == nil:
		panic("mounter: Operations.Filesystem is missing")
	case o.Storage == nil:
		panic("mounter: Operations.Storage is missing")
	}
	return &Mounter{Operations: o, ctx: context.Background()}
}

// WithContext returns the same Mounter for calls that end with ctx, such as that of a CSI call:
// the methods of mount.Interface take none.
func (m *Mounter) WithContext(ctx context.Context) *Mounter {
	with := *m
	with.ctx = ctx
	return &with
}

// KeepOnline returns the same Mounter, whose Unmount brings the disk online again that it has taken
// offline, for drivers that go on with the disk. The driver then takes it offline itself before it is
// detached. An iSCSI target is logged out of all the same.
func (m *Mounter) KeepOnline() *Mounter {
	with := *m
	with.keepOnline = true
	return &with
}

func windows(path string) string { return strings.ReplaceAll(path, "/", `\`) }

// Mount publishes the volume or share that is staged at source: it makes target a link to it.
// The options are those of mounts on Linux, and have no meaning for a link.
//
// If source is \\server\share, it stages that share at target. Then the first two of the options
// are the user and the password, as in mount-utils.
func (m *Mounter) Mount(source, target, fstype string, options []string) error {
	return m.MountSensitive(source, target, fstype, options, nil)
}

// MountSensitive is Mount with some of the options apart. They come after the others.
func (m *Mounter) MountSensitive(source, target, fstype string, options, sensitiveOptions []string) error {
	source, target = windows(source), windows(target)
	if !strings.HasPrefix(source, `\\`) {
		return m.Storage.PublishVolume(m.ctx, source, target)
	}
	all := slices.Concat(options, sensitiveOptions)
	if len(all) < 2 {
		return csiproxy.Errorf(csiproxy.ErrInvalidArgument,
			"the options must begin with the user and the password for the share")
	}
	return m.Storage.StageShare(m.ctx, csiproxy.StageShareRequest{
		RemotePath: source, StagingPath: target,
		Credentials: csiproxy.SMBCredentials{Username: all[0], Password: csiproxy.NewSecret(all[1])},
	})
}

// MountSensitiveWithoutSystemd is MountSensitive.
func (m *Mounter) MountSensitiveWithoutSystemd(source, target, fstype string,
	options, sensitiveOptions []string,
) error {
	return m.MountSensitive(source, target, fstype, options, sensitiveOptions)
}

// MountSensitiveWithoutSystemdWithMountFlags is MountSensitive. The flags are those of a program
// that isn't run.
func (m *Mounter) MountSensitiveWithoutSystemdWithMountFlags(source, target, fstype string,
	options, sensitiveOptions, mountFlags []string,
) error {
	return m.MountSensitive(source, target, fstype, options, sensitiveOptions)
}

// Unmount unstages the volume or share that is staged at target, or removes the link that
// publishes one. If nothing is there, it succeeds. What is in use or published stays, with
// csiproxy.ErrFailedPrecondition.
//
// Unlike that of mount-utils, it also takes the disk of an unstaged volume offline, and logs out of its
// iSCSI target, so that the disk can be detached, unless KeepOnline was asked for.
func (m *Mounter) Unmount(target string) error {
	target = windows(target)
	var mounted csiproxy.Volume
	if m.keepOnline {
		var err error
		mounted, err = m.Storage.GetVolume(m.ctx, target)
		if err != nil && !errors.Is(err, csiproxy.ErrNotFound) {
			return err
		}
	}
	unstaged, err := m.Storage.UnstageVolume(m.ctx, csiproxy.UnstageVolumeRequest{StagingPath: target})
	if err == nil && unstaged.DiskOffline && !unstaged.LoggedOut && mounted.Disk != nil {
		return m.Disk.SetDiskState(m.ctx, *mounted.Disk, true)
	}
	if !errors.Is(err, csiproxy.ErrFailedPrecondition) {
		return err
	}
	// It may be refused because it is a link that publishes something.
	volume, lookErr := m.Storage.GetVolume(m.ctx, target)
	switch {
	case errors.Is(lookErr, csiproxy.ErrNotFound):
		return err
	case lookErr != nil:
		return lookErr
	case volume.Share != "":
		link, lookErr := m.publishes(target)
		if lookErr != nil {
			return lookErr
		}
		if !link {
			return err
		}
	}
	if m.Storage.UnpublishVolume(m.ctx, target) != nil {
		return err // it is no link, but the mount itself
	}
	return nil
}

// publishes reports whether a path is a link to where a share is staged, and not the link by which
// it is staged.
func (m *Mounter) publishes(path string) (bool, error) {
	list, err := m.Storage.ListVolumes(m.ctx)
	return slices.ContainsFunc(list.Mounts, func(at csiproxy.Mount) bool {
		return at.Kind == csiproxy.MountKindLink && samePath(at.Path, path)
	}), err
}

// samePath compares a path with one that may lack its drive, as kubelet writes them.
func samePath(path, other string) bool {
	if strings.HasPrefix(other, `\`) && len(path) > 2 {
		path = path[2:]
	}
	return strings.EqualFold(path, strings.TrimRight(other, `\`))
}

// List returns what is mounted in the allowed directories: staged volumes and shares, and the
// links that publish them. If not all of it can be looked at, that is an error.
func (m *Mounter) List() ([]mount.MountPoint, error) {
	list, err := m.Storage.ListVolumes(m.ctx)
	if err == nil && !list.Complete() {
		err = csiproxy.Errorf(csiproxy.ErrUnavailable, "the list of mounts isn't complete: %s", list.IncompleteReason)
	}
	if err != nil {
		return nil, err
	}
	var all []mount.MountPoint
	for _, listed := range list.Mounts {
		v := listed.Volume
		if listed.Kind == csiproxy.MountKindLink {
			for _, to := range list.Mounts {
				if to.Kind != csiproxy.MountKindLink && strings.EqualFold(to.Path, listed.Target) {
					v = to.Volume
				}
			}
		}
		if listed.Path != "" && device(v) != "" {
			all = append(all, mount.MountPoint{Device: device(v), Path: listed.Path, Type: v.FileSystem})
		}
	}
	return all, nil
}

// device names what a volume lies on.
func device(v csiproxy.Volume) string {
	switch {
	case v.Disk != nil:
		return v.Disk.String()
	case v.Share != "":
		return v.Share
	}
	return string(v.VolumeID) // its disk has left
}

// Device returns the device that is mounted at a path, or where a link there leads; "" if none is.
func (m *Mounter) Device(path string) (string, error) {
	v, err := m.Storage.GetVolume(m.ctx, windows(path))
	if errors.Is(err, csiproxy.ErrNotFound) {
		return "", nil
	}
	return device(v), err
}

// IsLikelyNotMountPoint is the opposite of IsMountPoint.
func (m *Mounter) IsLikelyNotMountPoint(file string) (bool, error) {
	is, err := m.IsMountPoint(file)
	return !is, err
}

// IsMountPoint reports whether a volume or share is mounted at a path, or published there. If
// nothing is at the path, it is os.ErrNotExist.
func (m *Mounter) IsMountPoint(file string) (bool, error) {
	exists, err := m.PathExists(file)
	if err == nil && !exists {
		err = os.ErrNotExist
	}
	if err != nil {
		return false, err
	}
	mount, err := m.Device(file)
	return mount != "", err
}

// CanSafelySkipMountPointCheck reports that an Unmount of what is no mount point may fail.
func (m *Mounter) CanSafelySkipMountPointCheck() bool { return false }

// GetMountRefs returns the other paths at which the device of a path is mounted or published.
func (m *Mounter) GetMountRefs(pathname string) ([]string, error) {
	is, err := m.Device(pathname)
	if err != nil || is == "" {
		return nil, err
	}
	list, err := m.List()
	var refs []string
	for _, mount := range list {
		if mount.Device == is && !samePath(mount.Path, windows(pathname)) {
			refs = append(refs, mount.Path)
		}
	}
	return refs, err
}

// FindDisk returns the device of the one disk that a selector means. If there is none, it has
// Windows look for new disks, once.
func (m *Mounter) FindDisk(s csiproxy.Selector) (string, error) {
	isWindows := func(d csiproxy.Disk) bool { return d.SystemReason != "" }
	found, err := m.Storage.ListDisks(m.ctx, s)
	if found = slices.DeleteFunc(found, isWindows); err == nil && len(found) == 0 {
		if err = m.Disk.Rescan(m.ctx); err == nil {
			found, err = m.Storage.ListDisks(m.ctx, s)
			found = slices.DeleteFunc(found, isWindows)
		}
	}
	switch {
	case err != nil:
		return "", err
	case len(found) == 0:
		return "", csiproxy.Errorf(csiproxy.ErrNotFound, "no disk has %v", s)
	case len(found) > 1:
		return "", csiproxy.Errorf(csiproxy.ErrFailedPrecondition, "%d disks have %v, such as %v and %v; narrow the selector",
			len(found), s, found[0], found[1])
	}
	return found[0].Number.String(), nil
}

// FormatAndMount stages the volume of the disk with the number source at target. A raw disk is
// partitioned and formatted, with ReFS if fstype says so, and otherwise with NTFS; what has a file
// system is never formatted. With the option ro, nothing can be written to the disk.
func (m *Mounter) FormatAndMount(source, target, fstype string, options []string) error {
	return m.FormatAndMountSensitiveWithFormatOptions(source, target, fstype, options, nil, nil)
}

// FormatAndMountSensitive is FormatAndMount. There are no sensitive options.
func (m *Mounter) FormatAndMountSensitive(source, target, fstype string, options, sensitiveOptions []string) error {
	return m.FormatAndMountSensitiveWithFormatOptions(source, target, fstype, options, sensitiveOptions, nil)
}

// FormatAndMountSensitiveWithFormatOptions is FormatAndMount with options of format.com for a raw disk,
// of which csiproxy.FormatOptions has a counterpart: see formatOptions. There are no sensitive options.
func (m *Mounter) FormatAndMountSensitiveWithFormatOptions(source, target, fstype string,
	options, sensitiveOptions, formatOptions []string,
) error {
	if len(sensitiveOptions) > 0 {
		return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "there are no sensitive mount options on Windows")
	}
	number, err := csiproxy.ParseDiskNumber(source)
	if err != nil {
		return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the device must be a number as of FindDisk: %v", err)
	}
	format, err := parseFormat(fstype, formatOptions)
	if err != nil {
		return err
	}
	_, err = m.Storage.StageVolume(m.ctx, csiproxy.StageVolumeRequest{
		Disk: csiproxy.Selector{Number: &number}, StagingPath: windows(target),
		ReadOnly: slices.Contains(options, "ro"), Format: format,
		Wait: -1, // whoever gives a number has found the disk
	})
	return err
}

// Resize grows the volume at deviceMountPath to the size of its disk, and reports whether it has
// grown. Of the device it asks nothing, so devicePath may be empty.
func (m *Mounter) Resize(devicePath, deviceMountPath string) (bool, error) {
	expanded, err := m.Storage.ExpandVolume(m.ctx, csiproxy.ExpandVolumeRequest{StagingPath: windows(deviceMountPath)})
	return expanded.Grown, err
}

// PathExists reports whether there is anything at a path, also a link to nothing.
func (m *Mounter) PathExists(path string) (bool, error) {
	return m.Filesystem.PathExists(m.ctx, windows(path))
}

// MakeDir makes a directory and those above it.
func (m *Mounter) MakeDir(path string) error { return m.Filesystem.Mkdir(m.ctx, windows(path)) }
