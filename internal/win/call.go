// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package win

import (
	"maps"
	"slices"
)

// Names of the calls of the seam in metrics, logs and the simulated node's rules: the
// Win32 function or WMI method that does the work. The name of a control code is that of
// its constant, see [IoctlCode.String].
const (
	CallDeviceInterfaces        = "CM_Get_Device_Interface_ListW"
	CallReenumerateDevice       = "CM_Reenumerate_DevNode"
	CallNotifyArrivals          = "CM_Register_Notification"
	CallOpen                    = "CreateFileW" // OpenDevice and OpenFile
	CallOpenAt                  = "NtCreateFile"
	CallRead                    = "ReadFile"
	CallFlush                   = "FlushFileBuffers"
	CallFileInfo                = "GetFileInformationByHandleEx"
	CallReadDir                 = "NtQueryDirectoryFile" // what GetFileInformationByHandleEx calls for entries
	CallDeleteFile              = "SetFileInformationByHandle"
	CallFinalPath               = "GetFinalPathNameByHandleW"
	CallFileAttributes          = "GetFileAttributesW"
	CallFindVolumes             = "FindFirstVolumeW"
	CallVolumeInformation       = "GetVolumeInformationW"
	CallDiskFreeSpace           = "GetDiskFreeSpaceExW"
	CallVolumeNameForMountPoint = "GetVolumeNameForVolumeMountPointW"
	CallSetVolumeMountPoint     = "SetVolumeMountPointW"
	CallDeleteVolumeMountPoint  = "DeleteVolumeMountPointW"
	CallFormatVolume            = "MSFT_Volume.Format"
	CallSMBGlobalMappings       = "MSFT_SmbGlobalMapping" // a query for its instances
	CallCreateSMBGlobalMapping  = "MSFT_SmbGlobalMapping.Create"
	CallRemoveSMBGlobalMapping  = "MSFT_SmbGlobalMapping.Remove"
	CallAddISCSIPortal          = "AddIScsiSendTargetPortalW"
	CallRemoveISCSIPortal       = "RemoveIScsiSendTargetPortalW"
	CallRefreshISCSIPortal      = "RefreshIScsiSendTargetPortalW"
	CallISCSIPortals            = "ReportIScsiSendTargetPortalsExW"
	CallISCSITargets            = "ReportIScsiTargetsW"
	CallISCSITargetInformation  = "GetIScsiTargetInformationW"
	CallLoginISCSITarget        = "LoginIScsiTargetW"
	CallLogoutISCSITarget       = "LogoutIScsiTarget"
	CallISCSISessions           = "GetIScsiSessionListW"
	CallISCSISessionDevices     = "GetDevicesForIScsiSessionW"
	CallISCSIPersistentLogins   = "ReportIScsiPersistentLoginsW"
	CallRemoveISCSIPersistent   = "RemoveIScsiPersistentTargetW"
	CallSetISCSICHAPSecret      = "SetIScsiInitiatorCHAPSharedSecret"
	CallQueryService            = "QueryServiceStatusEx"
	CallStartService            = "StartServiceW"
	CallStopService             = "ControlService"
	CallActiveDependentServices = "EnumDependentServicesW"
	CallFirmwareTable           = "GetSystemFirmwareTable"
	CallRegistryStrings         = "RegGetValueW"
	CallSystemWindowsDirectory  = "GetSystemWindowsDirectoryW"
	CallUnknownControl          = "DeviceIoControl" // a control code without a name
)

var callNames = append(slices.Collect(maps.Values(ioctlNames)),
	CallDeviceInterfaces, CallReenumerateDevice, CallNotifyArrivals, CallOpen, CallOpenAt, CallRead, CallFlush,
	CallFileInfo, CallReadDir, CallDeleteFile, CallFinalPath, CallFileAttributes, CallFindVolumes, CallVolumeInformation,
	CallDiskFreeSpace, CallVolumeNameForMountPoint, CallSetVolumeMountPoint, CallDeleteVolumeMountPoint, CallFormatVolume,
	CallSMBGlobalMappings, CallCreateSMBGlobalMapping, CallRemoveSMBGlobalMapping,
	CallAddISCSIPortal, CallRemoveISCSIPortal, CallRefreshISCSIPortal, CallISCSIPortals, CallISCSITargets,
	CallISCSITargetInformation, CallLoginISCSITarget, CallLogoutISCSITarget, CallISCSISessions, CallISCSISessionDevices,
	CallISCSIPersistentLogins, CallRemoveISCSIPersistent, CallSetISCSICHAPSecret,
	CallQueryService, CallStartService, CallStopService, CallActiveDependentServices,
	CallFirmwareTable, CallRegistryStrings, CallSystemWindowsDirectory, CallUnknownControl)

// CallNames returns the names of all calls of the seam, sorted.
func CallNames() []string { return slices.Sorted(slices.Values(callNames)) }
