// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/api"
	filesystemv1beta1 "github.com/csi-proxy/csi-proxy/api/filesystem/v1beta1"
	"github.com/csi-proxy/csi-proxy/node/disk"
	"github.com/csi-proxy/csi-proxy/node/volume"
)

const (
	volumeA = `\\?\Volume{6a1c2d3e-0000-4000-8000-0123456789ab}\`
	jsonA   = `\\\\?\\Volume{6a1c2d3e-0000-4000-8000-0123456789ab}\\`
	volumeB = `\\?\Volume{6a1c2d3e-0000-4000-8000-0123456789cd}\`
	jsonB   = `\\\\?\\Volume{6a1c2d3e-0000-4000-8000-0123456789cd}\\`
)

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
	call        func(context.Context, *Client) (any, error)
	exchanges   []exchange
	want        any
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
	{"disk", "ListDiskLocations", onDisk(func(ctx context.Context, d *Disk) (any, error) { return d.ListDiskLocations(ctx) }), []exchange{
		{"v1 v1beta3", "ListDiskLocations", `{}`, `{"diskLocations": {"4294967295": {"Adapter": "1", "Bus": "2", "Target": "3", "LUNID": "4"}}}`},
		{"v1beta2 v1beta1 v1alpha1", "ListDiskLocations", `{}`, `{"diskLocations": {"4294967295": {"Adapter": "1", "Bus": "2", "Target": "3", "LUNID": "4"}}}`},
	}, map[disk.Number]disk.Location{4294967295: {Adapter: "1", Bus: "2", Target: "3", LUNID: "4"}}},

	{"disk", "ListDiskIDs", onDisk(func(ctx context.Context, d *Disk) (any, error) { return d.ListDiskIDs(ctx) }), []exchange{
		{"v1 v1beta3", "ListDiskIDs", `{}`, `{"diskIDs": {"2": {"page83": "6000c29f", "serialNumber": "vol1"}}}`},
		{"v1beta2 v1beta1", "ListDiskIDs", `{}`, `{"diskIDs": {"2": {"identifiers": {"page83": "6000c29f", "serialNumber": "vol1"}}}}`},
	}, map[disk.Number]disk.IDs{2: {Page83: "6000c29f", SerialNumber: "vol1"}}},

	{"disk", "FindDiskByPage83", onDisk(func(ctx context.Context, d *Disk) (any, error) { return d.FindDiskByPage83(ctx, "6000c29f") }), []exchange{
		{"v1 v1beta3", "ListDiskIDs", `{}`, `{"diskIDs": {"0": {"serialNumber": "6000c29f"}, "2": {"page83": "6000c29f"}, "3": {"page83": "6000c29f0"}}}`},
		{"v1beta2 v1beta1", "ListDiskIDs", `{}`, `{"diskIDs": {"0": {}, "2": {"identifiers": {"page83": "6000c29f"}}}}`},
		{"v1alpha1", "GetDiskNumberByName", `{"diskName":"6000c29f"}`, `{"diskNumber": "2"}`},
	}, disk.Number(2)},

	{"disk", "PartitionDisk", onDisk(func(ctx context.Context, d *Disk) (any, error) { return nil, d.PartitionDisk(ctx, 3) }), []exchange{
		{"v1 v1beta3", "PartitionDisk", `{"diskNumber":3}`, `{}`},
		{"v1beta2 v1beta1 v1alpha1", "PartitionDisk", `{"diskID":"3"}`, `{}`},
	}, nil},

	{"disk", "Rescan", onDisk(func(ctx context.Context, d *Disk) (any, error) { return nil, d.Rescan(ctx) }), []exchange{
		{"v1 v1beta3 v1beta2 v1beta1 v1alpha1", "Rescan", `{}`, `{}`},
	}, nil},

	{"disk", "GetDiskStats", onDisk(func(ctx context.Context, d *Disk) (any, error) { return d.GetDiskStats(ctx, 3) }), []exchange{
		{"v1 v1beta3", "GetDiskStats", `{"diskNumber":3}`, `{"totalBytes": "1099511627776"}`},
		{"v1beta2 v1beta1", "DiskStats", `{"diskID":"3"}`, `{"diskSize": "1099511627776"}`},
	}, disk.Stats{TotalBytes: 1 << 40}},

	{"disk", "SetDiskState", onDisk(func(ctx context.Context, d *Disk) (any, error) { return nil, d.SetDiskState(ctx, 3, true) }), []exchange{
		{"v1 v1beta3", "SetDiskState", `{"diskNumber":3,"isOnline":true}`, `{}`},
		{"v1beta2", "SetAttachState", `{"diskID":"3","isOnline":true}`, `{}`},
	}, nil},

	{"disk", "GetDiskState", onDisk(func(ctx context.Context, d *Disk) (any, error) { return d.GetDiskState(ctx, 3) }), []exchange{
		{"v1 v1beta3", "GetDiskState", `{"diskNumber":3}`, `{"isOnline": true}`},
		{"v1beta2", "GetAttachState", `{"diskID":"3"}`, `{"isOnline": true}`},
	}, true},

	{"volume", "ListVolumesOnDisk", onVolume(func(ctx context.Context, v *Volume) (any, error) { return v.ListVolumesOnDisk(ctx, 3, 0) }), []exchange{
		{"v2alpha1 v1 v1beta3", "ListVolumesOnDisk", `{"diskNumber":3}`, `{"volumeIds": ["` + jsonA + `", "` + jsonB + `"]}`},
		{"v1beta2 v1beta1 v1alpha1", "ListVolumesOnDisk", `{"diskId":"3"}`, `{"volumeIds": ["` + jsonA + `", "` + jsonB + `"]}`},
	}, []volume.ID{volumeA, volumeB}},

	{"volume", "ListVolumesOnDisk", onVolume(func(ctx context.Context, v *Volume) (any, error) { return v.ListVolumesOnDisk(ctx, 3, 2) }), []exchange{
		{"v2alpha1 v1 v1beta3", "ListVolumesOnDisk", `{"diskNumber":3,"partitionNumber":2}`, `{"volumeIds": ["` + jsonA + `"]}`},
	}, []volume.ID{volumeA}},

	{"volume", "DataVolumeOfDisk", onVolume(func(ctx context.Context, v *Volume) (any, error) { return v.DataVolumeOfDisk(ctx, 3) }), []exchange{
		{"v2alpha1 v1 v1beta3", "ListVolumesOnDisk", `{"diskNumber":3}`, `{"volumeIds": ["` + jsonA + `"]}`},
		{"v1beta2 v1beta1 v1alpha1", "ListVolumesOnDisk", `{"diskId":"3"}`, `{"volumeIds": ["` + jsonA + `"]}`},
	}, volume.ID(volumeA)},

	{"volume", "MountVolume", onVolume(func(ctx context.Context, v *Volume) (any, error) { return nil, v.MountVolume(ctx, volumeA, `C:\a`) }), []exchange{
		{"v2alpha1 v1 v1beta3", "MountVolume", `{"volumeId":"` + jsonA + `","targetPath":"C:\\a"}`, `{}`},
		{"v1beta2 v1beta1 v1alpha1", "MountVolume", `{"volumeId":"` + jsonA + `","path":"C:\\a"}`, `{}`},
	}, nil},

	{"volume", "UnmountVolume", onVolume(func(ctx context.Context, v *Volume) (any, error) { return nil, v.UnmountVolume(ctx, volumeA, `C:\a`) }), []exchange{
		{"v2alpha1 v1 v1beta3", "UnmountVolume", `{"volumeId":"` + jsonA + `","targetPath":"C:\\a"}`, `{}`},
		{"v1beta2 v1beta1 v1alpha1", "DismountVolume", `{"volumeId":"` + jsonA + `","path":"C:\\a"}`, `{}`},
	}, nil},

	{"volume", "IsVolumeFormatted", onVolume(func(ctx context.Context, v *Volume) (any, error) { return v.IsVolumeFormatted(ctx, volumeA) }), []exchange{
		{"v2alpha1 v1 v1beta3 v1beta2 v1beta1 v1alpha1", "IsVolumeFormatted", `{"volumeId":"` + jsonA + `"}`, `{"formatted": true}`},
	}, true},

	{"volume", "FormatVolume", onVolume(func(ctx context.Context, v *Volume) (any, error) { return nil, v.FormatVolume(ctx, volumeA) }), []exchange{
		{"v2alpha1 v1 v1beta3 v1beta2 v1beta1 v1alpha1", "FormatVolume", `{"volumeId":"` + jsonA + `"}`, `{}`},
	}, nil},

	{"volume", "ResizeVolume", onVolume(func(ctx context.Context, v *Volume) (any, error) { return nil, v.ResizeVolume(ctx, volumeA, 1<<40) }), []exchange{
		{"v2alpha1 v1 v1beta3", "ResizeVolume", `{"volumeId":"` + jsonA + `","sizeBytes":"1099511627776"}`, `{}`},
		{"v1beta2 v1beta1 v1alpha1", "ResizeVolume", `{"volumeId":"` + jsonA + `","size":"1099511627776"}`, `{}`},
	}, nil},

	{"volume", "GetVolumeStats", onVolume(func(ctx context.Context, v *Volume) (any, error) { return v.GetVolumeStats(ctx, volumeA) }), []exchange{
		{"v2alpha1 v1 v1beta3", "GetVolumeStats", `{"volumeId":"` + jsonA + `"}`, `{"totalBytes": "1099511627776", "usedBytes": "4096"}`},
		{"v1beta2 v1beta1", "VolumeStats", `{"volumeId":"` + jsonA + `"}`, `{"volumeSize": "1099511627776", "volumeUsedSize": "4096"}`},
	}, volume.Stats{TotalBytes: 1 << 40, UsedBytes: 4096}},

	{"volume", "GetDiskNumberFromVolumeID", onVolume(func(ctx context.Context, v *Volume) (any, error) { return v.GetDiskNumberFromVolumeID(ctx, volumeA) }), []exchange{
		{"v2alpha1 v1 v1beta3", "GetDiskNumberFromVolumeID", `{"volumeId":"` + jsonA + `"}`, `{"diskNumber": 4294967295}`},
		{"v1beta2 v1beta1", "GetVolumeDiskNumber", `{"volumeId":"` + jsonA + `"}`, `{"diskNumber": "4294967295"}`},
	}, disk.Number(4294967295)},

	{"volume", "GetVolumeIDFromTargetPath", onVolume(func(ctx context.Context, v *Volume) (any, error) { return v.GetVolumeIDFromTargetPath(ctx, `C:\a`) }), []exchange{
		{"v2alpha1 v1 v1beta3", "GetVolumeIDFromTargetPath", `{"targetPath":"C:\\a"}`, `{"volumeId": "` + jsonA + `"}`},
		{"v1beta2 v1beta1", "GetVolumeIDFromMount", `{"mount":"C:\\a"}`, `{"volumeId": "` + jsonA + `"}`},
	}, volume.ID(volumeA)},

	{"volume", "GetClosestVolumeIDFromTargetPath", onVolume(func(ctx context.Context, v *Volume) (any, error) {
		return v.GetClosestVolumeIDFromTargetPath(ctx, `C:\a`)
	}), []exchange{
		{"v2alpha1", "GetClosestVolumeIDFromTargetPath", `{"targetPath":"C:\\a"}`, `{"volumeId": "` + jsonA + `"}`},
	}, volume.ID(volumeA)},

	{"volume", "WriteVolumeCache", onVolume(func(ctx context.Context, v *Volume) (any, error) { return nil, v.WriteVolumeCache(ctx, volumeA) }), []exchange{
		{"v2alpha1 v1 v1beta3 v1beta2", "WriteVolumeCache", `{"volumeId":"` + jsonA + `"}`, `{}`},
	}, nil},

	{"filesystem", "PathExists", onFilesystem(func(ctx context.Context, f *Filesystem) (any, error) { return f.PathExists(ctx, `C:\pods\a`) }), []exchange{
		{"v2alpha1 v1 v1beta2", "PathExists", `{"path":"C:\\pods\\a"}`, `{"exists": true}`},
		{"v1beta1 v1alpha1", "PathExists", `{"path":"C:\\pods\\a","context":"POD"}`, `{"exists": true}`},
	}, true},

	{"filesystem", "Mkdir", onFilesystem(func(ctx context.Context, f *Filesystem) (any, error) { return nil, f.Mkdir(ctx, `C:\pods\a`) }), []exchange{
		{"v2alpha1 v1 v1beta2", "Mkdir", `{"path":"C:\\pods\\a"}`, `{}`},
		{"v1beta1 v1alpha1", "Mkdir", `{"path":"C:\\pods\\a","context":"POD"}`, `{}`},
	}, nil},

	{"filesystem", "Rmdir", onFilesystem(func(ctx context.Context, f *Filesystem) (any, error) { return nil, f.Rmdir(ctx, `C:\pods\a`, true) }), []exchange{
		{"v2alpha1 v1 v1beta2", "Rmdir", `{"path":"C:\\pods\\a","force":true}`, `{}`},
		{"v1beta1 v1alpha1", "Rmdir", `{"path":"C:\\pods\\a","context":"POD","force":true}`, `{}`},
	}, nil},

	{"filesystem", "RmdirContents", onFilesystem(func(ctx context.Context, f *Filesystem) (any, error) { return nil, f.RmdirContents(ctx, `C:\a`) }), []exchange{
		{"v2alpha1", "RmdirContents", `{"path":"C:\\a"}`, `{}`},
	}, nil},

	{"filesystem", "CreateSymlink", onFilesystem(func(ctx context.Context, f *Filesystem) (any, error) {
		return nil, f.CreateSymlink(ctx, `C:\from`, `C:\to`)
	}), []exchange{
		{"v2alpha1 v1 v1beta2", "CreateSymlink", `{"sourcePath":"C:\\from","targetPath":"C:\\to"}`, `{}`},
		{"v1beta1 v1alpha1", "LinkPath", `{"sourcePath":"C:\\from","targetPath":"C:\\to"}`, `{}`},
	}, nil},

	{"filesystem", "IsSymlink", onFilesystem(func(ctx context.Context, f *Filesystem) (any, error) { return f.IsSymlink(ctx, `C:\a`) }), []exchange{
		{"v2alpha1 v1 v1beta2", "IsSymlink", `{"path":"C:\\a"}`, `{"isSymlink": true}`},
		{"v1beta1 v1alpha1", "IsMountPoint", `{"path":"C:\\a"}`, `{"isMountPoint": true}`},
	}, true},
}

func onDisk(call func(context.Context, *Disk) (any, error)) func(context.Context, *Client) (any, error) {
	return func(ctx context.Context, c *Client) (any, error) {
		d, err := c.Disk(ctx)
		if err != nil {
			return nil, err
		}
		return call(ctx, d)
	}
}

func onVolume(call func(context.Context, *Volume) (any, error)) func(context.Context, *Client) (any, error) {
	return func(ctx context.Context, c *Client) (any, error) {
		v, err := c.Volume(ctx)
		if err != nil {
			return nil, err
		}
		return call(ctx, v)
	}
}

func onFilesystem(call func(context.Context, *Filesystem) (any, error)) func(context.Context, *Client) (any, error) {
	return func(ctx context.Context, c *Client) (any, error) {
		f, err := c.Filesystem(ctx)
		if err != nil {
			return nil, err
		}
		return call(ctx, f)
	}
}

// In each version, each operation sends what the version's descriptors say and
// understands the response, or says that the version doesn't have it.
func TestWire(t *testing.T) {
	for _, group := range []string{"disk", "volume", "filesystem"} {
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
	if got, ok := errors.AsType[*VersionError](err); !ok || *got != want {
		t.Errorf("error %v, want one with %+v", err, want)
	}
}

// A test of operations must not miss one.
func TestWireHasAllMethods(t *testing.T) {
	for _, group := range []string{"disk", "volume", "filesystem"} {
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
	c, err := d.newClient(t).Disk(t.Context())
	if err != nil {
		t.Fatal(err)
	}
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

// The daemon would take the id for a disk number, and grow what wasn't meant.
func TestResizeVolumeChecksID(t *testing.T) {
	d := newDaemon(t, func(method, _ string) (string, error) {
		t.Errorf("%s was sent", method)
		return `{}`, nil
	})
	d.serve("volume v1")
	c, err := d.newClient(t).Volume(t.Context())
	if err != nil {
		t.Fatal(err)
	}
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
