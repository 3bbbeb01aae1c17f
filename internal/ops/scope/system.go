// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/device"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/csi-proxy/csi-proxy/internal/windows/winname"
)

// System is a node's system as far as it is one driver's. What is another driver's, or nobody's, is
// csiproxy.ErrNotFound in queries and csiproxy.ErrPermissionDenied in changes, and is in no list.
//
// A volume or disk that is missing, or doesn't answer, says of nobody that he may not have it: its driver must
// be able to end its use. Such a call fails by itself or changes what is at a path, which is another door.
type System struct {
	win.System
	table  *Table
	driver Driver
	isOwn  func(path string) bool // whether a path lies in the driver's own directories

	mu   sync.Mutex
	open []*ownDevice // the disks that are open now
}

// NewSystem returns the system of a driver. sys is the node's. isOwn reports whether a path lies in the driver's own
// directories, where only the driver mounts volumes.
func NewSystem(sys win.System, table *Table, driver Driver, isOwn func(path string) bool) *System {
	return &System{System: sys, table: table, driver: driver, isOwn: isOwn}
}

// notFound is the error of what isn't the driver's.
func (s *System) notFound(what string) error {
	return csiproxy.Errorf(csiproxy.ErrNotFound, "driver %s has no such %s", quote.Text(s.driver.Name), what)
}

// refused is the error of a change of what isn't the driver's.
func (s *System) refused(what string) error {
	return csiproxy.Errorf(csiproxy.ErrPermissionDenied, "%s isn't one of driver %s's", what, quote.Text(s.driver.Name))
}

// OpenDevice opens a disk by its number, or a volume, that is the driver's. No operation opens a single device
// by its interface path.
func (s *System) OpenDevice(ctx context.Context, path string, access win.Access) (win.Device, error) {
	if access != win.AccessNone && isVolume(path) {
		// An open for writing could disturb another driver's format. A volume keeps its name.
		if err := s.checkVolumeToChange(ctx, path); err != nil {
			return nil, err
		}
		return s.System.OpenDevice(ctx, path, access)
	}
	// A handle names one disk for good. Package opendisk opens each disk without access first, so no other
	// driver's is opened for writing.
	o, err := s.openOwn(ctx, path, access)
	if err != nil {
		return nil, err
	}
	return o, nil
}

func (s *System) openOwn(ctx context.Context, path string, access win.Access) (*ownDevice, error) {
	dev, err := s.System.OpenDevice(ctx, path, access)
	if err != nil {
		return nil, err
	}
	o := &ownDevice{Device: dev, sys: s, asking: true}
	h := device.Handle{Device: o, Path: path}
	if isVolume(path) {
		err = s.checkOpenVolume(ctx, o, h)
	} else {
		err = s.checkOpenDisk(ctx, o, h)
	}
	if err != nil {
		o.Close()
		return nil, err
	}
	o.endAsking()
	return o, nil
}

// checkOpenDisk returns csiproxy.ErrNotFound unless an open disk is the driver's. A sick one that doesn't say whose it is
// is the driver's if a volume of it is mounted in the driver's own directories, or was when the disk was opened by a call
// that still has it open.
func (s *System) checkOpenDisk(ctx context.Context, o *ownDevice, h device.Handle) error {
	o.number = numberOf(h.Path)
	hardware, err := opendisk.AskHardware(ctx, h)
	err = cmp.Or(err, hardware.DescriptorErr)
	owner := ""
	if err == nil {
		owner, err = s.table.OwnerOfDisk(ctx, h, hardware)
	}
	if err != nil && !winerr.IsGone(err) && s.vouches(ctx, o.number) {
		owner, o.isSick = s.driver.Name, true
		_, err = h.Number(ctx) // a disk that is still there had the number when its volume said that it lies there
	}
	if err != nil {
		return err
	}
	if owner != s.driver.Name {
		return s.notFound("disk")
	}
	o.descriptor = hardware.Descriptor
	s.noteDisk(o)
	return nil
}

// vouches reports whether a sick disk is the driver's by what else is known: see checkOpenDisk. What doesn't answer
// says nothing.
func (s *System) vouches(ctx context.Context, n csiproxy.DiskNumber) bool {
	if _, isThere := s.askOpenDisk(ctx, func(ownDisk *ownDevice) bool { return ownDisk.number == n }); isThere {
		return true
	}
	names, _ := s.System.FindVolumes(ctx)
	return slices.ContainsFunc(names, func(name string) bool {
		paths, _ := s.System.VolumePathNames(ctx, name)
		return slices.ContainsFunc(paths, s.isOwn) && s.liesOn(ctx, name, n)
	})
}

// liesOn reports whether a volume lies on a disk, and on no other.
func (s *System) liesOn(ctx context.Context, name string, n csiproxy.DiskNumber) bool {
	h, err := device.Open(ctx, s.System, device.VolumePath(name), win.AccessNone)
	if err != nil {
		return false
	}
	defer h.Close()
	extents, err := h.Extents(ctx)
	return err == nil && len(extents) == 1 && extents[0].DiskNumber == n
}

// checkOpenVolume returns csiproxy.ErrNotFound unless all disks that an open volume lies on are the driver's. The error
// of a volume whose disk is missing is another one.
func (s *System) checkOpenVolume(ctx context.Context, o *ownDevice, h device.Handle) error {
	extents, err := h.Extents(ctx)
	if err != nil {
		return err
	}
	if len(extents) == 1 {
		onDisk := func(opened *ownDevice) bool { return opened.number == extents[0].DiskNumber }
		ownDisk, isThere := s.askOpenDisk(ctx, onDisk)
		if isThere { // so it had the number when the volume said that it lies there
			s.noteVolume(h.Path, ownDisk)
			return nil
		}
	}
	for _, e := range extents {
		ownDisk, err := s.openOwn(ctx, win.PhysicalDrive(e.DiskNumber), win.AccessNone)
		if isNotOwn(err) {
			s.noteVolume(h.Path, nil)
			return s.notFound("volume")
		}
		if err != nil {
			return err
		}
		o.disks = append(o.disks, ownDisk)
	}
	// A disk keeps its number while it is there. If the volume lies there still, the disks that were asked
	// by their numbers were its own.
	after, err := h.Extents(ctx)
	switch {
	case err != nil:
		return err
	case !slices.Equal(after, extents):
		return opendisk.ErrChanged("the volume lies at another place")
	case len(extents) == 0:
		return s.notFound("volume")
	case len(extents) == 1:
		s.noteVolume(h.Path, o.disks[0])
	}
	return nil
}

// isNotOwn reports whether err is that of notFound.
func isNotOwn(err error) bool {
	_, windows := csiproxy.WindowsErrorOf(err)
	return !windows && errors.Is(err, csiproxy.ErrNotFound)
}

func isVolume(path string) bool {
	return strings.HasPrefix(winname.Lower(path), `\\?\volume{`)
}

// CheckVolume returns csiproxy.ErrNotFound if a volume is on a disk that isn't the driver's. A missing volume
// passes.
func (s *System) CheckVolume(ctx context.Context, id csiproxy.VolumeID) error {
	if err := id.Validate(); err != nil {
		return err
	}
	return s.checkVolume(ctx, string(id))
}

func (s *System) checkVolume(ctx context.Context, name string) error {
	err := s.checkVolumeToChange(ctx, name)
	if winerr.IsGone(err) {
		return nil
	}
	return err
}

// checkVolumeToChange is checkVolume, but a missing volume doesn't pass: when it comes, it may be on another disk.
func (s *System) checkVolumeToChange(ctx context.Context, name string) error {
	key := volumeKey(name)
	if _, isThere := s.askOpenDisk(ctx, func(ownDisk *ownDevice) bool { return ownDisk.volumes[key] }); isThere {
		return nil
	}
	o, err := s.openOwn(ctx, device.VolumePath(name), win.AccessNone)
	if err == nil {
		_ = o.Close()
	}
	return err
}

// checkPath returns an error if a path leads to a share or into a volume that isn't the driver's. Paths on
// drives are checked by package pathpolicy.
func (s *System) checkPath(ctx context.Context, path string) error {
	switch {
	case isVolume(path):
		name := path
		if end := strings.IndexByte(path, '}'); end >= 0 {
			name = path[:end+1]
		}
		return s.checkVolume(ctx, name)
	case strings.HasPrefix(path, `\\`) && !strings.HasPrefix(path, `\\?\`) && !strings.HasPrefix(path, `\\.\`):
		if !s.driver.HasShare(path) {
			return s.notFound("share")
		}
	}
	return nil
}

// FindVolumes returns the driver's volumes, and those that don't say whose they are.
func (s *System) FindVolumes(ctx context.Context) ([]string, error) {
	all, err := s.System.FindVolumes(ctx)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(name string) bool {
		return errors.Is(s.checkVolume(ctx, name), csiproxy.ErrNotFound)
	})
	return all, ctx.Err()
}

func (s *System) VolumePathNames(ctx context.Context, name string) ([]string, error) {
	if err := s.checkVolume(ctx, name); err != nil {
		return nil, err
	}
	return s.System.VolumePathNames(ctx, name)
}

func (s *System) SetVolumeMountPoint(ctx context.Context, mountPoint, name string) error {
	if err := s.checkVolumeToChange(ctx, name); err != nil {
		return err
	}
	return s.System.SetVolumeMountPoint(ctx, mountPoint, name)
}

func (s *System) VolumeInformation(ctx context.Context, root string) (win.VolumeInformation, error) {
	if err := s.checkPath(ctx, root); err != nil {
		return win.VolumeInformation{}, err
	}
	return s.System.VolumeInformation(ctx, root)
}

func (s *System) DiskFreeSpace(ctx context.Context, directory string) (win.DiskSpace, error) {
	if err := s.checkPath(ctx, directory); err != nil {
		return win.DiskSpace{}, err
	}
	return s.System.DiskFreeSpace(ctx, directory)
}

func (s *System) FormatVolume(ctx context.Context, name string, o win.FormatOptions) error {
	if err := s.checkVolumeToChange(ctx, name); err != nil {
		return err
	}
	return s.System.FormatVolume(ctx, name, o)
}

func (s *System) RepairVolume(ctx context.Context, name string, mode win.RepairMode) (win.RepairResult, error) {
	if err := s.checkVolumeToChange(ctx, name); err != nil {
		return 0, err
	}
	return s.System.RepairVolume(ctx, name, mode)
}

func (s *System) OpenFile(ctx context.Context, path string, o win.OpenOptions) (win.File, error) {
	if err := s.checkPath(ctx, path); err != nil {
		return nil, err
	}
	return s.System.OpenFile(ctx, path, o)
}

func (s *System) FileAttributes(ctx context.Context, path string) (win.FileAttributes, error) {
	if err := s.checkPath(ctx, path); err != nil {
		return 0, err
	}
	return s.System.FileAttributes(ctx, path)
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

func (s *System) RemoveSMBGlobalMapping(ctx context.Context, remotePath string) error {
	if !s.driver.HasShare(remotePath) {
		return s.refused("the server")
	}
	return s.System.RemoveSMBGlobalMapping(ctx, remotePath)
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

func (s *System) LoginISCSITarget(ctx context.Context, l win.ISCSILogin) (id win.ISCSISessionID, _ error) {
	if !s.driver.hasPortal(l.Portal) {
		return id, s.refused("the portal")
	}
	all, err := s.System.ISCSISessions(ctx)
	if err != nil {
		return id, err
	}
	// If the target were connected already, that would count as a success.
	if slices.ContainsFunc(all, func(one win.ISCSISession) bool {
		return strings.EqualFold(one.Target, l.Target) && len(one.Portals) > 0 && !slices.ContainsFunc(one.Portals, s.driver.hasPortal)
	}) {
		return id, s.refused("the target, connected through another portal,")
	}
	return s.System.LoginISCSITarget(ctx, l)
}

// ISCSISessions returns the sessions through a portal of the driver's. One that has lost its portal for a
// moment isn't among them.
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

// checkService returns csiproxy.ErrPermissionDenied for a service that isn't the driver's.
func (s *System) checkService(name string) error {
	if slices.ContainsFunc(s.driver.Services, func(own string) bool { return strings.EqualFold(own, name) }) {
		return nil
	}
	return s.refused("the service")
}

// checkServiceToRun is checkService for calls that all drivers with portals make of the initiator's service.
func (s *System) checkServiceToRun(name string) error {
	if strings.EqualFold(name, "MSiSCSI") && len(s.driver.Portals) > 0 {
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
