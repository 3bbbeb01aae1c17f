// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Every method of every version of the filesystem group: what it does, and how it
// fails.
func TestFilesystem(t *testing.T) {
	t.Parallel()
	for _, v := range versionsOf("filesystem", "Mkdir") {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			c := n.client(v)
			for _, test := range []struct {
				method string
				test   func(*node, *client)
			}{
				{"Mkdir", testMkdir},
				{"PathExists", testPathExists},
				{"Rmdir", testRmdir},
				{"RmdirContents", testRmdirContents},
				{"CreateSymlink", testCreateSymlink},
				{"IsSymlink", testIsSymlink},
			} {
				if c.has(test.method) {
					t.Run(test.method, func(t *testing.T) { test.test(n.in(t), c.in(t)) })
				}
			}
			if field(c.method("Mkdir").Input(), "context") != nil {
				t.Run("path context", func(t *testing.T) { testPathContext(n.in(t), c.in(t)) })
			}
			c.wantAllSeen()
		})
	}
}

const outside = `C:\Windows\csi`

func testMkdir(n *node, c *client) {
	const path = kubeletPath + `\mkdir\with\parents`
	for range 2 {
		c.succeed("Mkdir", fields{"path": path})
		n.wantDir(path)
	}
	n.write(kubeletPath+`\mkdir\file`, "text")
	c.fail(codes.AlreadyExists, "Mkdir", fields{"path": kubeletPath + `\mkdir\file`})
	c.fail(codes.InvalidArgument, "Mkdir", fields{"path": outside})
}

func testPathExists(n *node, c *client) {
	o := n.operator()
	o.mkdir(kubeletPath + `\exists\dir`)
	n.write(kubeletPath+`\exists\file`, "text")
	o.symlink(kubeletPath+`\exists\nowhere`, kubeletPath+`\exists\dangling`)
	for path, want := range map[string]bool{
		kubeletPath: true, kubeletPath + `\exists\dir`: true, kubeletPath + `\EXISTS\File`: true, kubeletPath + `\exists\dangling`: true,
		`\var\lib\kubelet\exists\dir`: true, kubeletPath + `\exists\missing`: false, kubeletPath + `\missing\too`: false,
	} {
		if got := c.succeed("PathExists", fields{"path": path}).bool("exists"); got != want {
			c.t.Errorf("%s exists: %t, want %t", path, got, want)
		}
	}
	c.fail(codes.InvalidArgument, "PathExists", fields{"path": `C:\Windows`})
}

func testRmdir(n *node, c *client) {
	o := n.operator()
	const path = kubeletPath + `\rmdir`
	o.mkdir(path + `\full\sub`)
	n.write(path+`\full\sub\file`, "text")
	c.fail(codes.FailedPrecondition, "Rmdir", fields{"path": path + `\full`})
	n.wantText(path+`\full\sub\file`, "text")

	o.mkdir(path + `\empty`)
	c.succeed("Rmdir", fields{"path": path + `\empty`})
	n.wantGone(path + `\empty`)
	c.fail(codes.NotFound, "Rmdir", fields{"path": path + `\empty`})

	// Neither links nor mount points are followed, at the top or in the tree.
	volume := o.formattedVolume(n.attach(hardware{size: gib}))
	o.mount(volume, path+`\full\mounted`)
	n.write(path+`\full\mounted\data`, "of the volume")
	o.mkdir(path + `\kept`)
	n.write(path+`\kept\file`, "behind a link")
	o.symlink(path+`\kept`, path+`\full\link`)
	o.symlink(path+`\kept`, path+`\link`)
	c.succeed("Rmdir", fields{"path": path + `\link`})
	n.wantGone(path + `\link`)
	for range 2 { // with force what is missing is success
		c.succeed("Rmdir", fields{"path": path + `\full`, "force": true})
		n.wantGone(path + `\full`)
	}
	n.wantText(path+`\kept\file`, "behind a link")
	o.mount(volume, path+`\again`)
	n.wantText(path+`\again\data`, "of the volume")

	// What unstaging does in Azure Disk's driver: the mount point itself.
	c.succeed("Rmdir", fields{"path": path + `\again`, "force": true})
	n.wantGone(path + `\again`)
	o.mount(volume, path+`\again`)
	n.wantText(path+`\again\data`, "of the volume")
	for _, path := range []string{`C:\Windows`, kubeletPath, `C:\VAR\lib\kubelet\`, `\var\lib\kubelet`} {
		c.fail(codes.InvalidArgument, "Rmdir", fields{"path": path, "force": true})
	}
}

func testRmdirContents(n *node, c *client) {
	o := n.operator()
	const path = kubeletPath + `\contents`
	o.mkdir(path + `\dir\sub`)
	n.write(path+`\dir\sub\file`, "text")
	o.mkdir(path + `\kept`)
	n.write(path+`\kept\file`, "behind a link")
	o.symlink(path+`\kept`, path+`\dir\link`)
	for range 2 {
		c.succeed("RmdirContents", fields{"path": path + `\dir`})
		n.wantDir(path + `\dir`)
		n.wantGone(path + `\dir\sub`)
		n.wantGone(path + `\dir\link`)
	}
	n.wantText(path+`\kept\file`, "behind a link")
	c.fail(codes.NotFound, "RmdirContents", fields{"path": path + `\missing`})
	c.fail(codes.InvalidArgument, "RmdirContents", fields{"path": `C:\Windows`})
	c.fail(codes.InvalidArgument, "RmdirContents", fields{"path": kubeletPath})
	n.wantDir(path)
}

func testCreateSymlink(n *node, c *client) {
	o := n.operator()
	const path = kubeletPath + `\symlink`
	o.mkdir(path + `\source`)
	n.write(path+`\source\file`, "text")
	c.succeed("CreateSymlink", fields{"source_path": path + `\source`, "target_path": path + `\link`})
	n.wantText(path+`\link\file`, "text")

	o.mkdir(path + `\taken`)
	c.fail(codes.AlreadyExists, "CreateSymlink", fields{"source_path": path + `\source`, "target_path": path + `\taken`})
	c.fail(codes.InvalidArgument, "CreateSymlink", fields{"source_path": `C:\Windows`, "target_path": path + `\out`})
	c.fail(codes.InvalidArgument, "CreateSymlink", fields{"source_path": path + `\source`, "target_path": outside})
	n.wantGone(path + `\out`)
}

func testIsSymlink(n *node, c *client) {
	o := n.operator()
	const path = kubeletPath + `\issymlink`
	o.mkdir(path + `\dir`)
	o.symlink(path+`\dir`, path+`\link`)
	o.symlink(path+`\nowhere`, path+`\dangling`)
	o.mount(o.formattedVolume(n.attach(hardware{size: gib})), path+`\mounted`)
	gone := n.attach(hardware{size: gib})
	o.mount(o.formattedVolume(gone), path+`\gone`)
	n.detach(gone)
	for path, want := range map[string]bool{
		path + `\dir`: false, path + `\link`: true, path + `\dangling`: false, path + `\mounted`: true, path + `\gone`: false,
	} {
		if got := c.succeed("IsSymlink", fields{"path": path}).bool("is_symlink"); got != want {
			c.t.Errorf("%s is a link: %t, want %t", path, got, want)
		}
	}
	c.fail(codes.NotFound, "IsSymlink", fields{"path": path + `\missing`})
	c.fail(codes.InvalidArgument, "IsSymlink", fields{"path": `C:\Windows`})
}

// The oldest versions have a path context where newer ones have force: as field 2
// of a RmdirRequest.
func testPathContext(n *node, c *client) {
	const plugin, pod, unknown = protoreflect.EnumNumber(0), protoreflect.EnumNumber(1), protoreflect.EnumNumber(7)
	const path = kubeletPath + `\context`
	for _, context := range []protoreflect.EnumNumber{plugin, pod} {
		c.succeed("Mkdir", fields{"path": path + `\sub`, "context": context})
		c.succeed("PathExists", fields{"path": path, "context": context})
		c.fail(codes.FailedPrecondition, "Rmdir", fields{"path": path, "context": context, "force": false})
		n.wantDir(path + `\sub`)
		c.succeed("Rmdir", fields{"path": path, "context": context, "force": true})
		n.wantGone(path)
	}
	for _, method := range []string{"Mkdir", "PathExists", "Rmdir"} {
		c.fail(codes.InvalidArgument, method, fields{"path": path, "context": unknown})
	}
}
