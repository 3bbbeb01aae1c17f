// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
)

// Windows makes the calls of a [win.System], bounded and reported. All operations of a node share one.
type Windows struct {
	sys     win.System
	table   *table
	observe func(call string, took time.Duration, err error)
	log     *slog.Logger
}

// NewWindows returns sys with its calls bounded and reported. After each call that was answered, observe
// is called with the call's name, how long it took, and its error. The logger gets the calls that
// Windows doesn't answer in time, and at slog.LevelDebug every call. Both may be nil.
func NewWindows(sys win.System, observe func(call string, took time.Duration, err error), log *slog.Logger) *Windows {
	if observe == nil {
		observe = func(string, time.Duration, error) {}
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Windows{sys, newTable(log), observe, log}
}

// Load returns how many calls are under way, waiting and refused now.
func (s *Windows) Load() Load { return s.table.load() }

// get waits until the call f may begin, makes it, and returns its result.
func get[T any](ctx context.Context, s *Windows, name string, o object, f func() (T, error)) (v T, err error) {
	if err := ctx.Err(); err != nil {
		return v, err
	}
	t := TrackerOf(ctx)
	c, err := s.table.enter(ctx, name, o)
	if err != nil {
		return v, err
	}
	t.begin(c)
	defer func() {
		t.end(c)
		s.table.leave(c)
	}()
	v, err = f()
	took := time.Since(c.Since)
	s.observe(name, took, err)
	if s.log.Enabled(ctx, slog.LevelDebug) {
		attrs := []slog.Attr{slog.String("call", name), slog.String("object", quote.Text(o.name)),
			slog.Duration("duration", took.Round(time.Microsecond))}
		if err != nil {
			attrs = append(attrs, slog.Any("err", err))
		}
		s.log.LogAttrs(ctx, slog.LevelDebug, "Windows call", attrs...)
	}
	return v, err
}

// do is get for a call without a result.
func do(ctx context.Context, s *Windows, name string, o object, f func() error) error {
	_, err := get(ctx, s, name, o, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

func (s *Windows) DeviceInterfaces(ctx context.Context, class winid.GUID) ([]string, error) {
	return get(ctx, s, win.CallDeviceInterfaces,
		object{name: "the list of devices of class " + class.String()},
		func() ([]string, error) { return s.sys.DeviceInterfaces(ctx, class) })
}

func (s *Windows) ReenumerateDevice(ctx context.Context, interfacePath string) error {
	return do(ctx, s, win.CallReenumerateDevice, object{name: deviceNode(interfacePath)},
		func() error { return s.sys.ReenumerateDevice(ctx, interfacePath) })
}

func (s *Windows) NotifyArrivals(ctx context.Context, class winid.GUID) (arrived <-chan struct{}, stop func(), err error) {
	err = do(ctx, s, win.CallNotifyArrivals, object{name: "notices of devices of class " + class.String()},
		func() (err error) {
			arrived, stop, err = s.sys.NotifyArrivals(ctx, class)
			return err
		})
	return arrived, stop, err
}

func (s *Windows) FindVolumes(ctx context.Context) ([]string, error) {
	return get(ctx, s, win.CallFindVolumes, object{name: "the list of volumes"},
		func() ([]string, error) { return s.sys.FindVolumes(ctx) })
}

func (s *Windows) VolumeInformation(ctx context.Context, root string) (win.VolumeInformation, error) {
	return get(ctx, s, win.CallVolumeInformation, pathObject(root),
		func() (win.VolumeInformation, error) { return s.sys.VolumeInformation(ctx, root) })
}

func (s *Windows) DiskFreeSpace(ctx context.Context, directory string) (win.DiskSpace, error) {
	return get(ctx, s, win.CallDiskFreeSpace, pathObject(directory),
		func() (win.DiskSpace, error) { return s.sys.DiskFreeSpace(ctx, directory) })
}

func (s *Windows) VolumeNameForMountPoint(ctx context.Context, mountPoint string) (string, error) {
	return get(ctx, s, win.CallVolumeNameForMountPoint, pathObject(mountPoint),
		func() (string, error) { return s.sys.VolumeNameForMountPoint(ctx, mountPoint) })
}

func (s *Windows) VolumePathNames(ctx context.Context, volume string) ([]string, error) {
	return get(ctx, s, win.CallVolumePathNames, pathObject(volume),
		func() ([]string, error) { return s.sys.VolumePathNames(ctx, volume) })
}

func (s *Windows) SetVolumeMountPoint(ctx context.Context, mountPoint, volume string) error {
	return do(ctx, s, win.CallSetVolumeMountPoint, pathObject(mountPoint),
		func() error { return s.sys.SetVolumeMountPoint(ctx, mountPoint, volume) })
}

func (s *Windows) DeleteVolumeMountPoint(ctx context.Context, mountPoint string) error {
	return do(ctx, s, win.CallDeleteVolumeMountPoint, pathObject(mountPoint),
		func() error { return s.sys.DeleteVolumeMountPoint(ctx, mountPoint) })
}

func (s *Windows) FormatVolume(ctx context.Context, volume string, o win.FormatOptions) error {
	return do(ctx, s, win.CallFormatVolume, pathObject(volume),
		func() error { return s.sys.FormatVolume(ctx, volume, o) })
}

func (s *Windows) RepairVolume(ctx context.Context, volume string, mode win.RepairMode) (win.RepairResult, error) {
	return get(ctx, s, win.CallRepairVolume, pathObject(volume),
		func() (win.RepairResult, error) { return s.sys.RepairVolume(ctx, volume, mode) })
}

func (s *Windows) TryStorageProvider(ctx context.Context) error {
	return do(ctx, s, win.CallStorageProvider, object{name: "storage management"},
		func() error { return s.sys.TryStorageProvider(ctx) })
}

func (s *Windows) ProcessImage(ctx context.Context, id win.ProcessID) (string, error) {
	return get(ctx, s, win.CallProcessImage, object{name: fmt.Sprintf("process %d", id)},
		func() (string, error) { return s.sys.ProcessImage(ctx, id) })
}

func (s *Windows) FileAttributes(ctx context.Context, path string) (win.FileAttributes, error) {
	return get(ctx, s, win.CallFileAttributes, pathObject(path),
		func() (win.FileAttributes, error) { return s.sys.FileAttributes(ctx, path) })
}

func (s *Windows) SMBGlobalMappings(ctx context.Context) ([]win.SMBMapping, error) {
	return get(ctx, s, win.CallSMBGlobalMappings, mappings,
		func() ([]win.SMBMapping, error) { return s.sys.SMBGlobalMappings(ctx) })
}

func (s *Windows) SMBConnections(ctx context.Context) ([]win.SMBConnection, error) {
	return get(ctx, s, win.CallSMBConnections, connections,
		func() ([]win.SMBConnection, error) { return s.sys.SMBConnections(ctx) })
}

func (s *Windows) CreateSMBGlobalMapping(ctx context.Context, remotePath string, o win.SMBMappingOptions) error {
	return do(ctx, s, win.CallCreateSMBGlobalMapping, pathObject(remotePath),
		func() error { return s.sys.CreateSMBGlobalMapping(ctx, remotePath, o) })
}

func (s *Windows) RemoveSMBGlobalMapping(ctx context.Context, remotePath string) error {
	return do(ctx, s, win.CallRemoveSMBGlobalMapping, pathObject(remotePath),
		func() error { return s.sys.RemoveSMBGlobalMapping(ctx, remotePath) })
}

func (s *Windows) AddISCSISendTargetPortal(ctx context.Context, p win.ISCSIPortal) error {
	return do(ctx, s, win.CallAddISCSIPortal, portalObject(p),
		func() error { return s.sys.AddISCSISendTargetPortal(ctx, p) })
}

func (s *Windows) RemoveISCSISendTargetPortal(ctx context.Context, p win.ISCSIPortal) error {
	return do(ctx, s, win.CallRemoveISCSIPortal, portalObject(p),
		func() error { return s.sys.RemoveISCSISendTargetPortal(ctx, p) })
}

func (s *Windows) RefreshISCSISendTargetPortal(ctx context.Context, p win.ISCSIPortal) error {
	return do(ctx, s, win.CallRefreshISCSIPortal, portalObject(p),
		func() error { return s.sys.RefreshISCSISendTargetPortal(ctx, p) })
}

func (s *Windows) ISCSISendTargetPortals(ctx context.Context) ([]win.ISCSIPortal, error) {
	return get(ctx, s, win.CallISCSIPortals, initiator,
		func() ([]win.ISCSIPortal, error) { return s.sys.ISCSISendTargetPortals(ctx) })
}

func (s *Windows) ISCSITargets(ctx context.Context) ([]string, error) {
	return get(ctx, s, win.CallISCSITargets, initiator, func() ([]string, error) { return s.sys.ISCSITargets(ctx) })
}

func (s *Windows) ISCSIDiscoveryMechanisms(ctx context.Context, target string) ([]string, error) {
	return get(ctx, s, win.CallISCSITargetInformation, object{name: target},
		func() ([]string, error) { return s.sys.ISCSIDiscoveryMechanisms(ctx, target) })
}

func (s *Windows) LoginISCSITarget(ctx context.Context, l win.ISCSILogin) (win.ISCSISessionID, error) {
	return get(ctx, s, win.CallLoginISCSITarget, object{name: l.Target},
		func() (win.ISCSISessionID, error) { return s.sys.LoginISCSITarget(ctx, l) })
}

func (s *Windows) LogoutISCSITarget(ctx context.Context, id win.ISCSISessionID) error {
	return do(ctx, s, win.CallLogoutISCSITarget, sessionObject(id),
		func() error { return s.sys.LogoutISCSITarget(ctx, id) })
}

func (s *Windows) ISCSISessions(ctx context.Context) ([]win.ISCSISession, error) {
	return get(ctx, s, win.CallISCSISessions, initiator,
		func() ([]win.ISCSISession, error) { return s.sys.ISCSISessions(ctx) })
}

func (s *Windows) ISCSISessionDevices(ctx context.Context, id win.ISCSISessionID) ([]win.ISCSIDevice, error) {
	return get(ctx, s, win.CallISCSISessionDevices, sessionObject(id),
		func() ([]win.ISCSIDevice, error) { return s.sys.ISCSISessionDevices(ctx, id) })
}

func (s *Windows) ISCSIPersistentLogins(ctx context.Context) ([]win.ISCSIPersistentLogin, error) {
	return get(ctx, s, win.CallISCSIPersistentLogins, initiator,
		func() ([]win.ISCSIPersistentLogin, error) { return s.sys.ISCSIPersistentLogins(ctx) })
}

func (s *Windows) RemoveISCSIPersistentLogin(ctx context.Context, l win.ISCSIPersistentLogin) error {
	return do(ctx, s, win.CallRemoveISCSIPersistent, object{name: l.Target},
		func() error { return s.sys.RemoveISCSIPersistentLogin(ctx, l) })
}

func (s *Windows) SetISCSIInitiatorCHAPSecret(ctx context.Context, chap csiproxy.Secret) error {
	return do(ctx, s, win.CallSetISCSICHAPSecret, initiator,
		func() error { return s.sys.SetISCSIInitiatorCHAPSecret(ctx, chap) })
}

func (s *Windows) QueryService(ctx context.Context, name string) (win.Service, error) {
	return get(ctx, s, win.CallQueryService, serviceObject(name),
		func() (win.Service, error) { return s.sys.QueryService(ctx, name) })
}

func (s *Windows) StartService(ctx context.Context, name string) error {
	return do(ctx, s, win.CallStartService, serviceObject(name),
		func() error { return s.sys.StartService(ctx, name) })
}

func (s *Windows) StopService(ctx context.Context, name string) error {
	return do(ctx, s, win.CallStopService, serviceObject(name),
		func() error { return s.sys.StopService(ctx, name) })
}

func (s *Windows) ActiveDependentServices(ctx context.Context, name string) ([]string, error) {
	return get(ctx, s, win.CallActiveDependentServices, serviceObject(name),
		func() ([]string, error) { return s.sys.ActiveDependentServices(ctx, name) })
}

func (s *Windows) FirmwareTable(ctx context.Context) ([]byte, error) {
	return get(ctx, s, win.CallFirmwareTable, object{name: "the firmware"},
		func() ([]byte, error) { return s.sys.FirmwareTable(ctx) })
}

func (s *Windows) OpenDevice(ctx context.Context, path string, access win.Access) (win.Device, error) {
	d, err := get(ctx, s, win.CallOpen, pathObject(path),
		func() (win.Device, error) { return s.sys.OpenDevice(ctx, path, access) })
	if err != nil {
		return nil, err
	}
	return &device{d, s, path}, nil
}

func (s *Windows) OpenFile(ctx context.Context, path string, o win.OpenOptions) (win.File, error) {
	f, err := get(ctx, s, win.CallOpen, pathObject(path), func() (win.File, error) { return s.sys.OpenFile(ctx, path, o) })
	if err != nil {
		return nil, err
	}
	return &file{f, s, path}, nil
}

func (s *Windows) RegistryStrings(ctx context.Context, key, value string) ([]string, error) {
	return get(ctx, s, win.CallRegistryStrings, object{name: "the registry"},
		func() ([]string, error) { return s.sys.RegistryStrings(ctx, key, value) })
}

func (s *Windows) RegistryNumber(ctx context.Context, key, value string) (uint32, error) {
	return get(ctx, s, win.CallRegistryStrings, object{name: "the registry"},
		func() (uint32, error) { return s.sys.RegistryNumber(ctx, key, value) })
}

func (s *Windows) SystemWindowsDirectory(ctx context.Context) (string, error) {
	return get(ctx, s, win.CallSystemWindowsDirectory, object{name: "the Windows directory"},
		func() (string, error) { return s.sys.SystemWindowsDirectory(ctx) })
}

type device struct {
	win.Device // Close isn't reported
	sys        *Windows
	path       string
}

func (d *device) Control(ctx context.Context, code win.IoctlCode, in, out []byte) (int, error) {
	return get(ctx, d.sys, code.String(), pathObject(d.path),
		func() (int, error) { return d.Device.Control(ctx, code, in, out) })
}

func (d *device) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	return get(ctx, d.sys, win.CallRead, pathObject(d.path),
		func() (int, error) { return d.Device.ReadAt(ctx, p, off) })
}

func (d *device) Flush(ctx context.Context) error {
	return do(ctx, d.sys, win.CallFlush, pathObject(d.path), func() error { return d.Device.Flush(ctx) })
}

func (d *device) ProcessIDs(ctx context.Context) ([]win.ProcessID, error) {
	return get(ctx, d.sys, win.CallProcessIDs, pathObject(d.path),
		func() ([]win.ProcessID, error) { return d.Device.ProcessIDs(ctx) })
}

// maxObject is the length, in bytes, of the longest path that names the object of a call. A path
// of the API has 260 characters; only RmdirContents goes deeper. 512 such names, one for each
// call under way, take two megabytes.
const maxObject = 4096

type file struct {
	win.File // Close isn't reported
	sys      *Windows
	path     string
}

func (f *file) OpenAt(ctx context.Context, name string, o win.OpenOptions) (win.File, error) {
	path := f.path + `\` + name
	// Windows opens the directories on the way, too. If one of them hangs, so would this.
	if err := f.sys.table.hangingOnTheWay(win.CallOpenAt, path, len(f.path)+1); err != nil {
		return nil, err
	}
	if len(path) > maxObject {
		path = f.path // everything deeper is one object: full paths of a deep tree would fill the memory
	}
	child, err := get(ctx, f.sys, win.CallOpenAt, pathObject(path),
		func() (win.File, error) { return f.File.OpenAt(ctx, name, o) })
	if err != nil {
		return nil, err
	}
	return &file{child, f.sys, path}, nil
}

func (f *file) Info(ctx context.Context) (win.FileInfo, error) {
	return get(ctx, f.sys, win.CallFileInfo, pathObject(f.path), func() (win.FileInfo, error) { return f.File.Info(ctx) })
}

func (f *file) FinalPath(ctx context.Context) (string, error) {
	return get(ctx, f.sys, win.CallFinalPath, pathObject(f.path), func() (string, error) { return f.File.FinalPath(ctx) })
}

func (f *file) Volume(ctx context.Context) (string, error) {
	return get(ctx, f.sys, win.CallFinalPath, pathObject(f.path), func() (string, error) { return f.File.Volume(ctx) })
}

func (f *file) ReadDir(ctx context.Context, restart bool) ([]win.DirEntry, error) {
	return get(ctx, f.sys, win.CallReadDir, pathObject(f.path),
		func() ([]win.DirEntry, error) { return f.File.ReadDir(ctx, restart) })
}

func (f *file) Read(ctx context.Context, p []byte) (int, error) {
	return get(ctx, f.sys, win.CallRead, pathObject(f.path), func() (int, error) { return f.File.Read(ctx, p) })
}

func (f *file) Control(ctx context.Context, code win.IoctlCode, in, out []byte) (int, error) {
	return get(ctx, f.sys, code.String(), pathObject(f.path),
		func() (int, error) { return f.File.Control(ctx, code, in, out) })
}

func (f *file) ProcessIDs(ctx context.Context) ([]win.ProcessID, error) {
	return get(ctx, f.sys, win.CallProcessIDs, pathObject(f.path),
		func() ([]win.ProcessID, error) { return f.File.ProcessIDs(ctx) })
}

func (f *file) CreationDenied(ctx context.Context) (bool, error) {
	return get(ctx, f.sys, win.CallQuerySecurity, pathObject(f.path),
		func() (bool, error) { return f.File.CreationDenied(ctx) })
}

func (f *file) DenyCreation(ctx context.Context, deny bool) error {
	return do(ctx, f.sys, win.CallSetSecurity, pathObject(f.path), func() error { return f.File.DenyCreation(ctx, deny) })
}

func (f *file) AccessList(ctx context.Context) ([]win.ACE, error) {
	return get(ctx, f.sys, win.CallQuerySecurity, pathObject(f.path),
		func() ([]win.ACE, error) { return f.File.AccessList(ctx) })
}

func (f *file) AddAccess(ctx context.Context, entries []win.ACE) error {
	return do(ctx, f.sys, win.CallSetSecurity, pathObject(f.path), func() error { return f.File.AddAccess(ctx, entries) })
}

func (f *file) Private(ctx context.Context) (bool, error) {
	return get(ctx, f.sys, win.CallQuerySecurity, pathObject(f.path), func() (bool, error) { return f.File.Private(ctx) })
}

func (f *file) LockByte(ctx context.Context, offset int64) error {
	return do(ctx, f.sys, win.CallLockFile, pathObject(f.path), func() error { return f.File.LockByte(ctx, offset) })
}

func (f *file) Delete(ctx context.Context) error {
	return do(ctx, f.sys, win.CallDeleteFile, pathObject(f.path), func() error { return f.File.Delete(ctx) })
}

// initiator is the object of the calls that are about no single portal, target or session.
var initiator = object{name: "the iSCSI initiator"}

func portalObject(p win.ISCSIPortal) object {
	return object{name: "portal " + p.Address}
}

func sessionObject(id win.ISCSISessionID) object {
	return object{name: fmt.Sprintf("session %x-%x", id.AdapterUnique, id.AdapterSpecific)}
}

// deviceNode names the device of an interface path, or the root of the device tree.
func deviceNode(interfacePath string) string {
	if interfacePath == "" {
		return "the device tree"
	}
	return interfacePath
}
