// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// A file serves as a device that can be read.
func TestDeviceReadAt(t *testing.T) {
	s := newSystem(t)
	path := filepath.Join(t.TempDir(), "disk")
	content := strings.Repeat("0123456789abcdef", 1000)
	must(t, os.WriteFile(path, []byte(content), 0o600))
	d, err := s.OpenDevice(t.Context(), path, win.GenericRead)
	must(t, err)
	defer d.Close()
	tests := []struct{ off, length, want int }{
		{0, 512, 512},
		{512, 1024, 1024},
		{7, 100, 100},
		{len(content) - 16, 512, 16},
		{len(content), 512, 0},
		{1 << 40, 512, 0},
		{0, 0, 0},
		{0, 2 * len(content), len(content)},
	}
	for _, tt := range tests {
		buf := make([]byte, tt.length)
		n, err := d.ReadAt(t.Context(), buf, int64(tt.off))
		if err != nil || n != tt.want {
			t.Errorf("ReadAt of %d at %d: %d, %v; want %d", tt.length, tt.off, n, err, tt.want)
		} else if n > 0 && string(buf[:n]) != content[tt.off:tt.off+n] {
			t.Errorf("ReadAt of %d at %d: wrong content", tt.length, tt.off)
		}
	}
	_, err = d.ReadAt(t.Context(), make([]byte, 1), -1)
	wantErrno(t, "a negative offset", err, winerr.ErrorInvalidParameter)
	wantErrno(t, "Flush without write access", d.Flush(t.Context()), winerr.ErrorAccessDenied)
	_, err = s.OpenDevice(t.Context(), path+"x", win.GenericRead)
	wantErrno(t, "missing", err, winerr.ErrorFileNotFound)
}
