// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package pipe

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

func mustClaim(t *testing.T, dir string) *Claimed {
	t.Helper()
	c, err := Claim(dir)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func mustListen(t *testing.T, c *Claimed, name string) net.Listener {
	t.Helper()
	l, err := c.Listen(t.Context(), name)
	must(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

func modeOf(t *testing.T, path string) fs.FileMode {
	t.Helper()
	info, err := os.Lstat(path)
	must(t, err)
	return info.Mode()
}

func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := MkdirTemp("pipe")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// A directory for sockets has a short path wherever temporary files are.
func TestMkdirTemp(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("x", maxPath))
	for temp, want := range map[string]string{"/tmp": "/tmp", long: "/tmp"} {
		t.Setenv("TMPDIR", temp)
		dir := socketDir(t)
		if filepath.Dir(dir) != want || checkPath(Address(dir, "csi-proxy-filesystem-v2alpha1")) != nil {
			t.Errorf("with TMPDIR=%s, the directory is %s", temp, dir)
		}
	}
}

func TestListenAndDial(t *testing.T) {
	dir := filepath.Join(socketDir(t), "made", "by-claim")
	c := mustClaim(t, dir)
	l := mustListen(t, c, "csi-proxy-disk-v1")
	path := filepath.Join(dir, "csi-proxy-disk-v1.sock")
	if got := Address(dir, "csi-proxy-disk-v1"); got != path {
		t.Errorf("address is %s, want %s", got, path)
	}
	if got, want := modeOf(t, dir), fs.ModeDir|0o700; got != want {
		t.Errorf("mode of the directory is %v, want %v", got, want)
	}
	if got, want := modeOf(t, path), fs.ModeSocket|0o600; got != want {
		t.Errorf("mode of the socket is %v, want %v", got, want)
	}

	client, err := Dial(t.Context(), path)
	must(t, err)
	defer client.Close()
	server, err := l.Accept()
	must(t, err)
	defer server.Close()

	must(t, l.Close())
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after closing the listener, the socket gives %v, want not exist", err)
	}
}

// A socket must be born with its mode: the umask of the service manager that
// starts the daemon may be 0.
func TestSocketModeNeedsNoUmask(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	dir := socketDir(t)
	l, err := (&net.ListenConfig{Control: ownerOnly}).Listen(t.Context(), "unix", Address(dir, "csi-proxy-disk-v1"))
	must(t, err)
	defer l.Close()
	if got, want := modeOf(t, Address(dir, "csi-proxy-disk-v1")), fs.ModeSocket|0o600; got != want {
		t.Errorf("mode of the socket is %v, want %v", got, want)
	}
}

func TestClaimIsExclusive(t *testing.T) {
	dir := socketDir(t)
	first := mustClaim(t, dir)
	mustListen(t, first, "csi-proxy-disk-v1")

	if _, err := Claim(dir); !errors.Is(err, ErrInUse) {
		t.Fatalf("second claim gives %v, want ErrInUse", err)
	}
	conn, err := Dial(t.Context(), Address(dir, "csi-proxy-disk-v1"))
	if err != nil {
		t.Fatalf("after the second claim, the first one's endpoint gives %v", err)
	}
	conn.Close()

	must(t, first.Close())
	mustClaim(t, dir)
}

// leaveSocket leaves a socket at path to which nobody listens, as a killed
// process does.
func leaveSocket(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	must(t, err)
	l.SetUnlinkOnClose(false)
	must(t, l.Close())
}

func TestStaleSocketIsReplaced(t *testing.T) {
	dir := socketDir(t)
	leaveSocket(t, Address(dir, "csi-proxy-disk-v1"))
	mustListen(t, mustClaim(t, dir), "csi-proxy-disk-v1")
	conn, err := Dial(t.Context(), Address(dir, "csi-proxy-disk-v1"))
	must(t, err)
	conn.Close()
}

func TestLiveSocketIsKept(t *testing.T) {
	dir := socketDir(t)
	mustListen(t, mustClaim(t, dir), "csi-proxy-disk-v1")
	must(t, os.Remove(filepath.Join(dir, lockName)))
	second := mustClaim(t, dir)
	if _, err := second.Listen(t.Context(), "csi-proxy-disk-v1"); !errors.Is(err, ErrInUse) {
		t.Fatalf("listening where another one listens gives %v, want ErrInUse", err)
	}
	conn, err := Dial(t.Context(), Address(dir, "csi-proxy-disk-v1"))
	if err != nil {
		t.Fatalf("the endpoint listened on first gives %v", err)
	}
	conn.Close()
}

func TestFileInTheWayIsKept(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"file":      func(path string) error { return os.WriteFile(path, []byte("precious"), 0o600) },
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"link": func(path string) error {
			target := filepath.Join(filepath.Dir(path), "target")
			return errors.Join(os.WriteFile(target, nil, 0o600), os.Symlink(target, path))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := socketDir(t)
			path := Address(dir, "csi-proxy-disk-v1")
			must(t, put(path))
			before := modeOf(t, path)
			if _, err := mustClaim(t, dir).Listen(t.Context(), "csi-proxy-disk-v1"); err == nil {
				t.Error("listening there succeeds")
			}
			if after := modeOf(t, path); after != before {
				t.Errorf("mode is %v, was %v", after, before)
			}
		})
	}
}

func TestLockThatIsALinkIsRefused(t *testing.T) {
	dir := socketDir(t)
	target := filepath.Join(socketDir(t), "target")
	must(t, os.WriteFile(target, []byte("precious"), 0o600))
	must(t, os.Symlink(target, filepath.Join(dir, lockName)))
	if _, err := Claim(dir); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("claim gives %v, want ELOOP", err)
	}
	if got, err := os.ReadFile(target); err != nil || string(got) != "precious" {
		t.Errorf("the link's target holds %q (%v)", got, err)
	}
}

func TestForeignDirectoryIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory away")
	}
	dir := socketDir(t)
	must(t, os.Chown(dir, 12345, -1))
	if _, err := Claim(dir); err == nil {
		t.Error("claim of a directory of another user succeeds")
	}
	if _, err := os.Lstat(filepath.Join(dir, lockName)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("lock file gives %v, want not exist", err)
	}
}

func TestPathLength(t *testing.T) {
	parent := socketDir(t)
	room := maxPath - len(Address(parent+"/", "csi-proxy-disk-v1"))
	if room < 1 {
		t.Skipf("%s is too long for this test", parent)
	}
	for name, test := range map[string]struct {
		element int
		ok      bool
	}{
		"longest":  {room - 1, true},
		"too long": {room, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(parent, strings.Repeat("d", test.element))
			l, err := mustClaim(t, dir).Listen(t.Context(), "csi-proxy-disk-v1")
			if err == nil {
				l.Close()
			}
			if ok := err == nil; ok != test.ok || errors.Is(err, syscall.EINVAL) { // the system's own answer
				t.Errorf("listening on %d bytes gives %v", len(Address(dir, "csi-proxy-disk-v1")), err)
			}
		})
	}
	if _, err := Dial(context.Background(), filepath.Join(parent, strings.Repeat("d", maxPath))); err == nil ||
		errors.Is(err, syscall.EINVAL) {
		t.Errorf("dialling a path that is too long gives %v", err)
	}
}

func TestDefaultDir(t *testing.T) {
	if os.Geteuid() == 0 {
		if got := DefaultDir(); got != "/run/csi-proxy" {
			t.Errorf("default directory of root is %s", got)
		}
	}
	for _, test := range []struct{ runtimeDir, tmpDir, want string }{
		{"/run/user/7", "/var/tmp", "/run/user/7/csi-proxy"},
		{"", "/var/tmp", "/var/tmp/csi-proxy-7"},
		{"", "/var/" + strings.Repeat("t", maxPath-maxNameLength), "/tmp/csi-proxy-7"},
	} {
		t.Setenv("XDG_RUNTIME_DIR", test.runtimeDir)
		t.Setenv("TMPDIR", test.tmpDir)
		if got := dirOfUser(7); got != test.want {
			t.Errorf("with XDG_RUNTIME_DIR %q and TMPDIR %q: %s, want %s", test.runtimeDir, test.tmpDir, got, test.want)
		}
	}
}

func TestSecurityDescriptorIsRefused(t *testing.T) {
	dir := filepath.Join(socketDir(t), "endpoints")
	if _, err := ClaimGuarded(dir, "D:P(A;;GA;;;SY)"); err == nil {
		t.Error("a claim with a security descriptor succeeds")
	}
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory: %v", err)
	}
}

func TestCaller(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("this system doesn't tell who is at the other end of a socket")
	}
	dir := socketDir(t)
	l := mustListen(t, mustClaim(t, dir), "csi-proxy-disk-v1")
	client, err := Dial(t.Context(), Address(dir, "csi-proxy-disk-v1"))
	must(t, err)
	defer client.Close()
	server, err := l.Accept()
	must(t, err)
	defer server.Close()
	self, err := os.Executable()
	must(t, err)
	process, program := server.(interface{ Caller() (uint32, string) }).Caller()
	if process != uint32(os.Getpid()) || program != self {
		t.Errorf("the caller is process %d of %s, want %d of %s", process, program, os.Getpid(), self)
	}
}

func TestServer(t *testing.T) {
	dir := socketDir(t)
	const name = "csi-proxy-disk-v1"
	if _, _, err := Server(t.Context(), Address(dir, name)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a socket: %v, want not exist", err)
	}
	mustListen(t, mustClaim(t, dir), name)
	process, program, err := Server(t.Context(), Address(dir, name))
	must(t, err)
	if runtime.GOOS != "linux" { // others don't tell
		return
	}
	self, err := os.Executable()
	must(t, err)
	if process != uint32(os.Getpid()) || program != self {
		t.Errorf("process %d of %s, want %d of %s", process, program, os.Getpid(), self)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
