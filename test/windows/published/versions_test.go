// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"context"
	"reflect"
	"strings"
	"testing"

	"github.com/golang/protobuf/proto" //lint:ignore SA1019 the published client is of its time
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	diskv1 "github.com/kubernetes-csi/csi-proxy/client/api/disk/v1"
	diskv1alpha1 "github.com/kubernetes-csi/csi-proxy/client/api/disk/v1alpha1"
	diskv1beta1 "github.com/kubernetes-csi/csi-proxy/client/api/disk/v1beta1"
	diskv1beta2 "github.com/kubernetes-csi/csi-proxy/client/api/disk/v1beta2"
	diskv1beta3 "github.com/kubernetes-csi/csi-proxy/client/api/disk/v1beta3"
	filesystemv1 "github.com/kubernetes-csi/csi-proxy/client/api/filesystem/v1"
	filesystemv1alpha1 "github.com/kubernetes-csi/csi-proxy/client/api/filesystem/v1alpha1"
	filesystemv1beta1 "github.com/kubernetes-csi/csi-proxy/client/api/filesystem/v1beta1"
	filesystemv1beta2 "github.com/kubernetes-csi/csi-proxy/client/api/filesystem/v1beta2"
	filesystemv2alpha1 "github.com/kubernetes-csi/csi-proxy/client/api/filesystem/v2alpha1"
	iscsiv1alpha1 "github.com/kubernetes-csi/csi-proxy/client/api/iscsi/v1alpha1"
	iscsiv1alpha2 "github.com/kubernetes-csi/csi-proxy/client/api/iscsi/v1alpha2"
	smbv1 "github.com/kubernetes-csi/csi-proxy/client/api/smb/v1"
	smbv1alpha1 "github.com/kubernetes-csi/csi-proxy/client/api/smb/v1alpha1"
	smbv1beta1 "github.com/kubernetes-csi/csi-proxy/client/api/smb/v1beta1"
	smbv1beta2 "github.com/kubernetes-csi/csi-proxy/client/api/smb/v1beta2"
	systemv1alpha1 "github.com/kubernetes-csi/csi-proxy/client/api/system/v1alpha1"
	volumev1 "github.com/kubernetes-csi/csi-proxy/client/api/volume/v1"
	volumev1alpha1 "github.com/kubernetes-csi/csi-proxy/client/api/volume/v1alpha1"
	volumev1beta1 "github.com/kubernetes-csi/csi-proxy/client/api/volume/v1beta1"
	volumev1beta2 "github.com/kubernetes-csi/csi-proxy/client/api/volume/v1beta2"
	volumev1beta3 "github.com/kubernetes-csi/csi-proxy/client/api/volume/v1beta3"
	volumev2alpha1 "github.com/kubernetes-csi/csi-proxy/client/api/volume/v2alpha1"

	"github.com/csi-proxy/csi-proxy/internal/lab/drivers"
)

// version is one version of a group in the published module.
type version struct {
	group, name string
	// newClient is the generated constructor: a function of a connection.
	newClient any
}

// versions are all of them.
var versions = []version{
	{"disk", "v1", diskv1.NewDiskClient},
	{"disk", "v1beta3", diskv1beta3.NewDiskClient},
	{"disk", "v1beta2", diskv1beta2.NewDiskClient},
	{"disk", "v1beta1", diskv1beta1.NewDiskClient},
	{"disk", "v1alpha1", diskv1alpha1.NewDiskClient},
	{"volume", "v2alpha1", volumev2alpha1.NewVolumeClient},
	{"volume", "v1", volumev1.NewVolumeClient},
	{"volume", "v1beta3", volumev1beta3.NewVolumeClient},
	{"volume", "v1beta2", volumev1beta2.NewVolumeClient},
	{"volume", "v1beta1", volumev1beta1.NewVolumeClient},
	{"volume", "v1alpha1", volumev1alpha1.NewVolumeClient},
	{"filesystem", "v2alpha1", filesystemv2alpha1.NewFilesystemClient},
	{"filesystem", "v1", filesystemv1.NewFilesystemClient},
	{"filesystem", "v1beta2", filesystemv1beta2.NewFilesystemClient},
	{"filesystem", "v1beta1", filesystemv1beta1.NewFilesystemClient},
	{"filesystem", "v1alpha1", filesystemv1alpha1.NewFilesystemClient},
	{"smb", "v1", smbv1.NewSmbClient},
	{"smb", "v1beta2", smbv1beta2.NewSmbClient},
	{"smb", "v1beta1", smbv1beta1.NewSmbClient},
	{"smb", "v1alpha1", smbv1alpha1.NewSmbClient},
	{"iscsi", "v1alpha2", iscsiv1alpha2.NewIscsiClient},
	{"iscsi", "v1alpha1", iscsiv1alpha1.NewIscsiClient},
	{"system", "v1alpha1", systemv1alpha1.NewSystemClient},
}

func (v version) String() string { return v.group + "/" + v.name }

// service returns the descriptor that the published module has registered.
func (v version) service() protoreflect.ServiceDescriptor {
	name := v.name + "." + strings.ToUpper(v.group[:1]) + v.group[1:]
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
	if err != nil {
		panic(err) // the imports above register it
	}
	return d.(protoreflect.ServiceDescriptor)
}

// client is a generated client of one version.
type client struct {
	version
	t    testing.TB
	stub reflect.Value // what newClient returned
}

func (n *node) client(v version) *client {
	n.t.Helper()
	conn := n.mustDial(v.group, v.name)
	stub := reflect.ValueOf(v.newClient).Call([]reflect.Value{reflect.ValueOf(conn)})[0]
	return &client{version: v, t: n.t, stub: stub}
}

// fields are a request's fields by word.
type fields = drivers.Fields

// method returns the descriptor of a method by its newest name; nil if the version
// lacks it.
func (v version) method(name string) protoreflect.MethodDescriptor {
	return drivers.MethodOf(v.service(), name)
}

func (v version) has(method string) bool { return v.method(method) != nil }

// call calls a method through the generated client.
func (c *client) call(method string, request fields) (answer, error) {
	c.t.Helper()
	m := c.method(method)
	if m == nil {
		c.t.Fatalf("%s has no method %s", c.version, method)
	}
	generated := c.stub.MethodByName(string(m.Name()))
	req := reflect.New(generated.Type().In(1).Elem())
	if err := drivers.Encode(message(req), request); err != nil {
		c.t.Fatalf("%s %s: %v", c.version, m.Name(), err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	results := generated.Call([]reflect.Value{reflect.ValueOf(ctx), req})
	if err, failed := results[1].Interface().(error); failed {
		return answer{}, err
	}
	a := answer{c.t, message(results[0])}
	if f := a.m.Descriptor().Fields().ByName("error"); f != nil && a.m.Get(f).String() != "" {
		c.t.Errorf("%s %s: the field error is %q; it stays empty", c.version, m.Name(), a.m.Get(f))
	}
	return a, nil
}

// succeed calls a method that must succeed.
func (c *client) succeed(method string, request fields) answer {
	c.t.Helper()
	a, err := c.call(method, request)
	if err != nil {
		c.t.Fatalf("%s %s(%v): %v", c.version, method, request, err)
	}
	return a
}

// fail calls a method that must fail with a code, and returns the message.
func (c *client) fail(want codes.Code, method string, request fields) string {
	c.t.Helper()
	a, err := c.call(method, request)
	if err == nil {
		c.t.Errorf("%s %s(%v) gives {%s}, want the error %v", c.version, method, request, prototext.Format(a.m.Interface()),
			want)
		return ""
	}
	if status.Code(err) != want {
		c.t.Errorf("%s %s(%v): %v, want the code %v", c.version, method, request, err, want)
	}
	return status.Convert(err).Message()
}

// message returns the generated message that v points to. Some versions were
// generated by an older compiler than others.
func message(v reflect.Value) protoreflect.Message {
	return proto.MessageReflect(v.Interface().(proto.Message))
}

// answer is a response, with its fields by word.
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

func (a answer) text(name string) string {
	return a.get(name).String()
}

func (a answer) bool(name string) bool {
	return a.get(name).Bool()
}

// messages returns a list of messages.
func (a answer) messages(name string) []answer {
	list := a.get(name).List()
	var all []answer
	for i := range list.Len() {
		all = append(all, answer{a.t, list.Get(i).Message()})
	}
	return all
}
