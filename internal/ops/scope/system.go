// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"sync"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// System is the part of a node's system that belongs to one driver. Everything else is missing:
// csiproxy.ErrNotFound in queries, csiproxy.ErrPermissionDenied in changes of shares, portals and
// services, and left out of lists. The lists of volumes and of iSCSI targets are the exceptions: they
// have the names of all, since the owner of a hung volume or target is unknown.
//
// System finds the owner of a disk or a volume on an open handle. A call with a volume's name, or a
// path in the volume, runs while a handle of the volume is open, and counts only if the volume is
// still there afterwards: another volume with the same name, such as a clone's, may have come in
// between. System creates, deletes or opens for writing only after the owner is known.
type System struct {
	win.System
	table     *Table
	driver    Driver
	driversAt driversAt
	sick      sync.Map                                     // the open sick disks, *sickDisk
	sickOwn   operation.NextRun[csiproxy.DiskNumber, bool] // whether the driver owns a sick disk, by its volumes
}

// driversAt returns the drivers whose own directories hold a volume's mount points, as listed by
// Windows. The result contains "" if the volume is also mounted elsewhere. Only the driver itself
// mounts volumes in its own directories.
type driversAt = func(ctx context.Context, listed []string) (drivers map[string]bool, _ error)

// NewSystem returns the system of a driver. sys is the node's.
func NewSystem(sys win.System, table *Table, driver Driver, at driversAt) *System {
	return &System{System: sys, table: table, driver: driver, driversAt: at}
}

// refused is the error for a change outside the driver's own resources.
func (s *System) refused(what string) error {
	return csiproxy.Errorf(csiproxy.ErrPermissionDenied, "%s isn't one of driver %s's", what, quote.Text(s.driver.Name))
}

// OpenDevice opens a disk of the driver by its number, or a volume of the driver. Operations do not
// open devices by interface path. Package opendisk opens each disk without access first, and other
// drivers' disks are never opened for writing.
func (s *System) OpenDevice(ctx context.Context, path string, access win.Access) (win.Device, error) {
	if !isVolume(path) {
		disk, err := s.openDisk(ctx, path, access, toRelease)
		return disk, s.hide(err, "disk "+numberOf(path).String())
	}
	if access == win.AccessNone {
		return s.openVolume(ctx, path, toRelease, nothing)
	}
	return whileOwn(ctx, s, path, toRelease, func() (win.Device, error) { return s.System.OpenDevice(ctx, path, access) })
}

// HasVolume reports whether a volume is there, on a disk of the driver. Another driver's volume
// counts as missing. A mount point or link to either is removed by its own path, and the target
// stays untouched.
func (s *System) HasVolume(ctx context.Context, id csiproxy.VolumeID) (isThere bool, _ error) {
	if err := id.Validate(); err != nil {
		return false, err
	}
	err := s.checkVolume(ctx, string(id), toRelease)
	if winerr.IsGone(err) {
		return false, nil
	}
	return err == nil, err
}

func (s *System) VolumePathNames(ctx context.Context, name string) ([]string, error) {
	return whileOwn(ctx, s, name, toRelease, func() ([]string, error) { return s.System.VolumePathNames(ctx, name) })
}

func (s *System) VolumeNameForMountPoint(ctx context.Context, mountPoint string) (string, error) {
	return whileOwn(ctx, s, mountPoint, toUse, func() (string, error) { return s.System.VolumeNameForMountPoint(ctx, mountPoint) })
}

func (s *System) VolumeInformation(ctx context.Context, root string) (win.VolumeInformation, error) {
	return whileOwn(ctx, s, root, toUse, func() (win.VolumeInformation, error) { return s.System.VolumeInformation(ctx, root) })
}

func (s *System) DiskFreeSpace(ctx context.Context, directory string) (win.DiskSpace, error) {
	return whileOwn(ctx, s, directory, toUse, func() (win.DiskSpace, error) { return s.System.DiskFreeSpace(ctx, directory) })
}

func (s *System) FileAttributes(ctx context.Context, path string) (win.FileAttributes, error) {
	return whileOwn(ctx, s, path, toUse, func() (win.FileAttributes, error) { return s.System.FileAttributes(ctx, path) })
}

// SetVolumeMountPoint mounts a volume. If the volume, or the volume around the mount point, is
// replaced by another volume meanwhile, the mount point is removed again.
func (s *System) SetVolumeMountPoint(ctx context.Context, mountPoint, name string) error {
	isMounted := false
	err := s.actWhileOwn(ctx, mountPoint, toUse, func() error {
		return s.actWhileOwn(ctx, name, toUse, func() error {
			err := s.System.SetVolumeMountPoint(ctx, mountPoint, name)
			isMounted = err == nil
			return err
		})
	})
	if err != nil && isMounted {
		err = errors.Join(err, s.System.DeleteVolumeMountPoint(context.WithoutCancel(ctx), mountPoint))
	}
	return err
}

// DeleteVolumeMountPoint removes a mount point of any volume.
func (s *System) DeleteVolumeMountPoint(ctx context.Context, mountPoint string) error {
	return s.actWhileOwn(ctx, mountPoint, toUse, func() error { return s.System.DeleteVolumeMountPoint(ctx, mountPoint) })
}

// FormatVolume checks that the driver owns the volume, and then formats the volume. Windows refuses
// to format an open volume, and takes the name. Callers hold the lock of the volume's disk, and no
// operation takes the disk offline meanwhile. Another volume is formatted only if, between check
// and format, the disk is pulled, and another driver's disk comes online with a volume of the same
// name.
func (s *System) FormatVolume(ctx context.Context, name string, o win.FormatOptions) error {
	if err := s.checkVolume(ctx, name, toUse); err != nil {
		return err
	}
	return s.System.FormatVolume(ctx, name, o)
}

// RepairVolume checks that the driver owns the volume, and then repairs the volume. Windows may
// need exclusive access for a repair, and takes the name; the remaining risk is the same as for
// FormatVolume.
func (s *System) RepairVolume(ctx context.Context, name string, mode win.RepairMode) (win.RepairResult, error) {
	if err := s.checkVolume(ctx, name, toUse); err != nil {
		return 0, err
	}
	return s.System.RepairVolume(ctx, name, mode)
}

// OpenFile opens a file. For a path in a volume, OpenFile opens the root directory, checks the
// volume, and opens the rest relative to the root's handle. Files are made and deleted only in the
// checked volume, and links on the way are refused.
func (s *System) OpenFile(ctx context.Context, path string, o win.OpenOptions) (win.File, error) {
	name, rest, isVolume := cutVolume(path)
	if !isVolume {
		return whileOwn(ctx, s, path, toUse, func() (win.File, error) { return s.System.OpenFile(ctx, path, o) })
	}
	below := o
	if rest != "" {
		o = win.OpenOptions{Access: win.FileTraverse | win.FileReadAttributes | win.Synchronize,
			Share: win.ShareRead | win.ShareWrite | win.ShareDelete, Options: win.FileDirectoryFile | win.FileOpenForBackup}
	}
	if o.Disposition == win.FileCreate {
		return nil, winerr.ErrorAlreadyExists
	}
	if o.Options&win.FileDeleteOnClose != 0 {
		return nil, winerr.ErrorAccessDenied
	}
	o.Disposition = win.FileOpen // a root is there
	root, err := whileOwn(ctx, s, path, toUse, func() (win.File, error) { return s.System.OpenFile(ctx, name+`\`, o) })
	if err != nil || rest == "" {
		return root, err
	}
	defer root.Close()
	return root.OpenAt(ctx, rest, below)
}

func (s *System) SMBGlobalMappings(ctx context.Context) ([]win.SMBMapping, error) {
	all, err := s.System.SMBGlobalMappings(ctx)
	return slices.DeleteFunc(all, func(m win.SMBMapping) bool { return !s.driver.HasShare(m.RemotePath) }), err
}

func (s *System) CreateSMBGlobalMapping(ctx context.Context, remotePath string, o win.SMBMappingOptions) error {
	if !s.driver.HasShare(remotePath) {
		return s.refused("the server")
	}
	return s.System.CreateSMBGlobalMapping(ctx, remotePath, o)
}

// RemoveSMBGlobalMapping removes a mapping of a share that belongs to the driver. The owner of a
// drive letter's mapping follows from the remote path.
func (s *System) RemoveSMBGlobalMapping(ctx context.Context, name string) error {
	if isUNC(name) {
		if !s.driver.HasShare(name) {
			return s.refused("the server")
		}
		return s.System.RemoveSMBGlobalMapping(ctx, name)
	}
	mappings, err := s.SMBGlobalMappings(ctx)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(mappings, func(m win.SMBMapping) bool { return strings.EqualFold(m.LocalPath, name) }) {
		return winerr.ErrorNotConnected
	}
	return s.System.RemoveSMBGlobalMapping(ctx, name)
}

func (s *System) AddISCSISendTargetPortal(ctx context.Context, p win.ISCSIPortal) error {
	if !s.driver.hasPortal(p) {
		return s.refused("the portal")
	}
	return s.System.AddISCSISendTargetPortal(ctx, p)
}

func (s *System) RemoveISCSISendTargetPortal(ctx context.Context, p win.ISCSIPortal) error {
	if !s.driver.hasPortal(p) {
		return s.refused("the portal")
	}
	return s.System.RemoveISCSISendTargetPortal(ctx, p)
}

func (s *System) RefreshISCSISendTargetPortal(ctx context.Context, p win.ISCSIPortal) error {
	if !s.driver.hasPortal(p) {
		return s.refused("the portal")
	}
	return s.System.RefreshISCSISendTargetPortal(ctx, p)
}

func (s *System) ISCSISendTargetPortals(ctx context.Context) ([]win.ISCSIPortal, error) {
	all, err := s.System.ISCSISendTargetPortals(ctx)
	return slices.DeleteFunc(all, func(p win.ISCSIPortal) bool { return !s.driver.hasPortal(p) }), err
}

// ISCSIDiscoveryMechanisms returns how a target was found at the driver's portals.
func (s *System) ISCSIDiscoveryMechanisms(ctx context.Context, target string) ([]string, error) {
	all, err := s.System.ISCSIDiscoveryMechanisms(ctx, target)
	if err != nil {
		return nil, err
	}
	own := slices.DeleteFunc(all, func(mechanism string) bool {
		portal, ok := win.ParsePortalMechanism(mechanism)
		return !ok || !s.driver.hasPortal(portal)
	})
	if len(own) == 0 {
		return nil, winerr.ISDSCTargetNotFound
	}
	return own, nil
}

func (s *System) LoginISCSITarget(ctx context.Context, l win.ISCSILogin) (id win.ISCSISessionID, _ error) {
	if !s.driver.hasPortal(l.Portal) {
		return id, s.refused("the portal")
	}
	all, err := s.System.ISCSISessions(ctx)
	if err != nil {
		return id, err
	}
	// If another driver has connected the target, a login would count as a success. The login is
	// redirected to a random target that does not exist: Windows answers as for a missing target,
	// and takes as long.
	if slices.ContainsFunc(all, func(one win.ISCSISession) bool {
		return strings.EqualFold(one.Target, l.Target) && len(one.Portals) > 0 && !slices.ContainsFunc(one.Portals, s.driver.hasPortal)
	}) {
		l.Target = "iqn.2026-01.dev.csi-proxy:" + strings.ToLower(rand.Text())
	}
	id, err = s.System.LoginISCSITarget(ctx, l)
	switch {
	case errors.Is(err, winerr.ISDSCNotFound): // only another driver's portal has the target
		err = winerr.ISDSCTargetNotFound
	case winerr.IsAny(err, winerr.ISDSCTargetAlreadyLoggedIn, winerr.ISDSCSessionAlreadyExists):
		// Another driver's session may have no connection now. A target at none of the driver's
		// portals is missing.
		if _, missingErr := s.ISCSIDiscoveryMechanisms(ctx, l.Target); errors.Is(missingErr, winerr.ISDSCTargetNotFound) {
			err = missingErr
		}
	}
	return id, err
}

// ISCSISessions returns the sessions through the driver's portals. Sessions that have lost their
// portal for a moment are left out.
func (s *System) ISCSISessions(ctx context.Context) ([]win.ISCSISession, error) {
	all, err := s.System.ISCSISessions(ctx)
	return slices.DeleteFunc(all, func(one win.ISCSISession) bool {
		return !slices.ContainsFunc(one.Portals, s.driver.hasPortal)
	}), err
}

func (s *System) ISCSIPersistentLogins(ctx context.Context) ([]win.ISCSIPersistentLogin, error) {
	all, err := s.System.ISCSIPersistentLogins(ctx)
	return slices.DeleteFunc(all, func(l win.ISCSIPersistentLogin) bool { return !s.driver.hasPortal(l.Portal) }), err
}

// checkService returns csiproxy.ErrPermissionDenied unless a service belongs to the driver.
func (s *System) checkService(name string) error {
	if slices.ContainsFunc(s.driver.Services, func(own string) bool { return win.SameName(own, name) }) {
		return nil
	}
	return s.refused("the service")
}

// checkServiceToRun is checkService for calls on the initiator's service made by all drivers with
// portals.
func (s *System) checkServiceToRun(name string) error {
	if win.SameName(name, "MSiSCSI") && len(s.driver.Portals) > 0 {
		return nil
	}
	return s.checkService(name)
}

func (s *System) QueryService(ctx context.Context, name string) (win.Service, error) {
	if err := s.checkServiceToRun(name); err != nil {
		return win.Service{}, err
	}
	return s.System.QueryService(ctx, name)
}

func (s *System) StartService(ctx context.Context, name string) error {
	if err := s.checkServiceToRun(name); err != nil {
		return err
	}
	return s.System.StartService(ctx, name)
}

func (s *System) StopService(ctx context.Context, name string) error {
	if err := s.checkService(name); err != nil {
		return err
	}
	return s.System.StopService(ctx, name)
}

// ActiveDependentServices returns the driver's own services among the dependents of a service.
// Other drivers' services are left out, and StopService leaves them running.
func (s *System) ActiveDependentServices(ctx context.Context, name string) ([]string, error) {
	all, err := s.System.ActiveDependentServices(ctx, name)
	return slices.DeleteFunc(all, func(dependent string) bool { return s.checkService(dependent) != nil }), err
}
