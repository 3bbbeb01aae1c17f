// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"context"

	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// FirmwareTable implements [win.Firmware].
func (s *System) FirmwareTable(ctx context.Context) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	const provider = 'R'<<24 | 'S'<<16 | 'M'<<8 | 'B' // as the C constant 'RSMB'
	const usual = 4 << 10                             // bytes
	var length uint32
	buf, err := grown(usual, func(buf []byte) (needed uint32, err error) {
		length, err = getSystemFirmwareTable(provider, 0, &buf[0], uint32(len(buf)))
		if err == nil && int(length) > len(buf) {
			err = winerr.ErrorInsufficientBuffer
		}
		return length, errno(err)
	})
	if err != nil {
		return nil, err
	}
	return buf[:length], nil
}
