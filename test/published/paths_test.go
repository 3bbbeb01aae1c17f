// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// evilPaths are what no call may take, in any group and version.
func evilPaths() []string {
	const in = kubeletPath + `\`
	evil := []string{
		// relative
		``, ` `, `x`, `.`, `..`, `var\lib\kubelet\x`, `.\x`, `C:`, `C:x`, `C:var\lib\kubelet\x`, `kubelet\x`,
		// outside
		`C:\`, `\`, `C:\Windows`, `\Windows\x`, `C:\var`, `C:\var\lib`, `C:\var\lib\kube`, `C:\var\lib\kubelet-evil`,
		`C:\var\lib\kubelet-evil\x`, `\var\lib\kubelet-evil\x`, `D:\var\lib\kubelet\x`, `C:\var\lib\KUBELE~1\x`,
		"C:\\var\\lib\\\u212Aubelet\\x", `CC:\var\lib\kubelet\x`, `1:\var\lib\kubelet\x`,
		// other namespaces
		`\\server\share\x`, `\\localhost\C$\var\lib\kubelet\x`, `\\?\C:\var\lib\kubelet\x`, `\\.\C:\var\lib\kubelet\x`,
		`\??\C:\var\lib\kubelet\x`, `\\?\UNC\server\share`, `\\?\GLOBALROOT\Device\Harddisk0\Partition1\x`, `\\.\PhysicalDrive0`,
		`\\?\Volume{deadbeef-0000-4000-8000-000000000000}\x`, `\\.\pipe\csi-proxy-disk-v1`, `\Device\HarddiskVolume1\x`,
		`\\var\lib\kubelet\x`, `\GLOBAL??\C:\x`, `file:///C:/var/lib/kubelet/x`,
		// slashes
		`/var/lib/kubelet/x`, `C:/var/lib/kubelet/x`, `//server/share`, `//?/C:/var/lib/kubelet/x`, in + `x/target`, in + `a/../../x`,
		// ways up
		in + `..`, in + `..\..\..\Windows`, in + `x\..\y`, in + `.`, in + `.\x`, in + `x\.`, in + `x\..`, `C:\..\var\lib\kubelet\x`,
		// other streams
		in + `x:stream`, in + `x::$DATA`, in + `x::$INDEX_ALLOCATION`, in + `x:stream\y`, kubeletPath + `:stream`, in + `C:\Windows`,
	}
	for _, c := range "\"<>|?*\x00\x01\t\n\r\x1f" {
		evil = append(evil, in+`a`+string(c)+`b`, in+string(c)+`\x`)
	}
	for _, name := range []string{
		"CON", "PRN", "AUX", "NUL", "COM1", "COM9", "LPT1", "LPT9", "COM¹", "COM²", "COM³", "LPT¹", "LPT²", "LPT³", "CONIN$", "CONOUT$",
		"con", "nul.txt", "NUL .txt", "com1.tar.gz", "Lpt3", "x.", "x ", "x. .", "x...", "...", " .", "x\u0020",
	} {
		evil = append(evil, in+name, in+name+`\x`)
	}
	return append(evil,
		in+strings.Repeat("x", 256),      // no name is so long
		in+strings.Repeat(`x\`, 16<<10),  // no path is so long
		in+strings.Repeat("\u00e9", 300), // counted in UTF-16
	)
}

// tooLong are paths that the volume group takes.
var tooLong = []string{kubeletPath + strings.Repeat(`\`+strings.Repeat("x", 60), 4)} // 263 characters

// groupsWithPaths are those whose calls take paths of the node.
var groupsWithPaths = []string{"volume", "filesystem", "smb"}

// pathFields are the names of all fields that hold paths of the node.
var pathFields = []protoreflect.Name{"path", "source_path", "target_path", "mount", "local_path"}

// Every field that holds a path refuses what isn't a path inside of the allowed
// directories, in every method of every version, and does nothing at all.
func TestEvilPaths(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	o := n.operator()
	volume := o.formattedVolume(n.attach(hardware{size: gib}))
	o.mkdir(kubeletPath + `\source`)
	n.mkdir(`C:\var\lib\kubelet-evil`)
	n.write(`C:\var\lib\kubelet-evil\x`, "not for drivers")
	before := n.tree(`C:\`)

	t.Run("versions", func(t *testing.T) {
		for _, v := range versions {
			if !slices.Contains(groupsWithPaths, v.group) {
				continue
			}
			t.Run(v.String(), func(t *testing.T) {
				t.Parallel()
				c := n.in(t).client(v)
				tested := 0
				methods := v.service().Methods()
				for i := range methods.Len() {
					for _, name := range pathFields {
						if methods.Get(i).Input().Fields().ByName(name) != nil {
							testEvilPaths(c, methods.Get(i), name, volume)
							tested++
						}
					}
				}
				if tested == 0 {
					t.Error("no method has a path")
				}
			})
		}
	})

	if diff := cmp.Diff(before, n.tree(`C:\`)); diff != "" {
		t.Errorf("refused calls changed the node's files (-before +after):\n%s", diff)
	}
}

// testEvilPaths calls a method with evil paths in one field and what is fine in
// the others.
func testEvilPaths(c *client, method protoreflect.MethodDescriptor, evilField protoreflect.Name, volume string) {
	request := harmless(method, volume)
	paths := evilPaths()
	if c.group != "volume" {
		paths = append(paths, tooLong...)
	}
	for i := 0; i < len(paths); i += stride(3) {
		path := paths[i]
		if path == "" && evilField == "local_path" {
			continue // no link is asked for
		}
		if c.group == "volume" && strings.Contains(path, "/") {
			continue // a slash separates there, as a backslash does
		}
		c.fail(codes.InvalidArgument, string(method.Name()), request.with(string(evilField), path))
	}
}

// Paths that look odd but are legal work, in the version that drivers use most.
func TestOddPaths(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	o := n.operator()
	for _, name := range []string{`a..b`, `..a`, ` a`, `COM`, `COM10`, `CONSOLE`, `nulls`, `a;b&c`, `'$(x)'`, "%TEMP%", "żółć", "日本", "\U0001F4BE"} {
		for _, path := range []string{kubeletPath + `\` + name, `\var\lib\kubelet\` + name, `c:\VAR\lib\Kubelet\` + name + `\`} {
			o.mkdir(path)
			n.wantDir(kubeletPath + `\` + name)
		}
	}
}
