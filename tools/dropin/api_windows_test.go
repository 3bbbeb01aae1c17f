// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Code generated from csi-proxy@874f535 by ./published. DO NOT EDIT.

package dropin

import (
	context "context"
	disk "github.com/kubernetes-csi/csi-proxy/v2/pkg/disk"
	diskapi "github.com/kubernetes-csi/csi-proxy/v2/pkg/disk/hostapi"
	filesystem "github.com/kubernetes-csi/csi-proxy/v2/pkg/filesystem"
	filesystemapi "github.com/kubernetes-csi/csi-proxy/v2/pkg/filesystem/hostapi"
	iscsi "github.com/kubernetes-csi/csi-proxy/v2/pkg/iscsi"
	iscsiapi "github.com/kubernetes-csi/csi-proxy/v2/pkg/iscsi/hostapi"
	smb "github.com/kubernetes-csi/csi-proxy/v2/pkg/smb"
	smbapi "github.com/kubernetes-csi/csi-proxy/v2/pkg/smb/hostapi"
	system "github.com/kubernetes-csi/csi-proxy/v2/pkg/system"
	systemapi "github.com/kubernetes-csi/csi-proxy/v2/pkg/system/hostapi"
	utils "github.com/kubernetes-csi/csi-proxy/v2/pkg/utils"
	volume "github.com/kubernetes-csi/csi-proxy/v2/pkg/volume"
	volumeapi "github.com/kubernetes-csi/csi-proxy/v2/pkg/volume/hostapi"
	wmi "github.com/kubernetes-csi/csi-proxy/v2/pkg/wmi"
	regexp "regexp"
	syscall "syscall"
)

// pkg/utils
var _ func(link string, target string, isDir bool) error = utils.CreateSymlink
var _ func(path string) string = utils.EnsureLongPath
var _ func(path string) (bool, error) = utils.IsMountedFolder
var _ func(path string) (bool, error) = utils.IsPathSymlink
var _ func(path string) (bool, error) = utils.IsPathValid
var _ = map[bool]string{false: utils.LongPathPrefix, utils.LongPathPrefix == "\\\\?\\": utils.LongPathPrefix}
var _ = map[bool]int{false: utils.MaxPathLengthWindows, utils.MaxPathLengthWindows == 260: utils.MaxPathLengthWindows}
var _ func(path string) (bool, error) = utils.PathExists

// pkg/disk/hostapi
var _ = (*byte)((*diskapi.AdditionalParameters)(nil))
var _ = (*uint32)((*diskapi.DeviceType)(nil))
var _ = (*struct {
	Path         string "json:\"Path\""
	SerialNumber string "json:\"SerialNumber\""
})((*diskapi.Disk)(nil))
var _ diskapi.DiskAPI
var _ func(diskapi.DiskAPI, uint32) (bool, error) = (diskapi.DiskAPI).BasicPartitionsExist
var _ func(diskapi.DiskAPI, uint32) error = (diskapi.DiskAPI).CreateBasicPartition
var _ func(diskapi.DiskAPI, syscall.Handle) (uint32, error) = (diskapi.DiskAPI).GetDiskNumber
var _ func(diskapi.DiskAPI, string) (uint32, string, error) = (diskapi.DiskAPI).GetDiskNumberAndPage83ID
var _ func(diskapi.DiskAPI, string) (uint32, error) = (diskapi.DiskAPI).GetDiskNumberWithID
var _ func(diskapi.DiskAPI, syscall.Handle) (string, error) = (diskapi.DiskAPI).GetDiskPage83ID
var _ func(diskapi.DiskAPI, uint32) (bool, error) = (diskapi.DiskAPI).GetDiskReadOnly
var _ func(diskapi.DiskAPI, uint32) (bool, error) = (diskapi.DiskAPI).GetDiskState
var _ func(diskapi.DiskAPI, uint32) (size int64, err error) = (diskapi.DiskAPI).GetDiskStats
var _ func(diskapi.DiskAPI, uint32) error = (diskapi.DiskAPI).InitializeDisk
var _ func(diskapi.DiskAPI, uint32) (bool, error) = (diskapi.DiskAPI).IsDiskInitialized
var _ func(diskapi.DiskAPI) (map[uint32]diskapi.DiskIDs, error) = (diskapi.DiskAPI).ListDiskIDs
var _ func(diskapi.DiskAPI) (map[uint32]diskapi.DiskLocation, error) = (diskapi.DiskAPI).ListDiskLocations
var _ func(diskapi.DiskAPI) error = (diskapi.DiskAPI).Rescan
var _ func(diskapi.DiskAPI, uint32, bool) error = (diskapi.DiskAPI).SetDiskReadOnly
var _ func(diskapi.DiskAPI, uint32, bool) error = (diskapi.DiskAPI).SetDiskState
var _ = (*struct {
	Page83       string
	SerialNumber string
})((*diskapi.DiskIDs)(nil))
var _ = (*struct {
	Adapter string
	Bus     string
	Target  string
	LUNID   string
})((*diskapi.DiskLocation)(nil))
var _ = (*interface {
	BasicPartitionsExist(diskNumber uint32) (bool, error)
	CreateBasicPartition(diskNumber uint32) error
	GetDiskReadOnly(diskNumber uint32) (bool, error)
	GetDiskState(diskNumber uint32) (bool, error)
	GetDiskStats(diskNumber uint32) (int64, error)
	InitializeDisk(diskNumber uint32) error
	IsDiskInitialized(diskNumber uint32) (bool, error)
	ListDiskIDs() (map[uint32]diskapi.DiskIDs, error)
	ListDiskLocations() (map[uint32]diskapi.DiskLocation, error)
	Rescan() error
	SetDiskReadOnly(diskNumber uint32, isReadOnly bool) error
	SetDiskState(diskNumber uint32, isOnline bool) error
})((*diskapi.HostAPI)(nil))
var _ = map[bool]int{false: diskapi.IOCTL_STORAGE_GET_DEVICE_NUMBER, diskapi.IOCTL_STORAGE_GET_DEVICE_NUMBER == 2953344: diskapi.IOCTL_STORAGE_GET_DEVICE_NUMBER}
var _ = map[bool]int{false: diskapi.IOCTL_STORAGE_QUERY_PROPERTY, diskapi.IOCTL_STORAGE_QUERY_PROPERTY == 2954240: diskapi.IOCTL_STORAGE_QUERY_PROPERTY}
var _ func() diskapi.DiskAPI = diskapi.New
var _ = map[bool]diskapi.StorageQueryType{false: diskapi.PropertyExistsQuery, diskapi.PropertyExistsQuery == 1: diskapi.PropertyExistsQuery}
var _ = map[bool]diskapi.StorageQueryType{false: diskapi.PropertyMaskQuery, diskapi.PropertyMaskQuery == 2: diskapi.PropertyMaskQuery}
var _ = map[bool]diskapi.StorageQueryType{false: diskapi.PropertyQueryMaxDefined, diskapi.PropertyQueryMaxDefined == 3: diskapi.PropertyQueryMaxDefined}
var _ = map[bool]diskapi.StorageQueryType{false: diskapi.PropertyStandardQuery, diskapi.PropertyStandardQuery == 0: diskapi.PropertyStandardQuery}
var _ = map[bool]diskapi.StoragePropertyID{false: diskapi.StorageAccessAlignmentProperty, diskapi.StorageAccessAlignmentProperty == 6: diskapi.StorageAccessAlignmentProperty}
var _ = map[bool]diskapi.StoragePropertyID{false: diskapi.StorageAdapterCryptoProperty, diskapi.StorageAdapterCryptoProperty == 17: diskapi.StorageAdapterCryptoProperty}
var _ = map[bool]diskapi.StoragePropertyID{false: diskapi.StorageAdapterPhysicalTopologyProperty, diskapi.StorageAdapterPhysicalTopologyProperty == 23: diskapi.StorageAdapterPhysicalTopologyProperty}
var _ = map[bool]diskapi.StoragePropertyID{false: diskapi.StorageAdapterProperty, diskapi.StorageAdapterProperty == 1: diskapi.StorageAdapterProperty}
var _ = map[bool]diskapi.StoragePropertyID{false: diskapi.StorageAdapterProtocolSpecificProperty, diskapi.StorageAdapterProtocolSpecificProperty == 19: diskapi.StorageAdapterProtocolSpecificProperty}
var _ = map[bool]diskapi.StoragePropertyID{false: diskapi.StorageAdapterRpmbProperty, diskapi.StorageAdapterRpmbProperty == 16: diskapi.StorageAdapterRpmbProperty}
var _ = map[bool]diskapi.StoragePropertyID{false: diskapi.StorageAdapterSerialNumberProperty, diskapi.StorageAdapterSerialNumberProperty == 27: diskapi.StorageAdapterSerialNumberProperty}
var _ = map[bool]diskapi.StoragePropertyID{false: diskapi.StorageAdapterTemperatureProperty, diskapi.StorageAdapterTemperatureProperty == 21: diskapi.StorageAdapterTemperatureProperty}
var _ = (*uint32)((*diskapi.StorageAssociationType)(nil))
var _ = map[bool]diskapi.StoragePropertyID{false: diskapi.StorageDeviceAttributesProperty, diskapi.StorageDeviceAttributesProperty == 25: diskapi.StorageDeviceAttributesProperty}
var _ = map[bool]diskapi.StoragePropertyID{false: diskapi.StorageDeviceCopyOffloadProperty, diskapi.StorageDeviceCopyOffloadProperty == 13: diskapi.StorageDeviceCopyOffloadProperty}
var _ = map[bool]diskapi.StoragePropertyID{false: diskapi.StorageDeviceDeviceTelemetryProperty, diskapi.StorageDeviceDeviceTelemetryProperty == 10: diskapi.StorageDeviceDeviceTelemetryProperty}
var _ = map[bool]diskapi.StoragePropertyID{false: diskapi.StorageDeviceEnduranceProperty, diskapi.StorageDeviceEnduranceProperty == 32: diskapi.StorageDeviceEnduranceProperty}
var _ = (*struct {
	Version             uint32
	Size                uint32
	NumberOfIdentifiers uint32
	Identifiers         [1]byte
})((*diskapi.StorageDeviceIDDescriptor)(nil))
var _ = map[bool]diskapi.StoragePropertyID{false: diskapi.StorageDeviceIDProperty, diskapi.StorageDeviceIDProperty == 2: diskapi.StorageDeviceIDProperty}
var _ = map[bool]diskapi.StoragePropertyID{false: diskapi.StorageDeviceIoCapabilityProperty, diskapi.StorageDeviceIoCapabilityProperty == 18: diskapi.StorageDeviceIoCapabilityProperty}
var _ = map[bool]diskapi.StoragePropertyID{false: diskapi.StorageDeviceLBProvisioningProperty, diskapi.StorageDeviceLBProvisioningProperty == 11: diskapi.StorageDeviceLBProvisioningProperty}
var _ = map[bool]diskapi.StoragePropertyID{false: diskapi.StorageDeviceLocationProperty, diskapi.StorageDeviceLocationProperty == 28: diskapi.StorageDeviceLocationProperty}
var _ = map[bool]diskapi.StoragePropertyID{false: diskapi.StorageDeviceManagementStatus, diskapi.StorageDeviceManagementStatus == 26: diskapi.StorageDeviceManagementStatus}
var _ = map[bool]diskapi.StoragePropertyID{false: diskapi.StorageDeviceMediumProductType, diskapi.StorageDeviceMediumProductType == 15: diskapi.StorageDeviceMediumProductType}
var _ = map[bool]diskapi.StoragePropertyID{false: diskapi.StorageDeviceNumaProperty, diskapi.StorageDeviceNumaProperty == 29: diskapi.StorageDeviceNumaProperty}
var _ = (*struct {
	DeviceType      diskapi.DeviceType
	DeviceNumber    uint32
	PartitionNumber uint32
})((*diskapi.StorageDeviceNumber)(nil))
var _ = map[bool]diskapi.StoragePropertyID{false: diskapi.StorageDevicePhysicalTopologyProperty, diskapi.StorageDevicePhysicalTopologyProperty == 24: diskapi.StorageDevicePhysicalTopologyProperty}
var _ = map[bool]diskapi.StoragePropertyID{false: diskapi.StorageDevicePowerProperty, diskapi.StorageDevicePowerProperty == 12: diskapi.StorageDevicePowerProperty}
var _ = map[bool]diskapi.StoragePropertyID{false: diskapi.StorageDeviceProperty, diskapi.StorageDeviceProperty == 0: diskapi.StorageDeviceProperty}
var _ = map[bool]diskapi.StoragePropertyID{false: diskapi.StorageDeviceProtocolSpecificProperty, diskapi.StorageDeviceProtocolSpecificProperty == 20: diskapi.StorageDeviceProtocolSpecificProperty}
var _ = map[bool]diskapi.StoragePropertyID{false: diskapi.StorageDeviceResiliencyProperty, diskapi.StorageDeviceResiliencyProperty == 14: diskapi.StorageDeviceResiliencyProperty}
var _ = map[bool]diskapi.StoragePropertyID{false: diskapi.StorageDeviceSeekPenaltyProperty, diskapi.StorageDeviceSeekPenaltyProperty == 7: diskapi.StorageDeviceSeekPenaltyProperty}
var _ = map[bool]diskapi.StoragePropertyID{false: diskapi.StorageDeviceTemperatureProperty, diskapi.StorageDeviceTemperatureProperty == 22: diskapi.StorageDeviceTemperatureProperty}
var _ = map[bool]diskapi.StoragePropertyID{false: diskapi.StorageDeviceTrimProperty, diskapi.StorageDeviceTrimProperty == 8: diskapi.StorageDeviceTrimProperty}
var _ = map[bool]diskapi.StoragePropertyID{false: diskapi.StorageDeviceUniqueIDProperty, diskapi.StorageDeviceUniqueIDProperty == 3: diskapi.StorageDeviceUniqueIDProperty}
var _ = map[bool]diskapi.StoragePropertyID{false: diskapi.StorageDeviceUnsafeShutdownCount, diskapi.StorageDeviceUnsafeShutdownCount == 31: diskapi.StorageDeviceUnsafeShutdownCount}
var _ = map[bool]diskapi.StoragePropertyID{false: diskapi.StorageDeviceWriteAggregationProperty, diskapi.StorageDeviceWriteAggregationProperty == 9: diskapi.StorageDeviceWriteAggregationProperty}
var _ = map[bool]diskapi.StoragePropertyID{false: diskapi.StorageDeviceWriteCacheProperty, diskapi.StorageDeviceWriteCacheProperty == 4: diskapi.StorageDeviceWriteCacheProperty}
var _ = map[bool]diskapi.StoragePropertyID{false: diskapi.StorageDeviceZonedDeviceProperty, diskapi.StorageDeviceZonedDeviceProperty == 30: diskapi.StorageDeviceZonedDeviceProperty}
var _ = map[bool]diskapi.StorageAssociationType{false: diskapi.StorageIDAssocDevice, diskapi.StorageIDAssocDevice == 0: diskapi.StorageIDAssocDevice}
var _ = map[bool]diskapi.StorageAssociationType{false: diskapi.StorageIDAssocPort, diskapi.StorageIDAssocPort == 1: diskapi.StorageIDAssocPort}
var _ = map[bool]diskapi.StorageAssociationType{false: diskapi.StorageIDAssocTarget, diskapi.StorageIDAssocTarget == 2: diskapi.StorageIDAssocTarget}
var _ = map[bool]diskapi.StorageIdentifierCodeSet{false: diskapi.StorageIDCodeSetASCII, diskapi.StorageIDCodeSetASCII == 2: diskapi.StorageIDCodeSetASCII}
var _ = map[bool]diskapi.StorageIdentifierCodeSet{false: diskapi.StorageIDCodeSetBinary, diskapi.StorageIDCodeSetBinary == 1: diskapi.StorageIDCodeSetBinary}
var _ = map[bool]diskapi.StorageIdentifierCodeSet{false: diskapi.StorageIDCodeSetReserved, diskapi.StorageIDCodeSetReserved == 0: diskapi.StorageIDCodeSetReserved}
var _ = map[bool]diskapi.StorageIdentifierCodeSet{false: diskapi.StorageIDCodeSetUtf8, diskapi.StorageIDCodeSetUtf8 == 3: diskapi.StorageIDCodeSetUtf8}
var _ = map[bool]diskapi.StorageIdentifierType{false: diskapi.StorageIDTypeEUI64, diskapi.StorageIDTypeEUI64 == 2: diskapi.StorageIDTypeEUI64}
var _ = map[bool]diskapi.StorageIdentifierType{false: diskapi.StorageIDTypeFCPHName, diskapi.StorageIDTypeFCPHName == 3: diskapi.StorageIDTypeFCPHName}
var _ = map[bool]diskapi.StorageIdentifierType{false: diskapi.StorageIDTypeLogicalUnitGroup, diskapi.StorageIDTypeLogicalUnitGroup == 6: diskapi.StorageIDTypeLogicalUnitGroup}
var _ = map[bool]diskapi.StorageIdentifierType{false: diskapi.StorageIDTypeMD5LogicalUnitIdentifier, diskapi.StorageIDTypeMD5LogicalUnitIdentifier == 7: diskapi.StorageIDTypeMD5LogicalUnitIdentifier}
var _ = map[bool]diskapi.StorageIdentifierType{false: diskapi.StorageIDTypePortRelative, diskapi.StorageIDTypePortRelative == 4: diskapi.StorageIDTypePortRelative}
var _ = map[bool]diskapi.StorageIdentifierType{false: diskapi.StorageIDTypeScsiNameString, diskapi.StorageIDTypeScsiNameString == 8: diskapi.StorageIDTypeScsiNameString}
var _ = map[bool]diskapi.StorageIdentifierType{false: diskapi.StorageIDTypeTargetPortGroup, diskapi.StorageIDTypeTargetPortGroup == 5: diskapi.StorageIDTypeTargetPortGroup}
var _ = map[bool]diskapi.StorageIdentifierType{false: diskapi.StorageIDTypeVendorID, diskapi.StorageIDTypeVendorID == 1: diskapi.StorageIDTypeVendorID}
var _ = map[bool]diskapi.StorageIdentifierType{false: diskapi.StorageIdTypeVendorSpecific, diskapi.StorageIdTypeVendorSpecific == 0: diskapi.StorageIdTypeVendorSpecific}
var _ = (*struct {
	CodeSet        diskapi.StorageIdentifierCodeSet
	Type           diskapi.StorageIdentifierType
	IdentifierSize uint16
	NextOffset     uint16
	Association    diskapi.StorageAssociationType
	Identifier     [1]byte
})((*diskapi.StorageIdentifier)(nil))
var _ = (*uint32)((*diskapi.StorageIdentifierCodeSet)(nil))
var _ = (*uint32)((*diskapi.StorageIdentifierType)(nil))
var _ = map[bool]diskapi.StoragePropertyID{false: diskapi.StorageMiniportProperty, diskapi.StorageMiniportProperty == 5: diskapi.StorageMiniportProperty}
var _ = (*uint32)((*diskapi.StoragePropertyID)(nil))
var _ = (*struct {
	PropertyID diskapi.StoragePropertyID
	QueryType  diskapi.StorageQueryType
	Byte       []diskapi.AdditionalParameters
})((*diskapi.StoragePropertyQuery)(nil))
var _ = (*uint32)((*diskapi.StorageQueryType)(nil))

// pkg/disk
var _ disk.Disk
var _ func(*disk.Disk, context.Context, *disk.GetDiskReadOnlyRequest) (*disk.GetDiskReadOnlyResponse, error) = (*disk.Disk).GetDiskReadOnly
var _ func(*disk.Disk, context.Context, *disk.GetDiskStateRequest) (*disk.GetDiskStateResponse, error) = (*disk.Disk).GetDiskState
var _ func(*disk.Disk, context.Context, *disk.GetDiskStatsRequest) (*disk.GetDiskStatsResponse, error) = (*disk.Disk).GetDiskStats
var _ func(*disk.Disk, context.Context, *disk.ListDiskIDsRequest) (*disk.ListDiskIDsResponse, error) = (*disk.Disk).ListDiskIDs
var _ func(*disk.Disk, context.Context, *disk.ListDiskLocationsRequest) (*disk.ListDiskLocationsResponse, error) = (*disk.Disk).ListDiskLocations
var _ func(*disk.Disk, context.Context, *disk.PartitionDiskRequest) (*disk.PartitionDiskResponse, error) = (*disk.Disk).PartitionDisk
var _ func(*disk.Disk, context.Context, *disk.RescanRequest) (*disk.RescanResponse, error) = (*disk.Disk).Rescan
var _ func(*disk.Disk, context.Context, *disk.SetDiskReadOnlyRequest) (*disk.SetDiskReadOnlyResponse, error) = (*disk.Disk).SetDiskReadOnly
var _ func(*disk.Disk, context.Context, *disk.SetDiskStateRequest) (*disk.SetDiskStateResponse, error) = (*disk.Disk).SetDiskState
var _ = (*struct {
	Page83       string
	SerialNumber string
})((*disk.DiskIDs)(nil))
var _ = (*struct {
	Adapter string
	Bus     string
	Target  string
	LUNID   string
})((*disk.DiskLocation)(nil))
var _ = (*struct{ DiskNumber uint32 })((*disk.GetDiskReadOnlyRequest)(nil))
var _ = (*struct{ IsReadOnly bool })((*disk.GetDiskReadOnlyResponse)(nil))
var _ = (*struct{ DiskNumber uint32 })((*disk.GetDiskStateRequest)(nil))
var _ = (*struct{ IsOnline bool })((*disk.GetDiskStateResponse)(nil))
var _ = (*struct{ DiskNumber uint32 })((*disk.GetDiskStatsRequest)(nil))
var _ = (*struct{ TotalBytes int64 })((*disk.GetDiskStatsResponse)(nil))
var _ = (*interface {
	GetDiskReadOnly(context.Context, *disk.GetDiskReadOnlyRequest) (*disk.GetDiskReadOnlyResponse, error)
	GetDiskState(context.Context, *disk.GetDiskStateRequest) (*disk.GetDiskStateResponse, error)
	GetDiskStats(context.Context, *disk.GetDiskStatsRequest) (*disk.GetDiskStatsResponse, error)
	ListDiskIDs(context.Context, *disk.ListDiskIDsRequest) (*disk.ListDiskIDsResponse, error)
	ListDiskLocations(context.Context, *disk.ListDiskLocationsRequest) (*disk.ListDiskLocationsResponse, error)
	PartitionDisk(context.Context, *disk.PartitionDiskRequest) (*disk.PartitionDiskResponse, error)
	Rescan(context.Context, *disk.RescanRequest) (*disk.RescanResponse, error)
	SetDiskReadOnly(context.Context, *disk.SetDiskReadOnlyRequest) (*disk.SetDiskReadOnlyResponse, error)
	SetDiskState(context.Context, *disk.SetDiskStateRequest) (*disk.SetDiskStateResponse, error)
})((*disk.Interface)(nil))
var _ disk.ListDiskIDsRequest
var _ = (*struct{ DiskIDs map[uint32]*disk.DiskIDs })((*disk.ListDiskIDsResponse)(nil))
var _ disk.ListDiskLocationsRequest
var _ = (*struct{ DiskLocations map[uint32]*disk.DiskLocation })((*disk.ListDiskLocationsResponse)(nil))
var _ func(hostAPI diskapi.HostAPI) (*disk.Disk, error) = disk.New
var _ = (*struct{ DiskNumber uint32 })((*disk.PartitionDiskRequest)(nil))
var _ disk.PartitionDiskResponse
var _ disk.RescanRequest
var _ disk.RescanResponse
var _ = (*struct {
	DiskNumber uint32
	IsReadOnly bool
})((*disk.SetDiskReadOnlyRequest)(nil))
var _ disk.SetDiskReadOnlyResponse
var _ = (*struct {
	DiskNumber uint32
	IsOnline   bool
})((*disk.SetDiskStateRequest)(nil))
var _ disk.SetDiskStateResponse

// pkg/filesystem/hostapi
var _ = (*interface {
	CreateSymlink(oldname string, newname string) error
	IsSymlink(path string) (bool, error)
	Mkdir(path string) error
	PathExists(path string) (bool, error)
	PathValid(path string) (bool, error)
	Rmdir(path string, force bool) error
	RmdirContents(path string) error
})((*filesystemapi.HostAPI)(nil))
var _ func() filesystemapi.HostAPI = filesystemapi.New

// pkg/filesystem
var _ = (*struct {
	SourcePath string
	TargetPath string
})((*filesystem.CreateSymlinkRequest)(nil))
var _ filesystem.CreateSymlinkResponse
var _ filesystem.Filesystem
var _ func(*filesystem.Filesystem, context.Context, *filesystem.CreateSymlinkRequest) (*filesystem.CreateSymlinkResponse, error) = (*filesystem.Filesystem).CreateSymlink
var _ func(*filesystem.Filesystem, context.Context, *filesystem.IsSymlinkRequest) (*filesystem.IsSymlinkResponse, error) = (*filesystem.Filesystem).IsSymlink
var _ func(*filesystem.Filesystem, context.Context, *filesystem.MkdirRequest) (*filesystem.MkdirResponse, error) = (*filesystem.Filesystem).Mkdir
var _ func(*filesystem.Filesystem, context.Context, *filesystem.PathExistsRequest) (*filesystem.PathExistsResponse, error) = (*filesystem.Filesystem).PathExists
var _ func(*filesystem.Filesystem, context.Context, *filesystem.PathValidRequest) (*filesystem.PathValidResponse, error) = (*filesystem.Filesystem).PathValid
var _ func(*filesystem.Filesystem, context.Context, *filesystem.RmdirRequest) (*filesystem.RmdirResponse, error) = (*filesystem.Filesystem).Rmdir
var _ func(*filesystem.Filesystem, context.Context, *filesystem.RmdirContentsRequest) (*filesystem.RmdirContentsResponse, error) = (*filesystem.Filesystem).RmdirContents
var _ = (*interface {
	CreateSymlink(context.Context, *filesystem.CreateSymlinkRequest) (*filesystem.CreateSymlinkResponse, error)
	IsSymlink(context.Context, *filesystem.IsSymlinkRequest) (*filesystem.IsSymlinkResponse, error)
	Mkdir(context.Context, *filesystem.MkdirRequest) (*filesystem.MkdirResponse, error)
	PathExists(context.Context, *filesystem.PathExistsRequest) (*filesystem.PathExistsResponse, error)
	PathValid(context.Context, *filesystem.PathValidRequest) (*filesystem.PathValidResponse, error)
	Rmdir(context.Context, *filesystem.RmdirRequest) (*filesystem.RmdirResponse, error)
	RmdirContents(context.Context, *filesystem.RmdirContentsRequest) (*filesystem.RmdirContentsResponse, error)
})((*filesystem.Interface)(nil))
var _ = (*struct{ Path string })((*filesystem.IsSymlinkRequest)(nil))
var _ = (*struct{ IsSymlink bool })((*filesystem.IsSymlinkResponse)(nil))
var _ = (*struct{ Path string })((*filesystem.MkdirRequest)(nil))
var _ filesystem.MkdirResponse
var _ func(hostAPI filesystemapi.HostAPI) (*filesystem.Filesystem, error) = filesystem.New
var _ = (*struct{ Path string })((*filesystem.PathExistsRequest)(nil))
var _ = (*struct{ Exists bool })((*filesystem.PathExistsResponse)(nil))
var _ = (*struct{ Path string })((*filesystem.PathValidRequest)(nil))
var _ = (*struct{ Valid bool })((*filesystem.PathValidResponse)(nil))
var _ = (*struct{ Path string })((*filesystem.RmdirContentsRequest)(nil))
var _ filesystem.RmdirContentsResponse
var _ = (*struct {
	Path  string
	Force bool
})((*filesystem.RmdirRequest)(nil))
var _ filesystem.RmdirResponse
var _ func(path string) error = filesystem.ValidatePathWindows

// pkg/iscsi/hostapi
var _ = (*interface {
	AddTargetPortal(portal *iscsiapi.TargetPortal) error
	ConnectTarget(portal *iscsiapi.TargetPortal, iqn string, authType string, chapUser string, chapSecret string) error
	DisconnectTarget(portal *iscsiapi.TargetPortal, iqn string) error
	DiscoverTargetPortal(portal *iscsiapi.TargetPortal) ([]string, error)
	GetTargetDisks(portal *iscsiapi.TargetPortal, iqn string) ([]string, error)
	ListTargetPortals() ([]iscsiapi.TargetPortal, error)
	RemoveTargetPortal(portal *iscsiapi.TargetPortal) error
	SetMutualChapSecret(mutualChapSecret string) error
})((*iscsiapi.HostAPI)(nil))
var _ func() iscsiapi.HostAPI = iscsiapi.New
var _ = (*struct {
	Address string "json:\"TargetPortalAddress\""
	Port    uint32 "json:\"TargetPortalPortNumber\""
})((*iscsiapi.TargetPortal)(nil))

// pkg/iscsi
var _ = (*struct{ TargetPortal *iscsi.TargetPortal })((*iscsi.AddTargetPortalRequest)(nil))
var _ iscsi.AddTargetPortalResponse
var _ func(authType iscsi.AuthenticationType) (string, error) = iscsi.AuthTypeToString
var _ = (*uint32)((*iscsi.AuthenticationType)(nil))
var _ = (*struct {
	TargetPortal *iscsi.TargetPortal
	IQN          string
	AuthType     iscsi.AuthenticationType
	ChapUsername string
	ChapSecret   string
})((*iscsi.ConnectTargetRequest)(nil))
var _ iscsi.ConnectTargetResponse
var _ = (*struct {
	TargetPortal *iscsi.TargetPortal
	IQN          string
})((*iscsi.DisconnectTargetRequest)(nil))
var _ iscsi.DisconnectTargetResponse
var _ = (*struct{ TargetPortal *iscsi.TargetPortal })((*iscsi.DiscoverTargetPortalRequest)(nil))
var _ = (*struct{ IQNs []string })((*iscsi.DiscoverTargetPortalResponse)(nil))
var _ = (*struct {
	TargetPortal *iscsi.TargetPortal
	IQN          string
})((*iscsi.GetTargetDisksRequest)(nil))
var _ = (*struct{ DiskIDs []string })((*iscsi.GetTargetDisksResponse)(nil))
var _ iscsi.ISCSI
var _ func(*iscsi.ISCSI, context.Context, *iscsi.AddTargetPortalRequest) (*iscsi.AddTargetPortalResponse, error) = (*iscsi.ISCSI).AddTargetPortal
var _ func(*iscsi.ISCSI, context.Context, *iscsi.ConnectTargetRequest) (*iscsi.ConnectTargetResponse, error) = (*iscsi.ISCSI).ConnectTarget
var _ func(*iscsi.ISCSI, context.Context, *iscsi.DisconnectTargetRequest) (*iscsi.DisconnectTargetResponse, error) = (*iscsi.ISCSI).DisconnectTarget
var _ func(*iscsi.ISCSI, context.Context, *iscsi.DiscoverTargetPortalRequest) (*iscsi.DiscoverTargetPortalResponse, error) = (*iscsi.ISCSI).DiscoverTargetPortal
var _ func(*iscsi.ISCSI, context.Context, *iscsi.GetTargetDisksRequest) (*iscsi.GetTargetDisksResponse, error) = (*iscsi.ISCSI).GetTargetDisks
var _ func(*iscsi.ISCSI, context.Context, *iscsi.ListTargetPortalsRequest) (*iscsi.ListTargetPortalsResponse, error) = (*iscsi.ISCSI).ListTargetPortals
var _ func(*iscsi.ISCSI, context.Context, *iscsi.RemoveTargetPortalRequest) (*iscsi.RemoveTargetPortalResponse, error) = (*iscsi.ISCSI).RemoveTargetPortal
var _ func(*iscsi.ISCSI, context.Context, *iscsi.SetMutualChapSecretRequest) (*iscsi.SetMutualChapSecretResponse, error) = (*iscsi.ISCSI).SetMutualChapSecret
var _ = (*interface {
	AddTargetPortal(context.Context, *iscsi.AddTargetPortalRequest) (*iscsi.AddTargetPortalResponse, error)
	ConnectTarget(context.Context, *iscsi.ConnectTargetRequest) (*iscsi.ConnectTargetResponse, error)
	DisconnectTarget(context.Context, *iscsi.DisconnectTargetRequest) (*iscsi.DisconnectTargetResponse, error)
	DiscoverTargetPortal(context.Context, *iscsi.DiscoverTargetPortalRequest) (*iscsi.DiscoverTargetPortalResponse, error)
	GetTargetDisks(context.Context, *iscsi.GetTargetDisksRequest) (*iscsi.GetTargetDisksResponse, error)
	ListTargetPortals(context.Context, *iscsi.ListTargetPortalsRequest) (*iscsi.ListTargetPortalsResponse, error)
	RemoveTargetPortal(context.Context, *iscsi.RemoveTargetPortalRequest) (*iscsi.RemoveTargetPortalResponse, error)
	SetMutualChapSecret(context.Context, *iscsi.SetMutualChapSecretRequest) (*iscsi.SetMutualChapSecretResponse, error)
})((*iscsi.Interface)(nil))
var _ iscsi.ListTargetPortalsRequest
var _ = (*struct{ TargetPortals []*iscsi.TargetPortal })((*iscsi.ListTargetPortalsResponse)(nil))
var _ = map[bool]int{false: iscsi.MUTUAL_CHAP, iscsi.MUTUAL_CHAP == 2: iscsi.MUTUAL_CHAP}
var _ = map[bool]int{false: iscsi.NONE, iscsi.NONE == 0: iscsi.NONE}
var _ func(hostAPI iscsiapi.HostAPI) (*iscsi.ISCSI, error) = iscsi.New
var _ = map[bool]int{false: iscsi.ONE_WAY_CHAP, iscsi.ONE_WAY_CHAP == 1: iscsi.ONE_WAY_CHAP}
var _ = (*struct{ TargetPortal *iscsi.TargetPortal })((*iscsi.RemoveTargetPortalRequest)(nil))
var _ iscsi.RemoveTargetPortalResponse
var _ = (*struct{ MutualChapSecret string })((*iscsi.SetMutualChapSecretRequest)(nil))
var _ iscsi.SetMutualChapSecretResponse
var _ = (*struct {
	TargetAddress string
	TargetPort    uint32
})((*iscsi.TargetPortal)(nil))

// pkg/smb/hostapi
var _ = (*interface {
	IsSMBMapped(remotePath string) (bool, error)
	NewSMBGlobalMapping(remotePath string, username string, password string) error
	NewSMBLink(remotePath string, localPath string) error
	RemoveSMBGlobalMapping(remotePath string) error
})((*smbapi.HostAPI)(nil))
var _ func() smbapi.HostAPI = smbapi.New

// pkg/smb
var _ = (*interface {
	NewSMBGlobalMapping(context.Context, *smb.NewSMBGlobalMappingRequest) (*smb.NewSMBGlobalMappingResponse, error)
	RemoveSMBGlobalMapping(context.Context, *smb.RemoveSMBGlobalMappingRequest) (*smb.RemoveSMBGlobalMappingResponse, error)
})((*smb.Interface)(nil))
var _ func(hostAPI smbapi.HostAPI, fsClient filesystem.Interface) (*smb.SMB, error) = smb.New
var _ = (*struct {
	RemotePath string
	LocalPath  string
	Username   string
	Password   string
})((*smb.NewSMBGlobalMappingRequest)(nil))
var _ smb.NewSMBGlobalMappingResponse
var _ = (*struct{ RemotePath string })((*smb.RemoveSMBGlobalMappingRequest)(nil))
var _ smb.RemoveSMBGlobalMappingResponse
var _ smb.SMB
var _ func(*smb.SMB, context.Context, *smb.NewSMBGlobalMappingRequest) (*smb.NewSMBGlobalMappingResponse, error) = (*smb.SMB).NewSMBGlobalMapping
var _ func(*smb.SMB, context.Context, *smb.RemoveSMBGlobalMappingRequest) (*smb.RemoveSMBGlobalMappingResponse, error) = (*smb.SMB).RemoveSMBGlobalMapping

// pkg/system/hostapi
var _ = (*interface {
	GetBIOSSerialNumber() (string, error)
	GetService(name string) (*systemapi.ServiceInfo, error)
	StartService(name string) error
	StopService(name string, force bool) error
})((*systemapi.HostAPI)(nil))
var _ func() systemapi.HostAPI = systemapi.New
var _ = (*interface {
	GetService(scope *wmi.Scope, name string) (wmi.ServiceInterface, error)
})((*systemapi.ServiceFactory)(nil))
var _ = (*struct {
	DisplayName string "json:\"DisplayName\""
	StartType   string "json:\"StartType\""
	Status      string "json:\"Status\""
})((*systemapi.ServiceInfo)(nil))
var _ systemapi.ServiceManagerImpl
var _ func(systemapi.ServiceManagerImpl, *wmi.Scope, string) ([]string, error) = (systemapi.ServiceManagerImpl).GetDependentsForService

// pkg/system
var _ system.GetBIOSSerialNumberRequest
var _ = (*struct{ SerialNumber string })((*system.GetBIOSSerialNumberResponse)(nil))
var _ = (*struct{ Name string })((*system.GetServiceRequest)(nil))
var _ = (*struct {
	DisplayName string
	StartType   system.StartType
	Status      system.ServiceStatus
})((*system.GetServiceResponse)(nil))
var _ = (*interface {
	GetBIOSSerialNumber(context.Context, *system.GetBIOSSerialNumberRequest) (*system.GetBIOSSerialNumberResponse, error)
	GetService(context.Context, *system.GetServiceRequest) (*system.GetServiceResponse, error)
	StartService(context.Context, *system.StartServiceRequest) (*system.StartServiceResponse, error)
	StopService(context.Context, *system.StopServiceRequest) (*system.StopServiceResponse, error)
})((*system.Interface)(nil))
var _ func(hostAPI systemapi.HostAPI) (*system.System, error) = system.New
var _ = map[bool]system.ServiceStatus{false: system.SERVICE_STATUS_CONTINUE_PENDING, system.SERVICE_STATUS_CONTINUE_PENDING == 5: system.SERVICE_STATUS_CONTINUE_PENDING}
var _ = map[bool]system.ServiceStatus{false: system.SERVICE_STATUS_PAUSED, system.SERVICE_STATUS_PAUSED == 7: system.SERVICE_STATUS_PAUSED}
var _ = map[bool]system.ServiceStatus{false: system.SERVICE_STATUS_PAUSE_PENDING, system.SERVICE_STATUS_PAUSE_PENDING == 6: system.SERVICE_STATUS_PAUSE_PENDING}
var _ = map[bool]system.ServiceStatus{false: system.SERVICE_STATUS_RUNNING, system.SERVICE_STATUS_RUNNING == 4: system.SERVICE_STATUS_RUNNING}
var _ = map[bool]system.ServiceStatus{false: system.SERVICE_STATUS_START_PENDING, system.SERVICE_STATUS_START_PENDING == 2: system.SERVICE_STATUS_START_PENDING}
var _ = map[bool]system.ServiceStatus{false: system.SERVICE_STATUS_STOPPED, system.SERVICE_STATUS_STOPPED == 1: system.SERVICE_STATUS_STOPPED}
var _ = map[bool]system.ServiceStatus{false: system.SERVICE_STATUS_STOP_PENDING, system.SERVICE_STATUS_STOP_PENDING == 3: system.SERVICE_STATUS_STOP_PENDING}
var _ = map[bool]system.ServiceStatus{false: system.SERVICE_STATUS_UNKNOWN, system.SERVICE_STATUS_UNKNOWN == 0: system.SERVICE_STATUS_UNKNOWN}
var _ = map[bool]system.StartType{false: system.START_TYPE_AUTOMATIC, system.START_TYPE_AUTOMATIC == 2: system.START_TYPE_AUTOMATIC}
var _ = map[bool]system.StartType{false: system.START_TYPE_BOOT, system.START_TYPE_BOOT == 0: system.START_TYPE_BOOT}
var _ = map[bool]system.StartType{false: system.START_TYPE_DISABLED, system.START_TYPE_DISABLED == 4: system.START_TYPE_DISABLED}
var _ = map[bool]system.StartType{false: system.START_TYPE_MANUAL, system.START_TYPE_MANUAL == 3: system.START_TYPE_MANUAL}
var _ = map[bool]system.StartType{false: system.START_TYPE_SYSTEM, system.START_TYPE_SYSTEM == 1: system.START_TYPE_SYSTEM}
var _ = (*uint32)((*system.ServiceStatus)(nil))
var _ = (*struct{ Name string })((*system.StartServiceRequest)(nil))
var _ system.StartServiceResponse
var _ = (*uint32)((*system.StartType)(nil))
var _ = (*struct {
	Name  string
	Force bool
})((*system.StopServiceRequest)(nil))
var _ system.StopServiceResponse
var _ system.System
var _ func(*system.System, context.Context, *system.GetBIOSSerialNumberRequest) (*system.GetBIOSSerialNumberResponse, error) = (*system.System).GetBIOSSerialNumber
var _ func(*system.System, context.Context, *system.GetServiceRequest) (*system.GetServiceResponse, error) = (*system.System).GetService
var _ func(*system.System, context.Context, *system.StartServiceRequest) (*system.StartServiceResponse, error) = (*system.System).StartService
var _ func(*system.System, context.Context, *system.StopServiceRequest) (*system.StopServiceResponse, error) = (*system.System).StopService

// pkg/volume/hostapi
var _ = (*interface {
	FormatVolume(volumeID string) error
	GetClosestVolumeIDFromTargetPath(targetPath string) (string, error)
	GetDiskNumberFromVolumeID(volumeID string) (uint32, error)
	GetVolumeIDFromTargetPath(targetPath string) (string, error)
	GetVolumeStats(volumeID string) (int64, int64, error)
	IsVolumeFormatted(volumeID string) (bool, error)
	ListVolumesOnDisk(diskNumber uint32, partitionNumber uint32) (volumeIDs []string, err error)
	MountVolume(volumeID string, targetPath string) error
	ResizeVolume(volumeID string, sizeBytes int64) error
	UnmountVolume(volumeID string, targetPath string) error
	WriteVolumeCache(volumeID string) error
})((*volumeapi.HostAPI)(nil))
var _ func() volumeapi.HostAPI = volumeapi.New
var _ *regexp.Regexp = volumeapi.VolumeRegexp

// pkg/volume
var _ = (*struct{ VolumeID string })((*volume.FormatVolumeRequest)(nil))
var _ volume.FormatVolumeResponse
var _ = (*struct{ TargetPath string })((*volume.GetClosestVolumeIDFromTargetPathRequest)(nil))
var _ = (*struct{ VolumeID string })((*volume.GetClosestVolumeIDFromTargetPathResponse)(nil))
var _ = (*struct{ VolumeID string })((*volume.GetDiskNumberFromVolumeIDRequest)(nil))
var _ = (*struct{ DiskNumber uint32 })((*volume.GetDiskNumberFromVolumeIDResponse)(nil))
var _ = (*struct{ TargetPath string })((*volume.GetVolumeIDFromTargetPathRequest)(nil))
var _ = (*struct{ VolumeID string })((*volume.GetVolumeIDFromTargetPathResponse)(nil))
var _ = (*struct{ VolumeID string })((*volume.GetVolumeStatsRequest)(nil))
var _ = (*struct {
	TotalBytes int64
	UsedBytes  int64
})((*volume.GetVolumeStatsResponse)(nil))
var _ = (*interface {
	FormatVolume(context.Context, *volume.FormatVolumeRequest) (*volume.FormatVolumeResponse, error)
	GetClosestVolumeIDFromTargetPath(context.Context, *volume.GetClosestVolumeIDFromTargetPathRequest) (*volume.GetClosestVolumeIDFromTargetPathResponse, error)
	GetDiskNumberFromVolumeID(context.Context, *volume.GetDiskNumberFromVolumeIDRequest) (*volume.GetDiskNumberFromVolumeIDResponse, error)
	GetVolumeIDFromTargetPath(context.Context, *volume.GetVolumeIDFromTargetPathRequest) (*volume.GetVolumeIDFromTargetPathResponse, error)
	GetVolumeStats(context.Context, *volume.GetVolumeStatsRequest) (*volume.GetVolumeStatsResponse, error)
	IsVolumeFormatted(context.Context, *volume.IsVolumeFormattedRequest) (*volume.IsVolumeFormattedResponse, error)
	ListVolumesOnDisk(context.Context, *volume.ListVolumesOnDiskRequest) (*volume.ListVolumesOnDiskResponse, error)
	MountVolume(context.Context, *volume.MountVolumeRequest) (*volume.MountVolumeResponse, error)
	ResizeVolume(context.Context, *volume.ResizeVolumeRequest) (*volume.ResizeVolumeResponse, error)
	UnmountVolume(context.Context, *volume.UnmountVolumeRequest) (*volume.UnmountVolumeResponse, error)
	WriteVolumeCache(context.Context, *volume.WriteVolumeCacheRequest) (*volume.WriteVolumeCacheResponse, error)
})((*volume.Interface)(nil))
var _ = (*struct{ VolumeID string })((*volume.IsVolumeFormattedRequest)(nil))
var _ = (*struct{ Formatted bool })((*volume.IsVolumeFormattedResponse)(nil))
var _ = (*struct {
	DiskNumber      uint32
	PartitionNumber uint32
})((*volume.ListVolumesOnDiskRequest)(nil))
var _ = (*struct{ VolumeIDs []string })((*volume.ListVolumesOnDiskResponse)(nil))
var _ = (*struct {
	VolumeID   string
	TargetPath string
})((*volume.MountVolumeRequest)(nil))
var _ volume.MountVolumeResponse
var _ func(hostAPI volumeapi.HostAPI) (*volume.Volume, error) = volume.New
var _ = (*struct {
	VolumeID  string
	SizeBytes int64
})((*volume.ResizeVolumeRequest)(nil))
var _ volume.ResizeVolumeResponse
var _ = (*struct {
	VolumeID   string
	TargetPath string
})((*volume.UnmountVolumeRequest)(nil))
var _ volume.UnmountVolumeResponse
var _ volume.Volume
var _ func(*volume.Volume, context.Context, *volume.FormatVolumeRequest) (*volume.FormatVolumeResponse, error) = (*volume.Volume).FormatVolume
var _ func(*volume.Volume, context.Context, *volume.GetClosestVolumeIDFromTargetPathRequest) (*volume.GetClosestVolumeIDFromTargetPathResponse, error) = (*volume.Volume).GetClosestVolumeIDFromTargetPath
var _ func(*volume.Volume, context.Context, *volume.GetDiskNumberFromVolumeIDRequest) (*volume.GetDiskNumberFromVolumeIDResponse, error) = (*volume.Volume).GetDiskNumberFromVolumeID
var _ func(*volume.Volume, context.Context, *volume.GetVolumeIDFromTargetPathRequest) (*volume.GetVolumeIDFromTargetPathResponse, error) = (*volume.Volume).GetVolumeIDFromTargetPath
var _ func(*volume.Volume, context.Context, *volume.GetVolumeStatsRequest) (*volume.GetVolumeStatsResponse, error) = (*volume.Volume).GetVolumeStats
var _ func(*volume.Volume, context.Context, *volume.IsVolumeFormattedRequest) (*volume.IsVolumeFormattedResponse, error) = (*volume.Volume).IsVolumeFormatted
var _ func(*volume.Volume, context.Context, *volume.ListVolumesOnDiskRequest) (*volume.ListVolumesOnDiskResponse, error) = (*volume.Volume).ListVolumesOnDisk
var _ func(*volume.Volume, context.Context, *volume.MountVolumeRequest) (*volume.MountVolumeResponse, error) = (*volume.Volume).MountVolume
var _ func(*volume.Volume, context.Context, *volume.ResizeVolumeRequest) (*volume.ResizeVolumeResponse, error) = (*volume.Volume).ResizeVolume
var _ func(*volume.Volume, context.Context, *volume.UnmountVolumeRequest) (*volume.UnmountVolumeResponse, error) = (*volume.Volume).UnmountVolume
var _ func(*volume.Volume, context.Context, *volume.WriteVolumeCacheRequest) (*volume.WriteVolumeCacheResponse, error) = (*volume.Volume).WriteVolumeCache
var _ = (*struct{ VolumeID string })((*volume.WriteVolumeCacheRequest)(nil))
var _ volume.WriteVolumeCacheResponse
