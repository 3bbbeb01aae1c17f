// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"reflect"
	"testing"

	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/filesystem"
	"github.com/csi-proxy/csi-proxy/iscsi"
	"github.com/csi-proxy/csi-proxy/node"
	"github.com/csi-proxy/csi-proxy/smb"
	"github.com/csi-proxy/csi-proxy/storage"
	"github.com/csi-proxy/csi-proxy/system"
	"github.com/csi-proxy/csi-proxy/volume"
)

// A driver's interfaces are filled from the same fields.
func TestClientHasTheShapeOfNode(t *testing.T) {
	c := reflect.TypeFor[client.Client]()
	for _, field := range reflect.VisibleFields(reflect.TypeFor[node.Node]()) {
		if _, ok := c.FieldByName(field.Name); field.IsExported() && !ok {
			t.Errorf("the client has no %s", field.Name)
		}
	}
}

// What is served in process and over the pipe has the same methods.
var (
	_ disk.Operations       = (*client.Disk)(nil)
	_ volume.Operations     = (*client.Volume)(nil)
	_ filesystem.Operations = (*client.Filesystem)(nil)
	_ smb.Operations        = (*client.SMB)(nil)
	_ iscsi.Operations      = (*client.ISCSI)(nil)
	_ system.Operations     = (*client.System)(nil)
	_ storage.Operations    = (*client.Storage)(nil)
)
