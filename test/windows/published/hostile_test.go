// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/csi-proxy/csi-proxy/internal/lab/drivers"
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
					c.fail(codes.PermissionDenied, string(m.Name()), request.With(string(name), kubeletPath+path))
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
		o.do(func(s *drivers.Step) { s.Rmdir(kubeletPath+link, true) })
		n.wantGone(kubeletPath + link)
	}
	n.wantText(`C:\Windows\System32\kernel`, "not for drivers")
}

// groupsWithPaths are those whose calls take paths of the node.
var groupsWithPaths = []string{"volume", "filesystem", "smb"}

// pathFields are the names of all fields that hold paths of the node.
var pathFields = []protoreflect.Name{"path", "source_path", "target_path", "mount", "local_path"}

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
