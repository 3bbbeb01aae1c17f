// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package wintrace reports every call to a system to an observer, and makes none
// for a caller whose context has ended.
package wintrace

import (
	"context"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/secret"
)

// Observer is told of every call when it has been answered: the name of the Win32
// function or control code, how long it took and its error.
type Observer func(call string, took time.Duration, err error)

// New returns sys with each of its calls reported to observe, which may be nil.
func New(sys win.System, observe Observer) win.System {
	if observe == nil {
		observe = func(string, time.Duration, error) {}
	}
	return &system{sys, observe}
}

type system struct {
	sys     win.System
	observe Observer
}

// get makes a call that has a result.
func get[T any](ctx context.Context, observe Observer, call string, f func() (T, error)) (T, error) {
	if err := ctx.Err(); err != nil {
		var none T
		return none, err
	}
	start := time.Now()
	v, err := f()
	observe(call, time.Since(start), err)
	return v, err
}

// do makes a call that has none.
func do(ctx context.Context, observe Observer, call string, f func() error) error {
	_, err := get(ctx, observe, call, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

func (s *system) DeviceInterfaces(ctx context.Context, class win.GUID) ([]string, error) {
	return get(ctx, s.observe, win.CallDeviceInterfaces, func() ([]string, error) { return s.sys.DeviceInterfaces(ctx, class) })
}

func (s *system) ReenumerateDevice(ctx context.Context, interfacePath string) error {
	return do(ctx, s.observe, win.CallReenumerateDevice, func() error { return s.sys.ReenumerateDevice(ctx, interfacePath) })
}

func (s *system) NotifyArrivals(ctx context.Context, class win.GUID) (arrived <-chan struct{}, stop func(), err error) {
	err = do(ctx, s.observe, win.CallNotifyArrivals, func() (err error) {
		arrived, stop, err = s.sys.NotifyArrivals(ctx, class)
		return err
	})
	return arrived, stop, err
}

func (s *system) FindVolumes(ctx context.Context) ([]string, error) {
	return get(ctx, s.observe, win.CallFindVolumes, func() ([]string, error) { return s.sys.FindVolumes(ctx) })
}

func (s *system) VolumeInformation(ctx context.Context, root string) (win.VolumeInformation, error) {
	return get(ctx, s.observe, win.CallVolumeInformation, func() (win.VolumeInformation, error) { return s.sys.VolumeInformation(ctx, root) })
}

func (s *system) DiskFreeSpace(ctx context.Context, directory string) (win.DiskSpace, error) {
	return get(ctx, s.observe, win.CallDiskFreeSpace, func() (win.DiskSpace, error) { return s.sys.DiskFreeSpace(ctx, directory) })
}

func (s *system) VolumeNameForMountPoint(ctx context.Context, mountPoint string) (string, error) {
	return get(ctx, s.observe, win.CallVolumeNameForMountPoint, func() (string, error) { return s.sys.VolumeNameForMountPoint(ctx, mountPoint) })
}

func (s *system) SetVolumeMountPoint(ctx context.Context, mountPoint, volume string) error {
	return do(ctx, s.observe, win.CallSetVolumeMountPoint, func() error { return s.sys.SetVolumeMountPoint(ctx, mountPoint, volume) })
}

func (s *system) DeleteVolumeMountPoint(ctx context.Context, mountPoint string) error {
	return do(ctx, s.observe, win.CallDeleteVolumeMountPoint, func() error { return s.sys.DeleteVolumeMountPoint(ctx, mountPoint) })
}

func (s *system) FormatVolume(ctx context.Context, volume string, o win.FormatOptions) error {
	return do(ctx, s.observe, win.CallFormatVolume, func() error { return s.sys.FormatVolume(ctx, volume, o) })
}

func (s *system) FileAttributes(ctx context.Context, path string) (win.FileAttributes, error) {
	return get(ctx, s.observe, win.CallFileAttributes, func() (win.FileAttributes, error) { return s.sys.FileAttributes(ctx, path) })
}

func (s *system) SMBGlobalMappings(ctx context.Context) ([]win.SMBMapping, error) {
	return get(ctx, s.observe, win.CallSMBGlobalMappings, func() ([]win.SMBMapping, error) { return s.sys.SMBGlobalMappings(ctx) })
}

func (s *system) CreateSMBGlobalMapping(ctx context.Context, remotePath string, o win.SMBMappingOptions) error {
	return do(ctx, s.observe, win.CallCreateSMBGlobalMapping, func() error { return s.sys.CreateSMBGlobalMapping(ctx, remotePath, o) })
}

func (s *system) RemoveSMBGlobalMapping(ctx context.Context, remotePath string) error {
	return do(ctx, s.observe, win.CallRemoveSMBGlobalMapping, func() error { return s.sys.RemoveSMBGlobalMapping(ctx, remotePath) })
}

func (s *system) AddISCSISendTargetPortal(ctx context.Context, p win.ISCSIPortal) error {
	return do(ctx, s.observe, win.CallAddISCSIPortal, func() error { return s.sys.AddISCSISendTargetPortal(ctx, p) })
}

func (s *system) RemoveISCSISendTargetPortal(ctx context.Context, p win.ISCSIPortal) error {
	return do(ctx, s.observe, win.CallRemoveISCSIPortal, func() error { return s.sys.RemoveISCSISendTargetPortal(ctx, p) })
}

func (s *system) RefreshISCSISendTargetPortal(ctx context.Context, p win.ISCSIPortal) error {
	return do(ctx, s.observe, win.CallRefreshISCSIPortal, func() error { return s.sys.RefreshISCSISendTargetPortal(ctx, p) })
}

func (s *system) ISCSISendTargetPortals(ctx context.Context) ([]win.ISCSIPortal, error) {
	return get(ctx, s.observe, win.CallISCSIPortals, func() ([]win.ISCSIPortal, error) { return s.sys.ISCSISendTargetPortals(ctx) })
}

func (s *system) ISCSITargets(ctx context.Context) ([]string, error) {
	return get(ctx, s.observe, win.CallISCSITargets, func() ([]string, error) { return s.sys.ISCSITargets(ctx) })
}

func (s *system) ISCSIDiscoveryMechanisms(ctx context.Context, target string) ([]string, error) {
	return get(ctx, s.observe, win.CallISCSITargetInformation, func() ([]string, error) { return s.sys.ISCSIDiscoveryMechanisms(ctx, target) })
}

func (s *system) LoginISCSITarget(ctx context.Context, l win.ISCSILogin) (win.ISCSISessionID, error) {
	return get(ctx, s.observe, win.CallLoginISCSITarget, func() (win.ISCSISessionID, error) { return s.sys.LoginISCSITarget(ctx, l) })
}

func (s *system) LogoutISCSITarget(ctx context.Context, id win.ISCSISessionID) error {
	return do(ctx, s.observe, win.CallLogoutISCSITarget, func() error { return s.sys.LogoutISCSITarget(ctx, id) })
}

func (s *system) ISCSISessions(ctx context.Context) ([]win.ISCSISession, error) {
	return get(ctx, s.observe, win.CallISCSISessions, func() ([]win.ISCSISession, error) { return s.sys.ISCSISessions(ctx) })
}

func (s *system) ISCSISessionDevices(ctx context.Context, id win.ISCSISessionID) ([]win.ISCSIDevice, error) {
	return get(ctx, s.observe, win.CallISCSISessionDevices, func() ([]win.ISCSIDevice, error) { return s.sys.ISCSISessionDevices(ctx, id) })
}

func (s *system) ISCSIPersistentLogins(ctx context.Context) ([]win.ISCSIPersistentLogin, error) {
	return get(ctx, s.observe, win.CallISCSIPersistentLogins, func() ([]win.ISCSIPersistentLogin, error) { return s.sys.ISCSIPersistentLogins(ctx) })
}

func (s *system) RemoveISCSIPersistentLogin(ctx context.Context, l win.ISCSIPersistentLogin) error {
	return do(ctx, s.observe, win.CallRemoveISCSIPersistent, func() error { return s.sys.RemoveISCSIPersistentLogin(ctx, l) })
}

func (s *system) SetISCSIInitiatorCHAPSecret(ctx context.Context, chap secret.Text) error {
	return do(ctx, s.observe, win.CallSetISCSICHAPSecret, func() error { return s.sys.SetISCSIInitiatorCHAPSecret(ctx, chap) })
}

func (s *system) QueryService(ctx context.Context, name string) (win.Service, error) {
	return get(ctx, s.observe, win.CallQueryService, func() (win.Service, error) { return s.sys.QueryService(ctx, name) })
}

func (s *system) StartService(ctx context.Context, name string) error {
	return do(ctx, s.observe, win.CallStartService, func() error { return s.sys.StartService(ctx, name) })
}

func (s *system) StopService(ctx context.Context, name string) error {
	return do(ctx, s.observe, win.CallStopService, func() error { return s.sys.StopService(ctx, name) })
}

func (s *system) ActiveDependentServices(ctx context.Context, name string) ([]string, error) {
	return get(ctx, s.observe, win.CallActiveDependentServices, func() ([]string, error) { return s.sys.ActiveDependentServices(ctx, name) })
}

func (s *system) FirmwareTable(ctx context.Context) ([]byte, error) {
	return get(ctx, s.observe, win.CallFirmwareTable, func() ([]byte, error) { return s.sys.FirmwareTable(ctx) })
}

func (s *system) OpenDevice(ctx context.Context, path string, access win.Access) (win.Device, error) {
	d, err := get(ctx, s.observe, win.CallOpen, func() (win.Device, error) { return s.sys.OpenDevice(ctx, path, access) })
	if err != nil {
		return nil, err
	}
	return &device{d, s.observe}, nil
}

func (s *system) OpenFile(ctx context.Context, path string, o win.OpenOptions) (win.File, error) {
	f, err := get(ctx, s.observe, win.CallOpen, func() (win.File, error) { return s.sys.OpenFile(ctx, path, o) })
	if err != nil {
		return nil, err
	}
	return &file{f, s.observe}, nil
}

func (s *system) RegistryStrings(ctx context.Context, key, value string) ([]string, error) {
	return get(ctx, s.observe, win.CallRegistryStrings, func() ([]string, error) { return s.sys.RegistryStrings(ctx, key, value) })
}

func (s *system) SystemWindowsDirectory(ctx context.Context) (string, error) {
	return get(ctx, s.observe, win.CallSystemWindowsDirectory, func() (string, error) { return s.sys.SystemWindowsDirectory(ctx) })
}

type device struct {
	win.Device // Close isn't reported
	observe    Observer
}

func (d *device) Control(ctx context.Context, code win.IoctlCode, in, out []byte) (int, error) {
	return get(ctx, d.observe, code.String(), func() (int, error) { return d.Device.Control(ctx, code, in, out) })
}

func (d *device) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	return get(ctx, d.observe, win.CallRead, func() (int, error) { return d.Device.ReadAt(ctx, p, off) })
}

func (d *device) Flush(ctx context.Context) error {
	return do(ctx, d.observe, win.CallFlush, func() error { return d.Device.Flush(ctx) })
}

type file struct {
	win.File // Close isn't reported
	observe  Observer
}

func (f *file) OpenAt(ctx context.Context, name string, o win.OpenOptions) (win.File, error) {
	child, err := get(ctx, f.observe, win.CallOpenAt, func() (win.File, error) { return f.File.OpenAt(ctx, name, o) })
	if err != nil {
		return nil, err
	}
	return &file{child, f.observe}, nil
}

func (f *file) Info(ctx context.Context) (win.FileInfo, error) {
	return get(ctx, f.observe, win.CallFileInfo, func() (win.FileInfo, error) { return f.File.Info(ctx) })
}

func (f *file) Volume(ctx context.Context) (string, error) {
	return get(ctx, f.observe, win.CallFinalPath, func() (string, error) { return f.File.Volume(ctx) })
}

func (f *file) ReadDir(ctx context.Context, restart bool) ([]win.DirEntry, error) {
	return get(ctx, f.observe, win.CallReadDir, func() ([]win.DirEntry, error) { return f.File.ReadDir(ctx, restart) })
}

func (f *file) Control(ctx context.Context, code win.IoctlCode, in, out []byte) (int, error) {
	return get(ctx, f.observe, code.String(), func() (int, error) { return f.File.Control(ctx, code, in, out) })
}

func (f *file) Delete(ctx context.Context) error {
	return do(ctx, f.observe, win.CallDeleteFile, func() error { return f.File.Delete(ctx) })
}
