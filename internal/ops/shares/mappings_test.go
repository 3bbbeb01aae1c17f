// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package shares_test

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/ops/shares"
	"github.com/csi-proxy/csi-proxy/internal/ops/usage"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/smbserver"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

const (
	kubelet = simtest.Kubelet
	stage   = kubelet + `\plugins\globalmount`

	create = "MSFT_SmbGlobalMapping.Create"
	remove = "MSFT_SmbGlobalMapping.Remove"
	list   = "MSFT_SmbGlobalMapping"
	probe  = "GetFileAttributesW"
)

var (
	must    = simtest.Must
	want    = simtest.WantError
	counted = simtest.Counted
	alice   = csiproxy.SMBCredentials{Username: `CORP\alice`, Password: csiproxy.NewSecret("Tr0ub4dor&3")}
	bob     = csiproxy.SMBCredentials{Username: `bob`, Password: csiproxy.NewSecret("hunter2")}
)

// newNode returns a node that can reach \\server with the shares data and logs, of
// alice and bob, and its mappings.
func newNode(t *testing.T) (*winsim.System, *shares.Mappings) {
	t.Helper()
	sys := simtest.Open(t, winsim.Delays{})
	for _, name := range []string{"data", "logs"} {
		must(t, sys.SMB().AddShare(smbserver.Share{Server: "server", Name: name}))
	}
	for _, c := range []csiproxy.SMBCredentials{alice, bob} {
		must(t, sys.SMB().SetUser("server", c.Username, c.Password))
	}
	must(t, sys.MkdirAll(kubelet+`\plugins`))
	return sys, newMappings(t, sys, shares.Options{})
}

// newMapped is newNode, and maps data for alice.
func newMapped(t *testing.T) (*winsim.System, *shares.Mappings) {
	t.Helper()
	sys, m := newNode(t)
	must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, "", alice))
	return sys, m
}

func newMappings(t *testing.T, sys shares.System, o shares.Options) *shares.Mappings {
	t.Helper()
	paths, err := pathpolicy.New(pathpolicy.Options{KubeletPath: kubelet})
	must(t, err)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.Users = usage.NewFinder(usage.NewSharedFinder(sys, paths, nil, o.Logger))
	o.Locks = cmp.Or(o.Locks, usage.NewLocker(sys, paths, o.Users, usage.LockOptions{Logger: o.Logger}))
	o.Shared = shares.NewShared(o.Logger, func(string) string { return "" })
	return shares.New(sys, paths, o)
}

// newBounded returns mappings whose calls to Windows are bounded as those of a daemon are.
func newBounded(t *testing.T, sys *winsim.System) *shares.Mappings {
	t.Helper()
	return newMappings(t, operation.NewWindows(sys, nil, nil), shares.Options{})
}

// mapped lists the shares that are mapped.
func mapped(t *testing.T, sys *winsim.System) string {
	t.Helper()
	mappings, err := sys.SMBGlobalMappings(t.Context())
	must(t, err)
	return names(mappings)
}

// names returns the names of mappings.
func names(mappings []win.SMBMapping) string {
	var names []string
	for _, m := range mappings {
		names = append(names, m.Name())
	}
	return strings.Join(names, " ")
}

func TestMap(t *testing.T) {
	sys, m := newNode(t)
	must(t, m.NewSMBGlobalMapping(t.Context(), `//SERVER/Data/`, stage, alice))
	simtest.Want(t, "mapped", mapped(t, sys), `\\server\data`)
	must(t, sys.WriteFile(stage+`\file`, []byte("data")))
	data, err := sys.ReadFile(`\\server\data\file`)
	if err != nil || string(data) != "data" {
		t.Errorf("on the share there is %q, %v", data, err)
	}

	// Again, as kubelet calls, and as one of its pods' drivers that spells otherwise.
	calls := counted(sys, create, remove)
	must(t, m.NewSMBGlobalMapping(t.Context(), `//SERVER/Data/`, stage, alice))
	must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, strings.ToUpper(stage), alice))
	must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data\missing\dir`, "", alice))
	simtest.Want(t, "calls to create and remove", calls(), []int{0, 0})

	// A mapping of another share of the same server has the same session.
	must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\logs`, "", alice))
	must(t, sys.Remove(stage))
	must(t, m.RemoveSMBGlobalMapping(t.Context(), `\\Server\DATA\sub\`))
	simtest.Want(t, "mapped", mapped(t, sys), `\\server\logs`)
	want(t, m.RemoveSMBGlobalMapping(t.Context(), `\\server\data`), csiproxy.ErrNotFound)
	// A link to a share that isn't mapped is there, and the next mapping finds it.
	must(t, sys.Symlink(stage, `\\server\data\`, true))
	must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, stage, alice))
}

// The link is what drivers read back, to remove the mapping by it.
func TestLink(t *testing.T) {
	for remote, target := range map[string]string{
		`\\server\data`:         `\??\UNC\server\data\`,
		`//Server/Data/`:        `\??\UNC\server\Data\`,
		`\\server\data\Sub\dir`: `\??\UNC\server\data\Sub\dir\`,
	} {
		t.Run(remote, func(t *testing.T) {
			sys, m := newNode(t)
			must(t, m.NewSMBGlobalMapping(t.Context(), remote, stage, alice))
			r := readLink(t, sys, stage)
			if r.Tag != win.TagSymlink || r.SubstituteName != target || r.Relative {
				t.Errorf("the link is %+v", r)
			}
			must(t, m.RemoveSMBGlobalMapping(t.Context(), r.Target()))
		})
	}
}

func readLink(t *testing.T, sys *winsim.System, path string) win.ReparsePoint {
	t.Helper()
	f, err := sys.OpenFile(t.Context(), path,
		win.OpenOptions{Disposition: win.FileOpen, Options: win.FileOpenReparsePoint})
	must(t, err)
	defer f.Close()
	b := make([]byte, win.MaximumReparseDataSize)
	n, err := f.Control(t.Context(), win.FsctlGetReparsePoint, nil, b)
	must(t, err)
	r, err := win.DecodeReparsePoint(b[:n])
	must(t, err)
	return r
}

// What is in the link's place stays as it is.
func TestLinkInTheWay(t *testing.T) {
	for name, prepare := range map[string]func(sys *winsim.System) error{
		"a directory":        func(sys *winsim.System) error { return sys.MkdirAll(stage + `\sub`) },
		"a file":             func(sys *winsim.System) error { return sys.WriteFile(stage, []byte("x")) },
		"a link inside":      func(sys *winsim.System) error { return sys.Symlink(stage, kubelet+`\plugins`, true) },
		"a link outside":     func(sys *winsim.System) error { return sys.Symlink(stage, `C:\Windows`, true) },
		"another share":      func(sys *winsim.System) error { return sys.Symlink(stage, `\\server\logs\`, true) },
		"another directory":  func(sys *winsim.System) error { return sys.Symlink(stage, `\\server\data\sub\`, true) },
		"another server":     func(sys *winsim.System) error { return sys.Symlink(stage, `\\evil\data\`, true) },
		"a junction":         func(sys *winsim.System) error { return sys.Junction(stage, kubelet+`\plugins`) },
		"a junction there":   func(sys *winsim.System) error { return sys.Junction(stage, `\\server\data`) },
		"what can't be read": func(sys *winsim.System) error { return sys.Symlink(stage, `\\server\..\data`, true) },
	} {
		t.Run(name, func(t *testing.T) {
			sys, _ := newNode(t)
			must(t, sys.MkdirAll(stage)) // which only a staging replaces
			want(t, newMappings(t, sys, shares.Options{}).NewSMBGlobalMapping(t.Context(), `\\server\data`, stage, alice),
				csiproxy.ErrAlreadyExists)
			must(t, sys.Remove(stage))
			must(t, prepare(sys))
			before, err := sys.ReadDir(kubelet + `\plugins`)
			must(t, err)
			m := newMappings(t, sys, shares.Options{})
			want(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, stage, alice), csiproxy.ErrAlreadyExists)
			w, err := m.Parse(`\\server\data`, stage, alice)
			must(t, err)
			w.Staging = true
			want(t, m.Map(t.Context(), w), csiproxy.ErrAlreadyExists)
			after, err := sys.ReadDir(kubelet + `\plugins`)
			must(t, err)
			simtest.Want(t, "the place", after, before)
		})
	}
}

func TestInvalidArguments(t *testing.T) {
	sys, m := newNode(t)
	with := func(username, password string) csiproxy.SMBCredentials {
		return csiproxy.SMBCredentials{Username: username, Password: csiproxy.NewSecret(password)}
	}
	long := strings.Repeat("x", 2000)
	calls := counted(sys, create, list, probe)
	for _, test := range []struct {
		remote, local string
		c             csiproxy.SMBCredentials
	}{
		{``, "", alice}, {``, stage, alice}, {`\\server`, "", alice}, {`\\?\UNC\server\data`, "", alice}, {`\\server\data\..\x`, "", alice}, {`C:\x`, "", alice},
		{`\\server\data`, `C:\Windows\x`, alice}, {`\\server\data`, `relative`, alice}, {`\\server\data`, kubelet + `\..\x`, alice}, {`\\server\data`, `\\server\data`, alice},
		{`\\server\data`, "", with("", "p")}, {`\\server\data`, "", with("u", "")},
		{`\\server\data`, "", with("u\x00", "p")}, {`\\server\data`, "", with("u\nv", "p")}, {`\\server\data`, "", with("u\xff", "p")}, {`\\server\data`, "", with(long, "p")},
		{`\\server\data`, "", with("u", "p\x00")}, {`\\server\data`, "", with("u", "p\xff")}, {`\\server\data`, "", with("u", long)},
	} {
		if err := m.NewSMBGlobalMapping(t.Context(), test.remote, test.local, test.c); !errors.Is(err,
			csiproxy.ErrInvalidArgument) {
			t.Errorf("%q at %q for %q: %v", test.remote, test.local, test.c.Username, err)
		}
	}
	for _, remote := range []string{``, `\\server`, `\\server\data\..`} {
		want(t, m.RemoveSMBGlobalMapping(t.Context(), remote), csiproxy.ErrInvalidArgument)
	}
	simtest.Want(t, "calls to Windows", calls(), []int{0, 0, 0})
	// An allowed directory can't become a link.
	want(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, kubelet, alice), csiproxy.ErrInvalidArgument)
}

func TestErrorsOfTheServer(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(sys *winsim.System) error
		remote  string
		kind    error
		number  winerr.Errno
	}{
		"no such server": {nil, `\\nobody\data`, csiproxy.ErrUnavailable, winerr.ErrorBadNetPath},
		"no such share":  {nil, `\\server\nothing`, csiproxy.ErrNotFound, winerr.ErrorBadNetName},
		"another password": {func(sys *winsim.System) error {
			return sys.SMB().SetUser("server", alice.Username, csiproxy.NewSecret("new"))
		}, `\\server\data`, csiproxy.ErrUnauthenticated, winerr.ErrorLogonFailure},
		"no such user": {func(sys *winsim.System) error { return sys.SMB().RemoveUser("server", alice.Username) }, `\\server\data`, csiproxy.ErrUnauthenticated, winerr.ErrorLogonFailure},
		"not for this user": {func(sys *winsim.System) error {
			return sys.SMB().AddShare(smbserver.Share{Server: "server", Name: "private", Users: []string{"bob"}})
		}, `\\server\private`, csiproxy.ErrPermissionDenied, winerr.ErrorAccessDenied},
		"no encryption": {func(sys *winsim.System) error {
			return sys.SMB().SetState("server", smbserver.State{NoEncryption: true})
		}, `\\server\data`, csiproxy.ErrPermissionDenied, winerr.ErrorAccessDenied},
		"unreachable": {func(sys *winsim.System) error {
			return sys.SMB().SetState("server", smbserver.State{Unreachable: true})
		}, `\\server\data`, csiproxy.ErrUnavailable, winerr.ErrorBadNetPath},
	} {
		t.Run(name, func(t *testing.T) {
			sys, _ := newNode(t)
			if test.prepare != nil {
				must(t, test.prepare(sys))
			}
			m := newMappings(t, sys, shares.Options{})
			err := m.NewSMBGlobalMapping(t.Context(), test.remote, stage, alice)
			want(t, err, test.kind)
			if number, _ := csiproxy.WindowsErrorOf(err); winerr.Errno(number) != test.number {
				t.Errorf("the Windows error is %d, want %d", number, test.number)
			}
			if err == nil {
				t.Fatal("it is mapped")
			}
			if strings.Contains(err.Error(), alice.Password.Reveal()) || strings.Contains(err.Error(), "alice") {
				t.Errorf("the error shows the credentials: %v", err)
			}
			if test.number == winerr.ErrorAccessDenied && !strings.Contains(err.Error(), "-require-privacy=false") {
				t.Errorf("the error doesn't tell what may help: %v", err)
			}
			simtest.Want(t, "mapped", mapped(t, sys), "")
			if entries, err := sys.ReadDir(kubelet + `\plugins`); err != nil || len(entries) != 0 {
				t.Errorf("the local path is there: %v, %v", entries, err)
			}
		})
	}
}

func TestWithoutPrivacy(t *testing.T) {
	sys, _ := newNode(t)
	must(t, sys.SMB().SetState("server", smbserver.State{NoEncryption: true}))
	must(t, newMappings(t, sys, shares.Options{WithoutPrivacy: true}).NewSMBGlobalMapping(t.Context(), `\\server\data`, "", alice))
}

// Which mappings are kept, and which are made again.
func TestHealth(t *testing.T) {
	for name, test := range map[string]struct {
		damage func(sys *winsim.System) error
		remote string // another one than was mapped
		c      csiproxy.SMBCredentials
		kind   error
		calls  []int // create, remove
	}{
		"it works":                   {nil, "", bob, nil, []int{0, 0}},
		"a directory is missing":     {nil, `\\server\data\missing`, alice, nil, []int{0, 0}},
		"a directory of a directory": {nil, `\\server\data\missing\dir`, alice, nil, []int{0, 0}},
		"the server is away": {func(sys *winsim.System) error {
			return sys.SMB().SetState("server", smbserver.State{Unreachable: true})
		}, "", alice, csiproxy.ErrUnavailable, []int{0, 0}},
		"the password was changed": {func(
			sys *winsim.System) error {
			return sys.SMB().SetUser("server", bob.Username, csiproxy.NewSecret("new"))
		}, "", csiproxy.SMBCredentials{Username: "bob", Password: csiproxy.NewSecret("new")}, nil, []int{1, 1}},
		"the password was changed, not known": {func(sys *winsim.System) error {
			return sys.SMB().SetUser("server",
				bob.Username, csiproxy.NewSecret("new"))
		}, "", bob, csiproxy.ErrUnauthenticated, []int{0, 0}},
		"the node has lost its domain": {func(sys *winsim.System) error {
			return sys.Fail(winsim.Match{Call: probe}, winerr.ErrorTrustedRelationshipFailure)
		}, "", bob, csiproxy.ErrFailedPrecondition, []int{0, 0}},
		"the account is locked out": {func(sys *winsim.System) error {
			return sys.Fail(winsim.Match{Call: probe}, winerr.ErrorAccountLockedOut)
		}, "", bob, csiproxy.ErrUnauthenticated, []int{0, 0}},
		"the share has gone": {func(sys *winsim.System) error { return sys.SMB().RemoveShare("server", "data") }, "",
			bob, csiproxy.ErrUnavailable, []int{0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			sys, m := newNode(t)
			must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, "", bob))
			if test.damage != nil {
				must(t, test.damage(sys))
			}
			calls := counted(sys, create, remove)
			remote := test.remote
			if remote == "" {
				remote = `\\server\data`
			}
			want(t, m.NewSMBGlobalMapping(t.Context(), remote, "", test.c), test.kind)
			simtest.Want(t, "calls to create and remove", calls(), test.calls)
		})
	}
}

// A mapping works again when its server is back, without anybody's help.
func TestServerComesBack(t *testing.T) {
	for _, number := range []winerr.Errno{0, winerr.ErrorBadNetName} { // of a server that is away
		sys, _ := newNode(t)
		must(t, sys.SetSettings(winsim.Settings{NoServer: number}))
		m := newMappings(t, sys, shares.Options{})
		must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, stage, alice))
		must(t, sys.WriteFile(stage+`\file`, []byte("data")))
		must(t, sys.SMB().SetState("server", smbserver.State{Unreachable: true}))
		want(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, stage, alice), csiproxy.ErrUnavailable)
		must(t, sys.SMB().SetState("server", smbserver.State{}))
		must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, stage, alice))
		if data, err := sys.ReadFile(stage + `\file`); err != nil || string(data) != "data" {
			t.Errorf("there is %q, %v", data, err)
		}
		must(t, sys.Reboot())
		simtest.Want(t, "mapped after a restart", mapped(t, sys), "")
		must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, stage, alice))
	}
}

// Windows allows one user for each server. When a password was changed, all mappings
// of the server have to go before one can be made; those that work are never touched.
func TestCredentialConflict(t *testing.T) {
	changed := csiproxy.SMBCredentials{Username: alice.Username, Password: csiproxy.NewSecret("changed")}

	t.Run("the password was changed", func(t *testing.T) {
		sys, m := newNode(t)
		must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, stage, alice))
		must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\logs`, "", alice))
		must(t, sys.SMB().AddShare(smbserver.Share{Server: "server", Name: "new"}))
		must(t, sys.WriteFile(stage+`\file`, []byte("data")))
		must(t, sys.SMB().SetUser("server", alice.Username, changed.Password))
		must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\new`, "", changed))
		simtest.Want(t, "mapped", mapped(t, sys), `\\server\data \\server\logs \\server\new`)
		if data, err := sys.ReadFile(stage + `\file`); err != nil || string(data) != "data" {
			t.Errorf("through the other mapping there is %q, %v", data, err)
		}
	})
	t.Run("of a broken mapping itself", func(t *testing.T) {
		sys, m := newMapped(t)
		must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\logs`, "", alice))
		must(t, sys.SMB().SetUser("server", alice.Username, changed.Password))
		must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, "", changed))
		must(t, sys.WriteFile(`\\server\logs\file`, nil))
	})
	t.Run("its mapping fails after others have made way", func(t *testing.T) {
		for number, words := range map[winerr.Errno]string{
			winerr.ErrorIODevice:                  "",
			winerr.ErrorSessionCredentialConflict: "the server is in use with other credentials",
		} {
			sys, m := newNode(t)
			must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\logs`, "", alice))
			must(t, sys.SMB().SetUser("server", alice.Username, changed.Password))
			must(t, sys.Fail(winsim.Match{Call: create, Skip: 1, Count: 1}, number))
			err := m.NewSMBGlobalMapping(t.Context(), `\\server\data`, "", changed)
			simtest.WantErrorOf(t, fmt.Sprintf("%v", number), err, number, words)
		}
	})
	t.Run("the other mapping can't be removed", func(t *testing.T) {
		sys, m := newNode(t)
		must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\logs`, "", alice))
		must(t, sys.SMB().SetUser("server", alice.Username, changed.Password))
		must(t, sys.Fail(winsim.Match{Call: remove, Count: 1}, winerr.ErrorIODevice))
		err := m.NewSMBGlobalMapping(t.Context(), `\\server\data`, "", changed)
		if got := mapped(t, sys); !errors.Is(err, winerr.ErrorIODevice) || got != `\\server\logs` {
			t.Errorf("mapped is %q, %v", got, err)
		}
	})
	t.Run("the other mapping works", func(t *testing.T) {
		sys, m := newMapped(t)
		calls := counted(sys, remove)
		err := m.NewSMBGlobalMapping(t.Context(), `\\server\logs`, "", bob)
		want(t, err, csiproxy.ErrFailedPrecondition)
		simtest.Want(t, "removals", calls(), []int{0})
	})
	t.Run("the other server is away", func(t *testing.T) {
		sys, m := newMapped(t)
		must(t, sys.Fail(winsim.Match{Call: probe, Object: `\\server\data`}, winerr.ErrorNetNameDeleted))
		want(t, m.NewSMBGlobalMapping(t.Context(), `\\server\logs`, "", bob), csiproxy.ErrFailedPrecondition)
		simtest.Want(t, "mapped", mapped(t, sys), `\\server\data`)
	})
	t.Run("the other mapping is another user's", func(t *testing.T) {
		sys, m := newMapped(t)
		must(t, sys.SMB().SetUser("server", alice.Username, changed.Password))
		must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\logs`, "", bob))
		simtest.Want(t, "mapped, or bob has alice's share", mapped(t, sys), `\\server\logs`)
	})
	t.Run("the other mapping is an earlier process's", func(t *testing.T) {
		sys, _ := newNode(t)
		must(t, newMappings(t, sys, shares.Options{}).NewSMBGlobalMapping(t.Context(), `\\server\data`, "", alice))
		must(t, sys.SMB().SetUser("server", alice.Username, changed.Password))
		m := newMappings(t, sys, shares.Options{})
		must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\logs`, "", changed))
		simtest.Want(t, "mapped", mapped(t, sys), `\\server\logs`)
		must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, "", changed)) // its driver stages it again
	})
	t.Run("the new ones aren't good for the others", func(t *testing.T) {
		sys, _ := newNode(t)
		must(t, sys.SMB().AddShare(smbserver.Share{Server: "server", Name: "private", Users: []string{alice.Username}}))
		m := newMappings(t, sys, shares.Options{})
		must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\private`, "", alice))
		must(t, sys.SMB().SetUser("server", alice.Username, changed.Password))
		must(t, sys.Fail(winsim.Match{Call: create, Object: `\\server\private`}, winerr.ErrorAccessDenied))
		must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, "", changed))
		simtest.Want(t, "mapped", mapped(t, sys), `\\server\data`)
	})
}

// A mapping that requires encryption still does when another caller's request makes it again: its user may have required that.
func TestPrivacyIsKept(t *testing.T) {
	changed := csiproxy.SMBCredentials{Username: alice.Username, Password: csiproxy.NewSecret("changed")}
	for _, remote := range []string{`\\server\data`, `\\server\logs`} { // it itself, and one that it makes way for
		for _, privacy := range []csiproxy.SharePrivacy{csiproxy.PrivacyRequired, csiproxy.PrivacyNotRequired} {
			sys, _ := newNode(t)
			m := newMappings(t, sys, shares.Options{WithoutPrivacy: true})
			w, err := m.Parse(`\\server\data`, stage, alice)
			must(t, err)
			w.Privacy = privacy
			must(t, m.Map(t.Context(), w))
			must(t, sys.SMB().SetUser("server", alice.Username, changed.Password))
			must(t, m.NewSMBGlobalMapping(t.Context(), remote, "", changed))
			mappings, err := sys.SMBGlobalMappings(t.Context())
			must(t, err)
			for _, mapping := range mappings {
				isRequired := mapping.RemotePath == `\\server\data` && privacy == csiproxy.PrivacyRequired
				simtest.Want(t, mapping.RemotePath+" requires privacy", mapping.RequirePrivacy, isRequired)
			}
		}
	}
}

// A mapping that is broken and can't be removed stays, and its error is told. One that can is made
// again at once.
func TestBrokenMappingIsRemovedFirst(t *testing.T) {
	for _, number := range []winerr.Errno{0, winerr.ErrorNotConnected, winerr.ErrorIODevice} {
		sys, m := newMapped(t)
		must(t, sys.Fail(winsim.Match{Call: probe, Count: 2}, winerr.ErrorNoSuchLogonSession))
		if number != 0 {
			must(t, sys.Fail(winsim.Match{Call: remove, Count: 1}, number))
		}
		calls := counted(sys, create, list)
		err := m.NewSMBGlobalMapping(t.Context(), `\\server\data`, "", alice)
		made, looks := calls()[0], calls()[1]
		switch number {
		case 0:
			if err != nil || made != 1 || looks != 3 {
				t.Errorf("made %d times after %d looks: %v", made, looks, err)
			}
		case winerr.ErrorIODevice:
			if !errors.Is(err, number) || made != 0 {
				t.Errorf("made %d times: %v", made, err)
			}
		default:
			if made == 0 {
				t.Errorf("it wasn't mapped any more, and isn't made: %v", err)
			}
		}
	}
}

// A chain of links to a share is followed once, however many links lead into it.
func TestManyLinksIntoChain(t *testing.T) {
	const planted = 200
	data, err := win.ParseUNC(`\\server\data`)
	must(t, err)
	perLink := func(chain int) uint64 {
		sys, m := newMapped(t)
		dir := kubelet + `\plugins\` + strings.Repeat("d", 200)
		must(t, sys.MkdirAll(dir))
		last := data.String() + `\`
		for i := range chain {
			must(t, sys.Symlink(fmt.Sprint(dir, `\chain`, i), last, true))
			last = fmt.Sprint(dir, `\chain`, i)
		}
		for i := range planted {
			must(t, sys.Symlink(fmt.Sprint(dir, `\planted`, i), last, true))
		}
		circle := fmt.Sprint(dir, `\circle`)
		must(t, sys.Symlink(circle+"1", circle+"2", true))
		must(t, sys.Symlink(circle+"2", circle+"1", true))
		r, err := m.LockForRemoval(t.Context(), data)
		must(t, err)
		defer r.Release()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		links, err := m.LinksToShare(t.Context(), r.Share)
		runtime.ReadMemStats(&after)
		must(t, errors.Join(err, links.Incomplete))
		simtest.Want(t, "links", len(links.Paths()), chain+planted)
		first, err := pathpolicy.Default().Parse(dir+`\chain0`, pathpolicy.MaxPath)
		must(t, err)
		simtest.Want(t, "it is one of them", links.At(first), true)
		simtest.Want(t, "links by the first one", len(links.By(first)), chain+planted-1)
		simtest.Want(t, "links without the first one", len(links.Except(first).Paths()), chain+planted-1)
		return (after.TotalAlloc - before.TotalAlloc) / uint64(chain+planted)
	}
	short, long := perLink(1), perLink(usage.MaxLinksFollowed-1)
	t.Logf("%d bytes for each link, and %d with a long chain", short, long)
	if long > short*3/2 {
		t.Errorf("with a long chain, a link takes %d bytes, else %d", long, short)
	}
}

// Of a chain of links to a share, those count that can be followed to its end.
func TestLongChainOfLinks(t *testing.T) {
	sys, m := newMapped(t)
	data, err := win.ParseUNC(`\\server\data`)
	must(t, err)
	target := `\\server\data\`
	for i := range 2 * usage.MaxLinksFollowed {
		link := fmt.Sprint(kubelet, `\plugins\`, i)
		must(t, sys.Symlink(link, target, true))
		target = link
	}
	r, err := m.LockForRemoval(t.Context(), data)
	must(t, err)
	defer r.Release()
	links, err := m.LinksToShare(t.Context(), r.Share)
	must(t, errors.Join(err, links.Incomplete))
	simtest.Want(t, "links", len(links.Paths()), usage.MaxLinksFollowed)
	removed, err := m.RemoveUnused(t.Context(), r, links)
	must(t, err)
	simtest.Want(t, "removed", removed, false)
}
