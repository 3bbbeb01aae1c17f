// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package paths

import (
	"encoding/binary"
	"fmt"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/ntfs"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/volumes"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// mountPoint opens the directory of a mount point, or what is there in its place,
// and returns the volume that has it. No directory of a share is a mount point of the node's.
func (s *Space) mountPoint(path string, access win.Access) (Opened, *volumes.Volume, error) {
	op, err := s.OpenByWin32(path, win.OpenOptions{
		Access: access, Share: ShareAll, Disposition: win.FileOpen, Options: OpenLink,
	})
	if err != nil {
		return Opened{}, nil, err
	}
	host, ok := op.Volume()
	if !ok {
		op.Close()
		return Opened{}, nil, winerr.ErrorNotAReparsePoint
	}
	return op, host, nil
}

// mountPointToChange is mountPoint as the mount manager opens it to mount and unmount.
func (s *Space) mountPointToChange(path string) (Opened, *volumes.Volume, error) {
	if s.Settings.MountManagerExclusive {
		op, err := s.OpenByWin32(path, win.OpenOptions{
			Access: win.FileListDirectory, Disposition: win.FileOpen, Options: OpenLink,
		})
		if err != nil {
			return Opened{}, nil, err
		}
		op.Close()
	}
	op, host, err := s.mountPoint(path, win.FileWriteAttributes)
	if err == nil && s.DeniesMountPoint(op.Handle) {
		op.Close()
		return Opened{}, nil, winerr.ErrorAccessDenied
	}
	return op, host, err
}

// DeniesMountPoint reports whether the access list of a directory keeps its mount point as
// it is.
func (s *Space) DeniesMountPoint(dir *ntfs.Handle) bool {
	return s.Settings.DeniedMountPoints && dir.Node().CreationDenied()
}

// driveLetter reads X:\.
func driveLetter(path string) (letter string, ok bool) {
	if len(path) == 3 && isLetter(path[0]) && path[1:] == `:\` {
		return strings.ToUpper(path[:1]), true
	}
	return "", false
}

// VolumeNameAt is GetVolumeNameForVolumeMountPointW: of a drive letter,
// of a mount point, of a volume itself, or of the device of a partition,
// \\?\GLOBALROOT\Device\HarddiskN\PartitionP\.
func (s *Space) VolumeNameAt(mountPoint string) (string, error) {
	if !strings.HasSuffix(mountPoint, `\`) {
		return "", winerr.ErrorInvalidName
	}
	letter, isLetter := driveLetter(strings.TrimPrefix(mountPoint, `\\?\`))
	id, rest, isName := volumes.ParseName(mountPoint)
	if isLetter || isName && rest == `\` {
		v, ok := s.Volumes.WithID(id)
		if isLetter {
			v, ok = s.Volumes.WithLetter(letter)
		}
		if !ok {
			return "", winerr.ErrorFileNotFound
		}
		return v.Name(), nil
	}
	if number, partition, ok := parsePartitionPath(mountPoint); ok {
		if s.Settings.NoPartitionDevices {
			return "", winerr.ErrorPathNotFound
		}
		v, ok := s.Volumes.Find(func(v *volumes.Volume) bool { return v.Disk.Number == number && v.Number == partition })
		if !ok {
			return "", winerr.ErrorPathNotFound
		}
		if s.Settings.PartitionsNamedByDevice {
			return fmt.Sprintf(`\\?\GLOBALROOT\Device\HarddiskVolume%d%d\`, number, partition), nil
		}
		return v.Name(), nil
	}
	op, _, err := s.mountPoint(mountPoint, win.AccessNone)
	if err != nil {
		return "", err
	}
	defer op.Close()
	return mountedVolume(op)
}

// parsePartitionPath reads \\?\GLOBALROOT\Device\HarddiskN\PartitionP\.
func parsePartitionPath(path string) (number csiproxy.DiskNumber, partition uint32, ok bool) {
	var tail string
	n, err := fmt.Sscanf(strings.ToLower(path), `\\?\globalroot\device\harddisk%d\partition%d%s`, &number, &partition, &tail)
	return number, partition, err == nil && n == 3 && tail == `\`
}

// mountedVolume returns the name of the volume that is mounted at what is open.
func mountedVolume(op Opened) (string, error) {
	data, err := op.GetReparse()
	if err != nil {
		return "", err
	}
	r, err := win.DecodeReparsePoint(data)
	if err != nil {
		return "", err
	}
	name, ok := r.Volume()
	if !ok { // a junction or symbolic link to something else
		return "", winerr.ErrorInvalidParameter
	}
	return name, nil
}

// SetMountPoint is SetVolumeMountPointW: it mounts a volume at an empty
// directory, or gives it a drive letter.
func (s *Space) SetMountPoint(mountPoint, volume string) error {
	id, rest, ok := volumes.ParseName(volume)
	if !ok || rest != `\` {
		return winerr.ErrorInvalidParameter
	}
	if !strings.HasSuffix(mountPoint, `\`) {
		return winerr.ErrorInvalidName
	}
	v, ok := s.Volumes.WithID(id)
	if !ok {
		return winerr.ErrorFileNotFound
	}
	if letter, ok := driveLetter(mountPoint); ok {
		_, taken := s.Volumes.WithLetter(letter)
		switch {
		case taken:
			return winerr.ErrorDirNotEmpty
		case v.Letter != "": // it has one already (pbatard/rufus#239)
			return winerr.ErrorInvalidParameter
		}
		s.Volumes.SetLetter(v, letter)
		return nil
	}
	if err := s.Settings.Refused(v.JustCame); err != nil {
		return err
	}
	return s.mount(mountPoint, v)
}

func (s *Space) mount(mountPoint string, v *volumes.Volume) error {
	op, host, err := s.mountPointToChange(mountPoint)
	if err == winerr.ErrorFileNotFound {
		return winerr.ErrorPathNotFound
	}
	if err != nil {
		return err
	}
	defer op.Close()
	switch {
	case !host.HasMountPoints():
		return winerr.ErrorInvalidFunction
	case op.Info().IsReparsePoint():
		return winerr.ErrorDirNotEmpty
	}
	if err := op.SetReparse(win.NewMountPoint(v.Name()).Encode()); err != nil {
		return err
	}
	s.Volumes.Mounted(host, op.Node().Path(), v)
	return nil
}

// DeleteMountPoint is DeleteVolumeMountPointW: the directory stays, empty.
func (s *Space) DeleteMountPoint(mountPoint string) error {
	if !strings.HasSuffix(mountPoint, `\`) {
		return winerr.ErrorInvalidName
	}
	if letter, ok := driveLetter(mountPoint); ok {
		v, ok := s.Volumes.WithLetter(letter)
		switch {
		case !ok:
			return winerr.ErrorFileNotFound
		case v.Disk.System:
			return winerr.ErrorAccessDenied
		}
		s.Volumes.SetLetter(v, "")
		return nil
	}
	return s.unmount(mountPoint)
}

func (s *Space) unmount(mountPoint string) error {
	op, host, err := s.mountPointToChange(mountPoint)
	if err != nil {
		return err
	}
	defer op.Close()
	name, err := mountedVolume(op)
	if err != nil {
		return err
	}
	id, _, _ := volumes.ParseName(name)
	v, present := s.Volumes.WithID(id)
	switch set := s.Settings; {
	case !present && set.GoneMountPoint != 0:
		return set.GoneMountPoint
	case present && set.LockedMountPoint != 0 && v.Admits(win.GenericRead) != nil:
		return set.LockedMountPoint
	}
	header := make([]byte, 8)
	binary.LittleEndian.PutUint32(header, uint32(win.TagMountPoint))
	if err := op.DeleteReparse(header); err != nil {
		return err
	}
	s.Volumes.Dismounted(host, op.Node().Path())
	if !present && s.Settings.GoneMountPointHalf {
		return winerr.ErrorFileNotFound
	}
	return nil
}
