// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"context"

	"golang.org/x/sys/windows"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// ProcessIDs implements [win.Device] and [win.File].
//
// Source: https://learn.microsoft.com/windows-hardware/drivers/ddi/ntifs/nf-ntifs-ntqueryinformationfile
func (h *handle) ProcessIDs(ctx context.Context) ([]win.ProcessID, error) {
	const someIDs = 1 << 10
	var b []byte
	err := interruptible(ctx, func() (err error) {
		b, err = grown(someIDs, func(buf []byte) (uint32, error) {
			var status windows.IO_STATUS_BLOCK
			err := windows.NtQueryInformationFile(h.h, &status, &buf[0], uint32(len(buf)), fileProcessIDsUsingFile)
			if err == windows.STATUS_INFO_LENGTH_MISMATCH {
				err = windows.STATUS_BUFFER_TOO_SMALL
			}
			return 0, errno(err) // how many it needs, isn't documented
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	return decodeProcessIDs(b)
}

// ProcessImage implements [win.Processes].
func (s *System) ProcessImage(ctx context.Context, id win.ProcessID) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	process, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, uint32(id))
	if err != nil {
		return "", errno(err)
	}
	defer windows.CloseHandle(process)
	name := make([]uint16, windows.MAX_LONG_PATH)
	length := uint32(len(name))
	if err := windows.QueryFullProcessImageName(process, 0, &name[0], &length); err != nil {
		return "", errno(err)
	}
	return windows.UTF16ToString(name[:length]), nil
}
