// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"strings"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/windows/handletrack"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// Each kind of handle is reported with what opened it, until it is closed or the node
// restarts.
func TestLeakedHandleIsReported(t *testing.T) {
	handles := handletrack.New()
	s := openNode(t, Config{Handles: handles})
	defer s.Close()
	ctx, open := t.Context(), existing(win.FileListDirectory, 0)
	opens := map[string]func() (interface{ Close() error }, error){
		"a disk":      func() (interface{ Close() error }, error) { return s.OpenDevice(ctx, drivePath(0), win.AccessNone) },
		"a directory": func() (interface{ Close() error }, error) { return s.OpenFile(ctx, kubelet, open) },
		"a held one":  func() (interface{ Close() error }, error) { return s.Hold(kubelet, open) },
		"one below": func() (interface{ Close() error }, error) {
			dir, err := s.OpenFile(ctx, `C:\`, open)
			must(t, err)
			defer closeHandle(t, dir)
			return dir.OpenAt(ctx, "var", open)
		},
	}
	for what, leak := range opens {
		h, err := leak()
		must(t, err)
		if err := handles.Err(); err == nil || !strings.Contains(err.Error(), "winsim.TestLeakedHandleIsReported") {
			t.Errorf("%s: the report is %v", what, err)
		}
		must(t, h.Close())
		if err := handles.Err(); err != nil {
			t.Errorf("%s, closed: %v", what, err)
		}
		_, err = leak()
		must(t, err)
		must(t, s.Reboot())
		if err := handles.Err(); err != nil {
			t.Errorf("%s, after a restart: %v", what, err)
		}
	}
}
