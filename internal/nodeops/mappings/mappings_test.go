// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package mappings_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/mappings"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/use"
	"github.com/csi-proxy/csi-proxy/internal/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/smbserver"
	"github.com/csi-proxy/csi-proxy/internal/unc"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/internal/wincalls"
	"github.com/csi-proxy/csi-proxy/secret"
	"github.com/csi-proxy/csi-proxy/smb"
	"github.com/google/go-cmp/cmp"
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
	want    = simtest.WantKind
	counted = simtest.Counted
	alice   = smb.Credentials{Username: `CORP\alice`, Password: secret.New("Tr0ub4dor&3")}
	bob     = smb.Credentials{Username: `bob`, Password: secret.New("hunter2")}
)

// newNode returns a node that can reach \\server with the shares data and logs, of
// alice and bob.
func newNode(t *testing.T) *winsim.System {
	t.Helper()
	sys := simtest.Open(t, winsim.Delays{})
	for _, name := range []string{"data", "logs"} {
		must(t, sys.SMB().AddShare(smbserver.Share{Server: "server", Name: name}))
	}
	for _, c := range []smb.Credentials{alice, bob} {
		must(t, sys.SMB().SetUser("server", c.Username, c.Password))
	}
	must(t, sys.MkdirAll(kubelet+`\plugins`))
	return sys
}

func newMappings(t *testing.T, sys mappings.System, o mappings.Options) *mappings.Mappings {
	t.Helper()
	paths, err := pathpolicy.New(kubelet)
	must(t, err)
	return mappings.New(sys, paths, o)
}

// newBounded returns mappings whose calls to Windows are bounded as those of a daemon are.
func newBounded(t *testing.T, sys *winsim.System) *mappings.Mappings {
	t.Helper()
	return newMappings(t, wincalls.New(sys, wincalls.Options{}), mappings.Options{})
}

// mapped lists the shares that are mapped.
func mapped(t *testing.T, sys *winsim.System) string {
	t.Helper()
	mappings, err := sys.SMBGlobalMappings(t.Context())
	must(t, err)
	var paths []string
	for _, m := range mappings {
		paths = append(paths, m.RemotePath)
	}
	return strings.Join(paths, " ")
}

func TestMap(t *testing.T) {
	sys := newNode(t)
	m := newMappings(t, sys, mappings.Options{})
	must(t, m.NewSMBGlobalMapping(t.Context(), `//SERVER/Data/`, stage, alice))
	if got := mapped(t, sys); got != `\\server\data` {
		t.Errorf("mapped is %q", got)
	}
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
	if diff := cmp.Diff([]int{0, 0}, calls()); diff != "" {
		t.Errorf("the mapping that works was touched (-want +got):\n%s", diff)
	}

	// A mapping of another share of the same server has the same session.
	must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\logs`, "", alice))
	must(t, m.RemoveSMBGlobalMapping(t.Context(), `\\Server\DATA\sub\`))
	if got := mapped(t, sys); got != `\\server\logs` {
		t.Errorf("mapped is %q", got)
	}
	if _, err := sys.ReadDir(kubelet + `\plugins`); err != nil {
		t.Error(err)
	}
	want(t, m.RemoveSMBGlobalMapping(t.Context(), `\\server\data`), csiproxy.ErrNotFound)
	// The link is still there, and the next mapping finds it.
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
			sys := newNode(t)
			m := newMappings(t, sys, mappings.Options{})
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
		"a directory":        func(sys *winsim.System) error { return sys.MkdirAll(stage) },
		"a file":             func(sys *winsim.System) error { return sys.WriteFile(stage, []byte("x")) },
		"a link inside":      func(sys *winsim.System) error { return sys.Symlink(stage, kubelet+`\plugins`, true) },
		"a link outside":     func(sys *winsim.System) error { return sys.Symlink(stage, `C:\Windows`, true) },
		"another share":      func(sys *winsim.System) error { return sys.Symlink(stage, `\\server\logs\`, true) },
		"another directory":  func(sys *winsim.System) error { return sys.Symlink(stage, `\\server\data\sub\`, true) },
		"another server":     func(sys *winsim.System) error { return sys.Symlink(stage, `\\evil\data\`, true) },
		"a junction":         func(sys *winsim.System) error { return sys.Junction(stage, kubelet+`\plugins`) },
		"what can't be read": func(sys *winsim.System) error { return sys.Symlink(stage, `\\server\..\data`, true) },
	} {
		t.Run(name, func(t *testing.T) {
			sys := newNode(t)
			must(t, prepare(sys))
			before, err := sys.ReadDir(kubelet + `\plugins`)
			must(t, err)
			m := newMappings(t, sys, mappings.Options{})
			want(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, stage, alice), csiproxy.ErrAlreadyExists)
			after, err := sys.ReadDir(kubelet + `\plugins`)
			must(t, err)
			if diff := cmp.Diff(before, after); diff != "" {
				t.Errorf("the place changed (-before +after):\n%s", diff)
			}
		})
	}
}

func TestInvalidArguments(t *testing.T) {
	sys := newNode(t)
	m := newMappings(t, sys, mappings.Options{})
	with := func(username, password string) smb.Credentials {
		return smb.Credentials{Username: username, Password: secret.New(password)}
	}
	long := strings.Repeat("x", 2000)
	calls := counted(sys, create, list, probe)
	for _, test := range []struct {
		remote, local string
		c             smb.Credentials
	}{
		{``, "", alice}, {`\\server`, "", alice}, {`\\?\UNC\server\data`, "", alice}, {`\\server\data\..\x`, "", alice}, {`C:\x`, "", alice},
		{`\\server\data`, `C:\Windows\x`, alice}, {`\\server\data`, `relative`, alice}, {`\\server\data`, kubelet + `\..\x`, alice}, {`\\server\data`, `\\server\data`, alice},
		{`\\server\data`, "", smb.Credentials{}}, {`\\server\data`, "", with("", "p")}, {`\\server\data`, "", with("u", "")},
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
	if diff := cmp.Diff([]int{0, 0, 0}, calls()); diff != "" {
		t.Errorf("Windows was asked (-want +got):\n%s", diff)
	}
	// An allowed directory can't become a link.
	want(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, kubelet, alice), csiproxy.ErrInvalidArgument)
}

func TestErrorsOfTheServer(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(sys *winsim.System) error
		remote  string
		kind    error
		number  win.Errno
	}{
		"no such server":   {nil, `\\nobody\data`, csiproxy.ErrUnavailable, win.ErrorBadNetPath},
		"no such share":    {nil, `\\server\nothing`, csiproxy.ErrNotFound, win.ErrorBadNetName},
		"another password": {func(sys *winsim.System) error { return sys.SMB().SetUser("server", alice.Username, secret.New("new")) }, `\\server\data`, csiproxy.ErrUnauthenticated, win.ErrorLogonFailure},
		"no such user":     {func(sys *winsim.System) error { return sys.SMB().RemoveUser("server", alice.Username) }, `\\server\data`, csiproxy.ErrUnauthenticated, win.ErrorLogonFailure},
		"not for this user": {func(sys *winsim.System) error {
			return sys.SMB().AddShare(smbserver.Share{Server: "server", Name: "private", Users: []string{"bob"}})
		}, `\\server\private`, csiproxy.ErrPermissionDenied, win.ErrorAccessDenied},
		"no encryption": {func(sys *winsim.System) error {
			return sys.SMB().SetState("server", smbserver.State{NoEncryption: true})
		}, `\\server\data`, csiproxy.ErrPermissionDenied, win.ErrorAccessDenied},
		"unreachable": {func(sys *winsim.System) error {
			return sys.SMB().SetState("server", smbserver.State{Unreachable: true})
		}, `\\server\data`, csiproxy.ErrUnavailable, win.ErrorBadNetPath},
	} {
		t.Run(name, func(t *testing.T) {
			sys := newNode(t)
			if test.prepare != nil {
				must(t, test.prepare(sys))
			}
			m := newMappings(t, sys, mappings.Options{})
			err := m.NewSMBGlobalMapping(t.Context(), test.remote, stage, alice)
			want(t, err, test.kind)
			if number, _ := csiproxy.WindowsErrorOf(err); win.Errno(number) != test.number {
				t.Errorf("the Windows error is %d, want %d", number, test.number)
			}
			if strings.Contains(err.Error(), alice.Password.Reveal()) || strings.Contains(err.Error(), "alice") {
				t.Errorf("the error shows the credentials: %v", err)
			}
			if got := mapped(t, sys); got != "" {
				t.Errorf("mapped is %q", got)
			}
			if entries, err := sys.ReadDir(kubelet + `\plugins`); err != nil || len(entries) != 0 {
				t.Errorf("the local path is there: %v, %v", entries, err)
			}
		})
	}
}

func TestWithoutPrivacy(t *testing.T) {
	sys := newNode(t)
	must(t, sys.SMB().SetState("server", smbserver.State{NoEncryption: true}))
	must(t, newMappings(t, sys, mappings.Options{WithoutPrivacy: true}).NewSMBGlobalMapping(t.Context(), `\\server\data`, "", alice))
}

// Which mappings are kept, and which are made again.
func TestHealth(t *testing.T) {
	for name, test := range map[string]struct {
		damage func(sys *winsim.System) error
		remote string // another one than was mapped
		c      smb.Credentials
		kind   error
		calls  []int // create, remove
	}{
		"it works":                   {nil, "", bob, nil, []int{0, 0}},
		"a directory is missing":     {nil, `\\server\data\missing`, alice, nil, []int{0, 0}},
		"a directory of a directory": {nil, `\\server\data\missing\dir`, alice, nil, []int{0, 0}},
		"the server is away": {func(sys *winsim.System) error {
			return sys.SMB().SetState("server", smbserver.State{Unreachable: true})
		}, "", alice, csiproxy.ErrUnavailable, []int{0, 0}},
		"the access is denied": {fail(win.ErrorAccessDenied), "", alice, csiproxy.ErrPermissionDenied,
			[]int{0, 0}},
		"the connection breaks": {fail(win.ErrorNetNameDeleted), "", alice, csiproxy.ErrUnavailable,
			[]int{0, 0}},
		"the network is down": {fail(win.ErrorNetworkUnreachable), "", alice, csiproxy.ErrUnavailable,
			[]int{0, 0}},
		"the server resets the connection": {fail(1236), "", alice, csiproxy.ErrUnavailable, []int{0, 0}},
		"no domain controller answers":     {fail(1311), "", alice, csiproxy.ErrUnavailable, []int{0, 0}},
		"the server has no room":           {fail(71), "", alice, csiproxy.ErrUnavailable, []int{0, 0}},
		"the node has no resources":        {fail(1450), "", alice, csiproxy.ErrUnavailable, []int{0, 0}},
		"the password was changed": {func(
			sys *winsim.System) error {
			return sys.SMB().SetUser("server", bob.Username, secret.New("new"))
		}, "", smb.Credentials{Username: "bob", Password: secret.New("new")}, nil, []int{1, 1}},
		"the password was changed, not known": {func(sys *winsim.System) error {
			return sys.SMB().SetUser("server",
				bob.Username, secret.New("new"))
		}, "", bob, csiproxy.ErrUnauthenticated, []int{0, 0}},
		"the share has gone": {func(sys *winsim.System) error { return sys.SMB().RemoveShare("server", "data") }, "",
			bob, csiproxy.ErrNotFound, []int{1, 1}},
		"the logon session has gone": {fail(win.ErrorNoSuchLogonSession), "", bob, nil, []int{1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			sys := newNode(t)
			m := newMappings(t, sys, mappings.Options{})
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
			if diff := cmp.Diff(test.calls, calls()); diff != "" {
				t.Errorf("calls to create and remove (-want +got):\n%s", diff)
			}
		})
	}
}

// fail has the probes of a share fail.
func fail(e win.Errno) func(*winsim.System) error {
	return func(sys *winsim.System) error { return sys.Fail(winsim.Match{Call: probe, Object: `\\server\data`}, e) }
}

// A mapping works again when its server is back, without anybody's help.
func TestServerComesBack(t *testing.T) {
	sys := newNode(t)
	m := newMappings(t, sys, mappings.Options{})
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
	if got := mapped(t, sys); got != "" {
		t.Errorf("after a restart %q is mapped", got)
	}
	must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, stage, alice))
}

// Windows allows one user for each server. When a password was changed, all mappings
// of the server have to go before one can be made; those that work are never touched.
func TestCredentialConflict(t *testing.T) {
	changed := smb.Credentials{Username: alice.Username, Password: secret.New("changed")}

	t.Run("the password was changed", func(t *testing.T) {
		sys := newNode(t)
		m := newMappings(t, sys, mappings.Options{})
		must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, stage, alice))
		must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\logs`, "", alice))
		must(t, sys.SMB().AddShare(smbserver.Share{Server: "server", Name: "new"}))
		must(t, sys.WriteFile(stage+`\file`, []byte("data")))
		must(t, sys.SMB().SetUser("server", alice.Username, changed.Password))
		must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\new`, "", changed))
		if got := mapped(t, sys); got != `\\server\data \\server\logs \\server\new` {
			t.Errorf("mapped is %q", got)
		}
		if data, err := sys.ReadFile(stage + `\file`); err != nil || string(data) != "data" {
			t.Errorf("through the other mapping there is %q, %v", data, err)
		}
	})
	t.Run("of a broken mapping itself", func(t *testing.T) {
		sys := newNode(t)
		m := newMappings(t, sys, mappings.Options{})
		must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, "", alice))
		must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\logs`, "", alice))
		must(t, sys.SMB().SetUser("server", alice.Username, changed.Password))
		must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, "", changed))
		must(t, sys.WriteFile(`\\server\logs\file`, nil))
	})
	t.Run("the other mapping works", func(t *testing.T) {
		sys := newNode(t)
		m := newMappings(t, sys, mappings.Options{})
		must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, "", alice))
		calls := counted(sys, remove)
		err := m.NewSMBGlobalMapping(t.Context(), `\\server\logs`, "", bob)
		want(t, err, csiproxy.ErrFailedPrecondition)
		if diff := cmp.Diff([]int{0}, calls()); diff != "" {
			t.Error("a mapping that works was removed")
		}
	})
	t.Run("the other server is away", func(t *testing.T) {
		sys := newNode(t)
		m := newMappings(t, sys, mappings.Options{})
		must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, "", alice))
		must(t, sys.Fail(winsim.Match{Call: probe, Object: `\\server\data`}, win.ErrorNetNameDeleted))
		want(t, m.NewSMBGlobalMapping(t.Context(), `\\server\logs`, "", bob), csiproxy.ErrFailedPrecondition)
		if got := mapped(t, sys); got != `\\server\data` {
			t.Errorf("mapped is %q", got)
		}
	})
	t.Run("the other mapping is another user's", func(t *testing.T) {
		sys := newNode(t)
		m := newMappings(t, sys, mappings.Options{})
		must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, "", alice))
		must(t, sys.SMB().SetUser("server", alice.Username, changed.Password))
		must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\logs`, "", bob))
		if got := mapped(t, sys); got != `\\server\logs` {
			t.Errorf("mapped is %q: bob has alice's share", got)
		}
	})
	t.Run("the other mapping is an earlier process's", func(t *testing.T) {
		sys := newNode(t)
		must(t, newMappings(t, sys, mappings.Options{}).NewSMBGlobalMapping(t.Context(), `\\server\data`, "", alice))
		must(t, sys.SMB().SetUser("server", alice.Username, changed.Password))
		m := newMappings(t, sys, mappings.Options{})
		must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\logs`, "", changed))
		if got := mapped(t, sys); got != `\\server\logs` {
			t.Errorf("mapped is %q", got)
		}
		must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, "", changed)) // its driver stages it again
	})
	t.Run("the new ones aren't good for the others", func(t *testing.T) {
		sys := newNode(t)
		must(t, sys.SMB().AddShare(smbserver.Share{Server: "server", Name: "private", Users: []string{alice.Username}}))
		m := newMappings(t, sys, mappings.Options{})
		must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\private`, "", alice))
		must(t, sys.SMB().SetUser("server", alice.Username, changed.Password))
		must(t, sys.Fail(winsim.Match{Call: create, Object: `\\server\private`}, win.ErrorAccessDenied))
		must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, "", changed))
		if got := mapped(t, sys); got != `\\server\data` {
			t.Errorf("mapped is %q", got)
		}
	})
}

// Somebody else makes and removes mappings at the same time.
func TestMadeBySomebodyElse(t *testing.T) {
	sys := newNode(t)
	m := newMappings(t, sys, mappings.Options{})
	o := win.SMBMappingOptions{Username: alice.Username, Password: alice.Password, RequirePrivacy: true}
	made := false
	sys.OnCall(func(c winsim.Call) {
		if c.Name == create && !made {
			made = true // before the call, which comes by here too
			must(t, sys.CreateSMBGlobalMapping(t.Context(), `\\server\data`, o))
		}
	})
	must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, "", bob))
	if got := mapped(t, sys); got != `\\server\data` {
		t.Errorf("mapped is %q", got)
	}

	sys.OnCall(nil)
	must(t, sys.RemoveSMBGlobalMapping(t.Context(), `\\server\data`))
	must(t, sys.Fail(winsim.Match{Call: create}, win.ErrorAlreadyAssigned))
	want(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, "", bob), csiproxy.ErrUnavailable)
}

func TestRemovedBySomebodyElse(t *testing.T) {
	sys := newNode(t)
	m := newMappings(t, sys, mappings.Options{})
	must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, "", alice))
	must(t, sys.SMB().SetUser("server", alice.Username, bob.Password))
	removed := false
	sys.OnCall(func(c winsim.Call) {
		if c.Name == remove && !removed {
			removed = true // before the call, which comes by here too
			must(t, sys.RemoveSMBGlobalMapping(t.Context(), `\\server\data`))
		}
	})
	must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, "", smb.Credentials{Username: alice.Username, Password: bob.Password}))
	if got := mapped(t, sys); got != `\\server\data` || !removed {
		t.Errorf("mapped is %q", got)
	}
}

// Who has made or removed a mapping doesn't get an answer to others that Windows began before
// that.
func TestLooksBeginAnewAfterAChange(t *testing.T) {
	for name, test := range map[string]struct {
		call   string
		change func(ctx context.Context, m *mappings.Mappings) error
		want   string
	}{
		"made": {create, func(ctx context.Context, m *mappings.Mappings) error {
			return m.NewSMBGlobalMapping(ctx, `\\server\logs`, "", alice)
		}, `\\server\data \\server\logs`},
		"removed": {remove, func(ctx context.Context, m *mappings.Mappings) error {
			return m.RemoveSMBGlobalMapping(ctx, `\\server\data`)
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sys := newNode(t)
				m := newMappings(t, sys, mappings.Options{})
				must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, "", alice))
				must(t, sys.Delay(winsim.Match{Call: test.call}, 2*time.Second))
				changed := make(chan error, 1)
				go func() { changed <- test.change(t.Context(), m) }()
				synctest.Wait() // it is in the call
				must(t, sys.Delay(winsim.Match{Call: list, Count: 1}, 8*time.Second))
				must(t, sys.Fail(winsim.Match{Call: list, Count: 1}, win.ErrorIODevice))
				before := make(chan error, 1)
				go func() {
					_, err := m.Roots(t.Context())
					before <- err
				}()
				synctest.Wait()
				must(t, <-changed)
				got, err := m.Roots(t.Context())
				if strings.Join(got, " ") != test.want || err != nil {
					t.Errorf("after the change, mapped are %q, %v", got, err)
				}
				if err := <-before; !errors.Is(err, win.ErrorIODevice) {
					t.Errorf("who looked before the change got %v", err)
				}
			})
		})
	}
}

// Somebody else maps a share again that this process has unmapped: then it doesn't know with
// which credentials.
func TestMappedAgainBySomebodyElse(t *testing.T) {
	for name, unmap := range map[string]func(sys *winsim.System, m *mappings.Mappings) error{
		"unmapped by this process": func(_ *winsim.System, m *mappings.Mappings) error {
			return m.RemoveSMBGlobalMapping(t.Context(), `\\server\data`)
		},
		"unmapped by both": func(sys *winsim.System, m *mappings.Mappings) error {
			must(t, sys.RemoveSMBGlobalMapping(t.Context(), `\\server\data`))
			want(t, m.RemoveSMBGlobalMapping(t.Context(), `\\server\data`), csiproxy.ErrNotFound)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			sys := newNode(t)
			m := newMappings(t, sys, mappings.Options{})
			must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, "", alice))
			must(t, unmap(sys, m))
			must(t, sys.CreateSMBGlobalMapping(t.Context(), `\\server\data`, win.SMBMappingOptions{Username: bob.Username, Password: bob.Password}))
			w, err := m.Parse(`\\server\data`, stage, alice)
			must(t, err)
			w.Staging = true
			want(t, m.Map(t.Context(), w), csiproxy.ErrFailedPrecondition)
		})
	}
}

// Before a staged path becomes a link, another call maps the share with other credentials.
func TestMappedWithOtherCredentialsMeanwhile(t *testing.T) {
	sys := newNode(t)
	m := newMappings(t, sys, mappings.Options{})
	made := false
	sys.OnCall(func(c winsim.Call) {
		made = made || c.Name == create
		if made && c.Name == probe {
			sys.OnCall(nil)
			must(t, m.RemoveSMBGlobalMapping(t.Context(), `\\server\data`))
			must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, stage+"2", bob))
		}
	})
	w, err := m.Parse(`\\server\data`, stage, alice)
	must(t, err)
	w.Staging = true
	want(t, m.Map(t.Context(), w), csiproxy.ErrFailedPrecondition)
	if err := sys.WriteFile(stage+`\file`, nil); err == nil {
		t.Error("the path leads to the share")
	}
}

// A mapping that is broken and can't be removed stays, and its error is told. One that can is made
// again at once.
func TestBrokenMappingIsRemovedFirst(t *testing.T) {
	for _, number := range []win.Errno{0, win.ErrorNotConnected, win.ErrorIODevice} {
		sys := newNode(t)
		m := newMappings(t, sys, mappings.Options{})
		must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, "", alice))
		must(t, sys.Fail(winsim.Match{Call: probe, Count: 2}, win.ErrorBadNetName))
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
		case win.ErrorIODevice:
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

// A mapping that was to go with the last link stays if somebody asks for the share before it goes.
func TestAskedForBeforeItGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := newNode(t)
		m := newMappings(t, sys, mappings.Options{})
		for _, local := range []string{stage, stage + "2"} {
			must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, local, alice))
		}
		must(t, m.RemoveSMBGlobalMapping(t.Context(), `\\server\data`)) // it stays for the links
		for _, local := range []string{stage, stage + "2"} {
			must(t, sys.Remove(local))
		}
		must(t, sys.Delay(winsim.Match{Call: list}, 2*time.Second))
		asked := make(chan error, 1)
		go func() { asked <- m.NewSMBGlobalMapping(t.Context(), `\\server\data`, "", alice) }()
		time.Sleep(3 * time.Second) // it has the right to the share, and looks whether that is mapped
		remote, err := unc.Parse(`\\server\data`)
		must(t, err)
		m.Unlinked(t.Context(), remote, stage)
		must(t, <-asked)
		if got := mapped(t, sys); got != `\\server\data` {
			t.Errorf("mapped is %q", got)
		}
	})
}

// A record seems stale, and another process makes the mapping before it is dropped: it stays.
func TestRecordOfAMappingThatComes(t *testing.T) {
	sys := newNode(t)
	stageIt := func() {
		m := newMappings(t, sys, mappings.Options{})
		w, err := m.Parse(`\\server\data`, stage, alice)
		must(t, err)
		w.Staging = true
		must(t, m.Map(t.Context(), w))
	}
	stageIt()
	must(t, sys.RemoveSMBGlobalMapping(t.Context(), `\\server\data`))
	m := newMappings(t, sys, mappings.Options{})
	listed := false
	sys.OnCall(func(c winsim.Call) {
		if listed {
			sys.OnCall(nil)
			stageIt()
		}
		listed = c.Name == list
	})
	_, err := m.Roots(t.Context())
	must(t, err)
	remote, err := unc.Parse(`\\server\data`)
	must(t, err)
	if unused, err := m.IsUnused(t.Context(), remote); !unused || err != nil {
		t.Errorf("it isn't known any more that the mapping is ours: %v", err)
	}
}

// A call that fails without having made a mapping has nothing to undo, and waits for nobody.
func TestFailedCallTakesNoRights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := newNode(t)
		owner := use.Default(sys)
		m := newMappings(t, sys, mappings.Options{Owner: owner})
		must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, "", alice))
		remote, err := unc.Parse(`\\server\data`)
		must(t, err)
		_, held, err := owner.Server(t.Context(), remote)
		must(t, err)
		defer held.Release()
		must(t, sys.Fail(winsim.Match{Call: probe}, win.ErrorAccountLockedOut))
		begun := time.Now()
		if err := m.NewSMBGlobalMapping(t.Context(), `\\server\data`, "", alice); err == nil {
			t.Error("a mapping that can't be used is no error")
		}
		if took := time.Since(begun); took != 0 {
			t.Errorf("it has waited for %v", took)
		}
	})
}

// The mapping of an earlier process counts as used while not all links are known: it isn't made
// again with the caller's credentials, and serves a caller with the same user.
func TestMappingOfAnEarlierProcessWithUnknownLinks(t *testing.T) {
	sys := newNode(t)
	stageIt := func(local string) error {
		m := newMappings(t, sys, mappings.Options{})
		w, err := m.Parse(`\\server\data`, local, alice)
		must(t, err)
		w.Staging = true
		return m.Map(t.Context(), w)
	}
	must(t, stageIt(stage))
	must(t, sys.Remove(stage))
	const hidden = kubelet + `\hidden`
	must(t, sys.MkdirAll(hidden))
	must(t, sys.Fail(winsim.Match{Call: "NtCreateFile", Object: hidden}, win.ErrorAccessDenied))
	changes := counted(sys, remove, create)
	must(t, stageIt(stage+"2"))
	if diff := cmp.Diff([]int{0, 0}, changes()); diff != "" {
		t.Error(diff)
	}
}

// Many pods start at once.
func TestConcurrently(t *testing.T) {
	sys := newNode(t)
	m := newMappings(t, sys, mappings.Options{})
	calls := counted(sys, remove)
	var callers sync.WaitGroup
	for i := range 32 {
		callers.Go(func() {
			remote := []string{`\\server\data`, `//SERVER/logs/`}[i%2]
			if err := m.NewSMBGlobalMapping(t.Context(), remote, stage+[]string{"0", "1"}[i%2], alice); err != nil {
				t.Error(err)
			}
		})
	}
	callers.Wait()
	if got := mapped(t, sys); got != `\\server\data \\server\logs` {
		t.Errorf("mapped is %q", got)
	}
	if diff := cmp.Diff([]int{0}, calls()); diff != "" {
		t.Error("a mapping was removed")
	}
}
