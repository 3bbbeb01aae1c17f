// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package windows

import (
	"context"
	"io"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/golang/protobuf/proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	diskv1 "github.com/kubernetes-csi/csi-proxy/client/groups/disk/v1"
	diskv1alpha1 "github.com/kubernetes-csi/csi-proxy/client/groups/disk/v1alpha1"
	diskv1beta1 "github.com/kubernetes-csi/csi-proxy/client/groups/disk/v1beta1"
	diskv1beta2 "github.com/kubernetes-csi/csi-proxy/client/groups/disk/v1beta2"
	diskv1beta3 "github.com/kubernetes-csi/csi-proxy/client/groups/disk/v1beta3"
	filesystemv1 "github.com/kubernetes-csi/csi-proxy/client/groups/filesystem/v1"
	filesystemv1alpha1 "github.com/kubernetes-csi/csi-proxy/client/groups/filesystem/v1alpha1"
	filesystemv1beta1 "github.com/kubernetes-csi/csi-proxy/client/groups/filesystem/v1beta1"
	filesystemv1beta2 "github.com/kubernetes-csi/csi-proxy/client/groups/filesystem/v1beta2"
	filesystemv2alpha1 "github.com/kubernetes-csi/csi-proxy/client/groups/filesystem/v2alpha1"
	iscsiv1alpha1 "github.com/kubernetes-csi/csi-proxy/client/groups/iscsi/v1alpha1"
	iscsiv1alpha2 "github.com/kubernetes-csi/csi-proxy/client/groups/iscsi/v1alpha2"
	smbv1 "github.com/kubernetes-csi/csi-proxy/client/groups/smb/v1"
	smbv1alpha1 "github.com/kubernetes-csi/csi-proxy/client/groups/smb/v1alpha1"
	smbv1beta1 "github.com/kubernetes-csi/csi-proxy/client/groups/smb/v1beta1"
	smbv1beta2 "github.com/kubernetes-csi/csi-proxy/client/groups/smb/v1beta2"
	systemv1alpha1 "github.com/kubernetes-csi/csi-proxy/client/groups/system/v1alpha1"
	volumev1 "github.com/kubernetes-csi/csi-proxy/client/groups/volume/v1"
	volumev1alpha1 "github.com/kubernetes-csi/csi-proxy/client/groups/volume/v1alpha1"
	volumev1beta1 "github.com/kubernetes-csi/csi-proxy/client/groups/volume/v1beta1"
	volumev1beta2 "github.com/kubernetes-csi/csi-proxy/client/groups/volume/v1beta2"
	volumev1beta3 "github.com/kubernetes-csi/csi-proxy/client/groups/volume/v1beta3"
	volumev2alpha1 "github.com/kubernetes-csi/csi-proxy/client/groups/volume/v2alpha1"
)

// version is one version of a group in the published module.
type version struct {
	group, name string
	newClient   func() (io.Closer, error)
}

// opener makes NewClient of any version a function of one type.
func opener[C io.Closer](newClient func() (C, error)) func() (io.Closer, error) {
	return func() (io.Closer, error) { return newClient() }
}

// versions are all of them, by group.
var versions = map[string][]version{
	"disk": {
		{"disk", "v1", opener(diskv1.NewClient)},
		{"disk", "v1beta3", opener(diskv1beta3.NewClient)},
		{"disk", "v1beta2", opener(diskv1beta2.NewClient)},
		{"disk", "v1beta1", opener(diskv1beta1.NewClient)},
		{"disk", "v1alpha1", opener(diskv1alpha1.NewClient)},
	},
	"volume": {
		{"volume", "v2alpha1", opener(volumev2alpha1.NewClient)},
		{"volume", "v1", opener(volumev1.NewClient)},
		{"volume", "v1beta3", opener(volumev1beta3.NewClient)},
		{"volume", "v1beta2", opener(volumev1beta2.NewClient)},
		{"volume", "v1beta1", opener(volumev1beta1.NewClient)},
		{"volume", "v1alpha1", opener(volumev1alpha1.NewClient)},
	},
	"filesystem": {
		{"filesystem", "v2alpha1", opener(filesystemv2alpha1.NewClient)},
		{"filesystem", "v1", opener(filesystemv1.NewClient)},
		{"filesystem", "v1beta2", opener(filesystemv1beta2.NewClient)},
		{"filesystem", "v1beta1", opener(filesystemv1beta1.NewClient)},
		{"filesystem", "v1alpha1", opener(filesystemv1alpha1.NewClient)},
	},
	"smb": {
		{"smb", "v1", opener(smbv1.NewClient)},
		{"smb", "v1beta2", opener(smbv1beta2.NewClient)},
		{"smb", "v1beta1", opener(smbv1beta1.NewClient)},
		{"smb", "v1alpha1", opener(smbv1alpha1.NewClient)},
	},
	"iscsi": {
		{"iscsi", "v1alpha2", opener(iscsiv1alpha2.NewClient)},
		{"iscsi", "v1alpha1", opener(iscsiv1alpha1.NewClient)},
	},
	"system": {
		{"system", "v1alpha1", opener(systemv1alpha1.NewClient)},
	},
}

// olderNames are the names that methods and fields of the newest versions have in
// older ones. The tests are written in the newest names.
var olderNames = map[string][]string{
	"GetDiskStats":              {"DiskStats"},
	"SetDiskState":              {"SetAttachState"},
	"GetDiskState":              {"GetAttachState"},
	"UnmountVolume":             {"DismountVolume"},
	"GetVolumeStats":            {"VolumeStats"},
	"GetDiskNumberFromVolumeID": {"GetVolumeDiskNumber"},
	"GetVolumeIDFromTargetPath": {"GetVolumeIDFromMount"},
	"CreateSymlink":             {"LinkPath"},
	"IsSymlink":                 {"IsMountPoint"},

	"disk_number": {"diskID", "disk_id", "diskNumber"},
	"is_online":   {"isOnline"},
	"total_bytes": {"diskSize", "volumeSize"},
	"used_bytes":  {"volumeUsedSize"},
	"size_bytes":  {"size"},
	"target_path": {"path", "mount"},
	"is_symlink":  {"is_mount_point"},
}

func namesOf(newest string) []string { return append([]string{newest}, olderNames[newest]...) }

// client is a client of one version, and has the methods that drivers call.
type client struct {
	version
	t      testing.TB
	groups io.Closer // what NewClient returned
	called map[protoreflect.Name]bool
}

// connect makes a client for the time of the test.
func (v version) connect(t testing.TB) *client {
	t.Helper()
	groups, err := v.newClient()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { groups.Close() })
	return &client{v, t, groups, map[protoreflect.Name]bool{}}
}

// in returns the client for a part of its test.
func (c *client) in(t testing.TB) *client {
	part := *c
	part.t = t
	return &part
}

func newest(t testing.TB, group string) *client { t.Helper(); return versions[group][0].connect(t) }

// methods returns those of the descriptor that the published module has
// registered.
func (v version) methods() protoreflect.MethodDescriptors {
	name := v.name + "." + strings.ToUpper(v.group[:1]) + v.group[1:]
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
	if err != nil {
		panic(err) // the imports above register it
	}
	return d.(protoreflect.ServiceDescriptor).Methods()
}

// method returns a method by its newest name; nil if the version lacks it.
func (v version) method(name string) protoreflect.MethodDescriptor {
	for _, candidate := range namesOf(name) {
		if m := v.methods().ByName(protoreflect.Name(candidate)); m != nil {
			return m
		}
	}
	return nil
}

func (v version) has(method string) bool { return v.method(method) != nil }

// field returns a field of a message by its newest name; nil if it lacks it.
func field(m protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	for _, candidate := range namesOf(name) {
		if f := m.Fields().ByName(protoreflect.Name(candidate)); f != nil {
			return f
		}
	}
	return nil
}

// fields are the fields of a request, by their newest names. A message in it is
// fields again.
type fields map[string]any

// try calls a method, and waits for a daemon that isn't there yet.
func (c *client) try(method string, request fields) (answer, error) {
	c.t.Helper()
	m := c.method(method)
	if m == nil {
		c.t.Fatalf("%s %s has no method %s", c.group, c.name, method)
	}
	c.called[m.Name()] = true
	generated := reflect.ValueOf(c.groups).MethodByName(string(m.Name()))
	req := reflect.New(generated.Type().In(1).Elem())
	fill(c.t, message(req), request)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	results := generated.Call([]reflect.Value{reflect.ValueOf(ctx), req, reflect.ValueOf(grpc.WaitForReady(true))})
	err, _ := results[1].Interface().(error)
	return answer{c.t, message(results[0])}, err
}

// call calls a method that must succeed.
func (c *client) call(method string, request fields) answer {
	c.t.Helper()
	a, err := c.try(method, request)
	if err != nil {
		c.t.Fatalf("%s %s %s(%q): %v", c.group, c.name, method, request, err)
	}
	return a
}

// fail calls a method that must fail with a code.
func (c *client) fail(want codes.Code, method string, request fields) {
	c.t.Helper()
	if _, err := c.try(method, request); status.Code(err) != want {
		c.t.Errorf("%s %s %s(%q) gives %v, want the code %v", c.group, c.name, method, request, err, want)
	}
}

// wantAllCalled asserts that each method of the version was called.
func (c *client) wantAllCalled() {
	c.t.Helper()
	for i := range c.methods().Len() {
		if name := c.methods().Get(i).Name(); !c.called[name] {
			c.t.Errorf("%s %s %s was never called", c.group, c.name, name)
		}
	}
}

// message returns the generated message that v points to. Some versions were
// generated by an older compiler than others.
func message(v reflect.Value) protoreflect.Message {
	return proto.MessageReflect(v.Interface().(proto.Message))
}

// fill sets the fields of a request. A number goes into a string field in decimal,
// as the older versions have it.
func fill(t testing.TB, m protoreflect.Message, request fields) {
	t.Helper()
	for name, v := range request {
		f := field(m.Descriptor(), name)
		if f == nil {
			t.Fatalf("%s has no field %s", m.Descriptor().FullName(), name)
		}
		if part, ok := v.(fields); ok {
			fill(t, m.Mutable(f).Message(), part)
			continue
		}
		value := protoreflect.ValueOf(v)
		if n, ok := v.(uint32); ok && f.Kind() == protoreflect.StringKind {
			value = protoreflect.ValueOf(strconv.FormatUint(uint64(n), 10))
		}
		m.Set(f, value)
	}
}

// answer is a response, with its fields by their newest names.
type answer struct {
	t testing.TB
	m protoreflect.Message
}

func (a answer) get(name string) protoreflect.Value {
	a.t.Helper()
	f := field(a.m.Descriptor(), name)
	if f == nil {
		a.t.Fatalf("%s has no field %s", a.m.Descriptor().FullName(), name)
	}
	return a.m.Get(f)
}

// texts returns a list of strings.
func (a answer) texts(name string) []string {
	a.t.Helper()
	list := a.get(name).List()
	var all []string
	for i := range list.Len() {
		all = append(all, list.Get(i).String())
	}
	return all
}

// ofDisk returns the string fields that a map has for a disk, by their newest
// names. Older versions have the disks as decimal strings, and some the fields in
// a map.
func (a answer) ofDisk(name string, disk uint32) map[string]string {
	a.t.Helper()
	values := map[string]string{}
	a.get(name).Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
		if k.String() != strconv.FormatUint(uint64(disk), 10) {
			return true
		}
		v.Message().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			if !f.IsMap() {
				values[string(f.Name())] = v.String()
				return true
			}
			v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
				if k.String() == "serialNumber" {
					values["serial_number"] = v.String()
				} else {
					values[k.String()] = v.String()
				}
				return true
			})
			return true
		})
		return false
	})
	return values
}
