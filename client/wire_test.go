// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"iter"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/api"
	filesystemv1beta1 "github.com/csi-proxy/csi-proxy/api/filesystem/v1beta1"
	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/iscsi"
	"github.com/csi-proxy/csi-proxy/secret"
	"github.com/csi-proxy/csi-proxy/smb"
	"github.com/csi-proxy/csi-proxy/storage"
	"github.com/csi-proxy/csi-proxy/system"
	"github.com/csi-proxy/csi-proxy/volume"
)

const (
	volumeA = `\\?\Volume{6a1c2d3e-0000-4000-8000-0123456789ab}\`
	jsonA   = `\\\\?\\Volume{6a1c2d3e-0000-4000-8000-0123456789ab}\\`
	volumeB = `\\?\Volume{6a1c2d3e-0000-4000-8000-0123456789cd}\`
	jsonB   = `\\\\?\\Volume{6a1c2d3e-0000-4000-8000-0123456789cd}\\`
)

var portal1 = iscsi.Portal{Address: "10.0.0.1", Port: 65535}

// exchange is what an operation is on the wire in some versions of its group.
type exchange struct {
	versions         string // separated by blanks; the operation has no others
	method           string
	request, respond string // JSON
}

// operation is a method of a typed client, with what it is on the wire and what it
// returns then.
type operation struct {
	group, name string
	args        []any // without the context
	exchanges   []exchange
	want        any
}

// call calls the operation, or gets the first of what it streams.
func (o operation) call(ctx context.Context, c *Client) (any, error) {
	group := reflect.ValueOf(c).Elem().FieldByNameFunc(func(name string) bool { return strings.EqualFold(name, o.group) })
	method := group.MethodByName(o.name)
	args := []reflect.Value{reflect.ValueOf(ctx)}
	for i, arg := range o.args {
		args = append(args, reflect.ValueOf(arg).Convert(method.Type().In(i+1)))
	}
	results := method.Call(args)
	if stream, ok := results[0].Interface().(iter.Seq2[storage.DiskChanges, error]); ok {
		for changes, err := range stream {
			return changes, err
		}
		return nil, errors.New("nothing came")
	}
	err, _ := results[len(results)-1].Interface().(error)
	if len(results) == 1 {
		return nil, err
	}
	return results[0].Interface(), err
}

// on returns the exchange in a version, if that has the operation.
func (o operation) on(version string) (exchange, bool) {
	for _, e := range o.exchanges {
		if slices.Contains(strings.Fields(e.versions), version) {
			return e, true
		}
	}
	return exchange{}, false
}

var operations = []operation{
	{"disk", "ListDiskLocations", nil, []exchange{
		{"v1 v1beta3", "ListDiskLocations", `{}`, `{"diskLocations": {"4294967295": {"Adapter": "1", "Bus": "2", "Target": "3", "LUNID": "4"}}}`},
		{"v1beta2 v1beta1 v1alpha1", "ListDiskLocations", `{}`, `{"diskLocations": {"4294967295": {"Adapter": "1", "Bus": "2", "Target": "3", "LUNID": "4"}}}`},
	}, map[disk.Number]disk.Location{4294967295: {Adapter: "1", Bus: "2", Target: "3", LUNID: "4"}}},

	{"disk", "ListDiskIDs", nil, []exchange{
		{"v1 v1beta3", "ListDiskIDs", `{}`, `{"diskIDs": {"2": {"page83": "6000c29f", "serialNumber": "vol1"}}}`},
		{"v1beta2 v1beta1", "ListDiskIDs", `{}`, `{"diskIDs": {"2": {"identifiers": {"page83": "6000c29f", "serialNumber": "vol1"}}}}`},
	}, map[disk.Number]disk.IDs{2: {Page83: "6000c29f", SerialNumber: "vol1"}}},

	{"disk", "FindDiskByPage83", []any{"6000c29f"}, []exchange{
		{"v1 v1beta3", "ListDiskIDs", `{}`, `{"diskIDs": {"0": {"serialNumber": "6000c29f"}, "2": {"page83": "6000c29f"}, "3": {"page83": "6000c29f0"}}}`},
		{"v1beta2 v1beta1", "ListDiskIDs", `{}`, `{"diskIDs": {"0": {}, "2": {"identifiers": {"page83": "6000c29f"}}}}`},
		{"v1alpha1", "GetDiskNumberByName", `{"diskName":"6000c29f"}`, `{"diskNumber": "2"}`},
	}, disk.Number(2)},

	{"disk", "PartitionDisk", []any{3}, []exchange{
		{"v1 v1beta3", "PartitionDisk", `{"diskNumber":3}`, `{}`},
		{"v1beta2 v1beta1 v1alpha1", "PartitionDisk", `{"diskID":"3"}`, `{}`},
	}, nil},

	{"disk", "Rescan", nil, []exchange{
		{"v1 v1beta3 v1beta2 v1beta1 v1alpha1", "Rescan", `{}`, `{}`},
	}, nil},

	{"disk", "GetDiskStats", []any{3}, []exchange{
		{"v1 v1beta3", "GetDiskStats", `{"diskNumber":3}`, `{"totalBytes": "1099511627776"}`},
		{"v1beta2 v1beta1", "DiskStats", `{"diskID":"3"}`, `{"diskSize": "1099511627776"}`},
	}, disk.Stats{SizeBytes: 1 << 40}},

	{"disk", "SetDiskState", []any{3, true}, []exchange{
		{"v1 v1beta3", "SetDiskState", `{"diskNumber":3,"isOnline":true}`, `{}`},
		{"v1beta2", "SetAttachState", `{"diskID":"3","isOnline":true}`, `{}`},
	}, nil},

	{"disk", "GetDiskState", []any{3}, []exchange{
		{"v1 v1beta3", "GetDiskState", `{"diskNumber":3}`, `{"isOnline": true}`},
		{"v1beta2", "GetAttachState", `{"diskID":"3"}`, `{"isOnline": true}`},
	}, true},

	{"volume", "ListVolumesOnDisk", []any{3, 0}, []exchange{
		{"v2alpha1 v1 v1beta3", "ListVolumesOnDisk", `{"diskNumber":3}`, `{"volumeIds": ["` + jsonA + `", "` + jsonB + `"]}`},
		{"v1beta2 v1beta1 v1alpha1", "ListVolumesOnDisk", `{"diskId":"3"}`, `{"volumeIds": ["` + jsonA + `", "` + jsonB + `"]}`},
	}, []volume.ID{volumeA, volumeB}},

	{"volume", "ListVolumesOnDisk", []any{3, 2}, []exchange{
		{"v2alpha1 v1 v1beta3", "ListVolumesOnDisk", `{"diskNumber":3,"partitionNumber":2}`, `{"volumeIds": ["` + jsonA + `"]}`},
	}, []volume.ID{volumeA}},

	{"volume", "DataVolumeOfDisk", []any{3}, []exchange{
		{"v2alpha1 v1 v1beta3", "ListVolumesOnDisk", `{"diskNumber":3}`, `{"volumeIds": ["` + jsonA + `"]}`},
		{"v1beta2 v1beta1 v1alpha1", "ListVolumesOnDisk", `{"diskId":"3"}`, `{"volumeIds": ["` + jsonA + `"]}`},
	}, volume.ID(volumeA)},

	{"volume", "MountVolume", []any{volumeA, `C:\a`}, []exchange{
		{"v2alpha1 v1 v1beta3", "MountVolume", `{"volumeId":"` + jsonA + `","targetPath":"C:\\a"}`, `{}`},
		{"v1beta2 v1beta1 v1alpha1", "MountVolume", `{"volumeId":"` + jsonA + `","path":"C:\\a"}`, `{}`},
	}, nil},

	{"volume", "UnmountVolume", []any{volumeA, `C:\a`}, []exchange{
		{"v2alpha1 v1 v1beta3", "UnmountVolume", `{"volumeId":"` + jsonA + `","targetPath":"C:\\a"}`, `{}`},
		{"v1beta2 v1beta1 v1alpha1", "DismountVolume", `{"volumeId":"` + jsonA + `","path":"C:\\a"}`, `{}`},
	}, nil},

	{"volume", "IsVolumeFormatted", []any{volumeA}, []exchange{
		{"v2alpha1 v1 v1beta3 v1beta2 v1beta1 v1alpha1", "IsVolumeFormatted", `{"volumeId":"` + jsonA + `"}`, `{"formatted": true}`},
	}, true},

	{"volume", "FormatVolume", []any{volumeA}, []exchange{
		{"v2alpha1 v1 v1beta3 v1beta2 v1beta1 v1alpha1", "FormatVolume", `{"volumeId":"` + jsonA + `"}`, `{}`},
	}, nil},

	{"volume", "ResizeVolume", []any{volumeA, 1 << 40}, []exchange{
		{"v2alpha1 v1 v1beta3", "ResizeVolume", `{"volumeId":"` + jsonA + `","sizeBytes":"1099511627776"}`, `{}`},
		{"v1beta2 v1beta1 v1alpha1", "ResizeVolume", `{"volumeId":"` + jsonA + `","size":"1099511627776"}`, `{}`},
	}, nil},

	{"volume", "GetVolumeStats", []any{volumeA}, []exchange{
		{"v2alpha1 v1 v1beta3", "GetVolumeStats", `{"volumeId":"` + jsonA + `"}`, `{"totalBytes": "1099511627776", "usedBytes": "4096"}`},
		{"v1beta2 v1beta1", "VolumeStats", `{"volumeId":"` + jsonA + `"}`, `{"volumeSize": "1099511627776", "volumeUsedSize": "4096"}`},
	}, volume.Stats{SizeBytes: 1 << 40, UsedBytes: 4096}},

	{"volume", "GetDiskNumberFromVolumeID", []any{volumeA}, []exchange{
		{"v2alpha1 v1 v1beta3", "GetDiskNumberFromVolumeID", `{"volumeId":"` + jsonA + `"}`, `{"diskNumber": 4294967295}`},
		{"v1beta2 v1beta1", "GetVolumeDiskNumber", `{"volumeId":"` + jsonA + `"}`, `{"diskNumber": "4294967295"}`},
	}, disk.Number(4294967295)},

	{"volume", "GetVolumeIDFromTargetPath", []any{`C:\a`}, []exchange{
		{"v2alpha1 v1 v1beta3", "GetVolumeIDFromTargetPath", `{"targetPath":"C:\\a"}`, `{"volumeId": "` + jsonA + `"}`},
		{"v1beta2 v1beta1", "GetVolumeIDFromMount", `{"mount":"C:\\a"}`, `{"volumeId": "` + jsonA + `"}`},
	}, volume.ID(volumeA)},

	{"volume", "GetClosestVolumeIDFromTargetPath", []any{`C:\a`}, []exchange{
		{"v2alpha1", "GetClosestVolumeIDFromTargetPath", `{"targetPath":"C:\\a"}`, `{"volumeId": "` + jsonA + `"}`},
	}, volume.ID(volumeA)},

	{"volume", "WriteVolumeCache", []any{volumeA}, []exchange{
		{"v2alpha1 v1 v1beta3 v1beta2", "WriteVolumeCache", `{"volumeId":"` + jsonA + `"}`, `{}`},
	}, nil},

	{"filesystem", "PathExists", []any{`C:\pods\a`}, []exchange{
		{"v2alpha1 v1 v1beta2", "PathExists", `{"path":"C:\\pods\\a"}`, `{"exists": true}`},
		{"v1beta1 v1alpha1", "PathExists", `{"path":"C:\\pods\\a","context":"POD"}`, `{"exists": true}`},
	}, true},

	{"filesystem", "Mkdir", []any{`C:\pods\a`}, []exchange{
		{"v2alpha1 v1 v1beta2", "Mkdir", `{"path":"C:\\pods\\a"}`, `{}`},
		{"v1beta1 v1alpha1", "Mkdir", `{"path":"C:\\pods\\a","context":"POD"}`, `{}`},
	}, nil},

	{"filesystem", "Rmdir", []any{`C:\pods\a`, true}, []exchange{
		{"v2alpha1 v1 v1beta2", "Rmdir", `{"path":"C:\\pods\\a","force":true}`, `{}`},
		{"v1beta1 v1alpha1", "Rmdir", `{"path":"C:\\pods\\a","context":"POD","force":true}`, `{}`},
	}, nil},

	{"filesystem", "RmdirContents", []any{`C:\a`}, []exchange{
		{"v2alpha1", "RmdirContents", `{"path":"C:\\a"}`, `{}`},
	}, nil},

	{"filesystem", "CreateSymlink", []any{`C:\from`, `C:\to`}, []exchange{
		{"v2alpha1 v1 v1beta2", "CreateSymlink", `{"sourcePath":"C:\\from","targetPath":"C:\\to"}`, `{}`},
		{"v1beta1 v1alpha1", "LinkPath", `{"sourcePath":"C:\\from","targetPath":"C:\\to"}`, `{}`},
	}, nil},

	{"filesystem", "IsSymlink", []any{`C:\a`}, []exchange{
		{"v2alpha1 v1 v1beta2", "IsSymlink", `{"path":"C:\\a"}`, `{"isSymlink": true}`},
		{"v1beta1 v1alpha1", "IsMountPoint", `{"path":"C:\\a"}`, `{"isMountPoint": true}`},
	}, true},

	{"smb", "NewSMBGlobalMapping", []any{`\\server\share`, `C:\a`, smb.Credentials{Username: "u", Password: secret.New("p%")}}, []exchange{
		{"v1 v1beta2", "NewSmbGlobalMapping", `{"remotePath":"\\\\server\\share","localPath":"C:\\a","username":"u","password":"p%"}`, `{}`},
		{"v1beta1 v1alpha1", "NewSmbGlobalMapping", `{"remotePath":"\\\\server\\share","localPath":"C:\\a","username":"u","password":"p%"}`, `{"error": ""}`},
	}, nil},

	{"smb", "RemoveSMBGlobalMapping", []any{`\\server\share`}, []exchange{
		{"v1 v1beta2", "RemoveSmbGlobalMapping", `{"remotePath":"\\\\server\\share"}`, `{}`},
		{"v1beta1 v1alpha1", "RemoveSmbGlobalMapping", `{"remotePath":"\\\\server\\share"}`, `{"error": ""}`},
	}, nil},

	{"iscsi", "AddTargetPortal", []any{portal1}, []exchange{
		{"v1alpha2 v1alpha1", "AddTargetPortal", `{"targetPortal":{"targetAddress":"10.0.0.1","targetPort":65535}}`, `{}`},
	}, nil},

	{"iscsi", "DiscoverTargetPortal", []any{portal1}, []exchange{
		{"v1alpha2 v1alpha1", "DiscoverTargetPortal", `{"targetPortal":{"targetAddress":"10.0.0.1","targetPort":65535}}`, `{"iqns": ["iqn.2026-01.a:b", "iqn.2026-01.a:c"]}`},
	}, []iscsi.IQN{"iqn.2026-01.a:b", "iqn.2026-01.a:c"}},

	{"iscsi", "ListTargetPortals", nil, []exchange{
		{"v1alpha2 v1alpha1", "ListTargetPortals", `{}`, `{"targetPortals": [{"targetAddress": "10.0.0.1", "targetPort": 65535}, {"targetAddress": "a"}]}`},
	}, []iscsi.Portal{portal1, {Address: "a"}}},

	{"iscsi", "RemoveTargetPortal", []any{iscsi.Portal{Address: "a"}}, []exchange{
		{"v1alpha2 v1alpha1", "RemoveTargetPortal", `{"targetPortal":{"targetAddress":"a"}}`, `{}`},
	}, nil},

	{"iscsi", "ConnectTarget", []any{portal1, "iqn.2026-01.a:b", iscsi.Authentication{}}, []exchange{
		{"v1alpha2 v1alpha1", "ConnectTarget", `{"targetPortal":{"targetAddress":"10.0.0.1","targetPort":65535},"iqn":"iqn.2026-01.a:b"}`, `{}`},
	}, nil},

	{"iscsi", "ConnectTarget", []any{
		portal1, "iqn.2026-01.a:b",
		iscsi.Authentication{Type: iscsi.OneWayCHAP, Username: "u", Secret: secret.New("s%")},
	}, []exchange{
		{"v1alpha2 v1alpha1", "ConnectTarget", `{"targetPortal":{"targetAddress":"10.0.0.1","targetPort":65535},"iqn":"iqn.2026-01.a:b",` +
			`"authType":"ONE_WAY_CHAP","chapUsername":"u","chapSecret":"s%"}`, `{}`},
	}, nil},

	{"iscsi", "ConnectTarget", []any{
		portal1, "iqn.2026-01.a:b",
		iscsi.Authentication{Type: iscsi.MutualCHAP, Username: "u", Secret: secret.New("s%")},
	}, []exchange{
		{"v1alpha2 v1alpha1", "ConnectTarget", `{"targetPortal":{"targetAddress":"10.0.0.1","targetPort":65535},"iqn":"iqn.2026-01.a:b",` +
			`"authType":"MUTUAL_CHAP","chapUsername":"u","chapSecret":"s%"}`, `{}`},
	}, nil},

	{"iscsi", "DisconnectTarget", []any{portal1, "iqn.2026-01.a:b"}, []exchange{
		{"v1alpha2 v1alpha1", "DisconnectTarget", `{"targetPortal":{"targetAddress":"10.0.0.1","targetPort":65535},"iqn":"iqn.2026-01.a:b"}`, `{}`},
	}, nil},

	{"iscsi", "GetTargetDisks", []any{portal1, "iqn.2026-01.a:b"}, []exchange{
		{"v1alpha2 v1alpha1", "GetTargetDisks", `{"targetPortal":{"targetAddress":"10.0.0.1","targetPort":65535},"iqn":"iqn.2026-01.a:b"}`, `{"diskIDs": ["4294967295", "0"]}`},
	}, []disk.Number{4294967295, 0}},

	{"iscsi", "SetMutualCHAPSecret", []any{secret.New("s%")}, []exchange{
		{"v1alpha2", "SetMutualChapSecret", `{"MutualChapSecret":"s%"}`, `{}`},
	}, nil},

	{"system", "GetBIOSSerialNumber", nil, []exchange{
		{"v1alpha1", "GetBIOSSerialNumber", `{}`, `{"serialNumber": "VMware-42 0b"}`},
	}, "VMware-42 0b"},

	{"system", "GetService", []any{"a"}, []exchange{
		{"v1alpha1", "GetService", `{"name":"a"}`, `{"displayName": "A", "startType": "DISABLED", "status": "PAUSED"}`},
	}, system.Service{DisplayName: "A", StartType: system.Disabled, Status: system.Paused}},

	{"system", "StartService", []any{"a"}, []exchange{
		{"v1alpha1", "StartService", `{"name":"a"}`, `{}`},
	}, nil},

	{"system", "StopService", []any{"a", false}, []exchange{
		{"v1alpha1", "StopService", `{"name":"a"}`, `{}`},
	}, nil},

	{"system", "StopService", []any{"a", true}, []exchange{
		{"v1alpha1", "StopService", `{"name":"a","force":true}`, `{}`},
	}, nil},

	{"storage", "ListDisks", []any{storage.Selector{Number: new(disk.Number), SerialNumber: "vol"}}, []exchange{
		{"v1alpha1", "ListDisks", `{"disk":{"number":0,"serialNumber":"vol"}}`, `{"disks": [{"number": 3, "serialNumber": "vol", "online": true}]}`},
	}, []storage.Disk{{Number: 3, SerialNumber: "vol", Online: true}}},

	{"storage", "StageVolume", []any{storage.StageVolumeRequest{Disk: storage.Selector{SerialNumber: "vol"}, StagingPath: `C:\a`, Grow: true}}, []exchange{
		{"v1alpha1", "StageVolume", `{"disk":{"serialNumber":"vol"},"login":{},"stagingPath":"C:\\a","format":{},"grow":true}`, `{"diskNumber": 3, "volumeId": "` + jsonA + `", "grown": true}`},
	}, storage.StagedVolume{Disk: 3, VolumeID: volumeA, Grown: true}},

	{"storage", "UnstageVolume", []any{storage.UnstageVolumeRequest{StagingPath: `C:\a`, Force: true}}, []exchange{
		{"v1alpha1", "UnstageVolume", `{"stagingPath":"C:\\a","force":true,"disk":{}}`, `{"unmounted": true, "diskOffline": true}`},
	}, storage.UnstagedVolume{Unmounted: true, DiskOffline: true}},

	{"storage", "UnstageVolume", []any{storage.UnstageVolumeRequest{StagingPath: `C:\a`}}, []exchange{
		{"v1alpha1", "UnstageVolume", `{"stagingPath":"C:\\a","disk":{}}`, `{"loggedOut": true, "unmapped": true}`},
	}, storage.UnstagedVolume{LoggedOut: true, Unmapped: true}},

	{"storage", "PublishVolume", []any{`C:\a`, `C:\b`}, []exchange{{"v1alpha1", "PublishVolume", `{"stagingPath":"C:\\a","targetPath":"C:\\b"}`, `{}`}}, nil},

	{"storage", "UnpublishVolume", []any{`C:\b`}, []exchange{
		{"v1alpha1", "UnpublishVolume", `{"targetPath":"C:\\b"}`, `{}`},
	}, nil},

	{"storage", "ExpandVolume", []any{storage.ExpandVolumeRequest{Path: `C:\a`, DiskSizeBytes: 1 << 30, Wait: -1}}, []exchange{
		{"v1alpha1", "ExpandVolume", `{"path":"C:\\a","diskSizeBytes":"1073741824","waitMilliseconds":"-1"}`, `{"sizeBytes": "1099511627776", "diskSizeBytes": "1099511627777", "grown": true}`},
	}, storage.ExpandedVolume{SizeBytes: 1 << 40, DiskSizeBytes: 1<<40 + 1, Grown: true}},

	{"storage", "GetVolume", []any{`C:\a`}, []exchange{
		{"v1alpha1", "GetVolume", `{"path":"C:\\a"}`, `{"volume": {"diskNumber": 0, "freeBytes": "7", "conditions": [{"reason": "Dirty", "message": "m"}]}}`},
	}, storage.Volume{Disk: new(disk.Number), FreeBytes: 7,
		Conditions: storage.Conditions{{Reason: storage.Dirty, Message: "m"}}}},

	{"storage", "ListVolumes", nil, []exchange{
		{"v1alpha1", "ListVolumes", `{}`, `{"incomplete_reason": "b", "mounts": [{"kind": "mapping", "target": "a"}]}`},
	}, storage.VolumeList{IncompleteReason: "b", Mounts: []storage.Mount{{Kind: storage.Mapping, Target: "a"}}}},

	{"storage", "StageShare", []any{storage.StageShareRequest{RemotePath: `\\s\d`, StagingPath: `C:\a`, Credentials: smb.Credentials{Username: "u", Password: secret.New("p")}}}, []exchange{
		{"v1alpha1", "StageShare", `{"remotePath":"\\\\s\\d","stagingPath":"C:\\a","username":"u","password":"p"}`, `{}`},
	}, nil},

	{"storage", "UnstageShare", []any{storage.UnstageShareRequest{StagingPath: `C:\a`, RemotePath: `\\s\d`}}, []exchange{
		{"v1alpha1", "UnstageShare", `{"stagingPath":"C:\\a","remotePath":"\\\\s\\d"}`, `{"unmapped": true}`},
	}, storage.UnstagedShare{Unmapped: true}},

	{"storage", "UnstageShare", []any{storage.UnstageShareRequest{StagingPath: `C:\a`}}, []exchange{
		{"v1alpha1", "UnstageShare", `{"stagingPath":"C:\\a"}`, `{"unlinked": true}`},
	}, storage.UnstagedShare{Unlinked: true}},

	{"storage", "CleanUp", []any{true}, []exchange{
		{"v1alpha1", "CleanUp", `{"remove":true}`, `{"leftovers": [{"mount": {"path": "a"}, "error": "busy"}], "incomplete_reason": "b"}`},
	}, storage.Leftovers{IncompleteReason: "b",
		Mounts: []storage.Leftover{{Mount: storage.Mount{Path: "a"}, Error: "busy"}}}},

	{"storage", "MoveAside", []any{`C:\a`}, []exchange{
		{"v1alpha1", "MoveAside", `{"path":"C:\\a"}`, `{"moved_to": "b", "entries": [{"name": "c", "created_milliseconds": 1500}], "more_entries": true}`},
	}, storage.MovedAside{MovedTo: "b", MoreEntries: true,
		Entries: []storage.MovedEntry{{Name: "c", Created: time.UnixMilli(1500).UTC()}}}},

	{"storage", "ListRefusedLogOns", []any{true}, []exchange{
		{"v1alpha1", "ListRefusedLogOns", `{"forget":true}`, `{"refused": [{"remote_path": "a", "windows_error": 1326, "refused_for_milliseconds": 2000, "held_back_for_milliseconds": 500}]}`},
	}, []storage.RefusedLogOn{{RemotePath: "a", WindowsError: 1326, RefusedFor: 2 * time.Second,
		HeldBackFor: 500 * time.Millisecond}}},

	{"storage", "CheckVolume", []any{storage.CheckVolumeRequest{Path: `C:\a`, SpotFix: true}}, []exchange{
		{"v1alpha1", "CheckVolume", `{"path":"C:\\a","spotFix":true}`, `{"errorsFound": true, "durationMilliseconds": "1500"}`},
	}, storage.CheckedVolume{ErrorsFound: true, Duration: 1500 * time.Millisecond}},

	{"storage", "WatchDisks", []any{storage.Selector{SerialNumber: "vol1"}}, []exchange{
		{"v1alpha1", "WatchDisks", `{"disk":{"serialNumber":"vol1"}}`,
			`{"removed": [{"number": 1}], "added": [{"number": 1, "serialNumber": "vol1"}], "changed": [{"number": 2, "online": true}]}`},
	}, storage.DiskChanges{
		Removed: []storage.Disk{{Number: 1}}, Added: []storage.Disk{{Number: 1, SerialNumber: "vol1"}},
		Changed: []storage.Disk{{Number: 2, Online: true}},
	}},
}

// In each version, each operation sends what the version's descriptors say and
// understands the response, or says that the version doesn't have it.
func TestWire(t *testing.T) {
	for _, group := range api.Groups() {
		for _, version := range api.Versions(group) {
			t.Run(group+" "+version, func(t *testing.T) {
				var want exchange
				d := newDaemon(t, func(method, request string) (string, error) {
					if method != want.method || request != want.request {
						t.Errorf("sent %s %s, want %s %s", method, request, want.method, want.request)
					}
					return want.respond, nil
				})
				d.serve(group + " " + version)
				c := d.newClient(t)
				for _, o := range operations {
					if o.group != group {
						continue
					}
					var ok bool
					if want, ok = o.on(version); !ok {
						got, err := o.call(t.Context(), c)
						wantVersionError(t, err, VersionError{group, version, o.name})
						wantZero(t, got)
						continue
					}
					got, err := o.call(t.Context(), c)
					if err != nil {
						t.Errorf("%s: %v", o.name, err)
					}
					if diff := cmp.Diff(o.want, got); diff != "" {
						t.Errorf("%s (-want +got):\n%s", o.name, diff)
					}
				}
			})
		}
	}
}

// wantZero checks the result that comes with an error.
func wantZero(t *testing.T, result any) {
	t.Helper()
	if result != nil && !reflect.ValueOf(result).IsZero() {
		t.Errorf("returns %v with the error", result)
	}
}

func wantVersionError(t *testing.T, err error, want VersionError) {
	t.Helper()
	wantKind(t, err, csiproxy.ErrUnimplemented)
	if got := new(VersionError); !errors.As(err, &got) || *got != want {
		t.Errorf("error %v, want one with %+v", err, want)
	}
}

// A test of operations must not miss one.
func TestWireHasAllMethods(t *testing.T) {
	for _, group := range api.Groups() {
		for _, version := range api.Versions(group) {
			service, _ := api.Service(group, version)
			for i := range service.Methods().Len() {
				name := string(service.Methods().Get(i).Name())
				tested := slices.ContainsFunc(operations, func(o operation) bool {
					e, ok := o.on(version)
					return ok && o.group == group && e.method == name
				})
				if !tested {
					t.Errorf("%s %s: no operation uses %s", group, version, name)
				}
			}
		}
	}
}

// A response that makes no sense is an error, not a wrong disk.
func TestMalformedResponses(t *testing.T) {
	for _, test := range []struct {
		endpoint, respond string
		call              func(context.Context, *Client) (any, error)
	}{
		{"disk v1beta2", `{"diskLocations": {"4294967296": {}}}`, callOf(t, "ListDiskLocations")},
		{"disk v1beta2", `{"diskIDs": {"": {}}}`, callOf(t, "ListDiskIDs")},
		{"disk v1alpha1", `{"diskNumber": "-1"}`, callOf(t, "FindDiskByPage83")},
		{"volume v1beta2", `{"diskNumber": "-1"}`, callOf(t, "GetDiskNumberFromVolumeID")},
		{"volume v1beta2", `{"diskNumber": "4294967296"}`, callOf(t, "GetDiskNumberFromVolumeID")},
		{"filesystem v1beta1", `{"error": "it went wrong", "exists": true}`, callOf(t, "PathExists")},
		{"smb v1beta1", `{"error": "it went wrong"}`, callOf(t, "NewSMBGlobalMapping")},
		{"smb v1alpha1", `{"error": "it went wrong"}`, callOf(t, "RemoveSMBGlobalMapping")},
		{"iscsi v1alpha2", `{"targetPortals": [{"targetPort": 1}, {"targetPort": 65536}]}`, callOf(t, "ListTargetPortals")},
		{"iscsi v1alpha1", `{"diskIDs": ["1", "4294967296"]}`, callOf(t, "GetTargetDisks")},
	} {
		t.Run(test.endpoint+" "+test.respond, func(t *testing.T) {
			d := newDaemon(t, func(string, string) (string, error) { return test.respond, nil })
			d.serve(test.endpoint)
			got, err := test.call(t.Context(), d.newClient(t))
			wantKind(t, err, csiproxy.ErrInternal)
			if err != nil && errors.Is(err, csiproxy.ErrInvalidArgument) {
				t.Errorf("error %v blames the caller", err)
			}
			wantZero(t, got)
		})
	}
}

func callOf(t *testing.T, name string) func(context.Context, *Client) (any, error) {
	for _, o := range operations {
		if o.name == name {
			return o.call
		}
	}
	t.Fatalf("no operation %s", name)
	return nil
}

func TestFindDiskByPage83(t *testing.T) {
	d := newDaemon(t, func(string, string) (string, error) {
		return `{"diskIDs": {"0": {}, "2": {"page83": "6000c29f0"}}}`, nil
	})
	d.serve("disk v1")
	c := d.newClient(t).Disk
	for page83, want := range map[string]error{
		"":         csiproxy.ErrInvalidArgument, // many disks have an empty one
		"6000c29f": csiproxy.ErrNotFound,
	} {
		_, err := c.FindDiskByPage83(t.Context(), page83)
		wantKind(t, err, want)
	}
}

func TestDataVolumeOfDisk(t *testing.T) {
	for respond, want := range map[string]error{
		`{}`: csiproxy.ErrNotFound,
		`{"volumeIds": ["` + jsonA + `", "` + jsonB + `"]}`: csiproxy.ErrFailedPrecondition,
	} {
		d := newDaemon(t, func(string, string) (string, error) { return respond, nil })
		d.serve("volume v1")
		_, err := callOf(t, "DataVolumeOfDisk")(t.Context(), d.newClient(t))
		wantKind(t, err, want)
	}
}

// A daemon must not take what the client doesn't know for a login without CHAP.
func TestConnectTargetChecksAuthentication(t *testing.T) {
	d := newDaemon(t, func(method, _ string) (string, error) {
		t.Errorf("%s was sent", method)
		return `{}`, nil
	})
	d.serve("iscsi v1alpha2")
	c := d.newClient(t).ISCSI
	for _, unknown := range []iscsi.AuthType{-1, 3, 1 << 32} {
		err := c.ConnectTarget(t.Context(), portal1, "iqn.2026-01.a:b", iscsi.Authentication{Type: unknown})
		wantKind(t, err, csiproxy.ErrInvalidArgument)
	}
}

// The daemon would take the id for a disk number, and grow what wasn't meant.
func TestResizeVolumeChecksID(t *testing.T) {
	d := newDaemon(t, func(method, _ string) (string, error) {
		t.Errorf("%s was sent", method)
		return `{}`, nil
	})
	d.serve("volume v1")
	c := d.newClient(t).Volume
	wantKind(t, c.ResizeVolume(t.Context(), "3", 0), csiproxy.ErrInvalidArgument)
}

func TestPathContext(t *testing.T) {
	const pod, plugin = filesystemv1beta1.PathContext_POD, filesystemv1beta1.PathContext_PLUGIN
	for path, want := range map[string]filesystemv1beta1.PathContext{
		`C:\var\lib\kubelet\pods\uid\volumes\x\mount`:              pod,
		`\var\lib\kubelet\PODS\uid`:                                pod,
		`C:\var\lib\kubelet\plugins\kubernetes.io\csi\pods\x`:      plugin,
		`C:\var\lib\kubelet\plugins\kubernetes.io\csi\globalmount`: plugin,
		`C:\var\lib\kubelet\pods\uid\volumes\plugins\x`:            pod,
		`C:\var\lib\kubelet\podsx`:                                 plugin,
		``:                                                         plugin,
	} {
		if got := pathContext(path); got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
}
