// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package shares

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// The classes of a mapping that can't be made. What isn't Unavailable isn't worth another try before somebody acts.
var classes = map[error][]winerr.Errno{
	csiproxy.ErrUnavailable:        {53, 64, 240, 1062, 1203, 1311, 1450, 2138, winerr.WBEMFailed},
	csiproxy.ErrNotFound:           {67},
	csiproxy.ErrFailedPrecondition: {58, 384, 1058, 1208, 1272, 1396, 1937, 2457, winerr.StatusInvalidSignature},
	csiproxy.ErrPermissionDenied:   {65},
	csiproxy.ErrUnauthenticated:    {86, 1312, 1326, 1331, 1909},
	csiproxy.ErrUnimplemented:      {winerr.WBEMInvalidNamespace, winerr.WBEMInvalidClass},
	csiproxy.ErrInternal:           {1168},
}

func TestAnswers(t *testing.T) {
	page, err := os.ReadFile("../../../docs/troubleshooting.md")
	simtest.Must(t, err)
	tested := 0
	for kind, numbers := range classes {
		for _, number := range numbers {
			err := explain(fmt.Errorf("a call: %w", number), true)
			simtest.WantError(t, err, kind, answers[number].remedy)
			if !errors.Is(err, number) || answers[number].remedy == "" {
				t.Errorf("%v: %v", number, err)
			}
			text := fmt.Sprint(uint32(number))
			if number > 0xFFFF {
				text = fmt.Sprintf("0x%08X", uint32(number))
			}
			if !strings.Contains(string(page), "| "+text) && !strings.Contains(string(page), ", "+text) {
				t.Errorf("docs/troubleshooting.md has no row for %s", text)
			}
			tested++
		}
	}
	simtest.Want(t, "rows", tested, len(answers))
	for _, err := range []error{winerr.Errno(59999), errors.New("no answer of Windows"), winerr.ErrorSessionCredentialConflict} {
		if got := explain(err, true); got != err {
			t.Errorf("%v is explained as %v", err, got)
		}
	}
	for requirePrivacy, want := range map[bool]bool{true: true, false: false} {
		err := explain(winerr.ErrorAccessDenied, requirePrivacy)
		if strings.Contains(err.Error(), "after about 15 minutes") != want {
			t.Errorf("with privacy %t: %v", requirePrivacy, err)
		}
	}
}
