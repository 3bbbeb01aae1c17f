// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

func TestParseSource(t *testing.T) {
	const iqn = "iqn.2001-04.com.example:disk"
	target := func(address string, port uint16) source {
		return source{Type: typeISCSI, Portal: csiproxy.ISCSIPortal{Address: address, Port: port}, IQN: iqn}
	}
	lun := target("192.0.2.1", 3260)
	lun.LUN = 300
	for name, test := range map[string]struct {
		params map[string]string
		want   source // zero: it is refused
	}{
		"none":         {nil, source{Type: typeDisk}},
		"a CO's own":   {map[string]string{"csi.storage.k8s.io/pv/name": "x"}, source{Type: typeDisk}},
		"unknown type": {map[string]string{"type": "nfs"}, source{}},
		"share":        {map[string]string{"type": "smb", "source": "//Server/Share/"}, source{Type: typeSMB, Share: `\\Server\Share`}},
		"directory":    {map[string]string{"type": "smb", "source": `\\server\share\a\b`}, source{Type: typeSMB, Share: `\\server\share\a\b`}},
		"no share":     {map[string]string{"type": "smb", "source": "//server"}, source{}},
		"no server":    {map[string]string{"type": "smb", "source": "///share"}, source{}},
		"a local path": {map[string]string{"type": "smb", "source": `C:\a\b\c`}, source{}},
		"no source":    {map[string]string{"type": "smb"}, source{}},
		"address": {map[string]string{"type": "iscsi", "targetPortal": "192.0.2.1", "iqn": iqn},
			target("192.0.2.1", 3260)},
		"with a port": {map[string]string{"type": "iscsi", "targetPortal": "192.0.2.1:860", "iqn": iqn},
			target("192.0.2.1", 860)},
		"IPv6": {map[string]string{"type": "iscsi", "targetPortal": "2001:db8::1", "iqn": iqn},
			target("2001:db8::1", 3260)},
		"IPv6 in []": {map[string]string{"type": "iscsi", "targetPortal": "[2001:db8::1]", "iqn": iqn},
			target("2001:db8::1", 3260)},
		"IPv6, port": {map[string]string{"type": "iscsi", "targetPortal": "[2001:db8::1]:860", "iqn": iqn},
			target("2001:db8::1", 860)},
		"LUN": {map[string]string{"type": "iscsi", "targetPortal": "192.0.2.1", "iqn": iqn, "lun": "300"}, lun},
		"negative LUN": {map[string]string{"type": "iscsi", "targetPortal": "192.0.2.1", "iqn": iqn, "lun": "-1"},
			source{}},
		"port too large": {map[string]string{"type": "iscsi", "targetPortal": "192.0.2.1:65536", "iqn": iqn}, source{}},
		"port 0":         {map[string]string{"type": "iscsi", "targetPortal": "192.0.2.1:0", "iqn": iqn}, source{}},
		"no portal":      {map[string]string{"type": "iscsi", "iqn": iqn}, source{}},
		"no target":      {map[string]string{"type": "iscsi", "targetPortal": "192.0.2.1"}, source{}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseSource(test.params)
			if test.want == (source{}) {
				if status.Code(err) != codes.InvalidArgument {
					t.Errorf("%+v, %v, want InvalidArgument", got, err)
				}
				return
			}
			if diff := cmp.Diff(test.want, got); diff != "" || err != nil {
				t.Errorf("error %v, difference (-want +got):\n%s", err, diff)
			}
		})
	}
}
