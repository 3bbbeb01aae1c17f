// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// An error names the method that its caller called, in its text and its detail, also
// where an operation of another name answers it.
func TestErrorsNameTheMethod(t *testing.T) {
	g := newTarget(t)
	missing := fieldOf(1, kubelet+`\none`)
	for _, test := range []struct {
		group, version, method string
		request                []byte
		want                   string
	}{
		{"disk", "v1beta2", "PartitionDisk", fieldOf(1, "x"), "PartitionDisk: "},
		{"disk", "v1beta2", "DiskStats", fieldOf(1, "77"), "DiskStats disk 77: "},
		{"disk", "v1beta2", "SetAttachState", fieldOf(1, "77"), "SetAttachState disk 77: "},
		{"disk", "v1alpha1", "GetDiskNumberByName", fieldOf(1, "none"), "GetDiskNumberByName "},
		{"volume", "v1", "ResizeVolume", fieldOf(1, "77"), "ResizeVolume disk 77: "},
		{"volume", "v1beta1", "ResizeVolume", fieldOf(1, "77"), "ResizeVolume disk 77: "},
		{"volume", "v1beta1", "VolumeStats", fieldOf(1, "x"), "VolumeStats "},
		{"volume", "v1beta1", "DismountVolume", slices.Concat(fieldOf(1, "x"), fieldOf(2, kubelet+`\none`)), "DismountVolume "},
		{"volume", "v1beta1", "GetVolumeIDFromMount", missing, "GetVolumeIDFromMount "},
		{"volume", "v1beta1", "GetVolumeDiskNumber", fieldOf(1, "x"), "GetVolumeDiskNumber "},
		{"filesystem", "v1beta1", "LinkPath", slices.Concat(fieldOf(1, `C:\Windows`), fieldOf(2, kubelet+`\link`)), "LinkPath "},
		{"filesystem", "v1beta1", "IsMountPoint", missing, "IsMountPoint "},
		{"filesystem", "v1beta1", "Mkdir", fieldOf(2, uint64(9)), "Mkdir: "},
		{"smb", "v1", "NewSmbGlobalMapping", nil, "NewSmbGlobalMapping"},
		{"iscsi", "v1alpha2", "SetMutualChapSecret", nil, "SetMutualChapSecret: "},
	} {
		path := "/" + test.version + "." + map[string]string{
			"disk": "Disk", "volume": "Volume", "filesystem": "Filesystem", "smb": "Smb", "iscsi": "Iscsi",
		}[test.group] + "/" + test.method
		err := g.conn(test.group, test.version).Invoke(t.Context(), path, test.request, new([]byte),
			grpc.ForceCodec(rawBytes{}))
		st := status.Convert(err)
		if !strings.HasPrefix(st.Message(), test.want) {
			t.Errorf("%s: the error is %q, want %q at its beginning", path, st.Message(), test.want)
		}
		for _, detail := range st.Details() {
			if info := detail.(*errdetails.ErrorInfo); info.Metadata["operation"] != test.method {
				t.Errorf("%s: the detail names the operation %q", path, info.Metadata["operation"])
			}
		}
		if len(st.Details()) != 1 {
			t.Errorf("%s: %d details", path, len(st.Details()))
		}
		for _, other := range []string{"ParseNumber", "FindDiskByPage83", "DataVolumeOfDisk", "CreateSymlink", "IsSymlink"} {
			if strings.Contains(st.Message(), other) {
				t.Errorf("%s: the error names %s: %q", path, other, st.Message())
			}
		}
	}
}
