// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package winrecord records each call of the seam with its answer, so that Windows and
// the simulated node can be compared call by call.
//
// A recording is a file with a line of JSON for each call, in the order of the answers.
// It has no secrets: passwords are masked by their type, and only the size is recorded
// of data read from a disk and of the firmware's table.
package winrecord

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/secret"
)

// Call is a line of a recording.
type Call struct {
	Step string `json:"step"` // what the scenario did
	Call string `json:"call"` // the Win32 function or control code
	// On is the path of the device or file that a call was made on.
	On  string          `json:"on,omitempty"`
	In  json.RawMessage `json:"in,omitempty"`
	Out json.RawMessage `json:"out,omitempty"`
	// Error is the Windows error number; 0 is success. Text is an error without one.
	Error uint32 `json:"error,omitempty"`
	Text  string `json:"text,omitempty"`
}

// bytesOf is a buffer in a recording.
type bytesOf struct {
	Size int    `json:"size"`
	Hex  string `json:"hex,omitempty"`
}

func buffer(b []byte) *bytesOf {
	if b == nil {
		return nil
	}
	return &bytesOf{len(b), hex.EncodeToString(b)}
}

func sizeOnly(b []byte) *bytesOf { return &bytesOf{Size: len(b)} }

// Recorder is a system whose calls are recorded, except for Close.
type Recorder struct {
	sys win.System

	mu   sync.Mutex
	to   *json.Encoder
	step string
	err  error // the first of writing
}

// New records the calls to sys.
func New(sys win.System, to io.Writer) *Recorder {
	encoder := json.NewEncoder(to)
	encoder.SetEscapeHTML(false)
	return &Recorder{sys: sys, to: encoder}
}

var _ win.System = (*Recorder)(nil)

// Step names the calls that follow.
func (r *Recorder) Step(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.step = name
}

// Err returns why the recording isn't complete, if it isn't.
func (r *Recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// args are the arguments of a call, by name.
type args map[string]any

// get makes a call that has a result, and records what out returns for that result. It
// encodes the arguments before the call, since the call erases secrets.
func get[T any](r *Recorder, call, on string, in args, f func() (T, error), out func(T) any) (T, error) {
	c := Call{Call: call, On: on}
	var encodeErr error
	if len(in) > 0 {
		c.In, encodeErr = json.Marshal(in)
	}
	v, err := f()
	if errno, ok := errors.AsType[win.Errno](err); ok {
		c.Error = uint32(errno)
	} else if err != nil {
		c.Text = err.Error()
	} else if out != nil {
		var outErr error
		c.Out, outErr = json.Marshal(out(v))
		encodeErr = errors.Join(encodeErr, outErr)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c.Step = r.step
	if r.err == nil {
		r.err = errors.Join(encodeErr, r.to.Encode(c))
	}
	return v, err
}

// whole records all of a result.
func whole[T any](v T) any { return v }

// do makes a call that has no result.
func (r *Recorder) do(call, on string, in args, f func() error) error {
	_, err := get(r, call, on, in, func() (struct{}, error) { return struct{}{}, f() }, nil)
	return err
}

func (r *Recorder) DeviceInterfaces(ctx context.Context, class win.GUID) ([]string, error) {
	return get(r, win.CallDeviceInterfaces, "", args{"class": class.String()}, func() ([]string, error) { return r.sys.DeviceInterfaces(ctx, class) }, whole)
}

func (r *Recorder) ReenumerateDevice(ctx context.Context, interfacePath string) error {
	return r.do(win.CallReenumerateDevice, interfacePath, nil, func() error { return r.sys.ReenumerateDevice(ctx, interfacePath) })
}

func (r *Recorder) NotifyArrivals(ctx context.Context, class win.GUID) (arrived <-chan struct{}, stop func(), err error) {
	err = r.do(win.CallNotifyArrivals, "", args{"class": class.String()}, func() (err error) {
		arrived, stop, err = r.sys.NotifyArrivals(ctx, class)
		return err
	})
	return arrived, stop, err
}

func (r *Recorder) FindVolumes(ctx context.Context) ([]string, error) {
	return get(r, win.CallFindVolumes, "", nil, func() ([]string, error) { return r.sys.FindVolumes(ctx) }, whole)
}

func (r *Recorder) VolumeInformation(ctx context.Context, root string) (win.VolumeInformation, error) {
	return get(r, win.CallVolumeInformation, root, nil, func() (win.VolumeInformation, error) { return r.sys.VolumeInformation(ctx, root) }, whole)
}

func (r *Recorder) DiskFreeSpace(ctx context.Context, directory string) (win.DiskSpace, error) {
	return get(r, win.CallDiskFreeSpace, directory, nil, func() (win.DiskSpace, error) { return r.sys.DiskFreeSpace(ctx, directory) }, whole)
}

func (r *Recorder) VolumeNameForMountPoint(ctx context.Context, mountPoint string) (string, error) {
	return get(r, win.CallVolumeNameForMountPoint, mountPoint, nil, func() (string, error) { return r.sys.VolumeNameForMountPoint(ctx, mountPoint) }, whole)
}

func (r *Recorder) VolumePathNames(ctx context.Context, volume string) ([]string, error) {
	return get(r, win.CallVolumePathNames, volume, nil, func() ([]string, error) { return r.sys.VolumePathNames(ctx, volume) }, whole)
}

func (r *Recorder) SetVolumeMountPoint(ctx context.Context, mountPoint, volume string) error {
	return r.do(win.CallSetVolumeMountPoint, mountPoint, args{"volume": volume}, func() error { return r.sys.SetVolumeMountPoint(ctx, mountPoint, volume) })
}

func (r *Recorder) DeleteVolumeMountPoint(ctx context.Context, mountPoint string) error {
	return r.do(win.CallDeleteVolumeMountPoint, mountPoint, nil, func() error { return r.sys.DeleteVolumeMountPoint(ctx, mountPoint) })
}

func (r *Recorder) FormatVolume(ctx context.Context, volume string, o win.FormatOptions) error {
	return r.do(win.CallFormatVolume, volume, args{"options": o}, func() error { return r.sys.FormatVolume(ctx, volume, o) })
}

func (r *Recorder) RepairVolume(ctx context.Context, volume string, mode win.RepairMode) (win.RepairResult, error) {
	return get(r, win.CallRepairVolume, volume, args{"mode": mode}, func() (win.RepairResult, error) { return r.sys.RepairVolume(ctx, volume, mode) }, whole)
}

func (r *Recorder) OfflineReasons(ctx context.Context) (map[disk.Number]win.OfflineReason, error) {
	return get(r, win.CallOfflineReasons, "", nil, func() (map[disk.Number]win.OfflineReason, error) { return r.sys.OfflineReasons(ctx) }, whole)
}

func (r *Recorder) ProcessImage(ctx context.Context, id win.ProcessID) (string, error) {
	return get(r, win.CallProcessImage, fmt.Sprint(id), nil, func() (string, error) { return r.sys.ProcessImage(ctx, id) }, whole)
}

func (r *Recorder) FileAttributes(ctx context.Context, path string) (win.FileAttributes, error) {
	return get(r, win.CallFileAttributes, path, nil, func() (win.FileAttributes, error) { return r.sys.FileAttributes(ctx, path) }, whole)
}

func (r *Recorder) SMBGlobalMappings(ctx context.Context) ([]win.SMBMapping, error) {
	return get(r, win.CallSMBGlobalMappings, "", nil, func() ([]win.SMBMapping, error) { return r.sys.SMBGlobalMappings(ctx) }, whole)
}

func (r *Recorder) SMBConnections(ctx context.Context) ([]win.SMBConnection, error) {
	return get(r, win.CallSMBConnections, "", nil, func() ([]win.SMBConnection, error) { return r.sys.SMBConnections(ctx) }, whole)
}

func (r *Recorder) CreateSMBGlobalMapping(ctx context.Context, remotePath string, o win.SMBMappingOptions) error {
	return r.do(win.CallCreateSMBGlobalMapping, remotePath, args{"options": o}, func() error { return r.sys.CreateSMBGlobalMapping(ctx, remotePath, o) })
}

func (r *Recorder) RemoveSMBGlobalMapping(ctx context.Context, remotePath string) error {
	return r.do(win.CallRemoveSMBGlobalMapping, remotePath, nil, func() error { return r.sys.RemoveSMBGlobalMapping(ctx, remotePath) })
}

func (r *Recorder) AddISCSISendTargetPortal(ctx context.Context, p win.ISCSIPortal) error {
	return r.do(win.CallAddISCSIPortal, "", args{"portal": p}, func() error { return r.sys.AddISCSISendTargetPortal(ctx, p) })
}

func (r *Recorder) RemoveISCSISendTargetPortal(ctx context.Context, p win.ISCSIPortal) error {
	return r.do(win.CallRemoveISCSIPortal, "", args{"portal": p}, func() error { return r.sys.RemoveISCSISendTargetPortal(ctx, p) })
}

func (r *Recorder) RefreshISCSISendTargetPortal(ctx context.Context, p win.ISCSIPortal) error {
	return r.do(win.CallRefreshISCSIPortal, "", args{"portal": p}, func() error { return r.sys.RefreshISCSISendTargetPortal(ctx, p) })
}

func (r *Recorder) ISCSISendTargetPortals(ctx context.Context) ([]win.ISCSIPortal, error) {
	return get(r, win.CallISCSIPortals, "", nil, func() ([]win.ISCSIPortal, error) { return r.sys.ISCSISendTargetPortals(ctx) }, whole)
}

func (r *Recorder) ISCSITargets(ctx context.Context) ([]string, error) {
	return get(r, win.CallISCSITargets, "", nil, func() ([]string, error) { return r.sys.ISCSITargets(ctx) }, whole)
}

func (r *Recorder) ISCSIDiscoveryMechanisms(ctx context.Context, target string) ([]string, error) {
	return get(r, win.CallISCSITargetInformation, target, nil, func() ([]string, error) { return r.sys.ISCSIDiscoveryMechanisms(ctx, target) }, whole)
}

func (r *Recorder) LoginISCSITarget(ctx context.Context, l win.ISCSILogin) (win.ISCSISessionID, error) {
	return get(r, win.CallLoginISCSITarget, "", args{"login": l}, func() (win.ISCSISessionID, error) { return r.sys.LoginISCSITarget(ctx, l) }, whole)
}

func (r *Recorder) LogoutISCSITarget(ctx context.Context, id win.ISCSISessionID) error {
	return r.do(win.CallLogoutISCSITarget, "", args{"session": id}, func() error { return r.sys.LogoutISCSITarget(ctx, id) })
}

func (r *Recorder) ISCSISessions(ctx context.Context) ([]win.ISCSISession, error) {
	return get(r, win.CallISCSISessions, "", nil, func() ([]win.ISCSISession, error) { return r.sys.ISCSISessions(ctx) }, whole)
}

func (r *Recorder) ISCSISessionDevices(ctx context.Context, id win.ISCSISessionID) ([]win.ISCSIDevice, error) {
	return get(r, win.CallISCSISessionDevices, "", args{"session": id}, func() ([]win.ISCSIDevice, error) { return r.sys.ISCSISessionDevices(ctx, id) }, whole)
}

func (r *Recorder) ISCSIPersistentLogins(ctx context.Context) ([]win.ISCSIPersistentLogin, error) {
	return get(r, win.CallISCSIPersistentLogins, "", nil, func() ([]win.ISCSIPersistentLogin, error) { return r.sys.ISCSIPersistentLogins(ctx) }, whole)
}

func (r *Recorder) RemoveISCSIPersistentLogin(ctx context.Context, l win.ISCSIPersistentLogin) error {
	return r.do(win.CallRemoveISCSIPersistent, "", args{"login": l}, func() error { return r.sys.RemoveISCSIPersistentLogin(ctx, l) })
}

func (r *Recorder) SetISCSIInitiatorCHAPSecret(ctx context.Context, chap secret.Text) error {
	return r.do(win.CallSetISCSICHAPSecret, "", args{"chap": chap}, func() error { return r.sys.SetISCSIInitiatorCHAPSecret(ctx, chap) })
}

func (r *Recorder) QueryService(ctx context.Context, name string) (win.Service, error) {
	return get(r, win.CallQueryService, name, nil, func() (win.Service, error) { return r.sys.QueryService(ctx, name) }, whole)
}

func (r *Recorder) StartService(ctx context.Context, name string) error {
	return r.do(win.CallStartService, name, nil, func() error { return r.sys.StartService(ctx, name) })
}

func (r *Recorder) StopService(ctx context.Context, name string) error {
	return r.do(win.CallStopService, name, nil, func() error { return r.sys.StopService(ctx, name) })
}

func (r *Recorder) ActiveDependentServices(ctx context.Context, name string) ([]string, error) {
	return get(r, win.CallActiveDependentServices, name, nil, func() ([]string, error) { return r.sys.ActiveDependentServices(ctx, name) }, whole)
}

func (r *Recorder) FirmwareTable(ctx context.Context) ([]byte, error) {
	return get(r, win.CallFirmwareTable, "", nil, func() ([]byte, error) { return r.sys.FirmwareTable(ctx) }, func(b []byte) any { return sizeOnly(b) })
}

func (r *Recorder) RegistryStrings(ctx context.Context, key, value string) ([]string, error) {
	return get(r, win.CallRegistryStrings, key, args{"value": value}, func() ([]string, error) { return r.sys.RegistryStrings(ctx, key, value) }, whole)
}

func (r *Recorder) RegistryNumber(ctx context.Context, key, value string) (uint32, error) {
	return get(r, win.CallRegistryStrings, key, args{"value": value}, func() (uint32, error) { return r.sys.RegistryNumber(ctx, key, value) }, whole)
}

func (r *Recorder) SystemWindowsDirectory(ctx context.Context) (string, error) {
	return get(r, win.CallSystemWindowsDirectory, "", nil, func() (string, error) { return r.sys.SystemWindowsDirectory(ctx) }, whole)
}

func (r *Recorder) OpenDevice(ctx context.Context, path string, access win.Access) (win.Device, error) {
	d, err := get(r, win.CallOpen, path, args{"access": fmt.Sprintf("%#x", uint32(access))}, func() (win.Device, error) { return r.sys.OpenDevice(ctx, path, access) }, nil)
	if err != nil {
		return nil, err
	}
	return &device{r, d, path}, nil
}

func (r *Recorder) OpenFile(ctx context.Context, path string, o win.OpenOptions) (win.File, error) {
	f, err := get(r, win.CallOpen, path, args{"options": o}, func() (win.File, error) { return r.sys.OpenFile(ctx, path, o) }, nil)
	if err != nil {
		return nil, err
	}
	return &file{r, f, path}, nil
}

// control records a control call.
func (r *Recorder) control(code win.IoctlCode, on string, in, out []byte, f func() (int, error)) (int, error) {
	call := code.String()
	return get(r, call, on, args{"in": buffer(in), "room": len(out)}, f, func(n int) any { return buffer(out[:n]) })
}

type device struct {
	r    *Recorder
	dev  win.Device
	path string
}

func (d *device) Control(ctx context.Context, code win.IoctlCode, in, out []byte) (int, error) {
	return d.r.control(code, d.path, in, out, func() (int, error) { return d.dev.Control(ctx, code, in, out) })
}

func (d *device) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	return get(d.r, win.CallRead, d.path, args{"offset": off, "room": len(p)}, func() (int, error) { return d.dev.ReadAt(ctx, p, off) },
		func(n int) any { return sizeOnly(p[:n]) })
}

func (d *device) Flush(ctx context.Context) error {
	return d.r.do(win.CallFlush, d.path, nil, func() error { return d.dev.Flush(ctx) })
}

func (d *device) ProcessIDs(ctx context.Context) ([]win.ProcessID, error) {
	return get(d.r, win.CallProcessIDs, d.path, nil, func() ([]win.ProcessID, error) { return d.dev.ProcessIDs(ctx) }, whole)
}

func (d *device) Close() error { return d.dev.Close() }

type file struct {
	r    *Recorder
	file win.File
	path string
}

func (f *file) OpenAt(ctx context.Context, name string, o win.OpenOptions) (win.File, error) {
	opened, err := get(f.r, win.CallOpenAt, f.path, args{"name": name, "options": o}, func() (win.File, error) { return f.file.OpenAt(ctx, name, o) }, nil)
	if err != nil {
		return nil, err
	}
	return &file{f.r, opened, f.path + `\` + name}, nil
}

func (f *file) Info(ctx context.Context) (win.FileInfo, error) {
	return get(f.r, win.CallFileInfo, f.path, nil, func() (win.FileInfo, error) { return f.file.Info(ctx) }, whole)
}

func (f *file) FinalPath(ctx context.Context) (string, error) {
	return get(f.r, win.CallFinalPath, f.path, nil, func() (string, error) { return f.file.FinalPath(ctx) }, whole)
}

func (f *file) Volume(ctx context.Context) (string, error) {
	return get(f.r, win.CallFinalPath, f.path, nil, func() (string, error) { return f.file.Volume(ctx) }, whole)
}

func (f *file) ProcessIDs(ctx context.Context) ([]win.ProcessID, error) {
	return get(f.r, win.CallProcessIDs, f.path, nil, func() ([]win.ProcessID, error) { return f.file.ProcessIDs(ctx) }, whole)
}

func (f *file) ReadDir(ctx context.Context, restart bool) ([]win.DirEntry, error) {
	return get(f.r, win.CallReadDir, f.path, args{"restart": restart}, func() ([]win.DirEntry, error) { return f.file.ReadDir(ctx, restart) }, whole)
}

func (f *file) Control(ctx context.Context, code win.IoctlCode, in, out []byte) (int, error) {
	return f.r.control(code, f.path, in, out, func() (int, error) { return f.file.Control(ctx, code, in, out) })
}

func (f *file) Delete(ctx context.Context) error {
	return f.r.do(win.CallDeleteFile, f.path, nil, func() error { return f.file.Delete(ctx) })
}

func (f *file) Close() error { return f.file.Close() }
