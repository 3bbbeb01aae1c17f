// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package wiretest

import (
	"slices"
	"strings"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/published"
)

// Two volumes, as Go and JSON have them, and a portal.
const (
	VolumeA     = `\\?\Volume{6a1c2d3e-0000-4000-8000-0123456789ab}\`
	jsonVolumeA = `\\\\?\\Volume{6a1c2d3e-0000-4000-8000-0123456789ab}\\`
	VolumeB     = `\\?\Volume{6a1c2d3e-0000-4000-8000-0123456789cd}\`
	jsonVolumeB = `\\\\?\\Volume{6a1c2d3e-0000-4000-8000-0123456789cd}\\`
)

// Portal is a portal.
var Portal = csiproxy.ISCSIPortal{Address: "10.0.0.1", Port: 65535}

// Exchange is what an operation is on the wire in some versions of its group.
type Exchange struct {
	Versions          string // separated by blanks; the operation has no others
	Method            string
	Request, Response string // JSON, the request as the client writes it
}

// Operation is an operation with its arguments, but for the context, what it is on the wire,
// and its result; nil for none but the error. If the result is a stream, it is what comes first.
type Operation struct {
	Group, Name string
	Args        []any
	Exchanges   []Exchange
	Result      any
}

// On returns the exchange in a version, if that has the operation.
func (o Operation) On(version string) (Exchange, bool) {
	for _, e := range o.Exchanges {
		if slices.Contains(strings.Fields(e.Versions), version) {
			return e, true
		}
	}
	return Exchange{}, false
}

// ByClient reports whether the client makes the operation of the method of another one.
func (o Operation) ByClient(e Exchange) bool {
	return o.Name == "DataVolumeOfDisk" || o.Name == "FindDiskByPage83" && e.Method == "ListDiskIDs"
}

// Operations has each method of each version. The tests of both ends go by it: what the client
// sends, the server understands, and the other way round.
var Operations = []Operation{
	{"disk", "ListDiskLocations", nil, []Exchange{
		{"v1 v1beta3", "ListDiskLocations", `{}`, `{"diskLocations": {"0": {"Adapter": "1", "Bus": "2", "Target": "3", "LUNID": "4"}, "4294967295": {"LUNID": "5"}}}`},
		{"v1beta2 v1beta1 v1alpha1", "ListDiskLocations", `{}`, `{"diskLocations": {"0": {"Adapter": "1", "Bus": "2", "Target": "3", "LUNID": "4"}, "4294967295": {"LUNID": "5"}}}`},
	}, map[csiproxy.DiskNumber]published.DiskLocation{0: {Adapter: "1", Bus: "2", Target: "3", LUNID: "4"}, 4294967295: {LUNID: "5"}}},

	{"disk", "ListDiskIDs", nil, []Exchange{
		{"v1 v1beta3", "ListDiskIDs", `{}`, `{"diskIDs": {"0": {"page83": "6000c29f", "serialNumber": "vol1"}, "2": {"serialNumber": "vol2"}}}`},
		{"v1beta2 v1beta1", "ListDiskIDs", `{}`, `{"diskIDs": {"0": {"identifiers": {"page83": "6000c29f", "serialNumber": "vol1"}}, "2": {"identifiers": {"page83": "", "serialNumber": "vol2"}}}}`},
	}, map[csiproxy.DiskNumber]published.DiskIDs{0: {Page83: "6000c29f", SerialNumber: "vol1"}, 2: {SerialNumber: "vol2"}}},

	{"disk", "FindDiskByPage83", []any{"6000c29f"}, []Exchange{
		{"v1 v1beta3", "ListDiskIDs", `{}`, `{"diskIDs": {"0": {"serialNumber": "6000c29f"}, "2": {"page83": "6000c29f"}, "3": {"page83": "6000c29f0"}}}`},
		{"v1beta2 v1beta1", "ListDiskIDs", `{}`, `{"diskIDs": {"0": {}, "2": {"identifiers": {"page83": "6000c29f"}}}}`},
		{"v1alpha1", "GetDiskNumberByName", `{"diskName":"6000c29f"}`, `{"diskNumber": "2"}`},
	}, csiproxy.DiskNumber(2)},

	{"disk", "PartitionDisk", []any{3}, []Exchange{
		{"v1 v1beta3", "PartitionDisk", `{"diskNumber":3}`, `{}`},
		{"v1beta2 v1beta1 v1alpha1", "PartitionDisk", `{"diskID":"3"}`, `{}`},
	}, nil},

	{"disk", "Rescan", nil, []Exchange{
		{"v1 v1beta3 v1beta2 v1beta1 v1alpha1", "Rescan", `{}`, `{}`},
	}, nil},

	{"disk", "GetDiskStats", []any{3}, []Exchange{
		{"v1 v1beta3", "GetDiskStats", `{"diskNumber":3}`, `{"totalBytes": "1099511627776"}`},
		{"v1beta2 v1beta1", "DiskStats", `{"diskID":"3"}`, `{"diskSize": "1099511627776"}`},
	}, published.DiskStats{SizeBytes: 1 << 40}},

	{"disk", "SetDiskState", []any{3, true}, []Exchange{
		{"v1 v1beta3", "SetDiskState", `{"diskNumber":3,"isOnline":true}`, `{}`},
		{"v1beta2", "SetAttachState", `{"diskID":"3","isOnline":true}`, `{}`},
	}, nil},

	{"disk", "GetDiskState", []any{3}, []Exchange{
		{"v1 v1beta3", "GetDiskState", `{"diskNumber":3}`, `{"isOnline": true}`},
		{"v1beta2", "GetAttachState", `{"diskID":"3"}`, `{"isOnline": true}`},
	}, true},

	{"volume", "ListVolumesOnDisk", []any{3, 0}, []Exchange{
		{"v2alpha1 v1 v1beta3", "ListVolumesOnDisk", `{"diskNumber":3}`, `{"volumeIds": ["` + jsonVolumeA + `", "` + jsonVolumeB + `"]}`},
		{"v1beta2 v1beta1 v1alpha1", "ListVolumesOnDisk", `{"diskId":"3"}`, `{"volumeIds": ["` + jsonVolumeA + `", "` + jsonVolumeB + `"]}`},
	}, []csiproxy.VolumeID{VolumeA, VolumeB}},

	{"volume", "ListVolumesOnDisk", []any{3, 2}, []Exchange{
		{"v2alpha1 v1 v1beta3", "ListVolumesOnDisk", `{"diskNumber":3,"partitionNumber":2}`, `{"volumeIds": ["` + jsonVolumeA + `"]}`},
	}, []csiproxy.VolumeID{VolumeA}},

	{"volume", "DataVolumeOfDisk", []any{3}, []Exchange{
		{"v2alpha1 v1 v1beta3", "ListVolumesOnDisk", `{"diskNumber":3}`, `{"volumeIds": ["` + jsonVolumeA + `"]}`},
		{"v1beta2 v1beta1 v1alpha1", "ListVolumesOnDisk", `{"diskId":"3"}`, `{"volumeIds": ["` + jsonVolumeA + `"]}`},
	}, csiproxy.VolumeID(VolumeA)},

	{"volume", "MountVolume", []any{VolumeA, `C:\a`}, []Exchange{
		{"v2alpha1 v1 v1beta3", "MountVolume", `{"volumeId":"` + jsonVolumeA + `","targetPath":"C:\\a"}`, `{}`},
		{"v1beta2 v1beta1 v1alpha1", "MountVolume", `{"volumeId":"` + jsonVolumeA + `","path":"C:\\a"}`, `{}`},
	}, nil},

	{"volume", "UnmountVolume", []any{VolumeA, `C:\a`}, []Exchange{
		{"v2alpha1 v1 v1beta3", "UnmountVolume", `{"volumeId":"` + jsonVolumeA + `","targetPath":"C:\\a"}`, `{}`},
		{"v1beta2 v1beta1 v1alpha1", "DismountVolume", `{"volumeId":"` + jsonVolumeA + `","path":"C:\\a"}`, `{}`},
	}, nil},

	{"volume", "IsVolumeFormatted", []any{VolumeA}, []Exchange{
		{"v2alpha1 v1 v1beta3 v1beta2 v1beta1 v1alpha1", "IsVolumeFormatted", `{"volumeId":"` + jsonVolumeA + `"}`, `{"formatted": true}`},
	}, true},

	{"volume", "FormatVolume", []any{VolumeA}, []Exchange{
		{"v2alpha1 v1 v1beta3 v1beta2 v1beta1 v1alpha1", "FormatVolume", `{"volumeId":"` + jsonVolumeA + `"}`, `{}`},
	}, nil},

	{"volume", "ResizeVolume", []any{VolumeA, 1 << 40}, []Exchange{
		{"v2alpha1 v1 v1beta3", "ResizeVolume", `{"volumeId":"` + jsonVolumeA + `","sizeBytes":"1099511627776"}`, `{}`},
		{"v1beta2 v1beta1 v1alpha1", "ResizeVolume", `{"volumeId":"` + jsonVolumeA + `","size":"1099511627776"}`, `{}`},
	}, nil},

	{"volume", "GetVolumeStats", []any{VolumeA}, []Exchange{
		{"v2alpha1 v1 v1beta3", "GetVolumeStats", `{"volumeId":"` + jsonVolumeA + `"}`, `{"totalBytes": "1099511627776", "usedBytes": "4096"}`},
		{"v1beta2 v1beta1", "VolumeStats", `{"volumeId":"` + jsonVolumeA + `"}`, `{"volumeSize": "1099511627776", "volumeUsedSize": "4096"}`},
	}, published.VolumeStats{SizeBytes: 1 << 40, UsedBytes: 4096}},

	{"volume", "GetDiskNumberFromVolumeID", []any{VolumeA}, []Exchange{
		{"v2alpha1 v1 v1beta3", "GetDiskNumberFromVolumeID", `{"volumeId":"` + jsonVolumeA + `"}`, `{"diskNumber": 4294967295}`},
		{"v1beta2 v1beta1", "GetVolumeDiskNumber", `{"volumeId":"` + jsonVolumeA + `"}`, `{"diskNumber": "4294967295"}`},
	}, csiproxy.DiskNumber(4294967295)},

	{"volume", "GetVolumeIDFromTargetPath", []any{`C:\a`}, []Exchange{
		{"v2alpha1 v1 v1beta3", "GetVolumeIDFromTargetPath", `{"targetPath":"C:\\a"}`, `{"volumeId": "` + jsonVolumeA + `"}`},
		{"v1beta2 v1beta1", "GetVolumeIDFromMount", `{"mount":"C:\\a"}`, `{"volumeId": "` + jsonVolumeA + `"}`},
	}, csiproxy.VolumeID(VolumeA)},

	{"volume", "GetClosestVolumeIDFromTargetPath", []any{`C:\a`}, []Exchange{
		{"v2alpha1", "GetClosestVolumeIDFromTargetPath", `{"targetPath":"C:\\a"}`, `{"volumeId": "` + jsonVolumeA + `"}`},
	}, csiproxy.VolumeID(VolumeA)},

	{"volume", "WriteVolumeCache", []any{VolumeA}, []Exchange{
		{"v2alpha1 v1 v1beta3 v1beta2", "WriteVolumeCache", `{"volumeId":"` + jsonVolumeA + `"}`, `{}`},
	}, nil},

	{"filesystem", "PathExists", []any{`C:\pods\a`}, []Exchange{
		{"v2alpha1 v1 v1beta2", "PathExists", `{"path":"C:\\pods\\a"}`, `{"exists": true}`},
		{"v1beta1 v1alpha1", "PathExists", `{"path":"C:\\pods\\a","context":"POD"}`, `{"exists": true}`},
	}, true},

	{"filesystem", "Mkdir", []any{`C:\pods\a`}, []Exchange{
		{"v2alpha1 v1 v1beta2", "Mkdir", `{"path":"C:\\pods\\a"}`, `{}`},
		{"v1beta1 v1alpha1", "Mkdir", `{"path":"C:\\pods\\a","context":"POD"}`, `{}`},
	}, nil},

	{"filesystem", "Rmdir", []any{`C:\pods\a`, true}, []Exchange{
		{"v2alpha1 v1 v1beta2", "Rmdir", `{"path":"C:\\pods\\a","force":true}`, `{}`},
		{"v1beta1 v1alpha1", "Rmdir", `{"path":"C:\\pods\\a","context":"POD","force":true}`, `{}`},
	}, nil},

	{"filesystem", "RmdirContents", []any{`C:\a`}, []Exchange{
		{"v2alpha1", "RmdirContents", `{"path":"C:\\a"}`, `{}`},
	}, nil},

	{"filesystem", "CreateSymlink", []any{`C:\from`, `C:\to`}, []Exchange{
		{"v2alpha1 v1 v1beta2", "CreateSymlink", `{"sourcePath":"C:\\from","targetPath":"C:\\to"}`, `{}`},
		{"v1beta1 v1alpha1", "LinkPath", `{"sourcePath":"C:\\from","targetPath":"C:\\to"}`, `{}`},
	}, nil},

	{"filesystem", "IsSymlink", []any{`C:\a`}, []Exchange{
		{"v2alpha1 v1 v1beta2", "IsSymlink", `{"path":"C:\\a"}`, `{"isSymlink": true}`},
		{"v1beta1 v1alpha1", "IsMountPoint", `{"path":"C:\\a"}`, `{"isMountPoint": true}`},
	}, true},

	{"smb", "NewSMBGlobalMapping", []any{`\\server\share`, `C:\a`, csiproxy.SMBCredentials{Username: "u", Password: csiproxy.NewSecret("p%")}}, []Exchange{
		{"v1 v1beta2", "NewSmbGlobalMapping", `{"remotePath":"\\\\server\\share","localPath":"C:\\a","username":"u","password":"p%"}`, `{}`},
		{"v1beta1 v1alpha1", "NewSmbGlobalMapping", `{"remotePath":"\\\\server\\share","localPath":"C:\\a","username":"u","password":"p%"}`, `{"error": ""}`},
	}, nil},

	{"smb", "RemoveSMBGlobalMapping", []any{`\\server\share`}, []Exchange{
		{"v1 v1beta2", "RemoveSmbGlobalMapping", `{"remotePath":"\\\\server\\share"}`, `{}`},
		{"v1beta1 v1alpha1", "RemoveSmbGlobalMapping", `{"remotePath":"\\\\server\\share"}`, `{"error": ""}`},
	}, nil},

	{"iscsi", "AddTargetPortal", []any{Portal}, []Exchange{
		{"v1alpha2 v1alpha1", "AddTargetPortal", `{"targetPortal":{"targetAddress":"10.0.0.1","targetPort":65535}}`, `{}`},
	}, nil},

	{"iscsi", "DiscoverTargetPortal", []any{Portal}, []Exchange{
		{"v1alpha2 v1alpha1", "DiscoverTargetPortal", `{"targetPortal":{"targetAddress":"10.0.0.1","targetPort":65535}}`, `{"iqns": ["iqn.2026-01.a:b", "iqn.2026-01.a:c"]}`},
	}, []csiproxy.IQN{"iqn.2026-01.a:b", "iqn.2026-01.a:c"}},

	{"iscsi", "ListTargetPortals", nil, []Exchange{
		{"v1alpha2 v1alpha1", "ListTargetPortals", `{}`, `{"targetPortals": [{"targetAddress": "10.0.0.1", "targetPort": 65535}, {"targetAddress": "a"}]}`},
	}, []csiproxy.ISCSIPortal{Portal, {Address: "a"}}},

	{"iscsi", "RemoveTargetPortal", []any{csiproxy.ISCSIPortal{Address: "a"}}, []Exchange{
		{"v1alpha2 v1alpha1", "RemoveTargetPortal", `{"targetPortal":{"targetAddress":"a"}}`, `{}`},
	}, nil},

	{"iscsi", "ConnectTarget", []any{Portal, "iqn.2026-01.a:b", csiproxy.ISCSIAuthentication{}}, []Exchange{
		{"v1alpha2 v1alpha1", "ConnectTarget", `{"targetPortal":{"targetAddress":"10.0.0.1","targetPort":65535},"iqn":"iqn.2026-01.a:b"}`, `{}`},
	}, nil},

	{"iscsi", "ConnectTarget", []any{
		Portal, "iqn.2026-01.a:b",
		csiproxy.ISCSIAuthentication{Type: csiproxy.ISCSIOneWayCHAP, Username: "u", Secret: csiproxy.NewSecret("s%")},
	}, []Exchange{
		{"v1alpha2 v1alpha1", "ConnectTarget", `{"targetPortal":{"targetAddress":"10.0.0.1","targetPort":65535},"iqn":"iqn.2026-01.a:b",` +
			`"authType":"ONE_WAY_CHAP","chapUsername":"u","chapSecret":"s%"}`, `{}`},
	}, nil},

	{"iscsi", "ConnectTarget", []any{
		Portal, "iqn.2026-01.a:b",
		csiproxy.ISCSIAuthentication{Type: csiproxy.ISCSIMutualCHAP, Username: "u", Secret: csiproxy.NewSecret("s%")},
	}, []Exchange{
		{"v1alpha2 v1alpha1", "ConnectTarget", `{"targetPortal":{"targetAddress":"10.0.0.1","targetPort":65535},"iqn":"iqn.2026-01.a:b",` +
			`"authType":"MUTUAL_CHAP","chapUsername":"u","chapSecret":"s%"}`, `{}`},
	}, nil},

	{"iscsi", "DisconnectTarget", []any{Portal, "iqn.2026-01.a:b"}, []Exchange{
		{"v1alpha2 v1alpha1", "DisconnectTarget", `{"targetPortal":{"targetAddress":"10.0.0.1","targetPort":65535},"iqn":"iqn.2026-01.a:b"}`, `{}`},
	}, nil},

	{"iscsi", "GetTargetDisks", []any{Portal, "iqn.2026-01.a:b"}, []Exchange{
		{"v1alpha2 v1alpha1", "GetTargetDisks", `{"targetPortal":{"targetAddress":"10.0.0.1","targetPort":65535},"iqn":"iqn.2026-01.a:b"}`, `{"diskIDs": ["4294967295", "0"]}`},
	}, []csiproxy.DiskNumber{4294967295, 0}},

	{"iscsi", "SetMutualCHAPSecret", []any{csiproxy.NewSecret("s%")}, []Exchange{
		{"v1alpha2", "SetMutualChapSecret", `{"MutualChapSecret":"s%"}`, `{}`},
	}, nil},

	{"system", "GetBIOSSerialNumber", nil, []Exchange{
		{"v1alpha1", "GetBIOSSerialNumber", `{}`, `{"serialNumber": "VMware-42 0b"}`},
	}, "VMware-42 0b"},

	{"system", "GetService", []any{"a"}, []Exchange{
		{"v1alpha1", "GetService", `{"name":"a"}`, `{"displayName": "A", "startType": "DISABLED", "status": "PAUSED"}`},
	}, published.Service{DisplayName: "A", StartType: published.StartTypeDisabled, Status: published.ServicePaused}},

	{"system", "StartService", []any{"a"}, []Exchange{
		{"v1alpha1", "StartService", `{"name":"a"}`, `{}`},
	}, nil},

	{"system", "StopService", []any{"a", false}, []Exchange{
		{"v1alpha1", "StopService", `{"name":"a"}`, `{}`},
	}, nil},

	{"system", "StopService", []any{"a", true}, []Exchange{
		{"v1alpha1", "StopService", `{"name":"a","force":true}`, `{}`},
	}, nil},

	{"storage", "ListDisks", []any{csiproxy.Selector{Number: new(csiproxy.DiskNumber), SerialNumber: "vol"}}, []Exchange{
		{"v1alpha1", "ListDisks", `{"disk":{"number":0,"serialNumber":"vol"}}`, `{"disks": [{"number": 3, "serialNumber": "vol", "online": true}]}`},
	}, []csiproxy.Disk{{Number: 3, SerialNumber: "vol", Online: true}}},

	{"storage", "StageVolume", []any{csiproxy.StageVolumeRequest{Disk: csiproxy.Selector{SerialNumber: "vol"}, StagingPath: `C:\a`, Grow: true}}, []Exchange{
		{"v1alpha1", "StageVolume", `{"disk":{"serialNumber":"vol"},"login":{},"stagingPath":"C:\\a","format":{},"grow":true}`, `{"diskNumber": 3, "volumeId": "` + jsonVolumeA + `", "grown": true}`},
	}, csiproxy.StagedVolume{Disk: 3, VolumeID: VolumeA, Grown: true}},

	{"storage", "UnstageVolume", []any{csiproxy.UnstageVolumeRequest{StagingPath: `C:\a`, Force: true}}, []Exchange{
		{"v1alpha1", "UnstageVolume", `{"stagingPath":"C:\\a","force":true,"disk":{}}`, `{"unmounted": true, "diskOffline": true}`},
	}, csiproxy.UnstagedVolume{Unmounted: true, DiskOffline: true}},

	{"storage", "UnstageVolume", []any{csiproxy.UnstageVolumeRequest{StagingPath: `C:\a`}}, []Exchange{
		{"v1alpha1", "UnstageVolume", `{"stagingPath":"C:\\a","disk":{}}`, `{"loggedOut": true, "unmapped": true}`},
	}, csiproxy.UnstagedVolume{LoggedOut: true, Unmapped: true}},

	{"storage", "PublishVolume", []any{`C:\a`, `C:\b`}, []Exchange{{"v1alpha1", "PublishVolume", `{"stagingPath":"C:\\a","targetPath":"C:\\b"}`, `{}`}}, nil},

	{"storage", "UnpublishVolume", []any{`C:\b`}, []Exchange{
		{"v1alpha1", "UnpublishVolume", `{"targetPath":"C:\\b"}`, `{}`},
	}, nil},

	{"storage", "ExpandVolume", []any{csiproxy.ExpandVolumeRequest{StagingPath: `C:\a`, DiskSizeBytes: 1 << 30, Wait: -time.Millisecond}}, []Exchange{
		{"v1alpha1", "ExpandVolume", `{"stagingPath":"C:\\a","diskSizeBytes":"1073741824","waitMilliseconds":"-1"}`, `{"sizeBytes": "1099511627776", "diskSizeBytes": "1099511627777", "grown": true}`},
	}, csiproxy.ExpandedVolume{SizeBytes: 1 << 40, DiskSizeBytes: 1<<40 + 1, Grown: true}},

	{"storage", "GetVolume", []any{`C:\a`}, []Exchange{
		{"v1alpha1", "GetVolume", `{"path":"C:\\a"}`, `{"volume": {"diskNumber": 0, "freeBytes": "7", "conditions": [{"reason": "Dirty", "inaccessible": true, "message": "m"}]}}`},
	}, csiproxy.Volume{Disk: new(csiproxy.DiskNumber), FreeBytes: 7,
		Conditions: csiproxy.Conditions{{Reason: csiproxy.ReasonDirty, Inaccessible: true, Message: "m"}}}},

	{"storage", "ListVolumes", nil, []Exchange{
		{"v1alpha1", "ListVolumes", `{}`, `{"incomplete_reason": "b", "mounts": [{"kind": "mapping", "target": "a", "volume": {}}]}`},
	}, csiproxy.VolumeList{IncompleteReason: "b", Mounts: []csiproxy.Mount{{Kind: csiproxy.MountKindMapping, Target: "a"}}}},

	{"storage", "StageShare", []any{csiproxy.StageShareRequest{RemotePath: `\\s\d`, StagingPath: `C:\a`, Credentials: csiproxy.SMBCredentials{Username: "u", Password: csiproxy.NewSecret("p")},
		Privacy: csiproxy.PrivacyRequired, ReadOnly: true}}, []Exchange{
		{"v1alpha1", "StageShare", `{"remotePath":"\\\\s\\d","stagingPath":"C:\\a","credentials":{"username":"u","password":"p"},"privacy":"required","readOnly":true}`, `{}`},
	}, nil},

	{"storage", "UnstageShare", []any{csiproxy.UnstageShareRequest{StagingPath: `C:\a`, RemotePath: `\\s\d`}}, []Exchange{
		{"v1alpha1", "UnstageShare", `{"stagingPath":"C:\\a","remotePath":"\\\\s\\d"}`, `{"unmapped": true}`},
	}, csiproxy.UnstagedShare{Unmapped: true}},

	{"storage", "UnstageShare", []any{csiproxy.UnstageShareRequest{StagingPath: `C:\a`}}, []Exchange{
		{"v1alpha1", "UnstageShare", `{"stagingPath":"C:\\a"}`, `{"unlinked": true}`},
	}, csiproxy.UnstagedShare{Unlinked: true}},

	{"storage", "CleanUp", []any{true}, []Exchange{
		{"v1alpha1", "CleanUp", `{"remove":true}`, `{"leftovers": [{"path": "a", "volume": {}, "error": "busy"}], "incomplete_reason": "b"}`},
	}, csiproxy.Leftovers{IncompleteReason: "b",
		Mounts: []csiproxy.Leftover{{Mount: csiproxy.Mount{Path: "a"}, Error: "busy"}}}},

	{"storage", "CheckVolume", []any{csiproxy.CheckVolumeRequest{StagingPath: `C:\a`, SpotFix: true}}, []Exchange{
		{"v1alpha1", "CheckVolume", `{"stagingPath":"C:\\a","spotFix":true}`, `{"errorsFound": true, "fixed": true, "durationMilliseconds": "1500", "conditions": [{"reason": "GrowthBlocked", "message": "m"}]}`},
	}, csiproxy.CheckedVolume{ErrorsFound: true, Fixed: true, Duration: 1500 * time.Millisecond,
		Conditions: csiproxy.Conditions{{Reason: csiproxy.ReasonGrowthBlocked, Message: "m"}}}},

	{"storage", "WatchDisks", []any{csiproxy.Selector{SerialNumber: "vol1"}}, []Exchange{
		{"v1alpha1", "WatchDisks", `{"disk":{"serialNumber":"vol1"}}`,
			`{"removed": [{"number": 1}], "added": [{"number": 1, "serialNumber": "vol1"}], "changed": [{"number": 2, "online": true}]}`},
	}, csiproxy.DiskChanges{
		Removed: []csiproxy.Disk{{Number: 1}}, Added: []csiproxy.Disk{{Number: 1, SerialNumber: "vol1"}},
		Changed: []csiproxy.Disk{{Number: 2, Online: true}},
	}},
}
