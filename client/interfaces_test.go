// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"reflect"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/node"
	"github.com/csi-proxy/csi-proxy/published"
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
	_ published.DiskOperations       = (*client.Disk)(nil)
	_ published.VolumeOperations     = (*client.Volume)(nil)
	_ published.FilesystemOperations = (*client.Filesystem)(nil)
	_ published.SMBOperations        = (*client.SMB)(nil)
	_ published.ISCSIOperations      = (*client.ISCSI)(nil)
	_ published.SystemOperations     = (*client.System)(nil)
	_ csiproxy.StorageOperations     = (*client.Storage)(nil)
)
