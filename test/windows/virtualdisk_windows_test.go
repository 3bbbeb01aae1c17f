// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package windows

import (
	"encoding/binary"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/windows"
)

var (
	virtdisk                   = windows.NewLazySystemDLL("virtdisk.dll")
	createVirtualDisk          = virtdisk.NewProc("CreateVirtualDisk")
	attachVirtualDisk          = virtdisk.NewProc("AttachVirtualDisk")
	detachVirtualDisk          = virtdisk.NewProc("DetachVirtualDisk")
	expandVirtualDisk          = virtdisk.NewProc("ExpandVirtualDisk")
	getVirtualDiskPhysicalPath = virtdisk.NewProc("GetVirtualDiskPhysicalPath")
)

// virtualDisk is a VHDX file, attached as a disk of this Windows without a drive
// letter. It needs no Hyper-V.
//
// https://learn.microsoft.com/windows/win32/api/virtdisk/
type virtualDisk struct {
	t      testing.TB
	handle windows.Handle
	number uint32 // of the disk
}

// newVirtualDisk attaches a new disk for the time of the test.
func newVirtualDisk(t testing.TB, size uint64, sectorSize uint32) *virtualDisk {
	t.Helper()
	d := &virtualDisk{t: t}
	path, err := windows.UTF16PtrFromString(filepath.Join(t.TempDir(), "disk.vhdx"))
	if err != nil {
		t.Fatal(err)
	}
	// VIRTUAL_STORAGE_TYPE: VIRTUAL_STORAGE_TYPE_DEVICE_VHDX of Microsoft.
	storageType := struct {
		device uint32
		vendor windows.GUID
	}{3, windows.GUID{Data1: 0xec984aec, Data2: 0xa0f9, Data3: 0x47e9, Data4: [8]byte{0x90, 0x1f, 0x71, 0x41, 0x5a, 0x66, 0x34, 0x5b}}}
	// CREATE_VIRTUAL_DISK_PARAMETERS, version 2.
	create := parameters(184, 2)
	binary.LittleEndian.PutUint64(create[24:], size)       // MaximumSize
	binary.LittleEndian.PutUint32(create[36:], sectorSize) // SectorSizeInBytes
	d.do(createVirtualDisk, uintptr(unsafe.Pointer(&storageType)), uintptr(unsafe.Pointer(path)),
		0, 0, 0, 0, uintptr(unsafe.Pointer(&create[0])), 0, uintptr(unsafe.Pointer(&d.handle)))
	t.Cleanup(func() { windows.CloseHandle(d.handle) }) // detaches it too

	attach := parameters(24, 1)
	const noDriveLetter = 2
	d.do(attachVirtualDisk, uintptr(d.handle), 0, noDriveLetter, 0, uintptr(unsafe.Pointer(&attach[0])), 0)

	var buffer [windows.MAX_PATH]uint16
	bytes := uint32(unsafe.Sizeof(buffer))
	d.do(getVirtualDiskPhysicalPath, uintptr(d.handle), uintptr(unsafe.Pointer(&bytes)), uintptr(unsafe.Pointer(&buffer)))
	number, ok := strings.CutPrefix(windows.UTF16ToString(buffer[:]), `\\.\PhysicalDrive`)
	n, err := strconv.ParseUint(number, 10, 32)
	if !ok || err != nil {
		t.Fatalf("the virtual disk is at %s", windows.UTF16ToString(buffer[:]))
	}
	d.number = uint32(n)
	return d
}

// grow makes the disk larger, as a cloud does.
func (d *virtualDisk) grow(size uint64) {
	d.t.Helper()
	expand := parameters(16, 1)
	binary.LittleEndian.PutUint64(expand[8:], size) // NewSize
	d.do(expandVirtualDisk, uintptr(d.handle), 0, uintptr(unsafe.Pointer(&expand[0])), 0)
}

func (d *virtualDisk) detach() {
	d.t.Helper()
	d.do(detachVirtualDisk, uintptr(d.handle), 0, 0)
}

// parameters returns a structure of virtdisk: of a size, zero but for its version.
func parameters(size int, version uint32) []byte {
	aligned := make([]uint64, (size+7)/8)
	b := unsafe.Slice((*byte)(unsafe.Pointer(&aligned[0])), size)
	binary.LittleEndian.PutUint32(b, version)
	return b
}

// do calls a function that returns a Windows error number.
func (d *virtualDisk) do(f *windows.LazyProc, args ...uintptr) {
	d.t.Helper()
	if number, _, _ := f.Call(args...); number != 0 {
		d.t.Fatalf("%s: %v (Windows error %d)", f.Name, windows.Errno(number), number)
	}
}
