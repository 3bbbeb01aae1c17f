// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/simnode"
)

// startNodeWithShare starts a simulated node for an example, and a server with a
// share.
func startNodeWithShare() *simnode.Node {
	node := startNode()
	node.AddSMBShare(simnode.SMBShare{Server: "files", Name: "data"})
	node.SetSMBUser("files", "driver", csiproxy.NewSecret("correct horse"))
	return node
}

// Two volumes are directories on one share: there is one mapping for both.
func ExampleSMB() {
	node := startNodeWithShare()
	defer node.Close()

	ctx := context.Background()
	credentials := csiproxy.SMBCredentials{Username: "driver", Password: csiproxy.NewSecret("correct horse")}
	for range 2 {
		fmt.Println("map:", node.Client().SMB.NewSMBGlobalMapping(ctx, `\\files\data`, "", credentials))
	}
	for range 2 {
		err := node.Client().SMB.RemoveSMBGlobalMapping(ctx, `\\files\data`)
		fmt.Println("removed already:", errors.Is(err, csiproxy.ErrNotFound))
	}
	// Output:
	// map: <nil>
	// map: <nil>
	// removed already: false
	// removed already: true
}

// NodeStageVolume of a share: the staging path is a link to it, through which pods
// use its files.
func ExampleSMB_NewSMBGlobalMapping() {
	node := startNodeWithShare()
	defer node.Close()

	ctx := context.Background()
	const plugin = `C:\var\lib\kubelet\plugins\example`
	if err := node.MkdirAll(plugin); err != nil {
		log.Fatal(err)
	}
	for _, password := range []string{"wrong", "correct horse"} {
		credentials := csiproxy.SMBCredentials{Username: "driver", Password: csiproxy.NewSecret(password)}
		switch err := node.Client().SMB.NewSMBGlobalMapping(ctx, `\\files\data`, plugin+`\staging`, credentials); {
		case errors.Is(err, csiproxy.ErrUnauthenticated):
			fmt.Println("the server refuses the credentials")
		case err != nil:
			log.Fatal(err)
		}
	}
	fmt.Println("write:", node.WriteFile(plugin+`\staging\hello`, []byte("world")))
	// Output:
	// the server refuses the credentials
	// write: <nil>
}

// NodeUnstageVolume of a share: a mapping that links lead to stays, and goes with the last one. So
// the order doesn't matter, and neither do other volumes on the share.
func ExampleSMB_RemoveSMBGlobalMapping() {
	node := startNodeWithShare()
	defer node.Close()

	ctx := context.Background()
	credentials := csiproxy.SMBCredentials{Username: "driver", Password: csiproxy.NewSecret("correct horse")}
	if err := node.Client().SMB.NewSMBGlobalMapping(ctx, `\\files\data`, `C:\var\lib\kubelet\staging`, credentials); err != nil {
		log.Fatal(err)
	}
	fmt.Println("remove:", node.Client().SMB.RemoveSMBGlobalMapping(ctx, `\\FILES\data\`))

	files := node.Client().Filesystem
	leads, err := files.IsSymlink(ctx, `C:\var\lib\kubelet\staging`)
	fmt.Println("the link leads somewhere:", leads, err)
	fmt.Println("remove the link:", files.Rmdir(ctx, `C:\var\lib\kubelet\staging`, true))
	share, err := node.Client().Storage.GetVolume(ctx, `\\files\data`)
	fmt.Println("the share:", share.Conditions[0].Message, err)
	// Output:
	// remove: <nil>
	// the link leads somewhere: true <nil>
	// remove the link: <nil>
	// the share: the share isn't mapped <nil>
}
