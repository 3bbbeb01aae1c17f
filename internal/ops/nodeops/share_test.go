// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
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
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// newShares adds servers to the node, each with the share data, and maps that of the
// first.
func newFileShares(t *testing.T, sys *winsim.System, servers ...string) {
	t.Helper()
	password := csiproxy.NewSecret("Tr0ub4dor&3")
	for _, server := range servers {
		must(t, sys.SMB().AddShare(smbserver.Share{Server: server, Name: "data"}))
		must(t, sys.SMB().AddShare(smbserver.Share{Server: server, Name: "other"}))
		must(t, sys.SMB().SetUser(server, "user", password))
	}
	must(t, sys.CreateSMBGlobalMapping(t.Context(), `\\`+servers[0]+`\data`, win.SMBMappingOptions{Username: "user", Password: password}))
}

// A link to a mapped share is one, whatever is on the share: no server is asked. One that asked would also
// have the node log in to wherever a pod makes a link to.
func TestLinkToShare(t *testing.T) {
	sys := newFileNode(t)
	newFileShares(t, sys, "server", "attacker")
	f := newFilesystem(t, sys)
	must(t, sys.MkdirAll(kubelet))
	for target, want := range map[string]bool{
		`\\server\data\`:           true,
		`\\SERVER\Data`:            true,
		`\\server\data\missing\x`:  true,
		`\\server\other\`:          false,
		`\\server\data2\`:          false,
		`\\attacker\data\`:         false,
		`\\attacker\data\..\..\x`:  false,
		`\\server\data\..\other`:   false,
		`\\server@8080\data`:       false,
		`\\server.attacker\data`:   false,
		"\\\\attac\u212aer\\data":  false,
		`\\attacker\pipe\netlogon`: false,
		`\\server`:                 false,
	} {
		link := kubelet + `\link`
		must(t, sys.SetReparsePoint(mustDir(t, sys, link), win.NewSymlink(target)))
		asked := false
		sys.OnCall(func(c winsim.Call) {
			asked = asked || strings.HasPrefix(c.Object, `\\`) && c.Name != "CreateFileW"
		})
		is, err := f.IsSymlink(t.Context(), link)
		sys.OnCall(nil)
		if err != nil || is != want || asked {
			t.Errorf("to %s: %v, %v, asked: %v", target, is, err, asked)
		}
		must(t, sys.Remove(link))
	}
}

// A driver asks about the staged path of a share before it stages it again with the new password.
func TestLinkToShareWithoutItsServer(t *testing.T) {
	for name, happens := range map[string]func(sys *winsim.System) error{
		"the password has changed": func(sys *winsim.System) error {
			return sys.SMB().SetUser("server", "user", csiproxy.NewSecret("another"))
		},
		"the server is down": func(sys *winsim.System) error {
			return sys.SMB().SetState("server", smbserver.State{Unreachable: true})
		},
		"the server hangs": func(sys *winsim.System) error {
			return sys.Delay(winsim.Match{Call: "GetFileAttributesW", Fires: winsim.MustNotFire}, time.Hour)
		},
		"the share has gone": func(sys *winsim.System) error { return sys.SMB().RemoveShare("server", "data") },
	} {
		t.Run(name, func(t *testing.T) {
			sys := newFileNode(t)
			newFileShares(t, sys, "server")
			must(t, sys.MkdirAll(kubelet))
			must(t, sys.Symlink(kubelet+`\link`, `\\server\data\`, true))
			must(t, happens(sys))
			if is, err := newFilesystem(t, sys).IsSymlink(t.Context(), kubelet+`\link`); !is || err != nil {
				t.Errorf("%v, %v", is, err)
			}
		})
	}
}

// mustDir makes a directory, which is then to become a link.
func mustDir(t *testing.T, sys *winsim.System, path string) string {
	t.Helper()
	must(t, sys.MkdirAll(path))
	return path
}

func TestLinkToShareErrors(t *testing.T) {
	sys := newFileNode(t)
	newFileShares(t, sys, "server")
	must(t, sys.MkdirAll(kubelet))
	must(t, sys.Symlink(kubelet+`\link`, `\\server\data\`, true))
	must(t, sys.Fail(winsim.Match{Call: "MSFT_SmbGlobalMapping"}, winerr.ErrorNotSupported))
	if is, err := newFilesystem(t, sys).IsSymlink(t.Context(), kubelet+`\link`); is || !errors.Is(err, csiproxy.ErrUnimplemented) {
		t.Errorf("without a list of the mappings: %v, %v", is, err)
	}
}

// A link to a share doesn't wait for WMI forever. However many ask, WMI is asked once.
func TestLinkToShareWhileWMIHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := newFileNode(t)
		newFileShares(t, sys, "server")
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
