// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	smbv1 "github.com/kubernetes-csi/csi-proxy/client/api/smb/v1"
)

// share is a share of a server, with a user of its own who is the only one.
type share struct {
	server, name   string
	user, password string
}

// files is a share as most tests want it.
var files = share{server: "files", name: "data", user: `CORP\alice`, password: newSecret(0)}

// path is the share's, as the daemon writes it.
func (s share) path() string { return `\\` + s.server + `\` + s.name }

// add puts the share on the network. Its server may be there already.
func (s share) add(n *node) {
	n.t.Helper()
	n.simCall("AddSmbShare", fields{"server": s.server, "name": s.name})
	n.setPassword(s.server, s.user, s.password)
}

// setPassword adds a user to a server or changes his password.
func (n *node) setPassword(server, user, password string) {
	n.t.Helper()
	n.simCall("SetSmbUser", fields{"server": server, "user": user, "password": password})
}

// mapping is the request that maps a remote path with the share's credentials.
func (s share) mapping(remotePath, localPath string) fields {
	return fields{"remote_path": remotePath, "local_path": localPath, "username": s.user, "password": s.password}
}

// readLink returns what os.Readlink says of a path on the node.
func (n *node) readLink(path string) string {
	n.t.Helper()
	return n.simCall("ReadLink", fields{"path": path}).text("target")
}

// Every method of every version of the smb group: what it does, and how it fails.
func TestSMB(t *testing.T) {
	t.Parallel()
	for _, v := range versionsOf("smb", "NewSmbGlobalMapping") {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.operator().mkdir(kubeletPath + `\smb`)
			c := n.client(v)
			t.Run("NewSmbGlobalMapping", func(t *testing.T) {
				t.Run("link", func(t *testing.T) { testMappingLink(n.in(t), c.in(t)) })
				t.Run("broken", func(t *testing.T) { testMappingBroken(n.in(t), c.in(t)) })
				t.Run("refused", func(t *testing.T) { testMappingRefused(n.in(t), c.in(t)) })
			})
			t.Run("RemoveSmbGlobalMapping", func(t *testing.T) { testRemoveMapping(n.in(t), c.in(t)) })
			t.Run("remote paths", func(t *testing.T) { testRemotePaths(n.in(t), c.in(t)) })
			c.wantAllSeen()
		})
	}
}

// testMappingLink maps shares and directories on them, in the ways in which drivers
// write them.
func testMappingLink(n *node, c *client) {
	s := share{server: "Files.Example.COM", name: "Data", user: `CORP\alice`, password: newSecret(0)}
	s.add(n)
	for i, test := range []struct{ remote, link, dir string }{
		{`\\files.example.com\data`, `\\files.example.com\data\`, ``},
		{`//FILES.example.com/Data`, `\\files.example.com\Data\`, ``},
		{`//files.example.com/Data/`, `\\files.example.com\Data\`, ``},
		{`//files.example.com/Data/pvc-1`, `\\files.example.com\Data\pvc-1\`, `\pvc-1`},
		{`\\files.example.com\data\PVC-1\a/b\`, `\\files.example.com\data\PVC-1\a\b\`, `\pvc-1\a\b`},
	} {
		local := fmt.Sprintf(`%s\smb\link-%d`, kubeletPath, i)
		for range 2 { // the second time it is mapped and linked already
			c.succeed("NewSmbGlobalMapping", s.mapping(test.remote, local))
			if got := n.readLink(local); got != test.link {
				c.t.Errorf("%s is linked as %q, want %q", test.remote, got, test.link)
			}
		}
		n.mkdir(`\\files.example.com\data` + test.dir)
		text := "over " + test.remote
		n.write(local+`\file`, text)
		n.wantText(`\\files.example.com\data`+test.dir+`\file`, text)
	}
	// Without a link.
	c.succeed("NewSmbGlobalMapping", s.mapping(`\\files.example.com\data`, ""))

	// What is in the link's place stays.
	n.mkdir(kubeletPath + `\smb\directory`)
	n.write(kubeletPath+`\smb\file`, "a file")
	for _, path := range []string{`\smb\directory`, `\smb\file`, `\smb\link-0`} {
		c.fail(codes.AlreadyExists, "NewSmbGlobalMapping", s.mapping(`//files.example.com/Data/pvc-2`, kubeletPath+path))
	}
	n.wantDir(kubeletPath + `\smb\directory`)
	n.wantText(kubeletPath+`\smb\file`, "a file")
	if got := n.readLink(kubeletPath + `\smb\link-0`); got != `\\files.example.com\data\` {
		c.t.Errorf("the link became one to %q", got)
	}
}

// testMappingBroken maps again what has stopped to work.
func testMappingBroken(n *node, c *client) {
	s := share{server: "moody", name: "data", user: `CORP\bob`, password: newSecret(1)}
	s.add(n)
	local := kubeletPath + `\smb\moody`
	request := s.mapping(s.path(), local)
	c.succeed("NewSmbGlobalMapping", request)
	n.write(local+`\file`, "of a pod")

	// The server goes away and comes back. Nobody may take the mapping from its pods.
	n.simCall("SetSmbServer", fields{"name": s.server, "unreachable": true})
	c.fail(codes.Unavailable, "NewSmbGlobalMapping", request)
	n.simCall("SetSmbServer", fields{"name": s.server})
	n.wantText(local+`\file`, "of a pod")
	c.succeed("NewSmbGlobalMapping", request)

	// The password is changed.
	s.password = newSecret(2)
	n.setPassword(s.server, s.user, s.password)
	c.fail(codes.Unauthenticated, "NewSmbGlobalMapping", request)
	c.succeed("NewSmbGlobalMapping", s.mapping(s.path(), local))
	n.wantText(local+`\file`, "of a pod")

	// The share is replaced.
	n.simCall("RemoveSmbShare", fields{"server": s.server, "name": s.name})
	c.fail(codes.NotFound, "NewSmbGlobalMapping", s.mapping(s.path(), local))
	s.add(n)
	c.succeed("NewSmbGlobalMapping", s.mapping(s.path(), local))
	n.write(local+`\file`, "of another pod")

	// The node was restarted, which ends mappings but no links.
	n.reboot()
	c.succeed("NewSmbGlobalMapping", s.mapping(s.path(), local))
	n.wantText(local+`\file`, "of another pod")
}

func testMappingRefused(n *node, c *client) {
	s := share{server: "strict", name: "data", user: `CORP\carol`, password: newSecret(3)}
	s.add(n)
	n.setPassword(s.server, `CORP\dave`, newSecret(4))
	n.simCall("AddSmbShare", fields{"server": "strict", "name": "private", "users": []string{`CORP\dave`}})
	plain := share{server: "plain", name: "data", user: s.user, password: s.password}
	plain.add(n)
	n.simCall("SetSmbServer", fields{"name": "plain", "no_encryption": true})
	local := kubeletPath + `\smb\refused`

	right := s.mapping(s.path(), local)
	for _, test := range []struct {
		name    string
		request fields
		want    codes.Code
	}{
		{"another password", right.with("password", newSecret(5)), codes.Unauthenticated},
		{"another user", right.with("username", `CORP\eve`), codes.Unauthenticated},
		{"no password", right.with("password", ""), codes.InvalidArgument},
		{"no user", right.with("username", ""), codes.InvalidArgument},
		{"neither: the node's own account", right.with("username", "").with("password", ""), codes.InvalidArgument},
		{"no such server", right.with("remote_path", `\\nobody\data`), codes.Unavailable},
		{"no such share", right.with("remote_path", `\\strict\nothing`), codes.NotFound},
		{"not for this user", right.with("remote_path", `\\strict\private`), codes.PermissionDenied},
		{"no encryption", right.with("remote_path", `\\plain\data`), codes.PermissionDenied},
		{"outside", right.with("local_path", `C:\Windows\link`), codes.InvalidArgument},
	} {
		message := c.fail(test.want, "NewSmbGlobalMapping", test.request)
		if strings.Contains(message, secretMark) || strings.Contains(message, "CORP") {
			c.t.Errorf("%s: the message shows the credentials: %s", test.name, message)
		}
		n.wantGone(local)
		c.fail(codes.NotFound, "RemoveSmbGlobalMapping", fields{"remote_path": test.request["remote_path"]})
	}

	// Windows allows one user for each server.
	c.succeed("NewSmbGlobalMapping", right)
	other := s.mapping(`\\strict\private`, "").with("username", `CORP\dave`).with("password", newSecret(4))
	c.fail(codes.FailedPrecondition, "NewSmbGlobalMapping", other)
	n.write(local+`\file`, "of a pod")
	n.wantText(`\\strict\data\file`, "of a pod")
}

func testRemoveMapping(n *node, c *client) {
	s := share{server: "removed", name: "Data", user: `CORP\alice`, password: newSecret(0)}
	s.add(n)
	local := kubeletPath + `\smb\removed`
	for _, remote := range []string{`\\removed\data`, `//Removed/DATA/`, `//removed/Data/pvc-1/sub`} {
		c.succeed("NewSmbGlobalMapping", s.mapping(remote, local))
		// As drivers do it: by where the link leads.
		target := n.readLink(local)
		c.succeed("RemoveSmbGlobalMapping", fields{"remote_path": target})
		if _, err := n.simTry("ListDirectory", fields{"path": `\\removed\data`}); err == nil {
			c.t.Error("pods can use the share without a mapping")
		}
		c.fail(codes.NotFound, "RemoveSmbGlobalMapping", fields{"remote_path": target})
		if got := n.readLink(local); got != target {
			c.t.Errorf("the link became one to %q", got)
		}
		n.operator().must(n.operator().Rmdir(context.Background(), local, true))
	}
}

// testRemotePaths gives both methods what isn't a share or below one. Nobody is
// asked about it.
func testRemotePaths(n *node, c *client) {
	before := n.calls()
	for _, remote := range []string{
		``, ` `, `\`, `files`, `\\`, `\\files`, `\\files\`, `\\\files\data`, `/files/data`, `C:\data`, `C:`,
		`\\?\UNC\files\data`, `//?/UNC/files/data`, `\\.\pipe\csi-proxy-disk-v1`, `\??\UNC\files\data`, `\\?\C:\Windows`, `\\.\PhysicalDrive0`,
		`\\files\data\..\other`, `\\files\..`, `//files/data/../../x`, `\\files\data\.`, `\\..\data`,
		`\\files@SSL\data`, `\\files@8080\data`, `\\fi les\data`, `\\files:445\data`, `smb://files/data`, `file://files/data`,
		`\\files\data:stream`, `\\files\da*`, `\\files\da?a`, `\\files\"data"`, `\\files\data|x`, `\\files\<data>`,
		`\\files' OR RemotePath LIKE '%\data`, "\\\\files\\da\x00ta", "\\\\files\\data\n",
	} {
		c.fail(codes.InvalidArgument, "NewSmbGlobalMapping", files.mapping(remote, ""))
		c.fail(codes.InvalidArgument, "RemoveSmbGlobalMapping", fields{"remote_path": remote})
	}
	c.fail(codes.InvalidArgument, "NewSmbGlobalMapping", files.mapping(`\files\data`, ""))
	if diff := cmp.Diff(before, n.calls()); diff != "" {
		c.t.Errorf("Windows was called (-before +after):\n%s", diff)
	}
	// NetApp's driver names the share that it unmaps with one backslash.
	c.fail(codes.NotFound, "RemoveSmbGlobalMapping", fields{"remote_path": `\files\data`})
}

// Whoever runs the daemon may take what can't be encrypted.
func TestWithoutPrivacy(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		flag string
		want codes.Code
	}{{"-require-privacy", codes.PermissionDenied}, {"-require-privacy=false", codes.OK}, {"--require-privacy=false", codes.OK}} {
		t.Run(test.flag, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, test.flag)
			files.add(n)
			n.simCall("SetSmbServer", fields{"name": files.server, "no_encryption": true})
			_, err := n.clients(nil).smb.NewSmbGlobalMapping(context.Background(), &smbv1.NewSmbGlobalMappingRequest{
				RemotePath: files.path(), Username: files.user, Password: files.password,
			})
			if status.Code(err) != test.want {
				t.Errorf("mapping a share without encryption gives %v, want %v", err, test.want)
			}
		})
	}
}
