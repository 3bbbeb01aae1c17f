// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package files_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/smbserver"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/secret"
)

// newShares adds servers to the node, each with the share data, and maps that of the
// first.
func newShares(t *testing.T, sys *winsim.System, servers ...string) {
	t.Helper()
	password := secret.New("Tr0ub4dor&3")
	for _, server := range servers {
		must(t, sys.SMB().AddShare(smbserver.Share{Server: server, Name: "data"}))
		must(t, sys.SMB().AddShare(smbserver.Share{Server: server, Name: "other"}))
		must(t, sys.SMB().SetUser(server, "user", password))
	}
	must(t, sys.CreateSMBGlobalMapping(t.Context(), `\\`+servers[0]+`\data`, win.SMBMappingOptions{Username: "user", Password: password}))
}

// The target of a link to a share is looked for on servers with a mapping only. A pod
// can make a link to wherever it likes, and the node would log in there.
func TestLinkToShare(t *testing.T) {
	sys := newNode(t)
	newShares(t, sys, "server", "attacker")
	must(t, sys.MkdirAll(`\\server\data\dir`))
	f := newFilesystem(t, sys)
	must(t, sys.MkdirAll(kubelet))
	for target, want := range map[string]struct{ is, asked bool }{
		`\\server\data\`:           {true, true},
		`\\SERVER\Data`:            {true, true},
		`\\server\data\dir\`:       {true, true},
		`\\server\data\missing`:    {false, true},
		`\\server\data\missing\x`:  {false, true},
		`\\server\other\`:          {false, false},
		`\\server\data2\`:          {false, false},
		`\\attacker\data\`:         {false, false},
		`\\attacker\data\..\..\x`:  {false, false},
		`\\server\data\..\other`:   {false, false},
		`\\server@8080\data`:       {false, false},
		`\\server.attacker\data`:   {false, false},
		"\\\\attac\u212aer\\data":  {false, false},
		`\\attacker\pipe\netlogon`: {false, false},
		`\\server`:                 {false, false},
	} {
		link := kubelet + `\link`
		must(t, sys.SetReparsePoint(mustDir(t, sys, link), win.NewSymlink(target)))
		asked := false
		sys.OnCall(func(c winsim.Call) {
			asked = asked || strings.HasPrefix(c.Object, `\\`) && c.Name != "CreateFileW"
		})
		is, err := f.IsSymlink(t.Context(), link)
		sys.OnCall(nil)
		if err != nil || is != want.is || asked != want.asked {
			t.Errorf("to %s: %v, %v, asked: %v", target, is, err, asked)
		}
		must(t, sys.Remove(link))
	}
}

// mustDir makes a directory, which is then to become a link.
func mustDir(t *testing.T, sys *winsim.System, path string) string {
	t.Helper()
	must(t, sys.MkdirAll(path))
	return path
}

func TestLinkToShareErrors(t *testing.T) {
	sys := newNode(t)
	newShares(t, sys, "server")
	must(t, sys.MkdirAll(kubelet))
	must(t, sys.Symlink(kubelet+`\link`, `\\server\data\`, true))
	for number, kind := range map[win.Errno]error{
		win.ErrorBadNetPath:   nil,
		win.ErrorBadNetName:   nil,
		win.ErrorLogonFailure: csiproxy.ErrUnauthenticated,
		win.ErrorAccessDenied: csiproxy.ErrPermissionDenied,
	} {
		must(t, sys.Fail(winsim.Match{Call: "GetFileAttributesW"}, number))
		f := newFilesystem(t, sys) // which remembers no refused log-on
		if is, err := f.IsSymlink(t.Context(), kubelet+`\link`); is || csiproxy.KindOf(err) != kind {
			t.Errorf("%v: %v, %v", number, is, err)
		}
		sys.ResetRules()
	}
	must(t, sys.Fail(winsim.Match{Call: "MSFT_SmbGlobalMapping"}, win.ErrorNotSupported))
	if is, err := newFilesystem(t, sys).IsSymlink(t.Context(), kubelet+`\link`); is || !errors.Is(err, csiproxy.ErrUnimplemented) {
		t.Errorf("without a list of the mappings: %v, %v", is, err)
	}
}

// deaf is a system whose calls about files on shares go on when their callers have
// given up, as those of Windows do.
type deaf struct{ *winsim.System }

func (d deaf) FileAttributes(ctx context.Context, path string) (win.FileAttributes, error) {
	return d.System.FileAttributes(context.WithoutCancel(ctx), path)
}

func TestLinkToShareThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := newNode(t)
		newShares(t, sys, "server")
		must(t, sys.MkdirAll(kubelet))
		must(t, sys.Symlink(kubelet+`\link`, `\\server\data\`, true))
		f := newFilesystem(t, deaf{sys})
		must(t, sys.Delay(winsim.Match{Call: "GetFileAttributesW"}, time.Minute))
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := f.IsSymlink(ctx, kubelet+`\link`); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != time.Second {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		time.Sleep(time.Hour)
	})
}

// A link to a share doesn't wait for WMI for ever. However many ask, WMI is asked once.
func TestLinkToShareWhileWMIHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := newNode(t)
		newShares(t, sys, "server")
		must(t, sys.MkdirAll(kubelet))
		must(t, sys.Symlink(kubelet+`\link`, `\\server\data\`, true))
		f := newFilesystem(t, sys)
		must(t, sys.DelayUncancellable(winsim.Match{Call: win.CallSMBGlobalMappings}, time.Hour))
		before := sys.Calls()[win.CallSMBGlobalMappings]
		begin := time.Now()
		for range 100 {
			_, err := f.IsSymlink(t.Context(), kubelet+`\link`) // without a deadline
			if took := time.Since(begin); !errors.Is(err, csiproxy.ErrUnavailable) || took > 10*time.Second {
				t.Errorf("after %v: %v", took, err)
			}
		}
		simtest.Want(t, "questions to WMI", sys.Calls()[win.CallSMBGlobalMappings]-before, 1)
		sys.ResetRules()
		synctest.Wait()
		if is, err := f.IsSymlink(t.Context(), kubelet+`\link`); !is || err != nil {
			t.Errorf("when WMI is back: %v, %v", is, err)
		}
	})
}
