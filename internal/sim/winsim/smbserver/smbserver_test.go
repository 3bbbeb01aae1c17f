// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package smbserver

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/lab/seamtest"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/ntfs"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/settings"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/statefile"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

const mapped = `\\server\share`

var (
	password    = csiproxy.NewSecret("passw0rd-of-the-test")
	credentials = win.SMBMappingOptions{Username: "user", Password: password}
)

func newNetwork() *Network { return New(func(*ntfs.FS) {}, &settings.Settings{}) }

// newShare makes the share for the user of credentials.
func newShare(t *testing.T, n *Network) {
	t.Helper()
	must(t, n.AddShare(Share{Server: "Server", Name: "Share"}))
	must(t, n.SetUser("server", "User", password))
}

// newMapping makes the share and maps it.
func newMapping(t *testing.T, n *Network) {
	t.Helper()
	newShare(t, n)
	must(t, n.CreateMapping(mapped, credentials))
}

// wantMappings compares the mappings of the node.
func wantMappings(t *testing.T, n *Network, want ...win.SMBMapping) {
	t.Helper()
	if diff := cmp.Diff(want, n.Mappings()); diff != "" {
		t.Errorf("mappings (-want +got):\n%s", diff)
	}
}

// Short names for what tests of calls share.
var (
	must    = seamtest.Must
	wantErr = seamtest.WantErrno
)

// Which of two reasons counts, and which names are the same. The operations' tests show each reason.
func TestCreateMapping(t *testing.T) {
	with := func(change func(*win.SMBMappingOptions)) win.SMBMappingOptions {
		o := credentials
		change(&o)
		return o
	}
	otherPassword := with(func(o *win.SMBMappingOptions) { o.Password = csiproxy.NewSecret("other") })
	otherUser := with(func(o *win.SMBMappingOptions) { o.Username = "other" })
	upperPassword := with(func(o *win.SMBMappingOptions) { o.Password = csiproxy.NewSecret("PASSW0RD-OF-THE-TEST") })
	for _, tc := range []struct {
		name, path string
		options    win.SMBMappingOptions
		want       winerr.Errno
	}{
		{"directory", mapped + `\dir\dir`, credentials, 0},
		{"directory without a name", mapped + `\dir\\dir`, credentials, winerr.ErrorBadNetName},
		{"backslash", mapped + `\`, credentials, winerr.ErrorBadNetName},
		{"server only", `\\server`, credentials, winerr.ErrorBadNetName},
		{"slashes", `//server/share`, credentials, winerr.ErrorBadNetName},
		{"no server's name", `\\\share`, credentials, winerr.ErrorBadNetName},
		{"no path", `x`, credentials, winerr.ErrorBadNetName},
		{"password's case", mapped, upperPassword, winerr.ErrorLogonFailure},
		{"no user, no share", `\\server\other`, otherUser, winerr.ErrorLogonFailure},
		{"user with a domain", mapped, with(func(o *win.SMBMappingOptions) { o.Username = `DOMAIN\user` }),
			winerr.ErrorLogonFailure},
		{"down, wrong password", `\\down\share`, otherPassword, winerr.ErrorBadNetPath},
		{"not for the user", `\\server\theirs`, credentials, winerr.ErrorAccessDenied},
		{"for the user in another case", `\\SERVER\HIS`, with(func(o *win.SMBMappingOptions) { o.Username = "USER" }), 0},
		{"mapped already, wrong password", `\\server\his`, otherPassword, winerr.ErrorAlreadyAssigned},
	} {
		n := newNetwork()
		newShare(t, n)
		must(t, n.AddShare(Share{Server: "down", Name: "share"}))
		must(t, n.SetState("down", State{Unreachable: true}))
		must(t, n.AddShare(Share{Server: "server", Name: "theirs", Users: []string{"a", "b"}}))
		must(t, n.AddShare(Share{Server: "server", Name: "his", Users: []string{"a", "uSER"}}))
		var want []win.SMBMapping
		if tc.want == winerr.ErrorAlreadyAssigned {
			must(t, n.CreateMapping(`\\SERVER\his`, credentials))
			want = n.Mappings()
		}
		wantErr(t, tc.name, n.CreateMapping(tc.path, tc.options), tc.want)
		if tc.want == 0 {
			want = append(want, win.SMBMapping{RemotePath: tc.path})
		}
		wantMappings(t, n, want...)
	}
}

// Other programs map directories, with letters, persistently, and without privacy.
func TestMappingsOfOthers(t *testing.T) {
	n := newNetwork()
	newMapping(t, n)
	private := credentials
	private.RequirePrivacy = true
	must(t, n.Map(Mapping{LocalPath: "Z:", RemotePath: `\\Server\Share`, Persistent: true, SMBMappingOptions: private}))
	must(t, n.Map(Mapping{RemotePath: mapped + `\dir`, SMBMappingOptions: credentials}))
	for _, local := range []string{"z:", "zz", "1:", `Z:\`} {
		want := winerr.ErrorBadNetName
		if local == "z:" {
			want = winerr.ErrorAlreadyAssigned
		}
		wantErr(t, local, n.Map(Mapping{LocalPath: local, RemotePath: mapped + "2", SMBMappingOptions: credentials}), want)
	}
	letter := win.SMBMapping{LocalPath: "Z:", RemotePath: `\\Server\Share`, RequirePrivacy: true}
	directory := win.SMBMapping{RemotePath: mapped + `\dir`}
	wantMappings(t, n, win.SMBMapping{RemotePath: mapped}, letter, directory)
	for _, name := range []string{mapped, directory.RemotePath} {
		_, _, err := n.Connect("server", "share")
		must(t, err)
		must(t, n.RemoveMapping(name))
	}
	wantErr(t, "remove a letter by its share", n.RemoveMapping(mapped), winerr.ErrorNotConnected)
	n.Restart()
	letter.Status = win.SMBMappingDisconnected
	wantMappings(t, n, letter)
	_, _, err := n.Connect("server", "share")
	must(t, err)
	must(t, n.RemoveMapping("z:"))
	wantMappings(t, n)
}

// TestCredentialConflict: a server has one session, whatever became of it.
func TestCredentialConflict(t *testing.T) {
	n := newNetwork()
	newMapping(t, n)
	const second = `\\SERVER\second`
	must(t, n.AddShare(Share{Server: "server", Name: "second"}))
	must(t, n.AddShare(Share{Server: "elsewhere", Name: "share"}))
	newPassword := csiproxy.NewSecret("new")
	must(t, n.SetUser("server", "other", newPassword))
	must(t, n.SetUser("elsewhere", "other", newPassword))
	other := win.SMBMappingOptions{Username: "other", Password: newPassword}
	wantErr(t, "another user", n.CreateMapping(second, other), winerr.ErrorSessionCredentialConflict)
	wantErr(t, "another server", n.CreateMapping(`\\elsewhere\share`, other), 0)
	wantErr(t, "the same user", n.CreateMapping(second, credentials), 0)
	must(t, n.RemoveMapping(second))

	must(t, n.SetUser("server", "user", newPassword))
	_, _, err := n.Connect("server", "share")
	wantErr(t, "use the old password", err, winerr.ErrorLogonFailure)
	renewed := win.SMBMappingOptions{Username: "user", Password: newPassword}
	wantErr(t, "a new password next to the old one", n.CreateMapping(second, renewed), winerr.ErrorSessionCredentialConflict)
	must(t, n.RemoveMapping(mapped))
	wantErr(t, "a new password alone", n.CreateMapping(second, renewed), 0)
}

// TestServerWithoutEncryption: a mapping never goes on in the clear.
func TestServerWithoutEncryption(t *testing.T) {
	n := newNetwork()
	newShare(t, n)
	private := credentials
	private.RequirePrivacy = true
	must(t, n.CreateMapping(mapped, private))
	must(t, n.SetState("server", State{NoEncryption: true}))
	_, _, err := n.Connect("server", "share")
	wantErr(t, "connect", err, winerr.ErrorAccessDenied)
}

func TestServers(t *testing.T) {
	n := newNetwork()
	users := []string{"b", "a"}
	must(t, n.AddShare(Share{Server: "Second", Name: "z"}))
	must(t, n.AddShare(Share{Server: "first", Name: "B", Users: users}))
	must(t, n.AddShare(Share{Server: "FIRST", Name: "a$"}))
	must(t, n.SetUser("first", `DOMAIN\u`, password))
	must(t, n.SetUser("first", `domain\U`, password))
	must(t, n.SetUser("first", `u`, password))
	must(t, n.SetState("second", State{Unreachable: true, NoEncryption: true}))
	users[0] = "changed"
	must(t, n.GrowShare("first", "b", 2<<40))
	want := []Server{
		{
			Name: "first", Users: []string{`domain\U`, `u`},
			Shares: []Share{
				{Server: "first", Name: "a$", SizeBytes: 1 << 40},
				{Server: "first", Name: "B", Users: []string{"b", "a"}, SizeBytes: 2 << 40},
			},
		},
		{
			Name: "Second", State: State{Unreachable: true, NoEncryption: true},
			Shares: []Share{{Server: "Second", Name: "z", SizeBytes: 1 << 40}},
		},
	}
	if diff := cmp.Diff(want, n.Servers()); diff != "" {
		t.Errorf("servers (-want +got):\n%s", diff)
	}
}

func TestControlErrors(t *testing.T) {
	n := newNetwork()
	newShare(t, n)
	before := n.Servers()
	for name, tc := range map[string]struct {
		err  error
		want winerr.Errno
	}{
		"share's size":       {n.AddShare(Share{Server: "server", Name: "other", SizeBytes: 1}), winerr.ErrorInvalidParameter},
		"negative size":      {n.AddShare(Share{Server: "server", Name: "other", SizeBytes: -1}), winerr.ErrorInvalidParameter},
		"a smaller share":    {n.GrowShare("server", "share", 1<<30), winerr.ErrorInvalidParameter},
		"grow no share":      {n.GrowShare("server", "other", 1<<50), winerr.ErrorNotFound},
		"share is there":     {n.AddShare(Share{Server: "SERVER", Name: "SHARE"}), winerr.ErrorAlreadyExists},
		"no server name":     {n.AddShare(Share{Name: "x"}), winerr.ErrorInvalidName},
		"no mapped name":     {n.AddShare(Share{Server: "x"}), winerr.ErrorInvalidName},
		"server with path":   {n.AddShare(Share{Server: `a\b`, Name: "x"}), winerr.ErrorInvalidName},
		"share with path":    {n.AddShare(Share{Server: "x", Name: `a\b`}), winerr.ErrorInvalidName},
		"dots":               {n.AddShare(Share{Server: "x", Name: `..`}), winerr.ErrorInvalidName},
		"dot":                {n.AddShare(Share{Server: ".", Name: `x`}), winerr.ErrorInvalidName},
		"question mark":      {n.AddShare(Share{Server: "?", Name: `x`}), winerr.ErrorInvalidName},
		"control character":  {n.AddShare(Share{Server: "x", Name: "a\x00"}), winerr.ErrorInvalidName},
		"no text":            {n.AddShare(Share{Server: "x", Name: "a\xff"}), winerr.ErrorInvalidName},
		"share for nobody":   {n.AddShare(Share{Server: "x", Name: "a", Users: []string{""}}), winerr.ErrorInvalidParameter},
		"no such share":      {n.RemoveShare("server", "other"), winerr.ErrorNotFound},
		"share of no server": {n.RemoveShare("other", "share"), winerr.ErrorNotFound},
		"no user name":       {n.SetUser("server", "", password), winerr.ErrorInvalidParameter},
		"user's name":        {n.SetUser("server", "\xff", password), winerr.ErrorInvalidParameter},
		"no password":        {n.SetUser("server", "x", csiproxy.Secret{}), winerr.ErrorInvalidParameter},
		"user of no server":  {n.SetUser("other", "x", password), winerr.ErrorNotFound},
		"no such user":       {n.RemoveUser("server", "x"), winerr.ErrorNotFound},
		"no such server":     {n.SetState("other", State{}), winerr.ErrorNotFound},
	} {
		wantErr(t, name, tc.err, tc.want)
	}
	if diff := cmp.Diff(before, n.Servers()); diff != "" {
		t.Errorf("something was changed (-before +after):\n%s", diff)
	}
}

// TestDisconnect: each change that ends a session breaks what is open on its share,
// and on no other.
func TestDisconnect(t *testing.T) {
	for what, change := range map[string]func(n *Network) error{
		"mapping removed":  func(n *Network) error { return n.RemoveMapping(mapped) },
		"share removed":    func(n *Network) error { return n.RemoveShare("SERVER", "SHARE") },
		"password changed": func(n *Network) error { return n.SetUser("server", "USER", csiproxy.NewSecret("other")) },
		"user removed":     func(n *Network) error { return n.RemoveUser("server", "user") },
		"server down":      func(n *Network) error { return n.SetState("SERVER", State{Unreachable: true}) },
	} {
		var broken []*ntfs.FS
		n := New(func(fs *ntfs.FS) { broken = append(broken, fs) }, &settings.Settings{})
		newMapping(t, n)
		must(t, n.AddShare(Share{Server: "elsewhere", Name: "share"}))
		must(t, n.SetUser("elsewhere", "user", password))
		must(t, n.CreateMapping(`\\elsewhere\share`, credentials))
		fs, _, err := n.Connect("server", "share")
		must(t, err)
		must(t, n.SetUser("server", "user", password)) // the same password
		must(t, n.SetState("server", State{}))
		if len(broken) != 0 {
			t.Errorf("%s: something broke before", what)
		}
		must(t, change(n))
		if len(broken) != 1 || broken[0] != fs {
			t.Errorf("%s: %d shares broke", what, len(broken))
		}
	}
}

// TestDamagedRecords: what belongs together must be there together.
func TestDamagedRecords(t *testing.T) {
	for name, damage := range map[string]func(*bbolt.Tx) error{
		"files without a server": func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte(bucketServers)) },
		"share without files":    func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte(bucketFiles)) },
		"server by another name": func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte(bucketServers)).Put([]byte("other"), []byte(`{"Name":"x","Salt":"MDEyMzQ1Njc4OWFiY2RlZg==","Users":{},"Shares":{}}`))
		},
		"server without salt": func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte(bucketServers)).Put([]byte("x"), []byte(`{"Name":"x","Users":{},"Shares":{}}`))
		},
		"no share": func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte(bucketServers)).Put([]byte("x"), []byte(`{"Name":"x","Salt":"MDEyMzQ1Njc4OWFiY2RlZg==","Users":{},"Shares":{"s":null}}`))
		},
	} {
		n := newNetwork()
		newMapping(t, n)
		path := filepath.Join(t.TempDir(), "state")
		f, _, err := statefile.Open(path)
		must(t, err)
		n.Save(f)
		must(t, errors.Join(f.Commit(), f.Close()))
		db, err := bbolt.Open(path, 0o600, nil)
		must(t, err)
		must(t, db.Update(damage))
		must(t, db.Close())
		if f, _, err := statefile.Open(path, newNetwork()); err == nil {
			must(t, f.Close())
			t.Errorf("%s: it was believed", name)
		}
	}
}
