// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package win_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

type providers struct{ storage, smb func() error }

func (p providers) TryStorageProvider(context.Context) error { return p.storage() }

func (p providers) SMBGlobalMappings(context.Context) ([]win.SMBMapping, error) { return nil, p.smb() }

// A provider that doesn't answer holds up nothing, and doesn't hide the other.
func TestTryProviders(t *testing.T) {
	broken := errors.New("broken")
	works, fails := func() error { return nil }, func() error { return broken }
	if failed := win.TryProviders(t.Context(), providers{works, works}); len(failed) != 0 {
		t.Errorf("%v", failed)
	}
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		hangs := func() error { <-end; return nil }
		failed := win.TryProviders(t.Context(), providers{hangs, fails})
		if len(failed) != 2 || !errors.Is(failed[0], context.DeadlineExceeded) || !errors.Is(failed[1], broken) ||
			!strings.Contains(failed[1].Error(), `root\Microsoft\Windows\SMB`) {
			t.Errorf("%v", failed)
		}
		close(end)
	})
}
