// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package virtdisk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

var (
	library                    = windows.NewLazySystemDLL("virtdisk.dll")
	createVirtualDisk          = library.NewProc("CreateVirtualDisk")
	openVirtualDisk            = library.NewProc("OpenVirtualDisk")
	attachVirtualDisk          = library.NewProc("AttachVirtualDisk")
	detachVirtualDisk          = library.NewProc("DetachVirtualDisk")
	expandVirtualDisk          = library.NewProc("ExpandVirtualDisk")
	resizeVirtualDisk          = library.NewProc("ResizeVirtualDisk")
	getVirtualDiskPhysicalPath = library.NewProc("GetVirtualDiskPhysicalPath")
)

// arrival limits the time from attaching a file until the disk can be opened.
const arrival = 30 * time.Second

const (
	ioctlStorageQueryProperty = 0x2d1400
	busTypeFileBackedVirtual  = 15
)

// storageType is a VIRTUAL_STORAGE_TYPE: VIRTUAL_STORAGE_TYPE_DEVICE_VHDX of Microsoft.
var storageType = struct {
	device uint32
	vendor windows.GUID
}{3, windows.GUID{Data1: 0xec984aec, Data2: 0xa0f9, Data3: 0x47e9,
	Data4: [8]byte{0x90, 0x1f, 0x71, 0x41, 0x5a, 0x66, 0x34, 0x5b}}}

// Disk is a VHDX file that grows as it is written to. It is attached as a disk without a
// drive letter. Closing it, or the end of the process, detaches it.
type Disk struct {
	// Number is the disk's number. Grow may change it.
	Number uint32

	handle   windows.Handle
	attached bool
}

// New makes a new file and attaches it. Sizes are in bytes; sectors have 512 or 4096.
func New(path string, size uint64, sectorSize uint32) (*Disk, error) {
	path16, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return nil, err
	}
	// CREATE_VIRTUAL_DISK_PARAMETERS, version 2, which needs the access mask to be 0.
	create := parameters(184, 2)
	binary.LittleEndian.PutUint64(create[24:], size)       // MaximumSize
	binary.LittleEndian.PutUint32(create[36:], sectorSize) // SectorSizeInBytes
	d := new(Disk)
	r, err := call(createVirtualDisk, uintptr(unsafe.Pointer(&storageType)), uintptr(unsafe.Pointer(path16)),
		0, 0, 0, 0, uintptr(unsafe.Pointer(&create[0])), 0, uintptr(unsafe.Pointer(&d.handle)))
	if err := result("CreateVirtualDisk", r, err); err != nil {
		return nil, err
	}
	if err := d.attach(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// IsDenied reports whether an error says that only an administrator may attach disks.
func IsDenied(err error) bool {
	return errors.Is(err, windows.ERROR_PRIVILEGE_NOT_HELD) || errors.Is(err, windows.ERROR_ACCESS_DENIED)
}

// Open attaches a file that New has made, or a copy of one.
func Open(path string) (*Disk, error) {
	path16, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return nil, err
	}
	// OPEN_VIRTUAL_DISK_PARAMETERS, version 2, which needs the access mask to be 0.
	open := parameters(28, 2)
	d := new(Disk)
	r, err := call(openVirtualDisk, uintptr(unsafe.Pointer(&storageType)), uintptr(unsafe.Pointer(path16)),
		0, 0, uintptr(unsafe.Pointer(&open[0])), uintptr(unsafe.Pointer(&d.handle)))
	if err := result("OpenVirtualDisk", r, err); err != nil {
		return nil, err
	}
	if err := d.attach(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// attach attaches the file and waits until the disk can be opened.
func (d *Disk) attach() error {
	attach := parameters(24, 1)
	const noDriveLetter = 2
	r, err := call(attachVirtualDisk, uintptr(d.handle), 0, noDriveLetter, 0, uintptr(unsafe.Pointer(&attach[0])), 0)
	if err := result("AttachVirtualDisk", r, err); err != nil {
		return err
	}
	d.attached = true
	for deadline := time.Now().Add(arrival); ; time.Sleep(50 * time.Millisecond) {
		err := d.find()
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// find sets the number of the attached disk, if it can be opened.
func (d *Disk) find() error {
	var path [windows.MAX_PATH]uint16
	size := uint32(unsafe.Sizeof(path))
	r, err := call(getVirtualDiskPhysicalPath, uintptr(d.handle), uintptr(unsafe.Pointer(&size)),
		uintptr(unsafe.Pointer(&path)))
	if err := result("GetVirtualDiskPhysicalPath", r, err); err != nil {
		return err
	}
	disk := windows.UTF16ToString(path[:])
	digits, ok := strings.CutPrefix(disk, `\\.\PhysicalDrive`)
	number, err := strconv.ParseUint(digits, 10, 32)
	if !ok || err != nil {
		return fmt.Errorf("the virtual disk is at %s, which has no disk number", disk)
	}
	handle, err := windows.CreateFile(&path[0], 0, windows.FILE_SHARE_READ|windows.FILE_SHARE_WRITE, nil,
		windows.OPEN_EXISTING, 0, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", disk, err)
	}
	d.Number = uint32(number)
	return errors.Join(wantFile(handle, disk), windows.CloseHandle(handle))
}

// wantFile returns an error if a disk is no file. Tests write to the disk by its number.
func wantFile(handle windows.Handle, disk string) error {
	query := make([]byte, 12) // STORAGE_PROPERTY_QUERY of StorageDeviceProperty
	descriptor, n := make([]byte, 1024), uint32(0)
	if err := windows.DeviceIoControl(handle, ioctlStorageQueryProperty, &query[0], uint32(len(query)), &descriptor[0],
		uint32(len(descriptor)), &n, nil); err != nil {
		return fmt.Errorf("ask %s for its bus: %w", disk, err)
	}
	// STORAGE_DEVICE_DESCRIPTOR.BusType
	if bus := binary.LittleEndian.Uint32(descriptor[28:]); n < 32 || bus != busTypeFileBackedVirtual {
		return fmt.Errorf("%s isn't the virtual disk: it has bus type %d, want %d", disk, bus, busTypeFileBackedVirtual)
	}
	return nil
}

// Grow makes the disk larger, as a cloud does, and returns the way that worked. The
// documentation doesn't say whether an attached VHDX can grow on every Windows. So it
// tries ExpandVirtualDisk, then ResizeVirtualDisk, and then detaches the disk to grow it.
func (d *Disk) Grow(size uint64) (way string, err error) {
	var refused []error
	for _, try := range []struct {
		way  string
		grow func() error
	}{
		{"ExpandVirtualDisk, attached", func() error { return d.expand(size) }},
		{"ResizeVirtualDisk, attached", func() error { return d.resize(size) }},
		{"ExpandVirtualDisk, detached and attached again", func() error {
			if err := d.Detach(); err != nil {
				return err
			}
			return errors.Join(d.expand(size), d.attach())
		}},
	} {
		err := try.grow()
		if err == nil {
			return try.way, nil
		}
		refused = append(refused, fmt.Errorf("%s: %w", try.way, err))
	}
	return "", errors.Join(refused...)
}

// EXPAND_VIRTUAL_DISK_PARAMETERS and RESIZE_VIRTUAL_DISK_PARAMETERS have the same
// members: Version and NewSize.
func newSize(size uint64) []byte {
	p := parameters(16, 1)
	binary.LittleEndian.PutUint64(p[8:], size)
	return p
}

func (d *Disk) expand(size uint64) error {
	p := newSize(size)
	r, err := call(expandVirtualDisk, uintptr(d.handle), 0, uintptr(unsafe.Pointer(&p[0])), 0)
	return result("ExpandVirtualDisk", r, err)
}

func (d *Disk) resize(size uint64) error {
	p := newSize(size)
	r, err := call(resizeVirtualDisk, uintptr(d.handle), 0, uintptr(unsafe.Pointer(&p[0])), 0)
	return result("ResizeVirtualDisk", r, err)
}

// Detach detaches the disk, as a cloud does. Detaching it again does nothing.
func (d *Disk) Detach() error {
	if !d.attached {
		return nil
	}
	r, err := call(detachVirtualDisk, uintptr(d.handle), 0, 0)
	if err := result("DetachVirtualDisk", r, err); err != nil {
		return err
	}
	d.attached = false
	return nil
}

// Close detaches the disk and closes its file. It doesn't remove the file.
func (d *Disk) Close() error {
	return errors.Join(d.Detach(), windows.CloseHandle(d.handle))
}

// parameters returns a structure of a size. It is zero except for its version.
func parameters(size int, version uint32) []byte {
	aligned := make([]uint64, (size+7)/8)
	b := unsafe.Slice((*byte)(unsafe.Pointer(&aligned[0])), size)
	binary.LittleEndian.PutUint32(b, version)
	return b
}

// call calls a function of the library; err is the error of finding it. The directive
// keeps what the arguments point to in place, as for syscall.SyscallN itself.
//
//go:uintptrescapes
func call(f *windows.LazyProc, args ...uintptr) (r uintptr, err error) {
	if err := f.Find(); err != nil {
		return 0, err
	}
	r, _, _ = syscall.SyscallN(f.Addr(), args...)
	return r, nil
}

// result is the error of a function that returns a Windows error number.
func result(function string, r uintptr, err error) error {
	if err == nil && r != 0 {
		err = windows.Errno(r)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", function, err)
	}
	return nil
}
