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

// System is the whole seam: what the operations of all groups use of Windows.
type System interface {
	DeviceInterfaces(ctx context.Context, class win.GUID) ([]string, error)
	OpenDevice(ctx context.Context, path string, access win.Access) (win.Device, error)
	ReenumerateDevice(ctx context.Context, interfacePath string) error
	NotifyArrivals(ctx context.Context, class win.GUID) (arrived <-chan struct{}, stop func(), err error)

	FindVolumes(ctx context.Context) ([]string, error)
	VolumeInformation(ctx context.Context, root string) (win.VolumeInformation, error)
	DiskFreeSpace(ctx context.Context, directory string) (win.DiskSpace, error)
	VolumeNameForMountPoint(ctx context.Context, mountPoint string) (string, error)
	SetVolumeMountPoint(ctx context.Context, mountPoint, volume string) error
	DeleteVolumeMountPoint(ctx context.Context, mountPoint string) error
	FormatVolume(ctx context.Context, volume string, o win.FormatOptions) error

	OpenFile(ctx context.Context, path string, o win.OpenOptions) (win.File, error)
	FileAttributes(ctx context.Context, path string) (win.FileAttributes, error)

	SMBGlobalMappings(ctx context.Context) ([]win.SMBMapping, error)
	CreateSMBGlobalMapping(ctx context.Context, remotePath string, o win.SMBMappingOptions) error
	RemoveSMBGlobalMapping(ctx context.Context, remotePath string) error

	AddISCSISendTargetPortal(ctx context.Context, p win.ISCSIPortal) error
	RemoveISCSISendTargetPortal(ctx context.Context, p win.ISCSIPortal) error
	RefreshISCSISendTargetPortal(ctx context.Context, p win.ISCSIPortal) error
	ISCSISendTargetPortals(ctx context.Context) ([]win.ISCSIPortal, error)
	ISCSITargets(ctx context.Context) ([]string, error)
	ISCSIDiscoveryMechanisms(ctx context.Context, target string) ([]string, error)
	LoginISCSITarget(ctx context.Context, l win.ISCSILogin) (win.ISCSISessionID, error)
	LogoutISCSITarget(ctx context.Context, id win.ISCSISessionID) error
	ISCSISessions(ctx context.Context) ([]win.ISCSISession, error)
	ISCSISessionDevices(ctx context.Context, id win.ISCSISessionID) ([]win.ISCSIDevice, error)
	ISCSIPersistentLogins(ctx context.Context) ([]win.ISCSIPersistentLogin, error)
	RemoveISCSIPersistentLogin(ctx context.Context, l win.ISCSIPersistentLogin) error
	SetISCSIInitiatorCHAPSecret(ctx context.Context, chap secret.Text) error

	QueryService(ctx context.Context, name string) (win.Service, error)
	StartService(ctx context.Context, name string) error
	StopService(ctx context.Context, name string) error
	ActiveDependentServices(ctx context.Context, name string) ([]string, error)
	FirmwareTable(ctx context.Context) ([]byte, error)
}

// Instrumented is a System whose calls are reported.
type Instrumented struct {
	sys     System
	observe Observer
}

// New instruments sys. observe may be nil.
func New(sys System, observe Observer) *Instrumented {
	if observe == nil {
		observe = func(string, time.Duration, error) {}
	}
	return &Instrumented{sys, observe}
}

// ask makes a call that has a result.
func ask[T any](ctx context.Context, observe Observer, call string, f func() (T, error)) (T, error) {
	if err := ctx.Err(); err != nil {
		var none T
		return none, err
	}
	start := time.Now()
	v, err := f()
	observe(call, time.Since(start), err)
	return v, err
}

// tell makes a call that has none.
func tell(ctx context.Context, observe Observer, call string, f func() error) error {
	_, err := ask(ctx, observe, call, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

// DeviceInterfaces is instrumented.
func (i *Instrumented) DeviceInterfaces(ctx context.Context, class win.GUID) ([]string, error) {
	return ask(ctx, i.observe, "CM_Get_Device_Interface_ListW", func() ([]string, error) { return i.sys.DeviceInterfaces(ctx, class) })
}

// ReenumerateDevice is instrumented.
func (i *Instrumented) ReenumerateDevice(ctx context.Context, interfacePath string) error {
	return tell(ctx, i.observe, "CM_Reenumerate_DevNode", func() error { return i.sys.ReenumerateDevice(ctx, interfacePath) })
}

// NotifyArrivals is instrumented.
func (i *Instrumented) NotifyArrivals(ctx context.Context, class win.GUID) (arrived <-chan struct{}, stop func(), err error) {
	err = tell(ctx, i.observe, "CM_Register_Notification", func() (err error) {
		arrived, stop, err = i.sys.NotifyArrivals(ctx, class)
		return err
	})
	return arrived, stop, err
}

// FindVolumes is instrumented.
func (i *Instrumented) FindVolumes(ctx context.Context) ([]string, error) {
	return ask(ctx, i.observe, "FindFirstVolumeW", func() ([]string, error) { return i.sys.FindVolumes(ctx) })
}

// VolumeInformation is instrumented.
func (i *Instrumented) VolumeInformation(ctx context.Context, root string) (win.VolumeInformation, error) {
	return ask(ctx, i.observe, "GetVolumeInformationW", func() (win.VolumeInformation, error) { return i.sys.VolumeInformation(ctx, root) })
}

// DiskFreeSpace is instrumented.
func (i *Instrumented) DiskFreeSpace(ctx context.Context, directory string) (win.DiskSpace, error) {
	return ask(ctx, i.observe, "GetDiskFreeSpaceExW", func() (win.DiskSpace, error) { return i.sys.DiskFreeSpace(ctx, directory) })
}

// VolumeNameForMountPoint is instrumented.
func (i *Instrumented) VolumeNameForMountPoint(ctx context.Context, mountPoint string) (string, error) {
	return ask(ctx, i.observe, "GetVolumeNameForVolumeMountPointW", func() (string, error) { return i.sys.VolumeNameForMountPoint(ctx, mountPoint) })
}

// SetVolumeMountPoint is instrumented.
func (i *Instrumented) SetVolumeMountPoint(ctx context.Context, mountPoint, volume string) error {
	return tell(ctx, i.observe, "SetVolumeMountPointW", func() error { return i.sys.SetVolumeMountPoint(ctx, mountPoint, volume) })
}

// DeleteVolumeMountPoint is instrumented.
func (i *Instrumented) DeleteVolumeMountPoint(ctx context.Context, mountPoint string) error {
	return tell(ctx, i.observe, "DeleteVolumeMountPointW", func() error { return i.sys.DeleteVolumeMountPoint(ctx, mountPoint) })
}

// FormatVolume is instrumented.
func (i *Instrumented) FormatVolume(ctx context.Context, volume string, o win.FormatOptions) error {
	return tell(ctx, i.observe, "MSFT_Volume.Format", func() error { return i.sys.FormatVolume(ctx, volume, o) })
}

// FileAttributes is instrumented.
func (i *Instrumented) FileAttributes(ctx context.Context, path string) (win.FileAttributes, error) {
	return ask(ctx, i.observe, "GetFileAttributesW", func() (win.FileAttributes, error) { return i.sys.FileAttributes(ctx, path) })
}

// SMBGlobalMappings is instrumented.
func (i *Instrumented) SMBGlobalMappings(ctx context.Context) ([]win.SMBMapping, error) {
	return ask(ctx, i.observe, "MSFT_SmbGlobalMapping", func() ([]win.SMBMapping, error) { return i.sys.SMBGlobalMappings(ctx) })
}

// CreateSMBGlobalMapping is instrumented.
func (i *Instrumented) CreateSMBGlobalMapping(ctx context.Context, remotePath string, o win.SMBMappingOptions) error {
	return tell(ctx, i.observe, "MSFT_SmbGlobalMapping.Create", func() error { return i.sys.CreateSMBGlobalMapping(ctx, remotePath, o) })
}

// RemoveSMBGlobalMapping is instrumented.
func (i *Instrumented) RemoveSMBGlobalMapping(ctx context.Context, remotePath string) error {
	return tell(ctx, i.observe, "MSFT_SmbGlobalMapping.Remove", func() error { return i.sys.RemoveSMBGlobalMapping(ctx, remotePath) })
}

// AddISCSISendTargetPortal is instrumented.
func (i *Instrumented) AddISCSISendTargetPortal(ctx context.Context, p win.ISCSIPortal) error {
	return tell(ctx, i.observe, "AddIScsiSendTargetPortalW", func() error { return i.sys.AddISCSISendTargetPortal(ctx, p) })
}

// RemoveISCSISendTargetPortal is instrumented.
func (i *Instrumented) RemoveISCSISendTargetPortal(ctx context.Context, p win.ISCSIPortal) error {
	return tell(ctx, i.observe, "RemoveIScsiSendTargetPortalW", func() error { return i.sys.RemoveISCSISendTargetPortal(ctx, p) })
}

// RefreshISCSISendTargetPortal is instrumented.
func (i *Instrumented) RefreshISCSISendTargetPortal(ctx context.Context, p win.ISCSIPortal) error {
	return tell(ctx, i.observe, "RefreshIScsiSendTargetPortalW", func() error { return i.sys.RefreshISCSISendTargetPortal(ctx, p) })
}

// ISCSISendTargetPortals is instrumented.
func (i *Instrumented) ISCSISendTargetPortals(ctx context.Context) ([]win.ISCSIPortal, error) {
	return ask(ctx, i.observe, "ReportIScsiSendTargetPortalsExW", func() ([]win.ISCSIPortal, error) { return i.sys.ISCSISendTargetPortals(ctx) })
}

// ISCSITargets is instrumented.
func (i *Instrumented) ISCSITargets(ctx context.Context) ([]string, error) {
	return ask(ctx, i.observe, "ReportIScsiTargetsW", func() ([]string, error) { return i.sys.ISCSITargets(ctx) })
}

// ISCSIDiscoveryMechanisms is instrumented.
func (i *Instrumented) ISCSIDiscoveryMechanisms(ctx context.Context, target string) ([]string, error) {
	return ask(ctx, i.observe, "GetIScsiTargetInformationW", func() ([]string, error) { return i.sys.ISCSIDiscoveryMechanisms(ctx, target) })
}

// LoginISCSITarget is instrumented.
func (i *Instrumented) LoginISCSITarget(ctx context.Context, l win.ISCSILogin) (win.ISCSISessionID, error) {
	return ask(ctx, i.observe, "LoginIScsiTargetW", func() (win.ISCSISessionID, error) { return i.sys.LoginISCSITarget(ctx, l) })
}

// LogoutISCSITarget is instrumented.
func (i *Instrumented) LogoutISCSITarget(ctx context.Context, id win.ISCSISessionID) error {
	return tell(ctx, i.observe, "LogoutIScsiTarget", func() error { return i.sys.LogoutISCSITarget(ctx, id) })
}

// ISCSISessions is instrumented.
func (i *Instrumented) ISCSISessions(ctx context.Context) ([]win.ISCSISession, error) {
	return ask(ctx, i.observe, "GetIScsiSessionListW", func() ([]win.ISCSISession, error) { return i.sys.ISCSISessions(ctx) })
}

// ISCSISessionDevices is instrumented.
func (i *Instrumented) ISCSISessionDevices(ctx context.Context, id win.ISCSISessionID) ([]win.ISCSIDevice, error) {
	return ask(ctx, i.observe, "GetDevicesForIScsiSessionW", func() ([]win.ISCSIDevice, error) { return i.sys.ISCSISessionDevices(ctx, id) })
}

// ISCSIPersistentLogins is instrumented.
func (i *Instrumented) ISCSIPersistentLogins(ctx context.Context) ([]win.ISCSIPersistentLogin, error) {
	return ask(ctx, i.observe, "ReportIScsiPersistentLoginsW", func() ([]win.ISCSIPersistentLogin, error) { return i.sys.ISCSIPersistentLogins(ctx) })
}

// RemoveISCSIPersistentLogin is instrumented.
func (i *Instrumented) RemoveISCSIPersistentLogin(ctx context.Context, l win.ISCSIPersistentLogin) error {
	return tell(ctx, i.observe, "RemoveIScsiPersistentTargetW", func() error { return i.sys.RemoveISCSIPersistentLogin(ctx, l) })
}

// SetISCSIInitiatorCHAPSecret is instrumented.
func (i *Instrumented) SetISCSIInitiatorCHAPSecret(ctx context.Context, chap secret.Text) error {
	return tell(ctx, i.observe, "SetIScsiInitiatorCHAPSharedSecret", func() error { return i.sys.SetISCSIInitiatorCHAPSecret(ctx, chap) })
}

// QueryService is instrumented.
func (i *Instrumented) QueryService(ctx context.Context, name string) (win.Service, error) {
	return ask(ctx, i.observe, "QueryServiceStatusEx", func() (win.Service, error) { return i.sys.QueryService(ctx, name) })
}

// StartService is instrumented.
func (i *Instrumented) StartService(ctx context.Context, name string) error {
	return tell(ctx, i.observe, "StartServiceW", func() error { return i.sys.StartService(ctx, name) })
}

// StopService is instrumented.
func (i *Instrumented) StopService(ctx context.Context, name string) error {
	return tell(ctx, i.observe, "ControlService", func() error { return i.sys.StopService(ctx, name) })
}

// ActiveDependentServices is instrumented.
func (i *Instrumented) ActiveDependentServices(ctx context.Context, name string) ([]string, error) {
	return ask(ctx, i.observe, "EnumDependentServicesW", func() ([]string, error) { return i.sys.ActiveDependentServices(ctx, name) })
}

// FirmwareTable is instrumented.
func (i *Instrumented) FirmwareTable(ctx context.Context) ([]byte, error) {
	return ask(ctx, i.observe, "GetSystemFirmwareTable", func() ([]byte, error) { return i.sys.FirmwareTable(ctx) })
}

// OpenDevice is instrumented, and so are the calls of the device.
func (i *Instrumented) OpenDevice(ctx context.Context, path string, access win.Access) (win.Device, error) {
	d, err := ask(ctx, i.observe, "CreateFileW", func() (win.Device, error) { return i.sys.OpenDevice(ctx, path, access) })
	if err != nil {
		return nil, err
	}
	return &device{d, i.observe}, nil
}

// OpenFile is instrumented, and so are the calls of the file.
func (i *Instrumented) OpenFile(ctx context.Context, path string, o win.OpenOptions) (win.File, error) {
	f, err := ask(ctx, i.observe, "CreateFileW", func() (win.File, error) { return i.sys.OpenFile(ctx, path, o) })
	if err != nil {
		return nil, err
	}
	return &file{f, i.observe}, nil
}

type device struct {
	win.Device // Close isn't reported
	observe    Observer
}

func (d *device) Control(ctx context.Context, code win.IoctlCode, in, out []byte) (int, error) {
	return ask(ctx, d.observe, code.String(), func() (int, error) { return d.Device.Control(ctx, code, in, out) })
}

func (d *device) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	return ask(ctx, d.observe, "ReadFile", func() (int, error) { return d.Device.ReadAt(ctx, p, off) })
}

func (d *device) Flush(ctx context.Context) error {
	return tell(ctx, d.observe, "FlushFileBuffers", func() error { return d.Device.Flush(ctx) })
}

type file struct {
	win.File // Close isn't reported
	observe  Observer
}

func (f *file) OpenAt(ctx context.Context, name string, o win.OpenOptions) (win.File, error) {
	child, err := ask(ctx, f.observe, "NtCreateFile", func() (win.File, error) { return f.File.OpenAt(ctx, name, o) })
	if err != nil {
		return nil, err
	}
	return &file{child, f.observe}, nil
}

func (f *file) Info(ctx context.Context) (win.FileInfo, error) {
	return ask(ctx, f.observe, "GetFileInformationByHandleEx", func() (win.FileInfo, error) { return f.File.Info(ctx) })
}

func (f *file) ReadDir(ctx context.Context, restart bool) ([]win.DirEntry, error) {
	// What GetFileInformationByHandleEx calls for a directory's entries.
	return ask(ctx, f.observe, "NtQueryDirectoryFile", func() ([]win.DirEntry, error) { return f.File.ReadDir(ctx, restart) })
}

func (f *file) Control(ctx context.Context, code win.IoctlCode, in, out []byte) (int, error) {
	return ask(ctx, f.observe, code.String(), func() (int, error) { return f.File.Control(ctx, code, in, out) })
}

func (f *file) Delete(ctx context.Context) error {
	return tell(ctx, f.observe, "SetFileInformationByHandle", func() error { return f.File.Delete(ctx) })
}
