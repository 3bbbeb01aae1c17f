// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simnode_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/simnode"
)

// An SMB driver's day: it maps a share, the server is gone for a while, and somebody
// changes the password, which kubelet learns before the driver is called again.
func Example_smb() {
	ctx := context.Background()
	node, err := simnode.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close()
	node.AddSMBShare(simnode.SMBShare{Server: "files", Name: "data"})
	node.SetSMBUser("files", "user", csiproxy.NewSecret("first password"))

	const remote, stage = `\\files\data`, `C:\var\lib\kubelet\plugins\stage`
	mount := func(password string) error {
		return node.Client().SMB.NewSMBGlobalMapping(ctx, remote, stage,
			csiproxy.SMBCredentials{Username: "user", Password: csiproxy.NewSecret(password)})
	}
	use := func() string {
		_, err := node.ReadFile(stage + `\file`)
		number, _ := csiproxy.WindowsErrorOf(err)
		return fmt.Sprint("Windows error ", number)
	}
	fmt.Println("wrong password: unauthenticated:", errors.Is(mount("wrong"), csiproxy.ErrUnauthenticated))
	fmt.Println("right password:", mount("first password"))

	// A pod uses the share.
	if err := node.WriteFile(stage+`\file`, []byte("precious")); err != nil {
		log.Fatal(err)
	}
	node.SetSMBServer("files", simnode.SMBServer{Unreachable: true})
	fmt.Println("server down:", use())
	node.SetSMBServer("files", simnode.SMBServer{})
	fmt.Println("server up:", use())

	node.SetSMBUser("files", "user", csiproxy.NewSecret("second password"))
	fmt.Println("password changed:", use())
	fmt.Println("staged again:", mount("second password"), use())

	node.Reboot()
	fmt.Println("after a reboot:", use())
	fmt.Println("staged again:", mount("second password"))
	data, err := node.ReadFile(stage + `\file`)
	fmt.Println(string(data), err)

	// Output:
	// wrong password: unauthenticated: true
	// right password: <nil>
	// server down: Windows error 53
	// server up: Windows error 0
	// password changed: Windows error 1326
	// staged again: <nil> Windows error 0
	// after a reboot: Windows error 5
	// staged again: <nil>
	// precious <nil>
}

func TestSMB(t *testing.T) {
	n := simnode.New(t)
	ctx := t.Context()
	n.AddSMBShare(simnode.SMBShare{Server: "files", Name: "theirs", Users: []string{"other"}})
	n.AddSMBShare(simnode.SMBShare{Server: "files", Name: "all"})
	n.SetSMBUser("files", "user", csiproxy.NewSecret("password"))
	n.SetSMBUser("files", "gone", csiproxy.NewSecret("password"))
	n.RemoveSMBUser("files", "gone")
	mount := func(share, user string) error {
		return n.Operations().SMB.NewSMBGlobalMapping(ctx, `\\files\`+share, "", csiproxy.SMBCredentials{Username: user, Password: csiproxy.NewSecret("password")})
	}
	if err := mount("theirs", "user"); !errors.Is(err, csiproxy.ErrPermissionDenied) {
		t.Errorf("the share of others: %v", err)
	}
	if err := mount("all", "gone"); !errors.Is(err, csiproxy.ErrUnauthenticated) {
		t.Errorf("as a user who was removed: %v", err)
	}
	n.SetSMBServer("files", simnode.SMBServer{NoEncryption: true})
	if err := mount("all", "user"); !errors.Is(err, csiproxy.ErrPermissionDenied) {
		t.Errorf("without encryption: %v", err)
	}
	n.SetSMBServer("files", simnode.SMBServer{KnowsNode: true})
	if err := n.Operations().SMB.NewSMBGlobalMapping(ctx, `\\files\all`, "", csiproxy.SMBCredentials{}); err != nil {
		t.Errorf("with the node's own account: %v", err)
	}
	if err := n.Operations().SMB.RemoveSMBGlobalMapping(ctx, `\\files\all`); err != nil {
		t.Error(err)
	}
	n.MapSMB(simnode.SMBMapping{RemotePath: `\\files\all\dir`, LocalPath: "Z:", Persistent: true, RequirePrivacy: true,
		Credentials: csiproxy.SMBCredentials{Username: "user", Password: csiproxy.NewSecret("password")}})
	n.Reboot()
	for _, want := range []error{nil, csiproxy.ErrNotFound} {
		if err := n.Operations().SMB.RemoveSMBGlobalMapping(ctx, "Z:"); !errors.Is(err, want) {
			t.Errorf("a mapping of another program: %v, want %v", err, want)
		}
	}
	n.SetSMBServer("files", simnode.SMBServer{})
	n.RemoveSMBShare("files", "all")
	if err := mount("all", "user"); !errors.Is(err, csiproxy.ErrNotFound) {
		t.Errorf("no share: %v", err)
	}
}

func TestSMBMistakesEndTheTest(t *testing.T) {
	for name, mistake := range map[string]func(*simnode.Node){
		"share without a name": func(n *simnode.Node) { n.AddSMBShare(simnode.SMBShare{Server: "files"}) },
		"unknown share":        func(n *simnode.Node) { n.RemoveSMBShare("files", "data") },
		"user's server":        func(n *simnode.Node) { n.SetSMBUser("files", "user", csiproxy.NewSecret("password")) },
		"unknown user":         func(n *simnode.Node) { n.RemoveSMBUser("files", "user") },
		"mapping of no server": func(n *simnode.Node) { n.MapSMB(simnode.SMBMapping{RemotePath: `\\files\data`}) },
		"unknown server":       func(n *simnode.Node) { n.SetSMBServer("files", simnode.SMBServer{}) },
	} {
		wantFatal(t, name, mistake)
	}
}
