// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package win

// Numbers in the registry for Windows' treatment of arriving disks.
const (
	RegistryMountManager = `SYSTEM\CurrentControlSet\Services\mountmgr`
	// RegistryNoAutoMount is nonzero if automatic mounting is off, as after "mountvol /N": a new,
	// unknown volume stays offline. If the value is missing, automatic mounting is on.
	//
	// Source: https://learn.microsoft.com/windows/win32/api/vds/ne-vds-vds_san_policy
	RegistryNoAutoMount = `NoAutoMount`

	// RegistryPartitionManager is the key of the SAN policy. Microsoft documents the policy's
	// numbers and the ways to set the policy, but not its place in the registry.
	//
	// Source:
	// https://learn.microsoft.com/windows-hardware/customize/desktop/unattend/microsoft-windows-partitionmanager-sanpolicy
	RegistryPartitionManager = `SYSTEM\CurrentControlSet\Services\partmgr\Parameters`
	RegistrySANPolicy        = `SanPolicy` // a SANPolicy

	// RegistrySMBClient is the key of the SMB client's settings, and RegistrySMBClientPolicy the
	// key of the group policies for the SMB client.
	//
	// Source: https://learn.microsoft.com/windows-server/storage/file-server/smb-signing,
	// https://learn.microsoft.com/windows-server/storage/file-server/enable-insecure-guest-logons-smb2-and-smb3,
	// https://learn.microsoft.com/windows-server/storage/file-server/smb-ntlm-blocking
	RegistrySMBClient       = `SYSTEM\CurrentControlSet\Services\LanmanWorkstation\Parameters`
	RegistrySMBClientPolicy = `SOFTWARE\Policies\Microsoft\Windows\LanmanWorkstation`
	RegistryRequireSigning  = `RequireSecuritySignature`
	RegistryAllowGuests     = `AllowInsecureGuestAuth`
	RegistryBlockNTLM       = `BlockNTLM`

	RegistryBitLockerPolicy = `SYSTEM\CurrentControlSet\Policies\Microsoft\FVE`
	// RegistryDenyWriteAccess is 1 if the group policy mounts fixed data drives read-only unless
	// BitLocker protects them.
	//
	// Source: https://learn.microsoft.com/windows/client-management/mdm/bitlocker-csp (FixedDrivesRequireEncryption)
	RegistryDenyWriteAccess = `FDVDenyWriteAccess`
)

// SANPolicy selects the disks to bring online on arrival (VDS_SAN_POLICY).
//
// Source: https://learn.microsoft.com/windows/win32/api/vds/ne-vds-vds_san_policy
type SANPolicy uint32

// SAN policies. A disk left offline is also read-only.
const (
	SANOnlineAll       SANPolicy = 1
	SANOfflineShared   SANPolicy = 2 // those on a shared bus, such as SAS, iSCSI or Fibre Channel, stay offline
	SANOfflineAll      SANPolicy = 3
	SANOfflineInternal SANPolicy = 4 // those on a bus that isn't shared stay offline
)
