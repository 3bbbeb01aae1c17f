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

// documented returns the numbers that have a row in the page on troubleshooting.
func documented(t *testing.T) map[string]bool {
	t.Helper()
	page, err := os.ReadFile("../../../docs/troubleshooting.md")
	simtest.Must(t, err)
	_, table, _ := strings.Cut(string(page), "| Windows error | code |")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := make(map[string]bool)
	for line := range strings.Lines(table) {
		for number := range strings.SplitSeq(strings.Split(line, "|")[1], ",") {
			rows[strings.TrimSpace(number)] = true
		}
	}
	return rows
}

func TestAnswers(t *testing.T) {
	rows, tested := documented(t), 0
	for _, number := range []string{"5", "1219", "2250"} { // answered elsewhere
		simtest.Want(t, "a row for "+number, rows[number], true)
	}
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
			simtest.Want(t, "a row for "+text, rows[text], true)
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
