// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csinode_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/driver/csinode"
	"github.com/csi-proxy/csi-proxy/simnode"
)

// A volume is formatted as its parameters say.
func TestFormatParameters(t *testing.T) {
	for name, test := range map[string]struct {
		fsType     string
		parameters map[string]string
		want       simnode.VolumeInfo
	}{
		"none": {"", nil, simnode.VolumeInfo{FileSystem: "NTFS", ClusterBytes: 4 << 10}},
		"SQL Server": {"ntfs", map[string]string{
			"allocationUnitSize": "64K", "volumeLabel": "sql data", "noShortNames": "true",
			"type": "gp3", "csi.storage.k8s.io/pvc/name": "data", // the driver's, Kubernetes'
		}, simnode.VolumeInfo{FileSystem: "NTFS", ClusterBytes: 64 << 10, Label: "sql data", NoShortNames: true}},
		"ReFS": {"refs", map[string]string{"integrityStreams": "true", "noShortNames": "false"},
			simnode.VolumeInfo{FileSystem: "ReFS", ClusterBytes: 4 << 10, IntegrityStreams: true}},
	} {
		t.Run(name, func(t *testing.T) {
			s, n := newServer(t, func(o *csinode.Options) {
				o.Source = func(_ context.Context, r *csi.NodeStageVolumeRequest) (csinode.Source, error) {
					format, err := csinode.FormatOptions(r.VolumeCapability.GetMount().GetFsType(), r.VolumeContext, "type")
					return csinode.Source{Disk: csiproxy.Selector{SerialNumber: r.VolumeId}, Format: format}, err
				}
			})
			_, err := s.NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{VolumeId: "vol-1", StagingTargetPath: staging,
				VolumeCapability: capability(test.fsType), VolumeContext: test.parameters})
			must(t, err)
			v := n.Volumes()[1]
			got := simnode.VolumeInfo{FileSystem: v.FileSystem, ClusterBytes: v.ClusterBytes, Label: v.Label,
				NoShortNames: v.NoShortNames, IntegrityStreams: v.IntegrityStreams}
			if got.FileSystem != test.want.FileSystem || got.ClusterBytes != test.want.ClusterBytes ||
				got.Label != test.want.Label || got.NoShortNames != test.want.NoShortNames ||
				got.IntegrityStreams != test.want.IntegrityStreams {
				t.Errorf("the volume is %+v, want %+v", got, test.want)
			}
		})
	}
}

// Who may write at the root is said with commas between, and with blanks or without.
func TestVolumeWriters(t *testing.T) {
	o, err := csinode.FormatOptions("", map[string]string{"volumeWriters": "Users, S-1-5-11,Authenticated Users"})
	must(t, err)
	if want := []string{"Users", "S-1-5-11", "Authenticated Users"}; !slices.Equal(o.Writers, want) {
		t.Errorf("the writers are %q, want %q", o.Writers, want)
	}
}

func TestFormatParametersThatAreRefused(t *testing.T) {
	for _, test := range []struct{ fsType, name, value, says string }{
		{"", "allocationUnitSise", "64K", "allocationUnitSize, integrityStreams, noShortNames, type, volumeLabel, volumeWriters"},
		{"", "allocationUnitSize", "64", "power of two"},
		{"", "allocationUnitSize", "", "power of two"},
		{"refs", "allocationUnitSize", "8K", "ReFS"},
		{"", "noShortNames", "maybe", "true or false"},
		{"refs", "noShortNames", "true", "ReFS"},
		{"ntfs", "integrityStreams", "true", "ReFS"},
		{"", "volumeLabel", strings.Repeat("x", 33), "32 characters"},
		{"", "volumeWriters", "Users,Useers", "AuthenticatedUsers, ContainerUser, Everyone, Users"},
		{"", "volumeWriters", "", "Everyone"},
	} {
		_, err := csinode.FormatOptions(test.fsType, map[string]string{test.name: test.value}, "type")
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s=%s: %v", test.name, test.value, err)
		}
	}
}
