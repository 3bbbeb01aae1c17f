// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package settings has the switches of a simulated node's Windows, which several of the
// node's parts look at.
package settings

import (
	"cmp"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// RefusedFor is how long Settings.RefusedAtFirst lasts.
const RefusedFor = 2 * time.Second

// Settings are the switches of the node's Windows: how it is configured, and how it
// decides what Microsoft doesn't document. The zero value of each is what the node does by
// itself. They are kept in the state file.
//
// What is above the seam must work with each switch in each position. Tests go through
// them with simtest.EachSetting, which takes from the tag "also" the values that a number has
// there beside 0.
type Settings struct {
	// NoAutomount is `mountvol /N`: a volume that was never seen before stays
	// offline until IOCTL_VOLUME_ONLINE and gets no drive letter.
	NoAutomount bool
	// NamedBeforeOnline gives a volume its name half a second before it is online. Unknown: whether others can find a
	// volume between the two steps.
	NamedBeforeOnline bool

	// BlankDisk is how IOCTL_DISK_GET_DRIVE_LAYOUT_EX answers for a disk without a partition table.
	// Unknown: which Windows answers how. Windows 10's partition manager has written the first answer
	// into the event of a blank disk (Microsoft-Windows-Partition/Diagnostic 1006: all 48 bytes zero).
	BlankDisk BlankDisk `also:"1,2"`
	// AutomaticMSR makes IOCTL_DISK_CREATE_DISK add the reserved partition, as its
	// documentation says. Unknown: whether it does; public code adds its own.
	AutomaticMSR bool
	// OfflineLayout is how IOCTL_DISK_GET_DRIVE_LAYOUT_EX answers for a disk that is offline. Unknown:
	// whether the partition manager reads the table of such a disk.
	OfflineLayout OfflineLayout `also:"1,2"`
	// OfflineAfterArrival takes a disk that arrived offline and is brought online back
	// offline, once, a moment later. Unknown: whether the partition manager, which still
	// works on a disk that has just arrived, can come after a caller who is quick.
	OfflineAfterArrival bool
	// RefusedAtFirst is the error of the first changes of what has just come, for two seconds: of a disk,
	// IOCTL_DISK_SET_DISK_ATTRIBUTES; of a volume, MSFT_Volume.Format and SetVolumeMountPointW. 0 is none.
	// Unknown: which of them Windows refuses, how and how long. Users saw a new partition "read only"
	// (dsccommunity/StorageDsc#85, #183), and "not ready" before a rescan (corpnewt/gibMacOS#75).
	RefusedAtFirst winerr.Errno `also:"5,19,21,170"`
	// GrownAtOnce makes the geometry of a disk that has grown show its new capacity at once,
	// and GrownUnseen only after IOCTL_DISK_UPDATE_DRIVE_SIZE. By itself it does so after a
	// re-enumeration, too. Each makes the driver read the capacity, as
	// IOCTL_DISK_GET_LENGTH_INFO does. Unknown: when a driver learns of it otherwise; that
	// depends on the bus.
	GrownAtOnce, GrownUnseen bool
	// FreshNumbers gives a disk that arrives a number that no disk has had since the node
	// started. By itself it gets the lowest one that is free. Unknown: how Windows chooses.
	FreshNumbers bool
	// AttributesOfInstance makes the persisted attributes, offline and read-only, those of
	// the device instance and not of the disk: they are kept in the registry for the
	// adapter's slot with the product in it, and the next such disk in the slot inherits
	// them. Unknown: for which buses a disk's instance has no part that names the disk;
	// kubernetes#108019 and csi-proxy#287 and #288 are about such disks.
	AttributesOfInstance bool
	// ReadOnlyMounts keeps the file systems of a disk read-only that was online and read-only, when
	// it is made writable, until it goes offline. Unknown: whether Windows mounts them again by
	// itself. Microsoft's driver for FAT looks at the disk when it mounts a file system, and a user
	// of diskpart saw a volume leave its container (vsphere-csi-driver#1631).
	ReadOnlyMounts bool
	// ClonesStayOffline keeps a disk offline that has the ids of one that is online, for the reason
	// Collision, though it is writable. Unknown: when Windows does so. It gave such a disk new ids
	// (hpe-storage/common-host-libs#40), and users have seen it offline (azuredisk-csi-driver#2661).
	ClonesStayOffline bool
	// GoneDisk is the error of what is open on a disk that was pulled out, and on its
	// volumes; 0 is ErrorDeviceNotConnected. Unknown: which one the drivers give.
	GoneDisk winerr.Errno `also:"55,433,1006"`
	// GrowTooFar is the error of IOCTL_DISK_GROW_PARTITION into what isn't free; 0 is
	// ErrorInvalidParameter. Unknown: which of the errors of the control code that is.
	GrowTooFar winerr.Errno `also:"31"`
	// FreshHandleToExtend makes FSCTL_EXTEND_VOLUME fail with ErrorInvalidParameter on a
	// handle that was opened before the partition grew. Unknown: whether a handle keeps
	// the length; public code opens a new one.
	FreshHandleToExtend bool

	// NoPartitionDevices makes GetVolumeNameForVolumeMountPointW fail with ErrorPathNotFound for the devices of
	// partitions. Unknown: whether Windows takes such paths; the documentation is silent about them.
	NoPartitionDevices bool
	// PartitionsNamedByDevice makes GetVolumeNameForVolumeMountPointW answer for the device of a partition with
	// the name of the volume's device. Unknown: whether Windows does, as a comment of ReactOS says of a volume without
	// a GUID name.
	PartitionsNamedByDevice bool
	// NoNotices keeps all notices of devices that come and go from callers. Unknown:
	// whether each change gives a notice.
	NoNotices bool
	// LateStorageManagement makes storage management know a volume only two seconds after it
	// has come: its calls give ErrorRetry before. Unknown: how far its list lags behind.
	LateStorageManagement bool
	// FormatInUse is the error of MSFT_Volume.Format while somebody has the volume open;
	// 0 is ErrorGenFailure. Unknown: which of the method's results that is, of
	// which package winsys makes these numbers.
	FormatInUse winerr.Errno `also:"121"`
	// SplitAccessList gives the root of a fresh file system its access list in the form in which the
	// entries for the root itself, and those for what is below, are apart. Unknown: which form it has
	// where.
	SplitAccessList bool
	// GoneMountPoint is the error of DeleteVolumeMountPointW at a mount point whose
	// volume has gone; 0 is none, and the directory is free again. Unknown: which it is.
	GoneMountPoint winerr.Errno `also:"2,3"`

	// GoneMountPointHalf makes DeleteVolumeMountPointW free the directory at such a mount
	// point, and then fail with ErrorFileNotFound. Unknown: whether it does; the reparse point
	// goes first, and the mount manager knows nothing of the volume.
	GoneMountPointHalf bool

	// DeletePendingDenied makes the functions of Win32 that open a path give ErrorAccessDenied
	// for a file that is being deleted; by itself they give ErrorDeletePending, as NtCreateFile
	// does. Unknown: which Windows makes which of them of the status.
	DeletePendingDenied bool
	// FileAsDirectory is the error of the path of a file with a backslash at its end; 0 is
	// ErrorDirectory. Unknown: which it is, since Microsoft's model of NTFS and its driver for
	// FAT disagree.
	FileAsDirectory winerr.Errno `also:"123"`
	// DeleteOnCloseDenied makes an open with FileDeleteOnClose of a file on a volume that is
	// read-only give ErrorAccessDenied; by itself it gives ErrorWriteProtect, as other opens to
	// change a file do. Unknown: which NTFS looks at first, the option or the rights.
	DeleteOnCloseDenied bool

	// OfflineRefusesLocked makes IOCTL_DISK_SET_DISK_ATTRIBUTES fail with ErrorAccessDenied if it
	// is to take a disk offline while a handle has locked one of its volumes. Unknown: whether it
	// does. A lock vetoes a removal of the device, but public code for Windows Vista and 7 relies on
	// going offline under its own locks (TalAloni/DynamicDiskPartitioner).
	OfflineRefusesLocked bool
	// WriteProtectedOpen makes an open of a volume for writing fail with ErrorWriteProtect if the
	// volume has a file system and is read-only. By itself only the flush fails. Unknown: which of
	// the two NTFS refuses. Microsoft's driver for FAT, which looks at a volume that is opened in
	// FatOpenVolume, doesn't refuse the open.
	WriteProtectedOpen bool

	// LockedMountPoint is the error of DeleteVolumeMountPointW at a mount point whose volume is
	// locked; 0 is none. Unknown: whether the mount manager opens the volume for that.
	LockedMountPoint winerr.Errno `also:"5,21"`

	// MountManagerExclusive makes SetVolumeMountPointW and DeleteVolumeMountPointW open
	// the directory for themselves alone: while somebody else has it open, other than for
	// its attributes only, they fail with ErrorSharingViolation. Unknown: how Windows
	// opens it.
	MountManagerExclusive bool
	// DeniedMountPoints makes the entry of DenyCreation also keep mount points from being
	// set and deleted, by SetVolumeMountPointW, DeleteVolumeMountPointW,
	// FSCTL_SET_REPARSE_POINT and FSCTL_DELETE_REPARSE_POINT: they fail with
	// ErrorAccessDenied. Unknown: which rights the mount manager asks for, and whether NTFS
	// looks at the access list again.
	DeniedMountPoints bool
	// DriveIsLink makes AttributesWithoutLinks refuse each path with
	// ErrorReparsePointEncountered, since to the kernel \??\C: is a link to the volume's device.
	// Unknown: whether OBJ_DONT_REPARSE means such links, too.
	DriveIsLink bool
	// BindFilter answers each open relative to a directory's handle as the filter may by
	// which a HostProcess container's mounts are made (bindflt): with a reparse, which is
	// ErrorReparsePointEncountered where that isn't wanted. Unknown: whether it does.
	BindFilter bool
	// BindFilterInvalid makes the first open relative to a directory's handle fail with
	// ErrorInvalidParameter, and for every other name the second, too. That filter does so to
	// some under load (microsoft/Windows-Containers#635). Unknown: to which, and how often in a
	// row.
	BindFilterInvalid bool

	// NoProcessIDs makes NtQueryInformationFile know nothing of processes: it fails with
	// ErrorInvalidParameter. Unknown: whether each file system tells, since the documentation
	// only lists the question.
	NoProcessIDs bool
	// VolumeProcessesOnly limits the processes of a volume to those with the volume itself
	// open. Processes with a file on it open are left out. Unknown: which ones Windows names.
	VolumeProcessesOnly bool
	// NoNVMeIdentify makes the query for an NVMe namespace fail with
	// ErrorInvalidFunction. Unknown: whether each Windows, and each driver of a virtual
	// machine, answers it for the device.
	NoNVMeIdentify bool
	// NoSMBConnections leaves the connections of global mappings out of
	// MSFT_SmbConnection. Unknown: whether they are always among them.
	NoSMBConnections bool

	// OverlapRefused makes Create refuse a mapping of a directory while its share, or a directory above it, is
	// mapped, and the other way round, with ErrorSessionCredentialConflict, also with the same credentials.
	// Unknown: whether it does. csi-driver-smb#219 and microsoft/K8s-Storage-Plugins#14 report that error.
	OverlapRefused bool

	// UnencryptedServer is the error of an SMB server that can't encrypt where that is
	// required; 0 is ErrorAccessDenied. Unknown: which the client gives.
	UnencryptedServer winerr.Errno `also:"50,58,65"`
	// NoServer is the error of a path on a server that isn't there, or doesn't answer; 0 is
	// ErrorBadNetPath. Where Windows' WebDAV client is installed, it is ErrorBadNetName.
	// MSFT_SmbGlobalMapping.Create asks the SMB client alone, and gives ErrorBadNetPath.
	NoServer winerr.Errno `also:"67"`
}

// BlankDisk is a way to say that a disk has no partition table.
type BlankDisk uint32

// The ways to say that a disk has no partition table.
const (
	BlankMBR     BlankDisk = iota // an MBR without a signature and without partitions
	BlankRAW                      // PARTITION_STYLE_RAW, which the documentation has for that
	BlankRefused                  // ErrorInvalidFunction
)

// OfflineLayout is what is shown of the partition table of a disk that is offline.
type OfflineLayout uint32

// What is shown of the partition table of a disk that is offline.
const (
	OfflineShown    OfflineLayout = iota
	OfflineBlank                  // what BlankDisk says
	OfflineNotReady               // ErrorNotReady, as the driver's documentation lists STATUS_DEVICE_OFF_LINE
)

// GoneError is the error of what is open on a disk that has left.
func (s *Settings) GoneError() winerr.Errno {
	return cmp.Or(s.GoneDisk, winerr.ErrorDeviceNotConnected)
}

// Refused is the error of a change of a disk or volume that may have just come; nil if Windows doesn't refuse it.
func (s *Settings) Refused(hasJustCome bool) error {
	if hasJustCome && s.RefusedAtFirst != 0 {
		return s.RefusedAtFirst
	}
	return nil
}
