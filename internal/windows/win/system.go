// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package win

import (
	"context"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
)

// System is the whole seam: every call to Windows made by the operations. Package winsys is Windows
// itself, package winsim the simulated node, and package seamtest the test suite that both must
// pass.
//
// All methods follow these rules:
//
//   - They may be called concurrently.
//   - An error is an [Errno], wraps one, or is ctx's error. A call whose ctx has ended
//     isn't begun.
//   - When ctx ends during a call that only reads, Windows is asked to give the call up,
//     and it returns ctx's error if Windows does so. A call that changes something always
//     runs to its end, since nobody would know how far it got otherwise. Both may
//     therefore return long after ctx has ended, or hang for as long as the driver below
//     hangs: package operation lets callers go.
//   - Names of devices, volumes and files compare without regard to case.
//   - A path or a name with a NUL within gives [ErrorInvalidName].
//   - Every call on a handle that was closed gives [ErrorInvalidHandle], a second Close
//     too.
//
// Each promise tested by the suite is a sentence in this package. Guesses about Windows stand
// behind "Undocumented" in this package, and are marked at their code in winsim.
type System interface {
	Devices
	Notices
	Volumes
	Files
	Processes
	SMBMappings
	ISCSIInitiator
	Services
	Firmware
	Registry
}

// DeviceOpener opens disks and volumes.
type DeviceOpener interface {
	// OpenDevice is CreateFileW with OPEN_EXISTING, FILE_SHARE_READ and FILE_SHARE_WRITE. path is
	// \\.\PhysicalDriveN, a path from DeviceInterfaces, or \\?\Volume{guid} without a backslash at
	// its end; with one it would name the root directory.
	//
	// AccessNone is enough for control codes without required access; the handle then takes no part
	// in sharing. With GenericRead or GenericWrite the caller must be an administrator.
	//
	// Errors: 2 and 3 no such device; 5 not an administrator, or a volume's root directory; 21 and
	// 1167 the device is leaving or arriving; 32 another process has the device open exclusively,
	// as a format does.
	//
	// Undocumented: how long an open handle keeps a disk from leaving. Handles are therefore closed
	// at the end of each operation.
	OpenDevice(ctx context.Context, path string, access Access) (Device, error)
}

// Devices finds devices and opens them.
type Devices interface {
	DeviceOpener

	// DeviceInterfaces is CM_Get_Device_Interface_ListW with the flag for present interfaces: the
	// paths of the devices of a class, in no particular order. A device may leave at any moment,
	// and its path then gives ErrorFileNotFound at the next call. A class that nothing has gives no
	// paths and no error.
	DeviceInterfaces(ctx context.Context, class winid.GUID) ([]string, error)

	// ReenumerateDevice is CM_Locate_DevNodeW and CM_Reenumerate_DevNode with
	// CM_REENUMERATE_SYNCHRONOUS: Windows asks the bus below a device for its devices. The device
	// is that of an interface path; "" is the root of the device tree. The call returns when the
	// bus has answered. New devices start afterwards: NotifyArrivals reports them. The process
	// needs SeLoadDriverPrivilege.
	//
	// Errors: 13 and 1168 the device has left (as CONFIGRET, mapped); 5 the privilege is missing.
	//
	// Re-enumerating the root also starts unconfigured devices; do so only when needed.
	ReenumerateDevice(ctx context.Context, interfacePath string) error
}

// Notices reports devices that come and go.
type Notices interface {
	// NotifyArrivals is CM_Register_Notification for the interfaces of a class. A value comes on
	// arrived after one or more interfaces of the class arrived or left, until stop is called;
	// unreceived values are merged. Notices begin before the method returns, so a list made
	// afterwards is complete. A device may need a moment after its notice before answering calls.
	//
	// Undocumented: whether each change gives a notice. Callers poll as well.
	NotifyArrivals(ctx context.Context, class winid.GUID) (arrived <-chan struct{}, stop func(), err error)
}

// Volumes names and mounts volumes, and queries and makes their file systems.
type Volumes interface {
	VolumeNames
	MountPoints
	FileSystems
}

// VolumeNames finds volumes by the mount manager's names, \\?\Volume{guid}\.
type VolumeNames interface {
	// FindVolumes is FindFirstVolumeW and FindNextVolumeW: the names of all volumes, including
	// volumes without a file system or a mount point. A volume arriving or leaving meanwhile may be
	// listed or missing.
	FindVolumes(ctx context.Context) ([]string, error)

	// VolumeNameForMountPoint is GetVolumeNameForVolumeMountPointW: the name of the volume at a
	// path ending in a backslash. The path is a drive (C:\), a directory with a mounted volume, a
	// volume's own name, or (undocumented, but used in the field) the device of a partition:
	// \\?\GLOBALROOT\Device\HarddiskN\PartitionP\.
	//
	// Errors: 2 and 3 nothing there; 87 a junction or link to something else; 4390 a directory that
	// is no mount point, for which 87 is seen, too. A path lacking the backslash gives 123, or is
	// completed.
	VolumeNameForMountPoint(ctx context.Context, mountPoint string) (string, error)

	// VolumePathNames is GetVolumePathNamesForVolumeNameW: where the volume with a name is mounted,
	// by the mount manager's records: drives (C:\) and directories, with a backslash at the end.
	// The list may contain a directory whose mount point was removed by means other than
	// DeleteVolumeMountPoint.
	//
	// Errors: 2 and 3 no such volume; 87 and 123 the volume's name is malformed; 234 the list is
	// too long.
	VolumePathNames(ctx context.Context, volume string) ([]string, error)
}

// MountPoints mounts volumes at directories.
type MountPoints interface {
	// SetVolumeMountPoint is SetVolumeMountPointW: it mounts the volume, given by its name, at an
	// empty directory on NTFS. Both arguments end in a backslash. The caller must be an
	// administrator.
	//
	// Errors: 145 the directory isn't empty, or a volume is mounted there; 267 or 123 a file; 2 and
	// 3 no such directory or volume; 87 the volume's name is malformed; 4390 or 1 a file system
	// without reparse points. A call that fails leaves the directory as it was.
	//
	// Undocumented: the access and sharing with which Windows opens the directory, and whether
	// mount points on ReFS work. A caller with the directory open exclusively may get 32.
	SetVolumeMountPoint(ctx context.Context, mountPoint, volume string) error

	// DeleteVolumeMountPoint is DeleteVolumeMountPointW: it removes the mount point from a
	// directory, which stays, and from the mount manager's records. The path ends in a backslash.
	//
	// Errors: 2 and 3 no such directory; 87 and 4390 no mount point; 32 as for SetVolumeMountPoint.
	//
	// Undocumented: the fate of a mount point whose volume has left. The field reports success, and
	// 2 and 3.
	DeleteVolumeMountPoint(ctx context.Context, mountPoint string) error
}

// FileSystems queries and makes file systems.
type FileSystems interface {
	// VolumeInformation is GetVolumeInformationW of a volume's name. The call also mounts the file
	// system if necessary.
	//
	// Errors: 1005 no file system that Windows knows (RAW); 0x80310000 locked by BitLocker; 21 the
	// volume is offline; 2 and 3 no such volume.
	VolumeInformation(ctx context.Context, root string) (VolumeInformation, error)

	// DiskFreeSpace is GetDiskFreeSpaceExW of a directory or a volume's name, in bytes. The
	// directory may be a share, \\server\share\: Windows then asks the server for the size; an
	// unresponsive server delays the call by 20 to 60 seconds. Errors are those of
	// VolumeInformation, and those of the path.
	DiskFreeSpace(ctx context.Context, directory string) (DiskSpace, error)

	// FormatVolume is MSFT_Volume.Format, quick, of a volume's name, and overwrites what the volume
	// holds. It returns when the file system is mounted.
	//
	// The format begins at once: the caller has just checked the volume's contents. Formatting a
	// volume in use fails.
	//
	// Errors: the Errno that means the same as the method's result, such as 5 a system volume, 19 a
	// read-only disk, 87 the cluster size, and 31 a result that says nothing more; 1237 storage
	// management doesn't know the volume, or not yet.
	//
	// Undocumented: the result for an open volume. The field reports 2, 3 and 4: the errors 31 and
	// 121.
	//
	// Source: https://learn.microsoft.com/windows-hardware/drivers/storage/format-msft-volume
	FormatVolume(ctx context.Context, volume string, o FormatOptions) error

	// RepairVolume is MSFT_Volume.Repair of a volume's name. The call returns when the method is
	// done, after seconds to hours; the method lacks a parameter for starting a job instead. The
	// end of ctx has no effect on a running call.
	//
	// Errors: the Errno equivalent to the method's result, such as 50 an unsupported file system,
	// 19 a read-only disk, 5 no access, 170 a scan of the volume runs already (43010), 1117 the
	// scan or the repair failed (43007, 43008), 31 a result that says nothing more; 1237 storage
	// management doesn't know the volume, or not yet.
	//
	// Undocumented: the result of a spot fix, or an offline repair, of a volume in use, and whether
	// the repair takes the volume from its users.
	//
	// Source: https://learn.microsoft.com/windows-hardware/drivers/storage/repair-msft-volume
	RepairVolume(ctx context.Context, volume string, mode RepairMode) (RepairResult, error)

	// TryStorageProvider queries all MSFT_Volume and drops the answer. Without an error,
	// FormatVolume and RepairVolume find their provider.
	TryStorageProvider(ctx context.Context) error
}

// Files opens files by their whole paths, following links. For files below an open directory, use
// [File.OpenAt], which refuses links.
type Files interface {
	// OpenFile is NtCreateFile of a full path, passed to the file system unchanged, without the
	// limit of 260 characters and without changes to its elements. Links on the way are followed; o
	// says whether the last one is.
	//
	// Errors: 2 and 3 no such file or directory; 5 no access; 32 the sharing of o and of others'
	// handles don't agree; 183 FileCreate of an existing file; 123 an invalid name, and a path that
	// isn't full; 267 a file where FileDirectoryFile wants a directory; 303 the file is being
	// deleted; 1920 and 1921 a link that can't be followed. 5 also means a directory where
	// FileNonDirectoryFile wants a file. 2 means a missing last element, and 3 a missing element
	// before, possibly a file.
	OpenFile(ctx context.Context, path string, o OpenOptions) (File, error)

	// FileAttributes is GetFileAttributesW: of the last element itself, not of what a link there
	// leads to. Errors are those of OpenFile. For a path on an SMB server, Windows asks the server;
	// an unresponsive server delays the call by 20 to 60 seconds.
	FileAttributes(ctx context.Context, path string) (FileAttributes, error)
	// AttributesWithoutLinks is NtQueryAttributesFile with OBJ_DONT_REPARSE: FileAttributes of what
	// is reached without a reparse point on the way. With one, it fails with
	// ErrorReparsePointEncountered. Windows may give this error for each path with a drive letter,
	// because to the kernel a drive letter is a link, too. Other errors are those of OpenFile.
	//
	// Source: https://learn.microsoft.com/windows-hardware/drivers/ddi/wdm/nf-wdm-zwqueryfullattributesfile
	AttributesWithoutLinks(ctx context.Context, path string) (FileAttributes, error)
}

// ProcessID is the id of a process. Windows reuses the ids of ended processes.
type ProcessID uint32

// Processes describes the node's processes. [File.ProcessIDs] and [Device.ProcessIDs] list the
// processes with a file or device open.
type Processes interface {
	// ProcessImage is OpenProcess with PROCESS_QUERY_LIMITED_INFORMATION and
	// QueryFullProcessImageNameW: the path of the program that the process runs.
	//
	// Errors: 87 the process is gone; 5 a protected process; 31 and 299 the process is ending.
	//
	// Source: https://learn.microsoft.com/windows/win32/api/winbase/nf-winbase-queryfullprocessimagenamew
	ProcessImage(ctx context.Context, id ProcessID) (string, error)
}

// SMBMappings are the SMB global mappings of the node, usable by all its sessions, containers
// included. They are instances of the WMI class MSFT_SmbGlobalMapping.
//
// Source: https://learn.microsoft.com/previous-versions/windows/desktop/smb/msft-smbglobalmapping
type SMBMappings interface {
	// SMBGlobalMappings returns all mappings. Other programs make mappings of directories
	// (csi-driver-smb, kubelet's mount-utils), with drive letters and without encryption.
	SMBGlobalMappings(ctx context.Context) ([]SMBMapping, error)

	// SMBConnections is a query for MSFT_SmbConnection: the connections of all accounts of this
	// node to shares, with the user at the server. The list has one for each account and credential
	// in use on a share, now or a moment ago.
	//
	// Undocumented: whether the connection of a global mapping is always among them.
	SMBConnections(ctx context.Context) ([]SMBConnection, error)

	// CreateSMBGlobalMapping maps a share, \\server\share, or a directory on it, without a drive
	// letter and until the node restarts, and connects to the server. Secrets are erased after the
	// call.
	//
	// Errors: 53 and kin the server doesn't answer; 67 no such share; 86, 1326 and kin the server
	// refuses the credentials; 1219 the node has a mapping on this server under another user; 85
	// and 1202 the share is mapped already. Undocumented: the error of a server lacking encryption.
	CreateSMBGlobalMapping(ctx context.Context, remotePath string, o SMBMappingOptions) error

	// RemoveSMBGlobalMapping removes the mapping with a name ([SMBMapping.Name], in any case), even
	// with open files (Force). Error 2250: there is none.
	RemoveSMBGlobalMapping(ctx context.Context, name string) error
}

// ISCSIInitiator is the node's iSCSI initiator: the functions of iscsidsc.dll, which call the
// service MSiSCSI. While the service is stopped, each function fails; the error is undocumented.
// Calls are uninterruptible.
//
// Source: https://learn.microsoft.com/windows/win32/api/iscsidsc/
type ISCSIInitiator interface {
	ISCSIPortals
	ISCSISessions
}

// ISCSIPortals are the addresses at which the initiator searches for targets (SendTargets
// discovery).
type ISCSIPortals interface {
	// AddISCSISendTargetPortal is AddIScsiSendTargetPortalW for any initiator port: adds a portal
	// for good and asks the portal for its targets. A known portal is asked again. Errors:
	// [ISDSCConnectionFailed] the portal is unresponsive.
	AddISCSISendTargetPortal(ctx context.Context, p ISCSIPortal) error
	// RemoveISCSISendTargetPortal is RemoveIScsiSendTargetPortalW. Targets reported only by this
	// portal are forgotten; sessions go on. Errors: [ISDSCPortalNotFound] for an unknown portal.
	RemoveISCSISendTargetPortal(ctx context.Context, p ISCSIPortal) error
	// RefreshISCSISendTargetPortal is RefreshIScsiSendTargetPortalW: asks the portal for its
	// targets again. Errors as for adding and removing.
	RefreshISCSISendTargetPortal(ctx context.Context, p ISCSIPortal) error
	// ISCSISendTargetPortals is ReportIScsiSendTargetPortalsExW.
	ISCSISendTargetPortals(ctx context.Context) ([]ISCSIPortal, error)
	// ISCSITargets is ReportIScsiTargetsW: the names of the targets known to the initiator. Portals
	// aren't asked.
	ISCSITargets(ctx context.Context) ([]string, error)
	// ISCSIDiscoveryMechanisms is GetIScsiTargetInformationW for DiscoveryMechanisms: how the
	// initiator came to know a target. The form of the texts is undocumented. Errors:
	// [ISDSCTargetNotFound].
	ISCSIDiscoveryMechanisms(ctx context.Context, target string) ([]string, error)
}

// ISCSISessions are the initiator's sessions with targets.
type ISCSISessions interface {
	// LoginISCSITarget is LoginIScsiTargetW for a session that ends when the node shuts down. The
	// target must be known. Disks arrive after the login has returned. Secrets are erased after the
	// call.
	//
	// Errors: [ISDSCTargetNotFound]; [ISDSCTargetAlreadyLoggedIn]; [ISDSCAuthenticationFailed] and
	// kin; [ISDSCConnectionFailed] and kin.
	LoginISCSITarget(ctx context.Context, l ISCSILogin) (ISCSISessionID, error)
	// LogoutISCSITarget is LogoutIScsiTarget. Errors: [ISDSCDeviceBusyOnSession] while a
	// handle to a disk or volume of the session is open; [ISDSCInvalidSessionID].
	LogoutISCSITarget(ctx context.Context, id ISCSISessionID) error
	// ISCSISessions is GetIScsiSessionListW, of all targets.
	ISCSISessions(ctx context.Context) ([]ISCSISession, error)
	// ISCSISessionDevices is GetDevicesForIScsiSessionW. Disks taken over by multipath I/O are
	// missing. Errors: [ISDSCInvalidSessionID].
	ISCSISessionDevices(ctx context.Context, id ISCSISessionID) ([]ISCSIDevice, error)
	// ISCSIPersistentLogins is ReportIScsiPersistentLoginsW: the logins that the initiator repeats
	// whenever its service starts.
	ISCSIPersistentLogins(ctx context.Context) ([]ISCSIPersistentLogin, error)
	// RemoveISCSIPersistentLogin is RemoveIScsiPersistentTargetW of a login returned by
	// ISCSIPersistentLogins. Error 1168: the login is gone.
	RemoveISCSIPersistentLogin(ctx context.Context, l ISCSIPersistentLogin) error
	// SetISCSIInitiatorCHAPSecret is SetIScsiInitiatorCHAPSharedSecret: the secret with which
	// targets prove their identity in mutual CHAP. 12 to 16 bytes without IPsec.
	SetISCSIInitiatorCHAPSecret(ctx context.Context, chap csiproxy.Secret) error
}

// Services are the Windows services of the node, through the service control manager. Handles are
// opened with only the right for the call.
//
// Source: https://learn.microsoft.com/windows/win32/services/service-control-manager
type Services interface {
	// QueryService is QueryServiceConfigW and QueryServiceStatusEx. Error 1060: no such
	// service.
	QueryService(ctx context.Context, name string) (Service, error)
	// StartService is StartServiceW without arguments. The call returns when the service's process
	// has begun, within 30 seconds, and possibly before the service runs. Errors: 1056 it is
	// running or starting; 1058 disabled; 1053 its process didn't answer; 1068 a required service
	// failed to start.
	StartService(ctx context.Context, name string) error
	// StopService is ControlService with SERVICE_CONTROL_STOP. The call returns when the service
	// has taken the control, possibly before the service has stopped. Errors: 1062 it isn't
	// running; 1061 the service is starting or stopping; 1051 dependent services run; 1052 the
	// service is unstoppable.
	StopService(ctx context.Context, name string) error
	// ActiveDependentServices is EnumDependentServicesW with SERVICE_ACTIVE: the services that
	// depend on one and aren't stopped, in the order in which to stop them.
	ActiveDependentServices(ctx context.Context, name string) ([]string, error)
}

// Firmware reads the machine's firmware tables.
type Firmware interface {
	// FirmwareTable is GetSystemFirmwareTable for the provider RSMB: a RawSMBIOSData
	// header with the SMBIOS table.
	//
	// Source: https://learn.microsoft.com/windows/win32/api/sysinfoapi/nf-sysinfoapi-getsystemfirmwaretable
	FirmwareTable(ctx context.Context) ([]byte, error)
}

// Registry reads Windows' configuration.
type Registry interface {
	// RegistryStrings is RegGetValueW for a value below HKEY_LOCAL_MACHINE of type
	// REG_SZ, REG_EXPAND_SZ (not expanded) or REG_MULTI_SZ: its strings without empty
	// ones. Errors: 2 no such key or value; 1630 a value of another type.
	//
	// Source: https://learn.microsoft.com/windows/win32/api/winreg/nf-winreg-reggetvaluew
	RegistryStrings(ctx context.Context, key, value string) ([]string, error)
	// RegistryNumber is RegGetValueW for a value below HKEY_LOCAL_MACHINE of type
	// REG_DWORD. Errors: 2 no such key or value; 1630 a value of another type.
	//
	// Source: https://learn.microsoft.com/windows/win32/api/winreg/nf-winreg-reggetvaluew
	RegistryNumber(ctx context.Context, key, value string) (uint32, error)
	// SystemWindowsDirectory is GetSystemWindowsDirectoryW: the directory that Windows
	// runs from, such as C:\Windows.
	//
	// Source: https://learn.microsoft.com/windows/win32/api/sysinfoapi/nf-sysinfoapi-getsystemwindowsdirectoryw
	SystemWindowsDirectory(ctx context.Context) (string, error)
}

// Keys and values of the registry for finding Windows' own disks.
//
// Source: https://learn.microsoft.com/windows-hardware/drivers/kernel/ and
// https://learn.microsoft.com/troubleshoot/windows-server/performance/memory-dump-file-options
const (
	RegistrySetup            = `SYSTEM\Setup`
	RegistrySystemPartition  = `SystemPartition` // \Device\HarddiskVolumeN, the EFI system partition
	RegistryMemoryManagement = `SYSTEM\CurrentControlSet\Control\Session Manager\Memory Management`
	// RegistryExistingPageFiles has the page files in use, as \??\C:\pagefile.sys.
	RegistryExistingPageFiles = `ExistingPageFiles`
	RegistryCrashControl      = `SYSTEM\CurrentControlSet\Control\CrashControl`
	// RegistryDedicatedDumpFile is the dedicated file for crash dumps, if any.
	RegistryDedicatedDumpFile = `DedicatedDumpFile`
)

// Privileges returns the names of the privileges required for all calls. Package winsys gives the
// reasons.
func Privileges() []string {
	return []string{
		"SeBackupPrivilege",
		"SeRestorePrivilege",
		"SeLoadDriverPrivilege",
		"SeManageVolumePrivilege",
		"SeCreateSymbolicLinkPrivilege",
	}
}
