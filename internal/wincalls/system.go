// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package wincalls

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/quote"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/secret"
)

// System is a system whose calls are bounded and reported.
type System struct {
	sys     win.System
	pools   []*pool // by kind
	observe func(call string, took time.Duration, err error)
	log     *slog.Logger
	names   diskNames
}

// New returns sys with its calls bounded and reported.
func New(sys win.System, o Options) *System {
	if o.Observe == nil {
		o.Observe = func(string, time.Duration, error) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &System{sys: sys, observe: o.Observe, log: o.Logger}
	for _, name := range kinds {
		s.pools = append(s.pools, &pool{name: name, log: o.Logger, objects: make(map[string]*state),
			clients: make(map[any]*state)})
	}
	return s
}

// Load returns the load of each pool.
func (s *System) Load() (loads []Load) {
	for _, p := range s.pools {
		loads = append(loads, p.load())
	}
	return loads
}

// get makes a call that has a result, when there is room for it.
func get[T any](ctx context.Context, s *System, name string, o object, f func() (T, error)) (v T, err error) {
	if err := ctx.Err(); err != nil {
		return v, err
	}
	p, t := s.pools[o.kind], TrackerOf(ctx)
	c, err := p.enter(ctx, ctx.Value(clientKey{}), name, o.name)
	if err != nil {
		return v, err
	}
	t.begin(c)
	defer func() {
		t.end(c)
		p.leave(c)
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

// do makes a call that has none.
func do(ctx context.Context, s *System, name string, o object, f func() error) error {
	_, err := get(ctx, s, name, o, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

func (s *System) DeviceInterfaces(ctx context.Context, class win.GUID) ([]string, error) {
	return get(ctx, s, win.CallDeviceInterfaces,
		object{kind: machine, name: "the list of devices of class " + class.String()},
		func() ([]string, error) { return s.sys.DeviceInterfaces(ctx, class) })
}

func (s *System) ReenumerateDevice(ctx context.Context, interfacePath string) error {
	return do(ctx, s, win.CallReenumerateDevice, object{kind: machine, name: deviceNode(interfacePath)},
		func() error { return s.sys.ReenumerateDevice(ctx, interfacePath) })
}

func (s *System) NotifyArrivals(ctx context.Context, class win.GUID) (arrived <-chan struct{}, stop func(), err error) {
	err = do(ctx, s, win.CallNotifyArrivals, object{kind: machine, name: "notices of devices of class " + class.String()},
		func() (err error) {
			arrived, stop, err = s.sys.NotifyArrivals(ctx, class)
			return err
		})
	return arrived, stop, err
}

func (s *System) FindVolumes(ctx context.Context) ([]string, error) {
	return get(ctx, s, win.CallFindVolumes, object{kind: volumes, name: "the list of volumes"},
		func() ([]string, error) { return s.sys.FindVolumes(ctx) })
}

func (s *System) VolumeInformation(ctx context.Context, root string) (win.VolumeInformation, error) {
	return get(ctx, s, win.CallVolumeInformation, object{kind: volumes, name: root},
		func() (win.VolumeInformation, error) { return s.sys.VolumeInformation(ctx, root) })
}

func (s *System) DiskFreeSpace(ctx context.Context, directory string) (win.DiskSpace, error) {
	return get(ctx, s, win.CallDiskFreeSpace, mountPointObject(directory),
		func() (win.DiskSpace, error) { return s.sys.DiskFreeSpace(ctx, directory) })
}

func (s *System) VolumeNameForMountPoint(ctx context.Context, mountPoint string) (string, error) {
	return get(ctx, s, win.CallVolumeNameForMountPoint, mountPointObject(mountPoint),
		func() (string, error) { return s.sys.VolumeNameForMountPoint(ctx, mountPoint) })
}

func (s *System) VolumePathNames(ctx context.Context, volume string) ([]string, error) {
	return get(ctx, s, win.CallVolumePathNames, object{kind: volumes, name: volume},
		func() ([]string, error) { return s.sys.VolumePathNames(ctx, volume) })
}

func (s *System) SetVolumeMountPoint(ctx context.Context, mountPoint, volume string) error {
	return do(ctx, s, win.CallSetVolumeMountPoint, mountPointObject(mountPoint),
		func() error { return s.sys.SetVolumeMountPoint(ctx, mountPoint, volume) })
}

func (s *System) DeleteVolumeMountPoint(ctx context.Context, mountPoint string) error {
	return do(ctx, s, win.CallDeleteVolumeMountPoint, mountPointObject(mountPoint),
		func() error { return s.sys.DeleteVolumeMountPoint(ctx, mountPoint) })
}

func (s *System) FormatVolume(ctx context.Context, volume string, o win.FormatOptions) error {
	return do(ctx, s, win.CallFormatVolume, object{kind: volumes, name: volume},
		func() error { return s.sys.FormatVolume(ctx, volume, o) })
}

func (s *System) RepairVolume(ctx context.Context, volume string, mode win.RepairMode) (win.RepairResult, error) {
	return get(ctx, s, win.CallRepairVolume, object{kind: repairs, name: volume},
		func() (win.RepairResult, error) { return s.sys.RepairVolume(ctx, volume, mode) })
}

func (s *System) OfflineReasons(ctx context.Context) (map[disk.Number]win.OfflineReason, error) {
	return get(ctx, s, win.CallOfflineReasons, object{kind: machine, name: "storage management's list of disks"},
		func() (map[disk.Number]win.OfflineReason, error) { return s.sys.OfflineReasons(ctx) })
}

func (s *System) ProcessImage(ctx context.Context, id win.ProcessID) (string, error) {
	return get(ctx, s, win.CallProcessImage, object{kind: machine, name: fmt.Sprintf("process %d", id)},
		func() (string, error) { return s.sys.ProcessImage(ctx, id) })
}

func (s *System) FileAttributes(ctx context.Context, path string) (win.FileAttributes, error) {
	return get(ctx, s, win.CallFileAttributes, pathObject(path),
		func() (win.FileAttributes, error) { return s.sys.FileAttributes(ctx, path) })
}

func (s *System) SMBGlobalMappings(ctx context.Context) ([]win.SMBMapping, error) {
	return get(ctx, s, win.CallSMBGlobalMappings, object{kind: mappings, name: "the list of SMB mappings"},
		func() ([]win.SMBMapping, error) { return s.sys.SMBGlobalMappings(ctx) })
}

func (s *System) SMBConnections(ctx context.Context) ([]win.SMBConnection, error) {
	return get(ctx, s, win.CallSMBConnections, object{kind: mappings, name: "the list of SMB connections"},
		func() ([]win.SMBConnection, error) { return s.sys.SMBConnections(ctx) })
}

func (s *System) CreateSMBGlobalMapping(ctx context.Context, remotePath string, o win.SMBMappingOptions) error {
	return do(ctx, s, win.CallCreateSMBGlobalMapping, pathObject(remotePath),
		func() error { return s.sys.CreateSMBGlobalMapping(ctx, remotePath, o) })
}

func (s *System) RemoveSMBGlobalMapping(ctx context.Context, remotePath string) error {
	return do(ctx, s, win.CallRemoveSMBGlobalMapping, pathObject(remotePath),
		func() error { return s.sys.RemoveSMBGlobalMapping(ctx, remotePath) })
}

func (s *System) AddISCSISendTargetPortal(ctx context.Context, p win.ISCSIPortal) error {
	return do(ctx, s, win.CallAddISCSIPortal, portalObject(p),
		func() error { return s.sys.AddISCSISendTargetPortal(ctx, p) })
}

func (s *System) RemoveISCSISendTargetPortal(ctx context.Context, p win.ISCSIPortal) error {
	return do(ctx, s, win.CallRemoveISCSIPortal, portalObject(p),
		func() error { return s.sys.RemoveISCSISendTargetPortal(ctx, p) })
}

func (s *System) RefreshISCSISendTargetPortal(ctx context.Context, p win.ISCSIPortal) error {
	return do(ctx, s, win.CallRefreshISCSIPortal, portalObject(p),
		func() error { return s.sys.RefreshISCSISendTargetPortal(ctx, p) })
}

func (s *System) ISCSISendTargetPortals(ctx context.Context) ([]win.ISCSIPortal, error) {
	return get(ctx, s, win.CallISCSIPortals, initiator,
		func() ([]win.ISCSIPortal, error) { return s.sys.ISCSISendTargetPortals(ctx) })
}

func (s *System) ISCSITargets(ctx context.Context) ([]string, error) {
	return get(ctx, s, win.CallISCSITargets, initiator, func() ([]string, error) { return s.sys.ISCSITargets(ctx) })
}

func (s *System) ISCSIDiscoveryMechanisms(ctx context.Context, target string) ([]string, error) {
	return get(ctx, s, win.CallISCSITargetInformation, object{kind: targets, name: target},
		func() ([]string, error) { return s.sys.ISCSIDiscoveryMechanisms(ctx, target) })
}

func (s *System) LoginISCSITarget(ctx context.Context, l win.ISCSILogin) (win.ISCSISessionID, error) {
	return get(ctx, s, win.CallLoginISCSITarget, object{kind: targets, name: l.Target},
		func() (win.ISCSISessionID, error) { return s.sys.LoginISCSITarget(ctx, l) })
}

func (s *System) LogoutISCSITarget(ctx context.Context, id win.ISCSISessionID) error {
	return do(ctx, s, win.CallLogoutISCSITarget, sessionObject(id),
		func() error { return s.sys.LogoutISCSITarget(ctx, id) })
}

func (s *System) ISCSISessions(ctx context.Context) ([]win.ISCSISession, error) {
	return get(ctx, s, win.CallISCSISessions, initiator,
		func() ([]win.ISCSISession, error) { return s.sys.ISCSISessions(ctx) })
}

func (s *System) ISCSISessionDevices(ctx context.Context, id win.ISCSISessionID) ([]win.ISCSIDevice, error) {
	return get(ctx, s, win.CallISCSISessionDevices, sessionObject(id),
		func() ([]win.ISCSIDevice, error) { return s.sys.ISCSISessionDevices(ctx, id) })
}

func (s *System) ISCSIPersistentLogins(ctx context.Context) ([]win.ISCSIPersistentLogin, error) {
	return get(ctx, s, win.CallISCSIPersistentLogins, initiator,
		func() ([]win.ISCSIPersistentLogin, error) { return s.sys.ISCSIPersistentLogins(ctx) })
}

func (s *System) RemoveISCSIPersistentLogin(ctx context.Context, l win.ISCSIPersistentLogin) error {
	return do(ctx, s, win.CallRemoveISCSIPersistent, object{kind: targets, name: l.Target},
		func() error { return s.sys.RemoveISCSIPersistentLogin(ctx, l) })
}

func (s *System) SetISCSIInitiatorCHAPSecret(ctx context.Context, chap secret.Text) error {
	return do(ctx, s, win.CallSetISCSICHAPSecret, initiator,
		func() error { return s.sys.SetISCSIInitiatorCHAPSecret(ctx, chap) })
}

func (s *System) QueryService(ctx context.Context, name string) (win.Service, error) {
	return get(ctx, s, win.CallQueryService, object{kind: services, name: name},
		func() (win.Service, error) { return s.sys.QueryService(ctx, name) })
}

func (s *System) StartService(ctx context.Context, name string) error {
	return do(ctx, s, win.CallStartService, object{kind: services, name: name},
		func() error { return s.sys.StartService(ctx, name) })
}

func (s *System) StopService(ctx context.Context, name string) error {
	return do(ctx, s, win.CallStopService, object{kind: services, name: name},
		func() error { return s.sys.StopService(ctx, name) })
}

func (s *System) ActiveDependentServices(ctx context.Context, name string) ([]string, error) {
	return get(ctx, s, win.CallActiveDependentServices, object{kind: services, name: name},
		func() ([]string, error) { return s.sys.ActiveDependentServices(ctx, name) })
}

func (s *System) FirmwareTable(ctx context.Context) ([]byte, error) {
	return get(ctx, s, win.CallFirmwareTable, object{kind: machine, name: "the firmware"},
		func() ([]byte, error) { return s.sys.FirmwareTable(ctx) })
}

func (s *System) OpenDevice(ctx context.Context, path string, access win.Access) (win.Device, error) {
	d, err := get(ctx, s, win.CallOpen, s.deviceObject(path),
		func() (win.Device, error) { return s.sys.OpenDevice(ctx, path, access) })
	if err != nil {
		return nil, err
	}
	return &device{d, s, path}, nil
}

func (s *System) OpenFile(ctx context.Context, path string, o win.OpenOptions) (win.File, error) {
	f, err := get(ctx, s, win.CallOpen, pathObject(path), func() (win.File, error) { return s.sys.OpenFile(ctx, path, o) })
	if err != nil {
		return nil, err
	}
	return &file{f, s, path}, nil
}

func (s *System) RegistryStrings(ctx context.Context, key, value string) ([]string, error) {
	return get(ctx, s, win.CallRegistryStrings, object{kind: machine, name: "the registry"},
		func() ([]string, error) { return s.sys.RegistryStrings(ctx, key, value) })
}

func (s *System) RegistryNumber(ctx context.Context, key, value string) (uint32, error) {
	return get(ctx, s, win.CallRegistryStrings, object{kind: machine, name: "the registry"},
		func() (uint32, error) { return s.sys.RegistryNumber(ctx, key, value) })
}

func (s *System) SystemWindowsDirectory(ctx context.Context) (string, error) {
	return get(ctx, s, win.CallSystemWindowsDirectory, object{kind: machine, name: "the Windows directory"},
		func() (string, error) { return s.sys.SystemWindowsDirectory(ctx) })
}

type device struct {
	win.Device // Close isn't reported
	sys        *System
	path       string
}

func (d *device) Control(ctx context.Context, code win.IoctlCode, in, out []byte) (int, error) {
	o := d.sys.deviceObject(d.path)
	if code == win.IoctlDiskAreVolumesReady {
		o.kind = arrivals
	}
	n, err := get(ctx, d.sys, code.String(), o,
		func() (int, error) { return d.Device.Control(ctx, code, in, out) })
	if err == nil && code == win.IoctlStorageGetDeviceNumber {
		d.sys.names.learn(d.path, out[:min(n, len(out))])
	}
	return n, err
}

func (d *device) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	return get(ctx, d.sys, win.CallRead, d.sys.deviceObject(d.path),
		func() (int, error) { return d.Device.ReadAt(ctx, p, off) })
}

func (d *device) Flush(ctx context.Context) error {
	return do(ctx, d.sys, win.CallFlush, d.sys.deviceObject(d.path), func() error { return d.Device.Flush(ctx) })
}

func (d *device) ProcessIDs(ctx context.Context) ([]win.ProcessID, error) {
	return get(ctx, d.sys, win.CallProcessIDs, d.sys.deviceObject(d.path),
		func() ([]win.ProcessID, error) { return d.Device.ProcessIDs(ctx) })
}

// maxObject is how long the path may be by which the calls on a file are known, in bytes. A path
// of the API has 260 characters; only RmdirContents goes deeper. 256 such names, one for each
// call under way, take a megabyte.
const maxObject = 4096

type file struct {
	win.File // Close isn't reported
	sys      *System
	path     string
}

func (f *file) OpenAt(ctx context.Context, name string, o win.OpenOptions) (win.File, error) {
	path := f.path + `\` + name
	// Windows opens the directories on the way, too. If one of them hangs, so would this.
	if p := f.sys.pools[pathObject(path).kind]; p.busy() {
		for i, c := range name {
			if c != '\\' {
				continue
			}
			o := pathObject(path[:len(f.path)+1+i])
			if err := p.hanging(win.CallOpenAt, o.name); err != nil {
				return nil, err
			}
		}
	}
	if len(path) > maxObject {
		path = f.path // of all that lies that deep: whole paths of a deep tree would fill the memory
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

func (f *file) Rename(ctx context.Context, dir win.File, name string) error {
	if wrapped, ok := dir.(*file); ok {
		dir = wrapped.File
	}
	return do(ctx, f.sys, win.CallRename, pathObject(f.path), func() error { return f.File.Rename(ctx, dir, name) })
}

func (f *file) Delete(ctx context.Context) error {
	return do(ctx, f.sys, win.CallDeleteFile, pathObject(f.path), func() error { return f.File.Delete(ctx) })
}

// initiator is the object of calls on what the initiator as a whole knows.
var initiator = object{kind: targets, name: "the iSCSI initiator"}

func portalObject(p win.ISCSIPortal) object {
	return object{kind: targets, name: "portal " + p.Address}
}

func sessionObject(id win.ISCSISessionID) object {
	return object{kind: targets, name: fmt.Sprintf("session %x-%x", id.AdapterUnique, id.AdapterSpecific)}
}

// deviceNode names the device of an interface path, or the root of the device tree.
func deviceNode(interfacePath string) string {
	if interfacePath == "" {
		return "the device tree"
	}
	return interfacePath
}
