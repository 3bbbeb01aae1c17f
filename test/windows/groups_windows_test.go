// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package windows

import (
	"strconv"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The published client of each version finds the pipe of that version, and gets an answer. What
// each method does is tested on the simulated node.
func TestGroups(t *testing.T) {
	installSimulated(t).start()
	for group, call := range map[string]struct {
		method string
		fields fields
		want   codes.Code
	}{
		"disk":       {"ListDiskLocations", nil, codes.OK},
		"volume":     {"IsVolumeFormatted", fields{"volume_id": "x"}, codes.InvalidArgument},
		"filesystem": {"PathExists", fields{"path": kubeletPath}, codes.OK},
		"smb":        {"RemoveSmbGlobalMapping", fields{"remote_path": "x"}, codes.InvalidArgument},
		"iscsi":      {"ListTargetPortals", nil, codes.OK},
		"system":     {"GetBIOSSerialNumber", nil, codes.OK},
	} {
		for _, v := range versions[group] {
			t.Run(group+"/"+v.name, func(t *testing.T) {
				if _, err := v.connect(t).try(call.method, call.fields); status.Code(err) != call.want {
					t.Errorf("%s gives %v, want the code %v", call.method, err, call.want)
				}
			})
		}
	}
}

const gib = 1 << 30

func decimal(disk uint32) string { return strconv.FormatUint(uint64(disk), 10) }
