// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/simnode"
)

const directory = `C:\var\lib\kubelet\plugins\example`

// startNodeWithFiles starts a simulated node for an example, with a directory that
// isn't empty.
func startNodeWithFiles() (*simnode.Node, *client.Filesystem) {
	node := startNode()
	if err := node.MkdirAll(directory); err != nil {
		log.Fatal(err)
	}
	if err := node.WriteFile(directory+`\file`, nil); err != nil {
		log.Fatal(err)
	}
	files := node.Client().Filesystem
	return node, files
}

func ExampleFilesystem_PathExists() {
	node, files := startNodeWithFiles()
	defer node.Close()

	for _, path := range []string{directory, directory + `\missing`} {
		fmt.Println(files.PathExists(context.Background(), path))
	}
	// Output:
	// true <nil>
	// false <nil>
}

// Missing directories above it are made, too.
func ExampleFilesystem_Mkdir() {
	node, files := startNodeWithFiles()
	defer node.Close()

	for range 2 {
		fmt.Println("make:", files.Mkdir(context.Background(), directory+`\a\b`))
	}
	// Output:
	// make: <nil>
	// make: <nil>
}

// A directory with something in it goes only with force.
func ExampleFilesystem_Rmdir() {
	node, files := startNodeWithFiles()
	defer node.Close()

	ctx := context.Background()
	err := files.Rmdir(ctx, directory, false)
	fmt.Println("not empty:", errors.Is(err, csiproxy.ErrFailedPrecondition))
	fmt.Println("force:", files.Rmdir(ctx, directory, true))
	// Output:
	// not empty: true
	// force: <nil>
}

// The directory stays. It needs a daemon that has v2alpha1.
func ExampleFilesystem_RmdirContents() {
	node, files := startNodeWithFiles()
	defer node.Close()

	ctx := context.Background()
	if err := files.RmdirContents(ctx, directory); err != nil {
		log.Fatal(err)
	}
	fmt.Println("empty:", files.Rmdir(ctx, directory, false) == nil)
	// Output: empty: true
}

// Publishing: the pod's path is a link to the staging path.
func ExampleFilesystem_CreateSymlink() {
	node, files := startNodeWithFiles()
	defer node.Close()

	ctx := context.Background()
	const pod = `C:\var\lib\kubelet\pods\2f1c7f6e`
	if err := files.Mkdir(ctx, pod); err != nil {
		log.Fatal(err)
	}
	fmt.Println("link:", files.CreateSymlink(ctx, directory, pod+`\mount`))
	_, err := node.ReadFile(pod + `\mount\file`)
	fmt.Println("read through it:", err)
	// Output:
	// link: <nil>
	// read through it: <nil>
}

// A link whose target has gone is none to a driver, who makes it again.
func ExampleFilesystem_IsSymlink() {
	node, files := startNodeWithFiles()
	defer node.Close()

	ctx := context.Background()
	const link = `C:\var\lib\kubelet\link`
	if err := files.CreateSymlink(ctx, directory, link); err != nil {
		log.Fatal(err)
	}
	fmt.Println(files.IsSymlink(ctx, link))
	if err := files.Rmdir(ctx, directory, true); err != nil {
		log.Fatal(err)
	}
	fmt.Println(files.IsSymlink(ctx, link))
	// Output:
	// true <nil>
	// false <nil>
}
