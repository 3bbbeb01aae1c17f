// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package shares_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/shares"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/smbserver"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// deaf is a system whose calls about files on shares go on when their callers have
// given up, as those of Windows do.
type deaf struct{ *winsim.System }

func (d deaf) FileAttributes(ctx context.Context, path string) (win.FileAttributes, error) {
	return d.System.FileAttributes(context.WithoutCancel(ctx), path)
}

// A server that doesn't answer keeps nobody longer than he likes, and nothing locked.
func TestServerDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := simtest.Open(t, winsim.Delays{})
		for _, server := range []string{"dead", "alive"} {
			must(t, sys.SMB().AddShare(smbserver.Share{Server: server, Name: "data"}))
			must(t, sys.SMB().SetUser(server, alice.Username, alice.Password))
		}
		m := newMappings(t, deaf{sys}, shares.Options{})
		must(t, m.NewSMBGlobalMapping(t.Context(), `\\dead\data`, "", alice))
		must(t, sys.Delay(winsim.Match{Call: probe, Object: `\\dead\data`}, 5*time.Second))
		must(t, sys.Fail(winsim.Match{Call: probe, Object: `\\dead\data`}, winerr.ErrorBadNetPath))

		calls := counted(sys, probe)
		begin := time.Now()
		var callers sync.WaitGroup
		for range 100 {
			callers.Go(func() {
				// As the daemon calls: nothing else takes the wait off it.
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				simtest.WantError(t, m.NewSMBGlobalMapping(ctx, `\\dead\data`, "", alice), context.DeadlineExceeded)
			})
		}
		callers.Wait()
		simtest.Want(t, "the time that the callers were kept", time.Since(begin), time.Second)
		simtest.Want(t, "questions to the server", calls()[0], 1)
		must(t, m.NewSMBGlobalMapping(t.Context(), `\\alive\data`, "", alice))
		must(t, m.RemoveSMBGlobalMapping(t.Context(), `\\dead\data`)) // nothing is locked
		// What the server says at last is about the mapping that was.
		sys.ResetRules()
		must(t, m.NewSMBGlobalMapping(t.Context(), `\\dead\data`, "", alice))
		must(t, m.NewSMBGlobalMapping(t.Context(), `\\dead\data`, "", alice))
		simtest.Want(t, "the time that others were kept", time.Since(begin), 5*time.Second)
		time.Sleep(time.Hour)
	})
}

// Nothing that is logged or returned shows a password.
func TestNothingShowsThePassword(t *testing.T) {
	var shown bytes.Buffer
	log := slog.New(slog.NewTextHandler(&shown, &slog.HandlerOptions{Level: slog.LevelDebug}))
	sys, _ := newNode(t)
	m := newMappings(t, sys, shares.Options{Logger: log})
	for _, c := range []csiproxy.SMBCredentials{alice, bob,
		{Username: alice.Username, Password: csiproxy.NewSecret("wrong " + alice.Password.Reveal())}} {
		for _, remote := range []string{`\\server\data`, `\\server\logs`, `\\server\nothing`, `\\nobody\data`, `bad`} {
			fmt.Fprintln(&shown, m.NewSMBGlobalMapping(t.Context(), remote, stage, c), c)
		}
		must(t, sys.SMB().SetUser("server", alice.Username, csiproxy.NewSecret("changed")))
	}
	if !strings.Contains(shown.String(), "broken mapping again") {
		t.Error("nothing was logged")
	}
	for _, c := range []csiproxy.SMBCredentials{alice, bob} {
		if strings.Contains(shown.String(), c.Password.Reveal()) {
			t.Errorf("the password of %s shows:\n%s", c.Username, shown.String())
		}
	}
}

// The directories above the local path are made.
func TestLocalPathNeedsNoParent(t *testing.T) {
	sys, m := newNode(t)
	const local = kubelet + `\missing\as well\x`
	for range 2 {
		must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, local, alice))
	}
	if target, err := sys.ReadLink(local); err != nil || target != `\\server\data\` {
		t.Errorf("the link leads to %q, %v", target, err)
	}
}

// A pod that can write to the directory of the local path can't have the link made
// elsewhere.
func TestLocalPathIsNotLedOutside(t *testing.T) {
	sys, _ := newNode(t)
	must(t, sys.MkdirAll(`C:\outside`))
	must(t, sys.Symlink(kubelet+`\plugins\out`, `C:\outside`, true))
	must(t, sys.Symlink(kubelet+`\plugins\share`, `\\server\logs\`, true))
	m := newMappings(t, sys, shares.Options{})
	for _, local := range []string{kubelet + `\plugins\out\x`, kubelet + `\plugins\share\x`} {
		want(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, local, alice), csiproxy.ErrPermissionDenied)
	}
	want(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, kubelet+`\plugins\out\missing\x`, alice), csiproxy.ErrPermissionDenied)
	if entries, err := sys.ReadDir(`C:\outside`); err != nil || len(entries) != 0 {
		t.Errorf("outside there is %v, %v", entries, err)
	}
}
