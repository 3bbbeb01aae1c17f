// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"sync"

	"github.com/csi-proxy/csi-proxy/internal/win"
)

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
}

// Guarded is a System whose calls end with their caller's context.
type Guarded struct {
	sys     System
	limiter *limiter
}

// Wrap guards sys. maxCalls bounds the calls under way; observe may be nil.
func Wrap(sys System, maxCalls int, observe Observer) *Guarded {
	return &Guarded{sys, newLimiter(maxCalls, observe)}
}

// ask runs a call whose result may be dropped.
func ask[T any](ctx context.Context, l *limiter, call string, f func() (T, error)) (T, error) {
	return do(ctx, l, call, f, func(T, error) {})
}

// tell runs a call that has no result.
func tell(ctx context.Context, l *limiter, call string, f func() error) error {
	_, err := ask(ctx, l, call, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

// closeAbandoned ends a handle that nobody waits for any more.
func closeAbandoned[H interface{ Close() error }](h H, err error) {
	if err == nil {
		h.Close()
	}
}

// DeviceInterfaces is guarded.
func (g *Guarded) DeviceInterfaces(ctx context.Context, class win.GUID) ([]string, error) {
	return ask(ctx, g.limiter, "CM_Get_Device_Interface_ListW", func() ([]string, error) { return g.sys.DeviceInterfaces(ctx, class) })
}

// ReenumerateDevice is guarded.
func (g *Guarded) ReenumerateDevice(ctx context.Context, interfacePath string) error {
	return tell(ctx, g.limiter, "CM_Reenumerate_DevNode", func() error { return g.sys.ReenumerateDevice(ctx, interfacePath) })
}

// NotifyArrivals is guarded. It registers only, so it never blocks for long.
func (g *Guarded) NotifyArrivals(ctx context.Context, class win.GUID) (arrived <-chan struct{}, stop func(), err error) {
	type registration struct {
		arrived <-chan struct{}
		stop    func()
	}
	r, err := do(ctx, g.limiter, "CM_Register_Notification", func() (r registration, err error) {
		r.arrived, r.stop, err = g.sys.NotifyArrivals(ctx, class)
		return r, err
	}, func(r registration, err error) {
		if err == nil {
			r.stop()
		}
	})
	return r.arrived, r.stop, err
}

// FindVolumes is guarded.
func (g *Guarded) FindVolumes(ctx context.Context) ([]string, error) {
	return ask(ctx, g.limiter, "FindFirstVolumeW", func() ([]string, error) { return g.sys.FindVolumes(ctx) })
}

// VolumeInformation is guarded.
func (g *Guarded) VolumeInformation(ctx context.Context, root string) (win.VolumeInformation, error) {
	return ask(ctx, g.limiter, "GetVolumeInformationW", func() (win.VolumeInformation, error) { return g.sys.VolumeInformation(ctx, root) })
}

// DiskFreeSpace is guarded.
func (g *Guarded) DiskFreeSpace(ctx context.Context, directory string) (win.DiskSpace, error) {
	return ask(ctx, g.limiter, "GetDiskFreeSpaceExW", func() (win.DiskSpace, error) { return g.sys.DiskFreeSpace(ctx, directory) })
}

// VolumeNameForMountPoint is guarded.
func (g *Guarded) VolumeNameForMountPoint(ctx context.Context, mountPoint string) (string, error) {
	return ask(ctx, g.limiter, "GetVolumeNameForVolumeMountPointW", func() (string, error) { return g.sys.VolumeNameForMountPoint(ctx, mountPoint) })
}

// SetVolumeMountPoint is guarded.
func (g *Guarded) SetVolumeMountPoint(ctx context.Context, mountPoint, volume string) error {
	return tell(ctx, g.limiter, "SetVolumeMountPointW", func() error { return g.sys.SetVolumeMountPoint(ctx, mountPoint, volume) })
}

// DeleteVolumeMountPoint is guarded.
func (g *Guarded) DeleteVolumeMountPoint(ctx context.Context, mountPoint string) error {
	return tell(ctx, g.limiter, "DeleteVolumeMountPointW", func() error { return g.sys.DeleteVolumeMountPoint(ctx, mountPoint) })
}

// FormatVolume is guarded.
func (g *Guarded) FormatVolume(ctx context.Context, volume string, o win.FormatOptions) error {
	return tell(ctx, g.limiter, "MSFT_Volume.Format", func() error { return g.sys.FormatVolume(ctx, volume, o) })
}

// FileAttributes is guarded.
func (g *Guarded) FileAttributes(ctx context.Context, path string) (win.FileAttributes, error) {
	return ask(ctx, g.limiter, "GetFileAttributesW", func() (win.FileAttributes, error) { return g.sys.FileAttributes(ctx, path) })
}

// OpenDevice is guarded, and so are the calls of the device.
func (g *Guarded) OpenDevice(ctx context.Context, path string, access win.Access) (win.Device, error) {
	dev, err := do(ctx, g.limiter, "CreateFileW",
		func() (win.Device, error) { return g.sys.OpenDevice(ctx, path, access) }, closeAbandoned[win.Device])
	if err != nil {
		return nil, err
	}
	return &guardedDevice{dev, lease{close: dev.Close}, g.limiter}, nil
}

// OpenFile is guarded, and so are the calls of the file.
func (g *Guarded) OpenFile(ctx context.Context, path string, o win.OpenOptions) (win.File, error) {
	f, err := do(ctx, g.limiter, "CreateFileW",
		func() (win.File, error) { return g.sys.OpenFile(ctx, path, o) }, closeAbandoned[win.File])
	if err != nil {
		return nil, err
	}
	return &guardedFile{f, lease{close: f.Close}, g.limiter}, nil
}

// lease keeps a handle open for as long as abandoned calls use it: closing it
// under them would let Windows give its number to another object.
type lease struct {
	close  func() error
	mu     sync.Mutex
	users  int
	closed bool
}

// enter takes part in the handle; every successful enter needs a leave.
func (l *lease) enter() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return win.ErrorInvalidHandle
	}
	l.users++
	return nil
}

func (l *lease) leave() {
	l.mu.Lock()
	l.users--
	last := l.closed && l.users == 0
	l.mu.Unlock()
	if last {
		l.close()
	}
}

// Close closes the handle now, or when the last abandoned call has ended.
func (l *lease) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return win.ErrorInvalidHandle
	}
	l.closed = true
	idle := l.users == 0
	l.mu.Unlock()
	if idle {
		return l.close()
	}
	return nil
}

// leased runs a call that keeps the handle open until Windows has answered it.
func leased[T any](ctx context.Context, l *limiter, h *lease, call string, f func() (T, error), abandoned func(T, error)) (T, error) {
	return do(ctx, l, call, func() (T, error) {
		if err := h.enter(); err != nil {
			var none T
			return none, err
		}
		defer h.leave()
		return f()
	}, abandoned)
}

func leasedAsk[T any](ctx context.Context, l *limiter, h *lease, call string, f func() (T, error)) (T, error) {
	return leased(ctx, l, h, call, f, func(T, error) {})
}

func leasedTell(ctx context.Context, l *limiter, h *lease, call string, f func() error) error {
	_, err := leasedAsk(ctx, l, h, call, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

type guardedDevice struct {
	dev win.Device
	lease
	limiter *limiter
}

func (d *guardedDevice) Control(ctx context.Context, code win.IoctlCode, in, out []byte) (int, error) {
	return leasedAsk(ctx, d.limiter, &d.lease, code.String(), func() (int, error) { return d.dev.Control(ctx, code, in, out) })
}

func (d *guardedDevice) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	return leasedAsk(ctx, d.limiter, &d.lease, "ReadFile", func() (int, error) { return d.dev.ReadAt(ctx, p, off) })
}

func (d *guardedDevice) Flush(ctx context.Context) error {
	return leasedTell(ctx, d.limiter, &d.lease, "FlushFileBuffers", func() error { return d.dev.Flush(ctx) })
}

type guardedFile struct {
	file win.File
	lease
	limiter *limiter
}

func (f *guardedFile) OpenAt(ctx context.Context, name string, o win.OpenOptions) (win.File, error) {
	child, err := leased(ctx, f.limiter, &f.lease, "NtCreateFile",
		func() (win.File, error) { return f.file.OpenAt(ctx, name, o) }, closeAbandoned[win.File])
	if err != nil {
		return nil, err
	}
	return &guardedFile{child, lease{close: child.Close}, f.limiter}, nil
}

func (f *guardedFile) Info(ctx context.Context) (win.FileInfo, error) {
	return leasedAsk(ctx, f.limiter, &f.lease, "GetFileInformationByHandleEx", func() (win.FileInfo, error) { return f.file.Info(ctx) })
}

func (f *guardedFile) ReadDir(ctx context.Context, restart bool) ([]win.DirEntry, error) {
	return leasedAsk(ctx, f.limiter, &f.lease, "GetFileInformationByHandleEx", func() ([]win.DirEntry, error) { return f.file.ReadDir(ctx, restart) })
}

func (f *guardedFile) Control(ctx context.Context, code win.IoctlCode, in, out []byte) (int, error) {
	return leasedAsk(ctx, f.limiter, &f.lease, code.String(), func() (int, error) { return f.file.Control(ctx, code, in, out) })
}

func (f *guardedFile) Delete(ctx context.Context) error {
	return leasedTell(ctx, f.limiter, &f.lease, "SetFileInformationByHandle", func() error { return f.file.Delete(ctx) })
}
