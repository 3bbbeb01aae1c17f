// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"

	volumev1 "github.com/kubernetes-csi/csi-proxy/client/api/volume/v1"
	volumev2alpha1 "github.com/kubernetes-csi/csi-proxy/client/api/volume/v2alpha1"
)

// A pod plants a link to a place outside of the allowed directories. No method of
// any version goes through it.
func TestPlantedLinks(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	o := n.operator()
	volume := o.formattedVolume(n.attach(hardware{size: gib}))
	o.mkdir(kubeletPath + `\source`)
	n.mkdir(`C:\Windows\System32`)
	n.write(`C:\Windows\System32\kernel`, "not for drivers")
	n.plant(`C:\Windows`, kubeletPath+`\planted`)
	n.plant(`C:\`, kubeletPath+`\root`)
	n.plant(kubeletPath+`\planted`, kubeletPath+`\twice`) // by way of a place inside
	n.plant(`..\..\..\Windows`, kubeletPath+`\relative`)
	files.add(n)
	before := n.tree(`C:\`)

	for _, v := range versions {
		if !slices.Contains(groupsWithPaths, v.group) {
			continue
		}
		c := n.client(v)
		methods := v.service().Methods()
		for i := range methods.Len() {
			m := methods.Get(i)
			for _, name := range pathFields {
				if m.Input().Fields().ByName(name) == nil {
					continue
				}
				request := harmless(m, volume)
				for _, path := range []string{
					`\planted\System32`, `\planted\System32\kernel`, `\planted\new`, `\planted\new\below`, `\root\Windows\System32`,
					`\root\Program Files`, `\twice\System32`, `\twice\new`, `\relative\System32`, `\relative\new`,
				} {
					c.fail(codes.PermissionDenied, string(m.Name()), request.with(string(name), kubeletPath+path))
				}
			}
		}
	}
	// The daemon's own records, in a directory of Windows, aren't files that a path leads to.
	after := slices.DeleteFunc(n.tree(`C:\`), func(path string) bool { return strings.HasPrefix(path, `C:\Windows\csi-proxy-`) })
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("refused calls changed the node's files (-before +after):\n%s", diff)
	}

	// The links themselves may go, without what they lead to.
	for _, link := range []string{`\planted`, `\root`, `\twice`, `\relative`} {
		o.must(o.Rmdir(context.Background(), kubeletPath+link, true))
		n.wantGone(kubeletPath + link)
	}
	n.wantText(`C:\Windows\System32\kernel`, "not for drivers")
}

// harmless returns a request with nothing wrong in its fields, but that what it is
// about needn't be there.
func harmless(m protoreflect.MethodDescriptor, volume string) fields {
	request := fields{}
	for name, value := range map[protoreflect.Name]any{
		"volume_id": volume, "force": true, "source_path": kubeletPath + `\source`, "target_path": kubeletPath + `\new`,
		"remote_path": files.path(), "local_path": kubeletPath + `\new`, "username": files.user, "password": files.password,
		"target_portal": fields{"target_address": "10.0.0.1"}, "iqn": "iqn.2026-01.example:none", "name": "none",
		"auth_type": oneWayCHAP, "chap_username": "user", "chap_secret": newSecret(1),
	} {
		if m.Input().Fields().ByName(name) != nil {
			request[string(name)] = value
		}
	}
	return request
}

// The node's own volume isn't for drivers, who can learn its name.
func TestSystemVolume(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	o := n.operator()
	o.mkdir(kubeletPath + `\dir`)
	n.mkdir(`C:\Windows`)
	n.write(`C:\Windows\kernel`, "not for drivers")
	system := n.client(version{"volume", "v2alpha1", volumev2alpha1.NewVolumeClient}).
		succeed("GetClosestVolumeIDFromTargetPath", fields{"target_path": kubeletPath + `\dir`}).text("volume_id")

	ctx := context.Background()
	_, err := o.volume.FormatVolume(ctx, &volumev1.FormatVolumeRequest{VolumeId: system})
	if status.Code(err) != codes.FailedPrecondition {
		t.Errorf("formatting the system volume gives %v", err)
	}
	// Mounting it below the kubelet directory would be a way out.
	if err := o.clients.MountVolume(ctx, system, kubeletPath+`\system`); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("mounting the system volume gives %v", err)
	}
	if err := o.Rmdir(ctx, kubeletPath+`\system`, true); err != nil {
		t.Errorf("removing the directory that it was to be mounted at gives %v", err)
	}
	n.wantText(`C:\Windows\kernel`, "not for drivers")
}

// A string may be of any length in each string field of each method of each
// version, and a message that is too long ends nothing but its call.
func TestHugeStrings(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	volume := n.operator().rawVolume(n.attach(hardware{size: gib}))
	huge, tooMuch := strings.Repeat("9", 100<<10), strings.Repeat("9", 2<<20)
	for _, v := range versions {
		c := n.client(v)
		methods := v.service().Methods()
		for i := range methods.Len() {
			m := methods.Get(i)
			for _, part := range withStrings(m.Input(), huge) {
				request := harmless(m, volume)
				maps.Copy(request, part)
				want := codes.InvalidArgument
				if part["disk_name"] != nil {
					want = codes.NotFound // any text may be one
				}
				message := c.fail(want, string(m.Name()), request)
				if len(message) > 8<<10 {
					t.Errorf("%s: the message has %d bytes", m.FullName(), len(message))
				}
			}
		}
		switch v.group {
		case "filesystem":
			c.fail(codes.ResourceExhausted, "PathExists", fields{"path": tooMuch})
		case "volume":
			c.fail(codes.ResourceExhausted, "IsVolumeFormatted", fields{"volume_id": tooMuch})
		}
	}
	if life := n.life(); !n.alive() || life != 1 {
		t.Errorf("the daemon is in life %d (alive: %t)", life, n.alive())
	}
}

// withStrings returns, for each string field of a message and of those in it, what
// gives it a value.
func withStrings(m protoreflect.MessageDescriptor, value string) (all []fields) {
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		name := string(f.Name())
		switch f.Kind() {
		case protoreflect.StringKind:
			all = append(all, fields{name: value})
		case protoreflect.MessageKind:
			for _, part := range withStrings(f.Message(), value) {
				all = append(all, fields{name: part})
			}
		}
	}
	return all
}

// Bytes that are no message, and methods that there aren't.
func TestGarbage(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for _, v := range versions {
		conn := n.mustDial(v.group, v.name)
		service := string(v.service().FullName())
		known := "/" + service + "/" + string(v.service().Methods().Get(0).Name())
		for _, test := range []struct {
			method string
			body   string
			want   codes.Code
		}{
			{known, "\xff", codes.InvalidArgument},
			{known, "\x0a\xff\xff\xff\xff\x0f", codes.InvalidArgument},
			{"/" + service + "/FormatEverything", "", codes.Unimplemented},
			{"/v9." + service + "/Rescan", "", codes.Unimplemented},
			{"/csi.v1.Node/NodeStageVolume", "", codes.Unimplemented},
		} {
			err := conn.Invoke(context.Background(), test.method, []byte(test.body), new([]byte), grpc.ForceCodec(rawCodec{}))
			if status.Code(err) != test.want {
				t.Errorf("%s with the body %q gives %v, want %v", test.method, test.body, err, test.want)
			}
		}
	}
	if !n.alive() {
		t.Error("the daemon has ended")
	}
}

// rawCodec passes bytes as they are.
type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error) { return v.([]byte), nil }

func (rawCodec) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = data
	return nil
}

func (rawCodec) Name() string { return "proto" }
