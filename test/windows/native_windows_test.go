// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package windows

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
)

// The filesystem group against Windows itself: what the newest version does is
// looked at with the os package, and the other way round. Which paths are refused is tested in
// internal/ops/pathpolicy.
func TestNativeFilesystem(t *testing.T) {
	kubelet := kubeletDirectory(t)
	s := install(t, "-kubelet-path="+kubelet)
	s.start()

	for _, test := range []struct {
		name string
		test func(*testing.T, *client, string)
	}{
		{"PathExists", nativePathExists},
		{"Mkdir", nativeMkdir},
		{"Rmdir", nativeRmdir},
		{"Rmdir in use", nativeRmdirInUse},
		{"RmdirContents", nativeRmdirContents},
		{"links", nativeLinks},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := filepath.Join(kubelet, test.name)
			must(t, os.Mkdir(dir, 0o700))
			test.test(t, newest(t, "filesystem"), dir)
		})
	}
}

func nativePathExists(t *testing.T, c *client, dir string) {
	plant(t, dir+`\file`)
	for path, want := range map[string]bool{
		dir: true, dir + `\`: true, dir + `\file`: true, strings.ToUpper(dir) + `\FILE`: true,
		dir[len(`C:`):]:  true, // as kubelet hands paths to drivers, without a drive
		dir + `\missing`: false, dir + `\missing\too`: false,
	} {
		if got := c.call("PathExists", fields{"path": path}).get("exists").Bool(); got != want {
			t.Errorf("%s exists: %t, want %t", path, got, want)
		}
	}
}

func nativeMkdir(t *testing.T, c *client, dir string) {
	for _, name := range []string{`with\parents`, `a..b`, `ünïcödé ☃`, strings.Repeat("long", 25)} {
		for range 2 { // the second time it is there
			c.call("Mkdir", fields{"path": dir + `\` + name})
			if info, err := os.Stat(dir + `\` + name); err != nil || !info.IsDir() {
				t.Errorf("after Mkdir of %s: %v", name, err)
			}
		}
	}
	plant(t, dir+`\file`)
	c.fail(codes.AlreadyExists, "Mkdir", fields{"path": dir + `\file`})
	wantThere(t, dir+`\file`)
}

func nativeRmdir(t *testing.T, c *client, dir string) {
	plant(t, dir+`\full\sub\file`)
	plant(t, dir+`\full\sub\read-only`)
	must(t, os.Chmod(dir+`\full\sub\read-only`, 0o400))
	c.fail(codes.FailedPrecondition, "Rmdir", fields{"path": dir + `\full`})
	wantThere(t, dir+`\full\sub\file`)
	for range 2 { // with force what is missing is success
		c.call("Rmdir", fields{"path": dir + `\full`, "force": true})
		wantGone(t, dir+`\full`)
	}

	must(t, os.Mkdir(dir+`\empty`, 0o700))
	c.call("Rmdir", fields{"path": dir + `\empty`})
	wantGone(t, dir+`\empty`)
	c.fail(codes.NotFound, "Rmdir", fields{"path": dir + `\empty`})
}

// A file that a pod has open, without leave to delete it, keeps its directory.
func nativeRmdirInUse(t *testing.T, c *client, dir string) {
	plant(t, dir+`\used\file`)
	f, err := os.Open(dir + `\used\file`) // shares reading and writing only
	must(t, err)
	defer f.Close()
	c.fail(codes.Unavailable, "Rmdir", fields{"path": dir + `\used`, "force": true})
	wantThere(t, dir+`\used\file`)
	must(t, f.Close())
	c.call("Rmdir", fields{"path": dir + `\used`, "force": true})
	wantGone(t, dir+`\used`)
}

func nativeRmdirContents(t *testing.T, c *client, dir string) {
	plant(t, dir+`\full\sub\file`)
	plant(t, dir+`\full\file`)
	for range 2 {
		c.call("RmdirContents", fields{"path": dir + `\full`})
		wantThere(t, dir+`\full`)
		wantGone(t, dir+`\full\sub`)
		wantGone(t, dir+`\full\file`)
	}
	c.fail(codes.NotFound, "RmdirContents", fields{"path": dir + `\missing`})
}

func nativeLinks(t *testing.T, c *client, dir string) {
	notOnWine(t, "it makes no symbolic links: CreateSymbolicLink says it did, reparse points aren't supported")
	plant(t, dir+`\kept\file`)
	link, dangling := dir+`\tree\link`, dir+`\dangling`
	c.call("Mkdir", fields{"path": dir + `\tree`})
	c.call("CreateSymlink", fields{"source_path": dir + `\kept`, "target_path": link})
	c.call("CreateSymlink", fields{"source_path": dir + `\nowhere`, "target_path": dangling})
	if got, err := os.Readlink(link); err != nil || got != dir+`\kept` {
		t.Errorf("the link leads to %q (%v), want %s", got, err, dir+`\kept`)
	}
	wantThere(t, link+`\file`)
	c.fail(codes.AlreadyExists, "CreateSymlink", fields{"source_path": dir + `\kept`, "target_path": dir + `\tree`})
	for path, want := range map[string]bool{link: true, dangling: false, dir: false} {
		if got := c.call("IsSymlink", fields{"path": path}).get("is_symlink").Bool(); got != want {
			t.Errorf("%s is a link: %t, want %t", path, got, want)
		}
	}
	if !c.call("PathExists", fields{"path": dangling}).get("exists").Bool() {
		t.Error("a dangling link doesn't exist")
	}
	c.call("Rmdir", fields{"path": dir + `\tree`, "force": true})
	wantGone(t, dir+`\tree`)
	wantThere(t, dir+`\kept\file`)

	// A link that a pod plants doesn't lead the daemon out of its directories.
	outside := t.TempDir()
	plant(t, outside+`\file`)
	must(t, os.Symlink(outside, dir+`\out`))
	if _, err := c.try("Mkdir", fields{"path": dir + `\out\made`}); err == nil {
		t.Error("Mkdir followed a link out of the kubelet directory")
	}
	if _, err := c.try("Rmdir", fields{"path": dir + `\out\file`, "force": true}); err == nil {
		t.Error("Rmdir followed a link out of the kubelet directory")
	}
	wantGone(t, outside+`\made`)
	wantThere(t, outside+`\file`)
}

// plant makes a file with its parents.
func plant(t *testing.T, path string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	must(t, os.WriteFile(path, []byte("text"), 0o600))
}

func wantThere(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); err != nil {
		t.Error(err)
	}
}

func wantGone(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("%s is still there (%v)", path, err)
	}
}
