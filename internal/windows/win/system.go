// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package win

import (
	"context"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
)

// System is the whole seam: every call to Windows that the operations make. Package
// winsys is Windows itself, package winsim the simulated node, and package seamtest the
// suite of tests that both must pass.
//
// What holds for all methods:
//
//   - They may be called concurrently.
//   - An error is an [Errno], wraps one, or is ctx's error. A call whose ctx has ended
//     isn't begun.
//   - When ctx ends during a call that only reads, Windows is asked to give the call up,
//     and it returns ctx's error if Windows does so. A call that changes something always
//     runs to its end, since nobody would know how far it got otherwise. Both may
//     therefore return long after ctx has ended, and never if the driver below never
//     answers: package operation lets callers go.
//   - Names of devices, volumes and files compare without regard to case.
//   - A path or a name with a NUL within gives [ErrorInvalidName].
//   - Every call on a handle that was closed gives [ErrorInvalidHandle], a second Close
//     too.
//
// What the suite takes for a promise is a sentence here. What is only guessed about
// Windows stands behind "Not documented" here, and is marked in winsim where it is coded.
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
	// OpenDevice is CreateFileW with OPEN_EXISTING, FILE_SHARE_READ and FILE_SHARE_WRITE.
	// path is \\.\PhysicalDriveN, a path from DeviceInterfaces, or \\?\Volume{guid}
	// without a backslash at its end; with one it would name the root directory.
	//
	// AccessNone is enough for control codes that ask for no access, and then the handle
	// takes no part in sharing. With GenericRead or GenericWrite the caller must be an
	// administrator.
	//
	// Errors: 2 and 3 no such device; 5 not an administrator, or a volume's root
	// directory; 21 and 1167 the device is leaving or arriving; 32 somebody has the
	// device open without sharing it, as a format does.
	//
	// Not documented: how long an open handle keeps a disk from leaving. Handles are
	// therefore closed at the end of each operation.
	OpenDevice(ctx context.Context, path string, access Access) (Device, error)
}

// Devices finds devices and opens them.
type Devices interface {
	DeviceOpener

	// DeviceInterfaces is CM_Get_Device_Interface_ListW with the flag for present
	// interfaces: the paths of the devices of a class, in no particular order. A device
	// may leave at any moment, so that its path gives ErrorFileNotFound at the next call.
	// A class that nothing has gives no paths and no error.
	DeviceInterfaces(ctx context.Context, class winid.GUID) ([]string, error)

	// ReenumerateDevice is CM_Locate_DevNodeW and CM_Reenumerate_DevNode with
	// CM_REENUMERATE_SYNCHRONOUS: Windows asks the bus below a device which devices it
	// has. The device is that of an interface path; "" is the root of the device tree.
	// It returns when the bus has answered. New devices start afterwards: NotifyArrivals
	// tells when. The process needs SeLoadDriverPrivilege.
	//
	// Errors: 13 and 1168 the device has left (as CONFIGRET, mapped); 5 the privilege is
	// missing.
	//
	// Re-enumerating the root also starts devices that aren't configured yet, so it is
	// not done more often than needed.
	ReenumerateDevice(ctx context.Context, interfacePath string) error
}

// Notices reports devices that come and go.
type Notices interface {
	// NotifyArrivals is CM_Register_Notification for the interfaces of a class. A value
	// comes on arrived after one or more interfaces of the class arrived or left, until
	// stop is called; values that nobody took are merged. Notices begin before the
	// method returns, so a list made afterwards misses nothing. A device may need a
	// moment after its notice before it answers.
	//
	// Not documented: whether each change gives a notice. Callers poll as well.
	NotifyArrivals(ctx context.Context, class winid.GUID) (arrived <-chan struct{}, stop func(), err error)
}

// Volumes names volumes, mounts them, and asks for and makes their file systems.
type Volumes interface {
	VolumeNames
	MountPoints
	FileSystems
}

// VolumeNames finds volumes by the mount manager's names, \\?\Volume{guid}\.
type VolumeNames interface {
	// FindVolumes is FindFirstVolumeW and FindNextVolumeW: the names of all volumes,
	// also those that have no file system or no mount point. A volume that arrives or
	// leaves meanwhile may or may not be among them.
	FindVolumes(ctx context.Context) ([]string, error)

	// VolumeNameForMountPoint is GetVolumeNameForVolumeMountPointW: the name of the
	// volume at a path that ends in a backslash. The path is a drive (C:\), a directory
	// with a mounted volume, a volume's own name, or, which is used in the field but not
	// documented, the device of a partition:
	// \\?\GLOBALROOT\Device\HarddiskN\PartitionP\.
	//
	// Errors: 2 and 3 nothing there; 87 a junction or link to something else; 4390 a
	// directory that is no mount point, for which 87 is seen, too. Without the backslash
	// at its end a path gives 123, or is taken as if it had one.
	VolumeNameForMountPoint(ctx context.Context, mountPoint string) (string, error)

	// VolumePathNames is GetVolumePathNamesForVolumeNameW: where the volume with a name is
	// mounted, by the mount manager's records: drives (C:\) and directories, with a
	// backslash at the end. A directory whose mount point was removed in another way than
	// by DeleteVolumeMountPoint may still be among them.
	//
	// Errors: 2 and 3 no such volume; 87 and 123 the volume's name is malformed. With too many
	// to list it is 234.
	VolumePathNames(ctx context.Context, volume string) ([]string, error)
}

// MountPoints mounts volumes at directories.
type MountPoints interface {
	// SetVolumeMountPoint is SetVolumeMountPointW: it mounts the volume, given by its
	// name, at an empty directory on NTFS. Both arguments end in a backslash. The
	// caller must be an administrator.
	//
	// Errors: 145 the directory isn't empty, or a volume is mounted there; 267 or 123 a file;
	// 2 and 3 no such directory or volume; 87 the volume's name is malformed; 4390 or 1
	// a file system without reparse points. A call that fails leaves the directory as it
	// was.
	//
	// Not documented: with which access and sharing Windows opens the directory. A
	// caller that holds the directory open without sharing may get 32. Nor is it
	// documented whether mount points on ReFS work.
	SetVolumeMountPoint(ctx context.Context, mountPoint, volume string) error

	// DeleteVolumeMountPoint is DeleteVolumeMountPointW: it removes the mount point
	// from a directory, which stays, and from the mount manager's records. The path ends
	// in a backslash.
	//
	// Errors: 2 and 3 no such directory; 87 and 4390 no mount point; 32 as for
	// SetVolumeMountPoint.
	//
	// Not documented: what becomes of a mount point whose volume has left. The field
	// reports success, and 2 and 3.
	DeleteVolumeMountPoint(ctx context.Context, mountPoint string) error
}

// FileSystems asks for and makes file systems.
type FileSystems interface {
	// VolumeInformation is GetVolumeInformationW of a volume's name. It mounts the file
	// system, if Windows hasn't done so yet.
	//
	// Errors: 1005 no file system that Windows knows (RAW); 0x80310000 locked by
	// BitLocker; 21 the volume is offline; 2 and 3 no such volume.
	VolumeInformation(ctx context.Context, root string) (VolumeInformation, error)

	// DiskFreeSpace is GetDiskFreeSpaceExW of a directory or a volume's name, in bytes. The
	// directory may be a share, \\server\share\, which is asked for its size; a server that
	// doesn't answer keeps the call for 20 to 60 seconds.
	// Errors are those of VolumeInformation, and those of the path.
	DiskFreeSpace(ctx context.Context, directory string) (DiskSpace, error)

	// FormatVolume is MSFT_Volume.Format, quick, of a volume's name, and overwrites what
	// the volume holds. It returns when the file system is mounted.
	//
	// It doesn't wait for anything before it begins: the caller has just checked what
	// the volume holds. A volume that is in use isn't formatted.
	//
	// Errors: the Errno that means the same as the method's result, such as 5 a system
	// volume, 19 a read-only disk, 87 the cluster size, and 31 a result that says nothing
	// more; 1237 storage management doesn't know the volume, or not yet.
	//
	// Not documented: the result for a volume that somebody has open. The field reports
	// 2, 3 and 4, which are the errors 31 and 121.
	//
	// Source: https://learn.microsoft.com/windows-hardware/drivers/storage/format-msft-volume
	FormatVolume(ctx context.Context, volume string, o FormatOptions) error

	// RepairVolume is MSFT_Volume.Repair of a volume's name. It returns when the method is
	// done, which takes from seconds to hours; the method has no parameter that would start
	// a job instead. The end of ctx doesn't stop it.
	//
	// Errors: the Errno that means the same as the method's result, such as 50 a file system
	// that isn't checked in this way, 19 a read-only disk, 5 no access, 170 a scan of the
	// volume runs already (43010), 1117 the scan or the repair failed (43007, 43008), 31 a
	// result that says nothing more; 1237 storage management doesn't know the volume, or not
	// yet.
	//
	// Not documented: what a spot fix, or an offline repair, says of a volume that is in
	// use, and whether it then takes the volume from those who use it.
	//
	// Source: https://learn.microsoft.com/windows-hardware/drivers/storage/repair-msft-volume
	RepairVolume(ctx context.Context, volume string, mode RepairMode) (RepairResult, error)

	// TryStorageProvider is a query for all MSFT_Volume, whose answer it drops. Without an
	// error, FormatVolume and RepairVolume find their provider.
	TryStorageProvider(ctx context.Context) error
}

// Files opens files by their whole paths, following links. Everything below an open
// directory is reached by [File.OpenAt], which follows none.
type Files interface {
	// OpenFile is NtCreateFile of a full path, which goes to the file system as it is,
	// without the limit of 260 characters and without changes to its elements. Links on
	// the way are followed; o says whether the last one is.
	//
	// Errors: 2 and 3 no such file or directory; 5 no access; 32 the sharing of o and
	// of others' handles don't agree; 183 FileCreate of what is there; 123 a name that no
	// file can have, and a path that isn't full; 267 a file where FileDirectoryFile wants
	// a directory; 303 the file is being deleted; 1920 and 1921 a link that can't be
	// followed. 5 is also said of a directory where FileNonDirectoryFile wants a file, 2
	// of the last element that is missing, and 3 of one before it, which may be a file.
	OpenFile(ctx context.Context, path string, o OpenOptions) (File, error)

	// FileAttributes is GetFileAttributesW: of the last element itself, not of what a
	// link there leads to. Errors are those of OpenFile. Of a path on an SMB server,
	// Windows asks the server; a server that doesn't answer keeps it for 20 to 60 seconds.
	FileAttributes(ctx context.Context, path string) (FileAttributes, error)
	// AttributesWithoutLinks is NtQueryAttributesFile with OBJ_DONT_REPARSE: FileAttributes of what
	// is reached without a reparse point on the way. With one, it fails with
	// ErrorReparsePointEncountered. Windows may answer so to each path with a drive letter,
	// which to the kernel is a link, too. Other errors are those of OpenFile.
	//
	// Source: https://learn.microsoft.com/windows-hardware/drivers/ddi/wdm/nf-wdm-zwqueryfullattributesfile
	AttributesWithoutLinks(ctx context.Context, path string) (FileAttributes, error)
}

// ProcessID is the id of a process, until it ends: later another one may have it.
type ProcessID uint32

// Processes tells of the node's processes. Which of them have something open,
// [File.ProcessIDs] and [Device.ProcessIDs] tell.
type Processes interface {
	// ProcessImage is OpenProcess with PROCESS_QUERY_LIMITED_INFORMATION and
	// QueryFullProcessImageNameW: the path of the program that the process runs.
	//
	// Errors: 87 there is no such process; 5 a process that may not be asked; 31 and 299 it
	// is ending.
	//
	// Source: https://learn.microsoft.com/windows/win32/api/winbase/nf-winbase-queryfullprocessimagenamew
	ProcessImage(ctx context.Context, id ProcessID) (string, error)
}

// SMBMappings are the SMB global mappings of the node: those that all its sessions can
// use, containers included. They are instances of the WMI class MSFT_SmbGlobalMapping.
//
// Source: https://learn.microsoft.com/previous-versions/windows/desktop/smb/msft-smbglobalmapping
type SMBMappings interface {
	// SMBGlobalMappings returns all mappings. Other programs make mappings of directories
	// (csi-driver-smb, kubelet's mount-utils), with drive letters and without encryption.
	SMBGlobalMappings(ctx context.Context) ([]SMBMapping, error)

	// SMBConnections is a query for MSFT_SmbConnection: the connections of all accounts of
	// this node to shares, with the user at the server. There is one for each account and
	// credential that use a share now, or did so a moment ago.
	//
	// Not documented: whether the connection of a global mapping is always among them.
	SMBConnections(ctx context.Context) ([]SMBConnection, error)

	// CreateSMBGlobalMapping maps a share, \\server\share, or a directory on it, without a
	// drive letter and until the node restarts, and connects to the server. Secrets are
	// erased after the call.
	//
	// Errors: 53 and kin the server doesn't answer; 67 no such share; 86, 1326 and kin
	// the server refuses the credentials; 1219 the node has a mapping on this server
	// under another user; 85 and 1202 the share is mapped already. Not documented: the
	// error of a server that can't encrypt.
	CreateSMBGlobalMapping(ctx context.Context, remotePath string, o SMBMappingOptions) error

	// RemoveSMBGlobalMapping removes the mapping with a name, in any case, also one with open
	// files (Force): [SMBMapping.Name]. Error 2250: there is none.
	RemoveSMBGlobalMapping(ctx context.Context, name string) error
}

// ISCSIInitiator is the node's iSCSI initiator: the functions of iscsidsc.dll, which call
// the service MSiSCSI. While that doesn't run, each fails; no source says with which error.
// Nothing interrupts a call once it has begun.
//
// Source: https://learn.microsoft.com/windows/win32/api/iscsidsc/
type ISCSIInitiator interface {
	ISCSIPortals
	ISCSISessions
}

// ISCSIPortals are where the initiator searches for targets (SendTargets discovery).
type ISCSIPortals interface {
	// AddISCSISendTargetPortal is AddIScsiSendTargetPortalW for any initiator port: it
	// adds a portal for good and asks it for its targets. An added one is asked again.
	// Errors: [ISDSCConnectionFailed] the portal doesn't answer.
	AddISCSISendTargetPortal(ctx context.Context, p ISCSIPortal) error
	// RemoveISCSISendTargetPortal is RemoveIScsiSendTargetPortalW. Targets that only this
	// portal has reported are forgotten; sessions go on. Errors:
	// [ISDSCPortalNotFound] for one that wasn't added.
	RemoveISCSISendTargetPortal(ctx context.Context, p ISCSIPortal) error
	// RefreshISCSISendTargetPortal is RefreshIScsiSendTargetPortalW: it asks the portal
	// for its targets again. Errors as for adding and removing.
	RefreshISCSISendTargetPortal(ctx context.Context, p ISCSIPortal) error
	// ISCSISendTargetPortals is ReportIScsiSendTargetPortalsExW.
	ISCSISendTargetPortals(ctx context.Context) ([]ISCSIPortal, error)
	// ISCSITargets is ReportIScsiTargetsW: the names of the targets that the initiator
	// knows, without asking any portal.
	ISCSITargets(ctx context.Context) ([]string, error)
	// ISCSIDiscoveryMechanisms is GetIScsiTargetInformationW for DiscoveryMechanisms: how
	// the initiator came to know a target. The form of the texts isn't documented.
	// Errors: [ISDSCTargetNotFound].
	ISCSIDiscoveryMechanisms(ctx context.Context, target string) ([]string, error)
}

// ISCSISessions are the initiator's sessions with targets.
type ISCSISessions interface {
	// LoginISCSITarget is LoginIScsiTargetW for a session that ends when the node shuts
	// down. The target must be known. Disks arrive after it has returned. Secrets are
	// erased after the call.
	//
	// Errors: [ISDSCTargetNotFound]; [ISDSCTargetAlreadyLoggedIn];
	// [ISDSCAuthenticationFailed] and kin; [ISDSCConnectionFailed] and kin.
	LoginISCSITarget(ctx context.Context, l ISCSILogin) (ISCSISessionID, error)
	// LogoutISCSITarget is LogoutIScsiTarget. Errors: [ISDSCDeviceBusyOnSession] while a
	// handle to a disk or volume of the session is open; [ISDSCInvalidSessionID].
	LogoutISCSITarget(ctx context.Context, id ISCSISessionID) error
	// ISCSISessions is GetIScsiSessionListW, of all targets.
	ISCSISessions(ctx context.Context) ([]ISCSISession, error)
	// ISCSISessionDevices is GetDevicesForIScsiSessionW. Disks that multipath I/O has
	// taken over aren't among them. Errors: [ISDSCInvalidSessionID].
	ISCSISessionDevices(ctx context.Context, id ISCSISessionID) ([]ISCSIDevice, error)
	// ISCSIPersistentLogins is ReportIScsiPersistentLoginsW: the logins that the
	// initiator repeats whenever its service starts.
	ISCSIPersistentLogins(ctx context.Context) ([]ISCSIPersistentLogin, error)
	// RemoveISCSIPersistentLogin is RemoveIScsiPersistentTargetW of a login as
	// ISCSIPersistentLogins returned it. Error 1168: it isn't there.
	RemoveISCSIPersistentLogin(ctx context.Context, l ISCSIPersistentLogin) error
	// SetISCSIInitiatorCHAPSecret is SetIScsiInitiatorCHAPSharedSecret: the secret with
	// which targets prove themselves in mutual CHAP. 12 to 16 bytes without IPsec.
	SetISCSIInitiatorCHAPSecret(ctx context.Context, chap csiproxy.Secret) error
}

// Services are the Windows services of the node, through the service control manager.
// Handles are opened with the one right that the call needs.
//
// Source: https://learn.microsoft.com/windows/win32/services/service-control-manager
type Services interface {
	// QueryService is QueryServiceConfigW and QueryServiceStatusEx. Error 1060: no such
	// service.
	QueryService(ctx context.Context, name string) (Service, error)
	// StartService is StartServiceW without arguments. It returns when the service's
	// process has begun, 30 seconds later at most, which may be before the service
	// runs. Errors: 1056 it is running or starting; 1058 disabled; 1053 its process
	// didn't answer; 1068 a service that it needs didn't start.
	StartService(ctx context.Context, name string) error
	// StopService is ControlService with SERVICE_CONTROL_STOP. It returns when the
	// service has taken the control, which may be before it has stopped. Errors: 1062 it
	// isn't running; 1061 it is starting or stopping; 1051 services that depend on it
	// run; 1052 it can't be stopped.
	StopService(ctx context.Context, name string) error
	// ActiveDependentServices is EnumDependentServicesW with SERVICE_ACTIVE: the services
	// that depend on one and aren't stopped, in the order in which to stop them.
	ActiveDependentServices(ctx context.Context, name string) ([]string, error)
}

// Firmware is what the machine's firmware tells of it.
type Firmware interface {
	// FirmwareTable is GetSystemFirmwareTable for the provider RSMB: a RawSMBIOSData
	// header with the SMBIOS table.
	//
	// Source: https://learn.microsoft.com/windows/win32/api/sysinfoapi/nf-sysinfoapi-getsystemfirmwaretable
	FirmwareTable(ctx context.Context) ([]byte, error)
}

// Registry is what Windows keeps of its own configuration.
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

// Keys and values of the registry that tell which disks Windows runs from.
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
	// RegistryDedicatedDumpFile is the file of its own that crash dumps go to, if any.
	RegistryDedicatedDumpFile = `DedicatedDumpFile`
)

// Privileges returns the names of the privileges that a process needs for all calls. Package winsys
// gives the reasons.
func Privileges() []string {
	return []string{
		"SeBackupPrivilege",
		"SeRestorePrivilege",
		"SeLoadDriverPrivilege",
		"SeManageVolumePrivilege",
		"SeCreateSymbolicLinkPrivilege",
	}
}
