// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package shares_test

import (
	"context"
	"strings"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/shares"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/smbserver"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// foreign are mappings as other programs make them, by the name under which Windows lists them.
var foreign = map[string]smbserver.Mapping{
	`\\server\data\pvc-1`: {RemotePath: `\\server\data\pvc-1`}, // csi-driver-smb in a HostProcess container, mount-utils
	`Z:`:                  {RemotePath: `\\server\data`, LocalPath: "Z:", Persistent: true},
	`Y:`:                  {RemotePath: `\\server\logs\sub`, LocalPath: "Y:"},
	`\\Server\LOGS`:       {RemotePath: `\\Server\LOGS`, Persistent: true},
}

// eachForeign runs a test for each kind of foreign mapping, which alice has.
func eachForeign(t *testing.T, f func(t *testing.T, sys *winsim.System, m *shares.Mappings, name string)) {
	for name, mapping := range foreign {
		for _, privacy := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				sys, m := newNode(t)
				mapping.SMBMappingOptions = win.SMBMappingOptions{Username: alice.Username, Password: alice.Password, RequirePrivacy: privacy}
				must(t, sys.SMB().Map(mapping))
				f(t, sys, m, name)
			})
		}
	}
}

// A mapping that another program has made is listed and removed by its name, in any spelling, and by no other.
func TestForeignMappingHasItsName(t *testing.T) {
	eachForeign(t, func(t *testing.T, sys *winsim.System, m *shares.Mappings, name string) {
		listed, err := m.Mapped(t.Context())
		must(t, err)
		simtest.Want(t, "listed", names(listed), name)
		for _, other := range []string{`X:`, `\\server\data`, `\\server\data\pvc-2`, `\\server\other`} {
			want(t, m.RemoveSMBGlobalMapping(t.Context(), other), csiproxy.ErrNotFound)
		}
		must(t, m.RemoveSMBGlobalMapping(t.Context(), strings.ToLower(name)))
		simtest.Want(t, "mapped", mapped(t, sys), "")
	})
}

// CSI Proxy's own mapping comes and goes beside it.
func TestForeignMappingStays(t *testing.T) {
	eachForeign(t, func(t *testing.T, sys *winsim.System, m *shares.Mappings, name string) {
		stageIt := func(remote string) {
			w, err := m.Parse(remote, stage, alice)
			must(t, err)
			w.Staging = true
			must(t, m.Map(t.Context(), w))
			must(t, sys.WriteFile(stage+`\file`, nil))
			must(t, sys.Remove(stage+`\file`))
			must(t, sys.Remove(stage))
		}
		for _, remote := range []string{`\\server\data`, `\\server\logs`} {
			stageIt(remote)
			_, err := m.RemoveIfUnused(t.Context(), path(t, remote))
			must(t, err)
			simtest.Want(t, "mapped after the last unstaging", mapped(t, sys), name)
		}
		must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, stage, alice))
		must(t, m.RemoveSMBGlobalMapping(t.Context(), `\\server\data`)) // it stays for the link
		must(t, sys.Remove(stage))
		m.RemoveMappingAfterLastLink(t.Context(), path(t, `\\server\data`))
		simtest.Want(t, "mapped after the last link", mapped(t, sys), name)
	})
}

// A request to remove a foreign mapping waits for the links, and doesn't cost CSI Proxy's own mapping its record.
func TestForeignMappingGoesWithTheLastLink(t *testing.T) {
	for _, uses := range []bool{false, true} {
		sys, m := newNode(t)
		must(t, sys.SMB().Map(smbserver.Mapping{RemotePath: `\\server\data\pvc-1`,
			SMBMappingOptions: win.SMBMappingOptions{Username: alice.Username, Password: alice.Password}}))
		must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, stage, alice))
		must(t, m.RemoveSMBGlobalMapping(t.Context(), `\\server\data\pvc-1`))
		simtest.Want(t, "mapped", mapped(t, sys), `\\server\data \\server\data\pvc-1`)
		if uses {
			open, err := sys.OpenFile(t.Context(), stage+`\file`, win.OpenOptions{Access: win.GenericWrite, Disposition: win.FileCreate})
			must(t, err)
			defer open.Close()
		}
		must(t, sys.Remove(stage))
		m.RemoveMappingAfterLastLink(t.Context(), path(t, `\\server\data`))
		want := ""
		if uses {
			want = `\\server\data`
		}
		simtest.Want(t, "mapped in the end", mapped(t, sys), want)
		simtest.Want(t, "the own mapping has a record", ours(t, sys), uses)
		kept, err := sys.ReadDir(records)
		must(t, err)
		simtest.Want(t, "records", len(kept), map[bool]int{true: 1, false: 0}[uses])
	}
}

// Where Windows refuses a mapping beside that of a directory, that serves, unless it has another user.
func TestForeignMappingServes(t *testing.T) {
	for _, as := range []csiproxy.SMBCredentials{alice, bob} {
		sys, m := newNode(t)
		must(t, sys.SetSettings(winsim.Settings{OverlapRefused: true}))
		must(t, sys.SMB().Map(smbserver.Mapping{RemotePath: `\\server\data\pvc-1`,
			SMBMappingOptions: win.SMBMappingOptions{Username: alice.Username, Password: alice.Password}}))
		must(t, sys.MkdirAll(`\\server\data\pvc-2`))
		w, err := m.Parse(`\\server\data\pvc-2`, stage, as)
		must(t, err)
		w.Staging = true
		err = m.Map(t.Context(), w)
		if as == bob {
			want(t, err, csiproxy.ErrFailedPrecondition, `\\server\data\pvc-1, which another program`)
			continue
		}
		must(t, err)
		must(t, m.Map(t.Context(), w)) // again
		must(t, sys.WriteFile(stage+`\file`, nil))
		must(t, sys.Remove(stage+`\file`))
		must(t, sys.Remove(stage))
		_, err = m.RemoveIfUnused(t.Context(), w.Remote())
		must(t, err)
		simtest.Want(t, "mapped", mapped(t, sys), `\\server\data\pvc-1`)
	}
}

// After a change of the password, a foreign mapping keeps the server. The error names it, and removing it by that name
// helps, though links lead to its share: they lead nowhere while the server refuses the mapping.
func TestForeignMappingHoldsTheServer(t *testing.T) {
	changed := csiproxy.SMBCredentials{Username: alice.Username, Password: csiproxy.NewSecret("changed")}
	eachForeign(t, func(t *testing.T, sys *winsim.System, m *shares.Mappings, name string) {
		must(t, sys.SMB().AddShare(smbserver.Share{Server: "server", Name: "third"}))
		for _, share := range []string{"data", "logs"} {
			must(t, sys.Symlink(kubelet+`\plugins\`+share, `\\server\`+share+`\`, true))
		}
		must(t, m.RemoveSMBGlobalMapping(t.Context(), name)) // it stays for the links while it works
		simtest.Want(t, "mapped while it works", mapped(t, sys), name)
		must(t, sys.SMB().SetUser("server", alice.Username, changed.Password))
		for range 2 {
			calls := counted(sys, remove)
			err := m.NewSMBGlobalMapping(t.Context(), `\\server\third`, stage, changed)
			want(t, err, csiproxy.ErrFailedPrecondition, "another program or an administrator has made",
				"csi-proxyctl smb unmap "+name)
			simtest.WantErrorOf(t, "the conflict", err, winerr.ErrorSessionCredentialConflict)
			simtest.Want(t, "removals", calls(), []int{0})
		}
		must(t, m.RemoveSMBGlobalMapping(t.Context(), name))
		must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\third`, stage, changed))
		simtest.Want(t, "mapped", mapped(t, sys), `\\server\third`)
	})
}

// A mapping of the very share that is asked for is replaced at the request, whoever has made it.
func TestForeignMappingOfTheShareIsReplaced(t *testing.T) {
	sys, m := newNode(t)
	mapping := foreign[`\\Server\LOGS`]
	mapping.SMBMappingOptions = win.SMBMappingOptions{Username: alice.Username, Password: alice.Password}
	must(t, sys.SMB().Map(mapping))
	changed := csiproxy.SMBCredentials{Username: alice.Username, Password: csiproxy.NewSecret("changed")}
	must(t, sys.SMB().SetUser("server", alice.Username, changed.Password))
	must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\logs`, stage, changed))
	simtest.Want(t, "mapped", mapped(t, sys), `\\server\logs`)
}

// A server may be held by what is in no list of mappings.
func TestServerIsHeldByNoMapping(t *testing.T) {
	sys, m := newNode(t)
	must(t, sys.Fail(winsim.Match{Call: create}, winerr.ErrorSessionCredentialConflict))
	want(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, stage, alice), csiproxy.ErrFailedPrecondition,
		"none of the node's mappings", "Get-SmbConnection")
}

// After an error that says nothing, the mapping may be there.
func TestMappingIsThereAfterAnUnknownError(t *testing.T) {
	for number, isTried := range map[winerr.Errno]bool{winerr.WBEMFailed: true, winerr.ErrorGenFailure: true, 59999: true,
		winerr.ErrorAccessDenied: false, winerr.ErrorBadNetPath: false} {
		for _, isThere := range []bool{true, false} {
			sys, _ := newNode(t)
			m := newMappings(t, failing{sys, number, isThere}, shares.Options{})
			err := m.NewSMBGlobalMapping(t.Context(), `\\server\data`, stage, alice)
			if isTried && isThere {
				must(t, err)
				simtest.Want(t, "mapped", mapped(t, sys), `\\server\data`)
				continue
			}
			simtest.WantErrorOf(t, "the mapping", err, number)
		}
	}
}

// failing is a node whose mappings are made, or aren't, and which says neither.
type failing struct {
	*winsim.System
	number  winerr.Errno
	isThere bool
}

func (f failing) CreateSMBGlobalMapping(ctx context.Context, remotePath string, o win.SMBMappingOptions) error {
	if f.isThere {
		if err := f.System.CreateSMBGlobalMapping(ctx, remotePath, o); err != nil {
			return err
		}
	}
	return f.number
}

// Only another program's mapping is useless, and only if it fails for everybody: also a directory of a share that CSI
// Proxy has mapped.
func TestUselessMappings(t *testing.T) {
	sys, m := newMapped(t)
	must(t, sys.SMB().Map(smbserver.Mapping{RemotePath: `\\server\data\pvc-1`,
		SMBMappingOptions: win.SMBMappingOptions{Username: alice.Username, Password: alice.Password}}))
	must(t, sys.Fail(winsim.Match{Call: probe, Object: `\\server\data`}, winerr.ErrorNoSuchLogonSession))
	mappings, err := sys.SMBGlobalMappings(t.Context())
	must(t, err)
	simtest.Want(t, "mapped", names(mappings), `\\server\data \\server\data\pvc-1`)
	for _, mapping := range mappings {
		isUseless, err := m.IsUseless(t.Context(), mapping)
		must(t, err)
		simtest.Want(t, mapping.Name()+" is useless", isUseless, mapping.Name() != `\\server\data`)
	}
}
