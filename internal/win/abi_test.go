// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package win

import (
	"bytes"
	"slices"
	"testing"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-proxy/csi-proxy/internal/lab/abitest"
)

// What a C compiler made of the headers of Windows: see testdata/abi.
func loadABI(t *testing.T) *abitest.ABI {
	t.Helper()
	return abitest.Load(t, "testdata/abi")
}

func TestABIControlCodes(t *testing.T) {
	abi := loadABI(t)
	for code, name := range ioctlNames {
		if want := IoctlCode(abi.Value(name)); code != want {
			t.Errorf("%s is %#x; want %#x", name, uint32(code), uint32(want))
		}
	}
}

func TestABIConstants(t *testing.T) {
	loadABI(t).Check(abitest.Constants{
		"FILE_DEVICE_DISK": FileDeviceDisk,

		"PARTITION_STYLE_MBR":                      uint64(StyleMBR),
		"PARTITION_STYLE_GPT":                      uint64(StyleGPT),
		"PARTITION_STYLE_RAW":                      uint64(StyleRAW),
		"GPT_BASIC_DATA_ATTRIBUTE_READ_ONLY":       GPTAttributeReadOnly,
		"GPT_BASIC_DATA_ATTRIBUTE_HIDDEN":          GPTAttributeHidden,
		"GPT_BASIC_DATA_ATTRIBUTE_NO_DRIVE_LETTER": GPTAttributeNoDriveLetter,
		"DISK_ATTRIBUTE_OFFLINE":                   uint64(DiskOffline),
		"DISK_ATTRIBUTE_READ_ONLY":                 uint64(DiskReadOnly),

		"StorageDeviceProperty":          uint64(PropertyDevice),
		"StorageDeviceIdProperty":        uint64(PropertyDeviceID),
		"StorageAccessAlignmentProperty": uint64(PropertyAccessAlignment),
		"StorageDeviceLocationProperty":  uint64(PropertyDeviceLocation),

		"StorageDeviceProtocolSpecificProperty": uint64(PropertyProtocolSpecific),

		"StorageIdTypeVendorSpecific": uint64(IdentifierVendorSpecific),
		"StorageIdTypeVendorId":       uint64(IdentifierT10),
		"StorageIdTypeEUI64":          uint64(IdentifierEUI64),
		"StorageIdTypeFCPHName":       uint64(IdentifierNAA),
		"StorageIdTypePortRelative":   uint64(IdentifierRelativePort),

		"VOLUME_IS_DIRTY":       volumeIsDirty,
		"FILE_READ_ONLY_VOLUME": uint64(FileReadOnlyVolume),

		"StorageIdCodeSetBinary": uint64(CodeSetBinary),
		"StorageIdCodeSetAscii":  uint64(CodeSetASCII),
		"StorageIdCodeSetUtf8":   uint64(CodeSetUTF8),
		"StorageIdAssocDevice":   uint64(AssociationDevice),
		"StorageIdAssocPort":     uint64(AssociationPort),
		"StorageIdAssocTarget":   uint64(AssociationTarget),

		"BusTypeScsi":              uint64(BusTypeSCSI),
		"BusTypeiScsi":             uint64(BusTypeISCSI),
		"BusTypeSas":               uint64(BusTypeSAS),
		"BusTypeSata":              uint64(BusTypeSATA),
		"BusTypeVirtual":           uint64(BusTypeVirtual),
		"BusTypeFileBackedVirtual": uint64(BusTypeFileBackedVirtual),
		"BusTypeNvme":              uint64(BusTypeNVMe),

		"FILE_LIST_DIRECTORY":   uint64(FileListDirectory),
		"FILE_ADD_FILE":         uint64(FileAddFile),
		"FILE_ADD_SUBDIRECTORY": uint64(FileAddSubdirectory),
		"FILE_TRAVERSE":         uint64(FileTraverse),
		"FILE_READ_ATTRIBUTES":  uint64(FileReadAttributes),
		"FILE_WRITE_ATTRIBUTES": uint64(FileWriteAttributes),
		"DELETE":                uint64(Delete),
		"READ_CONTROL":          uint64(ReadControl),
		"WRITE_DAC":             uint64(WriteDAC),
		"SYNCHRONIZE":           uint64(Synchronize),
		"GENERIC_WRITE":         uint64(GenericWrite),
		"GENERIC_READ":          uint64(GenericRead),

		"FILE_SHARE_READ":              uint64(ShareRead),
		"FILE_SHARE_WRITE":             uint64(ShareWrite),
		"FILE_SHARE_DELETE":            uint64(ShareDelete),
		"FILE_OPEN":                    uint64(FileOpen),
		"FILE_CREATE":                  uint64(FileCreate),
		"FILE_OPEN_IF":                 uint64(FileOpenIf),
		"FILE_DIRECTORY_FILE":          uint64(FileDirectoryFile),
		"FILE_NON_DIRECTORY_FILE":      uint64(FileNonDirectoryFile),
		"FILE_OPEN_FOR_BACKUP_INTENT":  uint64(FileOpenForBackup),
		"FILE_OPEN_REPARSE_POINT":      uint64(FileOpenReparsePoint),
		"FILE_ATTRIBUTE_READONLY":      uint64(AttributeReadOnly),
		"FILE_ATTRIBUTE_DIRECTORY":     uint64(AttributeDirectory),
		"FILE_ATTRIBUTE_REPARSE_POINT": uint64(AttributeReparsePoint),

		"USE_OK":      uint64(SMBMappingOK),
		"USE_PAUSED":  uint64(SMBMappingPaused),
		"USE_DISCONN": uint64(SMBMappingDisconnected),
		"USE_NETERR":  uint64(SMBMappingNetworkError),
		"USE_CONN":    uint64(SMBMappingConnecting),
		"USE_RECONN":  uint64(SMBMappingReconnecting),

		"IO_REPARSE_TAG_MOUNT_POINT":       uint64(TagMountPoint),
		"IO_REPARSE_TAG_SYMLINK":           uint64(TagSymlink),
		"MAXIMUM_REPARSE_DATA_BUFFER_SIZE": MaximumReparseDataSize,
	})
}

func TestABIErrorNumbers(t *testing.T) {
	abi := loadABI(t)
	names := map[Errno]string{
		ErrorInvalidFunction:               "ERROR_INVALID_FUNCTION",
		ErrorFileNotFound:                  "ERROR_FILE_NOT_FOUND",
		ErrorPathNotFound:                  "ERROR_PATH_NOT_FOUND",
		ErrorAccessDenied:                  "ERROR_ACCESS_DENIED",
		ErrorInvalidHandle:                 "ERROR_INVALID_HANDLE",
		ErrorNotSameDevice:                 "ERROR_NOT_SAME_DEVICE",
		ErrorNoMoreFiles:                   "ERROR_NO_MORE_FILES",
		ErrorWriteProtect:                  "ERROR_WRITE_PROTECT",
		ErrorNotReady:                      "ERROR_NOT_READY",
		ErrorCRC:                           "ERROR_CRC",
		ErrorSectorNotFound:                "ERROR_SECTOR_NOT_FOUND",
		ErrorGenFailure:                    "ERROR_GEN_FAILURE",
		ErrorSharingViolation:              "ERROR_SHARING_VIOLATION",
		ErrorLockViolation:                 "ERROR_LOCK_VIOLATION",
		ErrorHandleEOF:                     "ERROR_HANDLE_EOF",
		ErrorNotSupported:                  "ERROR_NOT_SUPPORTED",
		ErrorBadNetPath:                    "ERROR_BAD_NETPATH",
		ErrorDevNotExist:                   "ERROR_DEV_NOT_EXIST",
		ErrorNetNameDeleted:                "ERROR_NETNAME_DELETED",
		ErrorBadNetName:                    "ERROR_BAD_NET_NAME",
		ErrorFileExists:                    "ERROR_FILE_EXISTS",
		ErrorInvalidPassword:               "ERROR_INVALID_PASSWORD",
		ErrorInvalidParameter:              "ERROR_INVALID_PARAMETER",
		ErrorDiskFull:                      "ERROR_DISK_FULL",
		ErrorSemTimeout:                    "ERROR_SEM_TIMEOUT",
		ErrorInsufficientBuffer:            "ERROR_INSUFFICIENT_BUFFER",
		ErrorInvalidName:                   "ERROR_INVALID_NAME",
		ErrorDirNotEmpty:                   "ERROR_DIR_NOT_EMPTY",
		ErrorLabelTooLong:                  "ERROR_LABEL_TOO_LONG",
		ErrorBusy:                          "ERROR_BUSY",
		ErrorAlreadyExists:                 "ERROR_ALREADY_EXISTS",
		ErrorFilenameExcedRange:            "ERROR_FILENAME_EXCED_RANGE",
		ErrorMoreData:                      "ERROR_MORE_DATA",
		ErrorNoMoreItems:                   "ERROR_NO_MORE_ITEMS",
		ErrorDirectory:                     "ERROR_DIRECTORY",
		ErrorDeletePending:                 "ERROR_DELETE_PENDING",
		ErrorDeviceRemoved:                 "ERROR_DEVICE_REMOVED",
		ErrorUnsupportedType:               "ERROR_UNSUPPORTED_TYPE",
		ErrorOperationAborted:              "ERROR_OPERATION_ABORTED",
		ErrorUnrecognizedVolume:            "ERROR_UNRECOGNIZED_VOLUME",
		ErrorFileInvalid:                   "ERROR_FILE_INVALID",
		ErrorServiceNotActive:              "ERROR_SERVICE_NOT_ACTIVE",
		ErrorIODevice:                      "ERROR_IO_DEVICE",
		ErrorDeviceNotConnected:            "ERROR_DEVICE_NOT_CONNECTED",
		ErrorNotFound:                      "ERROR_NOT_FOUND",
		ErrorRetry:                         "ERROR_RETRY",
		ErrorPrivilegeNotHeld:              "ERROR_PRIVILEGE_NOT_HELD",
		ErrorLogonFailure:                  "ERROR_LOGON_FAILURE",
		ErrorFileCorrupt:                   "ERROR_FILE_CORRUPT",
		ErrorDiskCorrupt:                   "ERROR_DISK_CORRUPT",
		ErrorNotAReparsePoint:              "ERROR_NOT_A_REPARSE_POINT",
		ErrorInvalidReparseData:            "ERROR_INVALID_REPARSE_DATA",
		ErrorReparseTagInvalid:             "ERROR_REPARSE_TAG_INVALID",
		ErrorReparseTagMismatch:            "ERROR_REPARSE_TAG_MISMATCH",
		ErrorReparsePointEncountered:       "ERROR_REPARSE_POINT_ENCOUNTERED",
		ErrorResourceNotAvailable:          "ERROR_RESOURCE_NOT_AVAILABLE",
		FVELockedVolume:                    "FVE_E_LOCKED_VOLUME",
		ErrorUnexpNetErr:                   "ERROR_UNEXP_NET_ERR",
		ErrorAlreadyAssigned:               "ERROR_ALREADY_ASSIGNED",
		ErrorModNotFound:                   "ERROR_MOD_NOT_FOUND",
		ErrorProcNotFound:                  "ERROR_PROC_NOT_FOUND",
		ErrorNoAccess:                      "ERROR_NOACCESS",
		ErrorDependentServicesRunning:      "ERROR_DEPENDENT_SERVICES_RUNNING",
		ErrorInvalidServiceControl:         "ERROR_INVALID_SERVICE_CONTROL",
		ErrorServiceRequestTimeout:         "ERROR_SERVICE_REQUEST_TIMEOUT",
		ErrorServiceAlreadyRunning:         "ERROR_SERVICE_ALREADY_RUNNING",
		ErrorServiceDisabled:               "ERROR_SERVICE_DISABLED",
		ErrorServiceDoesNotExist:           "ERROR_SERVICE_DOES_NOT_EXIST",
		ErrorServiceCannotAcceptCtrl:       "ERROR_SERVICE_CANNOT_ACCEPT_CTRL",
		ErrorServiceSpecificError:          "ERROR_SERVICE_SPECIFIC_ERROR",
		ErrorProcessAborted:                "ERROR_PROCESS_ABORTED",
		ErrorServiceDependencyFail:         "ERROR_SERVICE_DEPENDENCY_FAIL",
		ErrorServiceLogonFailed:            "ERROR_SERVICE_LOGON_FAILED",
		ErrorServiceMarkedForDelete:        "ERROR_SERVICE_MARKED_FOR_DELETE",
		ErrorShutdownInProgress:            "ERROR_SHUTDOWN_IN_PROGRESS",
		ErrorDeviceAlreadyRemembered:       "ERROR_DEVICE_ALREADY_REMEMBERED",
		ErrorNoNetOrBadPath:                "ERROR_NO_NET_OR_BAD_PATH",
		ErrorSessionCredentialConflict:     "ERROR_SESSION_CREDENTIAL_CONFLICT",
		ErrorNoNetwork:                     "ERROR_NO_NETWORK",
		ErrorNetworkUnreachable:            "ERROR_NETWORK_UNREACHABLE",
		ErrorHostUnreachable:               "ERROR_HOST_UNREACHABLE",
		ErrorDowngradeDetected:             "ERROR_DOWNGRADE_DETECTED",
		ErrorNoSuchLogonSession:            "ERROR_NO_SUCH_LOGON_SESSION",
		ErrorAccountRestriction:            "ERROR_ACCOUNT_RESTRICTION",
		ErrorPasswordExpired:               "ERROR_PASSWORD_EXPIRED",
		ErrorAccountDisabled:               "ERROR_ACCOUNT_DISABLED",
		ErrorLogonTypeNotGranted:           "ERROR_LOGON_TYPE_NOT_GRANTED",
		ErrorTrustedRelationshipFailure:    "ERROR_TRUSTED_RELATIONSHIP_FAILURE",
		ErrorPasswordMustChange:            "ERROR_PASSWORD_MUST_CHANGE",
		ErrorAccountLockedOut:              "ERROR_ACCOUNT_LOCKED_OUT",
		ErrorBadUsername:                   "ERROR_BAD_USERNAME",
		ErrorNotConnected:                  "ERROR_NOT_CONNECTED",
		ErrorOpenFiles:                     "ERROR_OPEN_FILES",
		ErrorDeviceInUse:                   "ERROR_DEVICE_IN_USE",
		ErrorNotEnoughMemory:               "ERROR_NOT_ENOUGH_MEMORY",
		ErrorRemNotList:                    "ERROR_REM_NOT_LIST",
		ErrorNetworkBusy:                   "ERROR_NETWORK_BUSY",
		ErrorTooManyCmds:                   "ERROR_TOO_MANY_CMDS",
		ErrorSharingPaused:                 "ERROR_SHARING_PAUSED",
		ErrorReqNotAccep:                   "ERROR_REQ_NOT_ACCEP",
		ErrorConnectionRefused:             "ERROR_CONNECTION_REFUSED",
		ErrorPortUnreachable:               "ERROR_PORT_UNREACHABLE",
		ErrorConnectionAborted:             "ERROR_CONNECTION_ABORTED",
		ErrorNoLogonServers:                "ERROR_NO_LOGON_SERVERS",
		ErrorNoSystemResources:             "ERROR_NO_SYSTEM_RESOURCES",
		ErrorTimeout:                       "ERROR_TIMEOUT",
		ISDSCShortCHAPSecret:               "ISDSC_SHORT_CHAP_SECRET",
		ISDSCInvalidSessionID:              "ISDSC_INVALID_SESSION_ID",
		ISDSCInvalidCHAPSecret:             "ISDSC_INVALID_CHAP_SECRET",
		ISDSCLoginFailed:                   "ISDSC_LOGIN_FAILED",
		ISDSCConnectionFailed:              "ISDSC_CONNECTION_FAILED",
		ISDSCAuthenticationFailed:          "ISDSC_AUTHENTICATION_FAILED",
		ISDSCAuthorizationFailed:           "ISDSC_AUTHORIZATION_FAILED",
		ISDSCNotFound:                      "ISDSC_NOT_FOUND",
		ISDSCServiceUnavailable:            "ISDSC_SERVICE_UNAVAILABLE",
		ISDSCSessionAlreadyExists:          "ISDSC_SESSION_ALREADY_EXISTS",
		ISDSCSessionBusy:                   "ISDSC_SESSION_BUSY",
		ISDSCLogonFailed:                   "ISDSC_LOGON_FAILED",
		ISDSCTransportError:                "ISDSC_TRANSPORT_ERROR",
		ISDSCAuthInfoUnavailable:           "ISDSC_AUTHINFO_UNAVAILABLE",
		ISDSCTargetNotFound:                "ISDSC_TARGET_NOT_FOUND",
		ISDSCLoginUserInfoBad:              "ISDSC_LOGIN_USER_INFO_BAD",
		ISDSCTargetPortalAlreadyExists:     "ISDSC_TARGET_PORTAL_ALREADY_EXISTS",
		ISDSCRequestNotSupported:           "ISDSC_REQUEST_NOT_SUPPORTED",
		ISDSCDidNotRespond:                 "ISDSC_DID_NOT_RESPOND",
		ISDSCNoPortalSpecified:             "ISDSC_NO_PORTAL_SPECIFIED",
		ISDSCServiceNotRunning:             "ISDSC_SERVICE_NOT_RUNNING",
		ISDSCTargetAlreadyLoggedIn:         "ISDSC_TARGET_ALREADY_LOGGED_IN",
		ISDSCDeviceBusyOnSession:           "ISDSC_DEVICE_BUSY_ON_SESSION",
		ISDSCCouldNotSavePersistentLogin:   "ISDSC_COULD_NOT_SAVE_PERSISTENT_LOGIN",
		ISDSCCouldNotRemovePersistentLogin: "ISDSC_COULD_NOT_REMOVE_PERSISTENT_LOGIN",
		ISDSCPortalNotFound:                "ISDSC_PORTAL_NOT_FOUND",
		ISDSCInitiatorNotFound:             "ISDSC_INITIATOR_NOT_FOUND",
		ISDSCInvalidISCSIName:              "ISDSC_INVALID_ISCSI_NAME",
		ISDSCBufferTooSmall:                "ISDSC_BUFFER_TOO_SMALL",
		ISDSCDeviceNotFound:                "ISDSC_DEVICE_NOT_FOUND",
		ISDSCDNSNameUnresolved:             "ISDSC_DNS_NAME_UNRESOLVED",
		ISDSCRemoveConnectionInProgress:    "ISDSC_REMOVE_CONNECTION_IN_PROGRESS",
	}
	for e, name := range names {
		if want := Errno(abi.Value(name)); e != want {
			t.Errorf("%s is %d; want %d", name, uint32(e), uint32(want))
		}
	}
	// ERROR_NO_SUCH_DEVICE and ERROR_DEVICE_HARDWARE_ERROR aren't in mingw-w64's headers.
	missing := []Errno{ErrorNoSuchDevice, ErrorDeviceHardware}
	for e, text := range errnoText {
		if names[e] == "" && !slices.Contains(missing, e) {
			t.Errorf("the number of %q isn't compared with the headers", text)
		}
	}
}

func TestABIGUIDs(t *testing.T) {
	abi := loadABI(t)
	for name, g := range map[string]GUID{
		"GUID_DEVINTERFACE_DISK":        InterfaceClassDisk,
		"GUID_DEVINTERFACE_VOLUME":      InterfaceClassVolume,
		"GUID_DEVINTERFACE_STORAGEPORT": InterfaceClassStoragePort,
		"PARTITION_BASIC_DATA_GUID":     PartitionTypeBasicData,
		"PARTITION_MSFT_RESERVED_GUID":  PartitionTypeMicrosoftReserved,
		"PARTITION_SYSTEM_GUID":         PartitionTypeEFISystem,
	} {
		if want := GUID(abi.Sample(name)); g != want {
			t.Errorf("%s is %v; want %v", name, g, want)
		}
	}
}

// The values of the structures in samples.txt.
var (
	sampleID        = GUID{0x33, 0x22, 0x11, 0x00, 0x55, 0x44, 0x77, 0x66, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}
	sampleLayoutGPT = &DriveLayout{
		Style: StyleGPT, DiskID: sampleID,
		StartingUsableOffset: 17408, UsableLength: 0x123456789abcde00, MaxPartitionCount: 128,
		Partitions: []Partition{
			{
				Style: StyleGPT, StartingOffset: 17408, Length: 16759808, Number: 1, RewritePartition: true,
				Type: PartitionTypeMicrosoftReserved, ID: sampleID, Name: "Microsoft reserved partition",
			},
			{
				Style: StyleGPT, StartingOffset: 16 << 20, Length: 0x0fedcba987654200, Number: 2,
				Type: PartitionTypeBasicData, ID: PartitionTypeEFISystem,
				Attributes: GPTAttributeNoDriveLetter, Name: "an odd name of 36 UTF-16 units: \U0001f4be é",
			},
		},
	}
	sampleLayoutMBR = &DriveLayout{
		Style: StyleMBR, Signature: 0x89abcdef,
		Partitions: []Partition{{
			Style: StyleMBR, StartingOffset: 1 << 20, Length: 1 << 30, Number: 1, RewritePartition: true,
			MBRType: 7, BootIndicator: true,
		}},
	}
	sampleCreateDisk    = CreateDisk{StyleGPT, sampleID, 128}
	sampleGrowPartition = GrowPartition{3, 0x123456789a}
	sampleLength        = int64(0x123456789abcdef0)
	sampleDeviceNumber  = DeviceNumber{FileDeviceDisk, 5, 2}
	sampleSCSIAddress   = SCSIAddress{1, 2, 3, 4}
	sampleGeometry      = DiskGeometryEx{512, 1 << 30}
	sampleSetAttributes = SetDiskAttributes{true, DiskOffline, DiskOffline | DiskReadOnly}
	sampleExtents       = []DiskExtent{{1, 16 << 20, 0x123456789a}, {2, 1 << 20, 512}}
	sampleNTFS          = FileSystemData{0x1234567890, 0x246824682, 0x12345, 512, 4096}
	sampleREFS          = FileSystemData{0x1234567890, 0x246824682, 0x12345, 4096, 65536}
	sampleDescriptor    = DeviceDescriptor{true, BusTypeFileBackedVirtual, "Msft", "Virtual Disk", "1.0", " 12345 "}
	sampleLocation      = DeviceLocation{1, 2, 3, 4, "Integrated : Adapter 1 : Port 2 : Target 3 : LUN 4"}
	sampleIdentifier    = Identifier{CodeSetBinary, IdentifierNAA, AssociationDevice, []byte{0x60, 1, 2, 3, 4, 5, 6, 7}}
	sampleNamespace     = NVMeNamespace{
		[16]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, [8]byte{21, 22, 23, 24, 25, 26, 27, 28},
	}
	sampleSymlink    = ReparsePoint{Tag: TagSymlink, SubstituteName: "0123456789", PrintName: "abcdef", Relative: true}
	sampleMountPoint = ReparsePoint{Tag: TagMountPoint, SubstituteName: "0123456789", PrintName: "abcdef"}
)

// reparseSample puts the names of the sample into PathBuffer.
func reparseSample(abi *abitest.ABI, sample, pathBuffer string) []byte {
	b := abi.Sample(sample)[:abi.Offset(pathBuffer)]
	for _, u := range utf16.Encode([]rune("0123456789\x00abcdef\x00")) {
		b = le.AppendUint16(b, u)
	}
	return b
}

// deviceIDSample has the sample identifier twice.
func deviceIDSample(abi *abitest.ABI) []byte {
	identifier := append(abi.Sample("identifier")[:abi.Offset("STORAGE_IDENTIFIER.Identifier")], sampleIdentifier.ID...)
	last := slices.Clone(identifier)
	le.PutUint16(last[abi.Offset("STORAGE_IDENTIFIER.NextOffset"):], 0)
	b := abi.Sample("device_ids")[:abi.Offset("STORAGE_DEVICE_ID_DESCRIPTOR.Identifiers")]
	b = append(append(b, identifier...), last...)
	le.PutUint32(b[abi.Offset("STORAGE_DEVICE_ID_DESCRIPTOR.Size"):], uint32(len(b)))
	return b
}

func TestABIEncode(t *testing.T) {
	abi := loadABI(t)
	samples := map[string][]byte{
		"layout_gpt":          sampleLayoutGPT.Encode(),
		"layout_mbr":          sampleLayoutMBR.Encode(),
		"create_disk":         sampleCreateDisk.Encode(),
		"grow_partition":      sampleGrowPartition.Encode(),
		"length":              EncodeInt64(sampleLength),
		"device_number":       sampleDeviceNumber.Encode(),
		"property_query":      EncodePropertyQuery(PropertyDeviceLocation),
		"scsi_address":        sampleSCSIAddress.Encode(),
		"geometry":            sampleGeometry.Encode(),
		"get_disk_attributes": EncodeGetDiskAttributes(DiskOffline | DiskReadOnly),
		"set_disk_attributes": sampleSetAttributes.Encode(),
		"extents":             EncodeDiskExtents(sampleExtents),
		"ntfs_volume_data":    EncodeNTFSVolumeData(sampleNTFS),

		"nvme_namespace_query": EncodeNVMeNamespaceQuery(3),
		"nvme_namespace":       EncodeNVMeNamespace(3, sampleNamespace),
	}
	for name, got := range samples {
		if want := abi.Sample(name); !bytes.Equal(got, want) {
			t.Errorf("%s is\n%x; want\n%x", name, got, want)
		}
	}
	if got, want := EncodeDeviceIDs([]Identifier{sampleIdentifier, sampleIdentifier}), deviceIDSample(abi); !bytes.Equal(got, want) {
		t.Errorf("device_ids is\n%x; want\n%x", got, want)
	}
	for _, tt := range []struct {
		sample, pathBuffer string
		point              ReparsePoint
	}{
		{"reparse_symlink", "REPARSE_DATA_BUFFER.SymbolicLinkReparseBuffer.PathBuffer", sampleSymlink},
		{"reparse_mount_point", "REPARSE_DATA_BUFFER.MountPointReparseBuffer.PathBuffer", sampleMountPoint},
	} {
		if got, want := tt.point.Encode(), reparseSample(abi, tt.sample, tt.pathBuffer); !bytes.Equal(got, want) {
			t.Errorf("%s is\n%x; want\n%x", tt.sample, got, want)
		}
	}
}

func TestABIDecode(t *testing.T) {
	abi := loadABI(t)
	check := func(name string, got any, err error, want any) {
		t.Helper()
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got)\n%s", name, err, diff)
		}
	}
	layout, err := DecodeDriveLayout(abi.Sample("layout_gpt"))
	check("layout_gpt", layout, err, sampleLayoutGPT)
	layout, err = DecodeDriveLayout(abi.Sample("layout_mbr"))
	check("layout_mbr", layout, err, sampleLayoutMBR)
	createDisk, err := DecodeCreateDisk(abi.Sample("create_disk"))
	check("create_disk", createDisk, err, sampleCreateDisk)
	growPartition, err := DecodeGrowPartition(abi.Sample("grow_partition"))
	check("grow_partition", growPartition, err, sampleGrowPartition)
	length, err := DecodeInt64(abi.Sample("length"))
	check("length", length, err, sampleLength)
	number, err := DecodeDeviceNumber(abi.Sample("device_number"))
	check("device_number", number, err, sampleDeviceNumber)
	property, err := DecodePropertyQuery(abi.Sample("property_query"))
	check("property_query", property, err, PropertyDeviceLocation)
	address, err := DecodeSCSIAddress(abi.Sample("scsi_address"))
	check("scsi_address", address, err, sampleSCSIAddress)
	geometry, err := DecodeDiskGeometryEx(abi.Sample("geometry"))
	check("geometry", geometry, err, sampleGeometry)
	attributes, err := DecodeGetDiskAttributes(abi.Sample("get_disk_attributes"))
	check("get_disk_attributes", attributes, err, DiskOffline|DiskReadOnly)
	setAttributes, err := DecodeSetDiskAttributes(abi.Sample("set_disk_attributes"))
	check("set_disk_attributes", setAttributes, err, sampleSetAttributes)
	extents, err := DecodeDiskExtents(abi.Sample("extents"))
	check("extents", extents, err, sampleExtents)
	ntfs, err := DecodeNTFSVolumeData(abi.Sample("ntfs_volume_data"))
	check("ntfs_volume_data", ntfs, err, sampleNTFS)
	refs, err := DecodeREFSVolumeData(abi.Sample("refs_volume_data"))
	check("refs_volume_data", refs, err, sampleREFS)
	descriptor, err := DecodeDeviceDescriptor(abi.Sample("device_descriptor"))
	check("device_descriptor", descriptor, err, sampleDescriptor)
	namespaceID, err := DecodeNVMeNamespaceQuery(abi.Sample("nvme_namespace_query"))
	check("nvme_namespace_query", namespaceID, err, uint32(3))
	namespace, err := DecodeNVMeNamespace(abi.Sample("nvme_namespace"))
	check("nvme_namespace", namespace, err, sampleNamespace)
	location, err := DecodeDeviceLocation(abi.Sample("device_location"))
	check("device_location", location, err, sampleLocation)
	ids, err := DecodeDeviceIDs(deviceIDSample(abi))
	check("device_ids", ids, err, []Identifier{sampleIdentifier, sampleIdentifier})
	point, err := DecodeReparsePoint(reparseSample(abi, "reparse_symlink", "REPARSE_DATA_BUFFER.SymbolicLinkReparseBuffer.PathBuffer"))
	check("reparse_symlink", point, err, sampleSymlink)
	point, err = DecodeReparsePoint(reparseSample(abi, "reparse_mount_point", "REPARSE_DATA_BUFFER.MountPointReparseBuffer.PathBuffer"))
	check("reparse_mount_point", point, err, sampleMountPoint)
}

func TestABISizes(t *testing.T) {
	abi := loadABI(t)
	for structure, got := range map[string]int{
		"STORAGE_DEVICE_NUMBER":              len(DeviceNumber{}.Encode()),
		"STORAGE_PROPERTY_QUERY":             len(EncodePropertyQuery(0)),
		"STORAGE_DEVICE_DESCRIPTOR":          len(DeviceDescriptor{}.Encode()),
		"STORAGE_DEVICE_LOCATION_DESCRIPTOR": locationSize,
		"SCSI_ADDRESS":                       len(SCSIAddress{}.Encode()),
		"DISK_GEOMETRY":                      DiskGeometrySize,
		"DISK_GEOMETRY_EX":                   len(DiskGeometryEx{}.Encode()),
		"GET_LENGTH_INFORMATION":             len(EncodeInt64(0)),
		"GET_DISK_ATTRIBUTES":                len(EncodeGetDiskAttributes(0)),
		"SET_DISK_ATTRIBUTES":                setDiskAttributesSize,
		"CREATE_DISK":                        len(CreateDisk{}.Encode()),
		"DISK_GROW_PARTITION":                len(GrowPartition{}.Encode()),
		"DRIVE_LAYOUT_INFORMATION_EX":        layoutHeaderSize + partitionSize, // with one entry
		"PARTITION_INFORMATION_EX":           partitionSize,
		"DISK_EXTENT":                        extentSize,
		"NTFS_VOLUME_DATA_BUFFER":            ntfsDataSize,
		"REFS_VOLUME_DATA_BUFFER":            refsDataSize,
	} {
		if want := abi.Size(structure); got != want {
			t.Errorf("%s takes %d bytes; want %d", structure, got, want)
		}
	}
}

// Each field is at its offset: a structure whose field has the value 1 differs from
// one where it has 0 first there.
func TestABIOffsets(t *testing.T) {
	abi := loadABI(t)
	gpt := func(l DriveLayout) []byte { l.Style = StyleGPT; return l.Encode() }
	mbr := func(l DriveLayout) []byte { l.Style = StyleMBR; return l.Encode() }
	partition := func(style PartitionStyle, p Partition) []byte {
		p.Style = style
		b := make([]byte, partitionSize)
		p.encode(b)
		return b
	}
	one := GUID{1}
	fields := []struct {
		name      string
		zero, one []byte
	}{
		{"STORAGE_DEVICE_NUMBER.DeviceType", DeviceNumber{}.Encode(), DeviceNumber{DeviceType: 1}.Encode()},
		{"STORAGE_DEVICE_NUMBER.DeviceNumber", DeviceNumber{}.Encode(), DeviceNumber{DeviceNumber: 1}.Encode()},
		{"STORAGE_DEVICE_NUMBER.PartitionNumber", DeviceNumber{}.Encode(), DeviceNumber{PartitionNumber: 1}.Encode()},
		{"STORAGE_PROPERTY_QUERY.PropertyId", EncodePropertyQuery(0), EncodePropertyQuery(1)},
		{"STORAGE_DEVICE_DESCRIPTOR.RemovableMedia", DeviceDescriptor{}.Encode(), DeviceDescriptor{RemovableMedia: true}.Encode()},
		{"STORAGE_DEVICE_DESCRIPTOR.BusType", DeviceDescriptor{}.Encode(), DeviceDescriptor{BusType: 1}.Encode()},
		{"STORAGE_DEVICE_LOCATION_DESCRIPTOR.Location.Adapter", DeviceLocation{}.Encode(), DeviceLocation{Adapter: 1}.Encode()},
		{"STORAGE_DEVICE_LOCATION_DESCRIPTOR.Location.Port", DeviceLocation{}.Encode(), DeviceLocation{Port: 1}.Encode()},
		{"STORAGE_DEVICE_LOCATION_DESCRIPTOR.Location.Target", DeviceLocation{}.Encode(), DeviceLocation{Target: 1}.Encode()},
		{"STORAGE_DEVICE_LOCATION_DESCRIPTOR.Location.Lun", DeviceLocation{}.Encode(), DeviceLocation{LUN: 1}.Encode()},
		{"SCSI_ADDRESS.PortNumber", SCSIAddress{}.Encode(), SCSIAddress{PortNumber: 1}.Encode()},
		{"SCSI_ADDRESS.PathId", SCSIAddress{}.Encode(), SCSIAddress{PathID: 1}.Encode()},
		{"SCSI_ADDRESS.TargetId", SCSIAddress{}.Encode(), SCSIAddress{TargetID: 1}.Encode()},
		{"SCSI_ADDRESS.Lun", SCSIAddress{}.Encode(), SCSIAddress{LUN: 1}.Encode()},
		{"DISK_GEOMETRY_EX.Geometry.BytesPerSector", DiskGeometryEx{}.Encode(), DiskGeometryEx{BytesPerSector: 1}.Encode()},
		{"DISK_GEOMETRY_EX.DiskSize", DiskGeometryEx{}.Encode(), DiskGeometryEx{DiskSize: 1}.Encode()},
		{"GET_DISK_ATTRIBUTES.Attributes", EncodeGetDiskAttributes(0), EncodeGetDiskAttributes(1)},
		{"SET_DISK_ATTRIBUTES.Persist", SetDiskAttributes{}.Encode(), SetDiskAttributes{Persist: true}.Encode()},
		{"SET_DISK_ATTRIBUTES.Attributes", SetDiskAttributes{}.Encode(), SetDiskAttributes{Attributes: 1}.Encode()},
		{"SET_DISK_ATTRIBUTES.AttributesMask", SetDiskAttributes{}.Encode(), SetDiskAttributes{Mask: 1}.Encode()},
		{"CREATE_DISK.PartitionStyle", CreateDisk{}.Encode(), CreateDisk{Style: 1}.Encode()},
		{"CREATE_DISK.Gpt.DiskId", CreateDisk{}.Encode(), CreateDisk{DiskID: one}.Encode()},
		{"CREATE_DISK.Gpt.MaxPartitionCount", CreateDisk{}.Encode(), CreateDisk{MaxPartitionCount: 1}.Encode()},
		{"DISK_GROW_PARTITION.PartitionNumber", GrowPartition{}.Encode(), GrowPartition{PartitionNumber: 1}.Encode()},
		{"DISK_GROW_PARTITION.BytesToGrow", GrowPartition{}.Encode(), GrowPartition{BytesToGrow: 1}.Encode()},
		{"DRIVE_LAYOUT_INFORMATION_EX.PartitionStyle", mbr(DriveLayout{}), gpt(DriveLayout{})},
		{"DRIVE_LAYOUT_INFORMATION_EX.PartitionCount", gpt(DriveLayout{}), gpt(DriveLayout{Partitions: []Partition{{}}})},
		{"DRIVE_LAYOUT_INFORMATION_EX.Gpt.DiskId", gpt(DriveLayout{}), gpt(DriveLayout{DiskID: one})},
		{"DRIVE_LAYOUT_INFORMATION_EX.Gpt.StartingUsableOffset", gpt(DriveLayout{}), gpt(DriveLayout{StartingUsableOffset: 1})},
		{"DRIVE_LAYOUT_INFORMATION_EX.Gpt.UsableLength", gpt(DriveLayout{}), gpt(DriveLayout{UsableLength: 1})},
		{"DRIVE_LAYOUT_INFORMATION_EX.Gpt.MaxPartitionCount", gpt(DriveLayout{}), gpt(DriveLayout{MaxPartitionCount: 1})},
		{"DRIVE_LAYOUT_INFORMATION_EX.Mbr.Signature", mbr(DriveLayout{}), mbr(DriveLayout{Signature: 1})},
		{"DRIVE_LAYOUT_INFORMATION_EX.PartitionEntry", gpt(DriveLayout{Partitions: []Partition{{}}}), gpt(DriveLayout{Partitions: []Partition{{Style: 1}}})},
		{"PARTITION_INFORMATION_EX.PartitionStyle", partition(StyleMBR, Partition{}), partition(StyleGPT, Partition{})},
		{"PARTITION_INFORMATION_EX.StartingOffset", partition(StyleGPT, Partition{}), partition(StyleGPT, Partition{StartingOffset: 1})},
		{"PARTITION_INFORMATION_EX.PartitionLength", partition(StyleGPT, Partition{}), partition(StyleGPT, Partition{Length: 1})},
		{"PARTITION_INFORMATION_EX.PartitionNumber", partition(StyleGPT, Partition{}), partition(StyleGPT, Partition{Number: 1})},
		{"PARTITION_INFORMATION_EX.RewritePartition", partition(StyleGPT, Partition{}), partition(StyleGPT, Partition{RewritePartition: true})},
		{"PARTITION_INFORMATION_EX.Gpt.PartitionType", partition(StyleGPT, Partition{}), partition(StyleGPT, Partition{Type: one})},
		{"PARTITION_INFORMATION_EX.Gpt.PartitionId", partition(StyleGPT, Partition{}), partition(StyleGPT, Partition{ID: one})},
		{"PARTITION_INFORMATION_EX.Gpt.Attributes", partition(StyleGPT, Partition{}), partition(StyleGPT, Partition{Attributes: 1})},
		{"PARTITION_INFORMATION_EX.Gpt.Name", partition(StyleGPT, Partition{}), partition(StyleGPT, Partition{Name: "\x01"})},
		{"PARTITION_INFORMATION_EX.Mbr.PartitionType", partition(StyleMBR, Partition{}), partition(StyleMBR, Partition{MBRType: 1})},
		{"PARTITION_INFORMATION_EX.Mbr.BootIndicator", partition(StyleMBR, Partition{}), partition(StyleMBR, Partition{BootIndicator: true})},
		{"VOLUME_DISK_EXTENTS.Extents", EncodeDiskExtents([]DiskExtent{{}}), EncodeDiskExtents([]DiskExtent{{DiskNumber: 1}})},
		{"NTFS_VOLUME_DATA_BUFFER.NumberSectors", EncodeNTFSVolumeData(FileSystemData{}), EncodeNTFSVolumeData(FileSystemData{NumberSectors: 1})},
		{"NTFS_VOLUME_DATA_BUFFER.TotalClusters", EncodeNTFSVolumeData(FileSystemData{}), EncodeNTFSVolumeData(FileSystemData{TotalClusters: 1})},
		{"NTFS_VOLUME_DATA_BUFFER.FreeClusters", EncodeNTFSVolumeData(FileSystemData{}), EncodeNTFSVolumeData(FileSystemData{FreeClusters: 1})},
		{"NTFS_VOLUME_DATA_BUFFER.BytesPerSector", EncodeNTFSVolumeData(FileSystemData{}), EncodeNTFSVolumeData(FileSystemData{BytesPerSector: 1})},
		{"NTFS_VOLUME_DATA_BUFFER.BytesPerCluster", EncodeNTFSVolumeData(FileSystemData{}), EncodeNTFSVolumeData(FileSystemData{BytesPerCluster: 1})},
	}
	for _, f := range fields {
		got := 0
		for got < len(f.zero) && f.zero[got] == f.one[got] {
			got++
		}
		if want := abi.Offset(f.name); got != want {
			t.Errorf("%s is at %d; want %d", f.name, got, want)
		}
	}
}
