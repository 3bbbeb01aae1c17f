// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package win

import (
	"context"
	"maps"
	"slices"
	"time"
)

// Names of the calls of the seam in metrics, logs and the simulated node's rules: the Win32
// function or WMI method that does the work. Control codes have the names of their constants, see
// [IoctlCode.String]. The variables are read-only.
var (
	CallDeviceInterfaces        = named("CM_Get_Device_Interface_ListW")
	CallReenumerateDevice       = named("CM_Reenumerate_DevNode")
	CallNotifyArrivals          = named("CM_Register_Notification")
	CallOpen                    = named("CreateFileW") // OpenDevice and OpenFile
	CallOpenAt                  = named("NtCreateFile")
	CallRead                    = named("ReadFile")
	CallFlush                   = named("FlushFileBuffers")
	CallFileInfo                = named("GetFileInformationByHandleEx")
	CallReadDir                 = named("NtQueryDirectoryFile") // what GetFileInformationByHandleEx calls for entries
	CallDeleteFile              = named("SetFileInformationByHandle")
	CallQuerySecurity           = named("GetKernelObjectSecurity")
	CallSetSecurity             = named("SetKernelObjectSecurity")
	CallLockFile                = named("LockFileEx")
	CallFinalPath               = named("GetFinalPathNameByHandleW")
	CallFileAttributes          = named("GetFileAttributesW")
	CallAttributesWithoutLinks  = named("NtQueryAttributesFile")
	CallFindVolumes             = named("FindFirstVolumeW")
	CallVolumeInformation       = named("GetVolumeInformationW")
	CallDiskFreeSpace           = named("GetDiskFreeSpaceExW")
	CallVolumeNameForMountPoint = named("GetVolumeNameForVolumeMountPointW")
	CallSetVolumeMountPoint     = named("SetVolumeMountPointW")
	CallDeleteVolumeMountPoint  = named("DeleteVolumeMountPointW")
	CallVolumePathNames         = named("GetVolumePathNamesForVolumeNameW")
	CallFormatVolume            = named("MSFT_Volume.Format")
	CallRepairVolume            = named("MSFT_Volume.Repair")
	CallStorageProvider         = named("MSFT_Volume") // a query for its instances
	CallProcessIDs              = named("NtQueryInformationFile")
	CallProcessImage            = named("QueryFullProcessImageNameW")
	CallSMBGlobalMappings       = named("MSFT_SmbGlobalMapping") // a query for its instances
	CallSMBConnections          = named("MSFT_SmbConnection")    // a query for its instances
	CallCreateSMBGlobalMapping  = named("MSFT_SmbGlobalMapping.Create")
	CallRemoveSMBGlobalMapping  = named("MSFT_SmbGlobalMapping.Remove")
	CallAddISCSIPortal          = named("AddIScsiSendTargetPortalW")
	CallRemoveISCSIPortal       = named("RemoveIScsiSendTargetPortalW")
	CallRefreshISCSIPortal      = named("RefreshIScsiSendTargetPortalW")
	CallISCSIPortals            = named("ReportIScsiSendTargetPortalsExW")
	CallISCSITargets            = named("ReportIScsiTargetsW")
	CallISCSITargetInformation  = named("GetIScsiTargetInformationW")
	CallLoginISCSITarget        = named("LoginIScsiTargetW")
	CallLogoutISCSITarget       = named("LogoutIScsiTarget")
	CallISCSISessions           = named("GetIScsiSessionListW")
	CallISCSISessionDevices     = named("GetDevicesForIScsiSessionW")
	CallISCSIPersistentLogins   = named("ReportIScsiPersistentLoginsW")
	CallRemoveISCSIPersistent   = named("RemoveIScsiPersistentTargetW")
	CallSetISCSICHAPSecret      = named("SetIScsiInitiatorCHAPSharedSecret")
	CallQueryService            = named("QueryServiceStatusEx")
	CallStartService            = named("StartServiceW")
	CallStopService             = named("ControlService")
	CallActiveDependentServices = named("EnumDependentServicesW")
	CallFirmwareTable           = named("GetSystemFirmwareTable")
	CallRegistryStrings         = named("RegGetValueW")
	CallSystemWindowsDirectory  = named("GetSystemWindowsDirectoryW")
	CallUnknownControl          = named("DeviceIoControl") // a control code without a name
)

// callNames are the names above, and the names of the control codes.
var callNames = slices.Collect(maps.Values(ioctlNames))

// named adds a name to callNames. Inlined, it would make the program 8 kB larger.
//
//go:noinline
func named(call string) string {
	callNames = append(callNames, call)
	return call
}

// CallNames returns the names of all calls of the seam, sorted.
func CallNames() []string { return slices.Sorted(slices.Values(callNames)) }

// Sleep waits for d and returns nil, or returns ctx's error as soon as ctx ends.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
