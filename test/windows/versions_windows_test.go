// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package windows

import (
	"context"
	"io"
	"reflect"
	"testing"

	"github.com/golang/protobuf/proto" //lint:ignore SA1019 the published client is of its time
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"

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

	"github.com/csi-proxy/csi-proxy/internal/lab/drivers"
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

// client is a client of one version, and has the methods that drivers call.
type client struct {
	version
	t      testing.TB
	groups io.Closer // what NewClient returned
}

// connect makes a client for the time of the test.
func (v version) connect(t testing.TB) *client {
	t.Helper()
	groups, err := v.newClient()
	must(t, err)
	t.Cleanup(func() { groups.Close() })
	return &client{v, t, groups}
}

func newest(t testing.TB, group string) *client { t.Helper(); return versions[group][0].connect(t) }

// fields are the fields of a request.
type fields = drivers.Fields

// try calls a method, and waits for a daemon that isn't there yet.
func (c *client) try(method string, request fields) (answer, error) {
	c.t.Helper()
	generated := reflect.ValueOf(c.groups).MethodByName(method)
	if !generated.IsValid() {
		c.t.Fatalf("%s %s has no method %s", c.group, c.name, method)
	}
	req := reflect.New(generated.Type().In(1).Elem())
	must(c.t, drivers.Encode(message(req), request))
	// A log-in to a target takes longest.
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
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
		c.t.Fatalf("%s %s %s(%v): %v", c.group, c.name, method, request, err)
	}
	return a
}

// fail calls a method that must fail with a code.
func (c *client) fail(want codes.Code, method string, request fields) {
	c.t.Helper()
	if _, err := c.try(method, request); status.Code(err) != want {
		c.t.Errorf("%s %s %s(%v) gives %v, want the code %v", c.group, c.name, method, request, err, want)
	}
}

// message returns the generated message that v points to. Some versions were
// generated by an older compiler than others.
func message(v reflect.Value) protoreflect.Message {
	return proto.MessageReflect(v.Interface().(proto.Message))
}

// answer is a response.
type answer struct {
	t testing.TB
	m protoreflect.Message
}

func (a answer) get(name string) protoreflect.Value {
	a.t.Helper()
	f := drivers.FieldOf(a.m.Descriptor(), name)
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

// ofDisk returns the fields, all strings, that a map has for a disk.
func (a answer) ofDisk(name string, disk uint32) map[string]string {
	a.t.Helper()
	values := map[string]string{}
	if v := a.get(name).Map().Get(protoreflect.ValueOfUint32(disk).MapKey()); v.IsValid() {
		v.Message().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			values[string(f.Name())] = v.String()
			return true
		})
	}
	return values
}
