// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package pipe

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// lockName is the file in an endpoint directory whose lock is the claim. The file holds the owner's
// process id, as text, and stays when the owner ends: a removal could hit the file just locked by
// the next owner.
const lockName = "csi-proxy.lock"

// maxPath is the longest path of a socket, in bytes: sockaddr_un has 108 bytes on Linux and 104 on
// BSD systems, including a final NUL.
const maxPath = len(syscall.RawSockaddrUnix{}.Path) - 1

// Address returns the address of the endpoint with a name: for csi-proxy-disk-v1 and the dir
// /run/csi-proxy, the address is /run/csi-proxy/csi-proxy-disk-v1.sock.
func Address(dir, name string) string { return filepath.Join(dir, name+".sock") }

// DefaultDir returns the default endpoint directory of daemon and clients: /run/csi-proxy for root.
// Another user has a private directory, below $XDG_RUNTIME_DIR if set.
func DefaultDir() string {
	if os.Geteuid() == 0 {
		return "/run/csi-proxy"
	}
	return dirOfUser(os.Geteuid())
}

// dirOfUser returns the default directory of a user other than root.
func dirOfUser(uid int) string {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "csi-proxy")
	}
	name := "csi-proxy-" + strconv.Itoa(uid)
	return filepath.Join(tempDir(name), name)
}

// maxNameLength is an upper bound for the name of an endpoint's socket, plus a number that makes a
// directory's name unique.
const maxNameLength = 60

// MkdirTemp makes a new directory for sockets, such as the sockets of a test. The directory is
// below the system's directory for temporary files or, if the path would be too long for sockets,
// below /tmp.
func MkdirTemp(pattern string) (string, error) { return os.MkdirTemp(tempDir(pattern), pattern) }

// tempDir returns the directory for temporary files, or /tmp if the path of a socket in its
// directory name would be too long.
func tempDir(name string) string {
	if dir := os.TempDir(); len(dir)+len(name)+maxNameLength <= maxPath {
		return dir
	}
	return "/tmp"
}

// Dial connects to the endpoint at address, a result of Address.
func Dial(ctx context.Context, address string) (net.Conn, error) {
	if err := checkPath(address); err != nil {
		return nil, err
	}
	var d net.Dialer
	return d.DialContext(ctx, "unix", address)
}

func checkPath(path string) error {
	if len(path) > maxPath {
		return fmt.Errorf("socket path %s has %d bytes, and a socket's path can have %d: "+
			"choose an endpoint directory with a shorter path", path, len(path), maxPath)
	}
	return nil
}

type claimed struct {
	dir  string
	lock *os.File
}

// DefaultSecurityDescriptor is empty: the mode of a socket guards the socket.
const DefaultSecurityDescriptor = ""

// DriverSecurityDescriptor is the DefaultSecurityDescriptor.
func DriverSecurityDescriptor() string { return DefaultSecurityDescriptor }

// CheckSecurityDescriptor returns an error for an invalid guard of an endpoint. Only the empty string
// is valid.
func CheckSecurityDescriptor(sddl string) error {
	if sddl != "" {
		return fmt.Errorf("security descriptor %q: this system is %s, whose sockets have none", sddl, runtime.GOOS)
	}
	return nil
}

func claim(dir, _ string) (claimed, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return claimed{}, fmt.Errorf("make endpoint directory: %w", err)
	}
	if err := checkOwner(dir); err != nil {
		return claimed{}, err
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return claimed{}, fmt.Errorf("claim endpoint directory: %w", err)
	}
	if err := lockFor(lock); err != nil {
		return claimed{}, errors.Join(fmt.Errorf("claim endpoint directory %s: %w", dir, err), lock.Close())
	}
	return claimed{dir, lock}, nil
}

// checkOwner refuses a directory, or a link to a directory, of another user, who could put foreign
// endpoints there. The check matters below a directory like /tmp.
func checkOwner(dir string) error {
	for _, stat := range []func(string) (fs.FileInfo, error){os.Lstat, os.Stat} {
		info, err := stat(dir)
		if err != nil {
			return fmt.Errorf("check endpoint directory: %w", err)
		}
		owner := info.Sys().(*syscall.Stat_t).Uid
		if owner != 0 && int(owner) != os.Geteuid() {
			return fmt.Errorf("endpoint directory %s belongs to user %d: choose one of your own", dir, owner)
		}
	}
	return nil
}

// lockFor locks the file for this process and writes its id there.
func lockFor(lock *os.File) error {
	err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		id := make([]byte, 20)
		n, _ := lock.ReadAt(id, 0) // the id is a help; the error says enough without it
		return fmt.Errorf("%w, id %s", ErrInUse, strings.TrimSpace(string(id[:n])))
	}
	if err != nil {
		return fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	if err := lock.Truncate(0); err != nil {
		return err
	}
	_, err = lock.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// release unlocks the directory by closing the file.
func (c claimed) release() error { return c.lock.Close() }

func (c claimed) administrators() claimed { return c }

func (c claimed) guardedBy(string) claimed { return c }

func (c claimed) listen(ctx context.Context, name string) (net.Listener, error) {
	path := Address(c.dir, name)
	if err := checkPath(path); err != nil {
		return nil, err
	}
	if err := removeStale(ctx, path); err != nil {
		return nil, err
	}
	config := net.ListenConfig{Control: ownerOnly}
	l, err := config.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if runtime.GOOS != "linux" { // see ownerOnly
		if err := os.Chmod(path, 0o600); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	return listener{l}, nil
}

// ownerOnly sets the mode of a socket before its bind. Linux applies this mode, less the umask, to
// the file. A chmod of the file would leave a moment for connections of other users. Only Linux
// supports this.
func ownerOnly(_, _ string, c syscall.RawConn) error {
	if runtime.GOOS != "linux" {
		return nil
	}
	var chmodErr error
	err := c.Control(func(fd uintptr) { chmodErr = syscall.Fchmod(int(fd), 0o600) })
	return errors.Join(err, chmodErr)
}

// removeStale removes the stale socket of a killed process at path. By the claim, there is no other
// process. But a cleaner of old files may have removed the lock of a running process, so
// removeStale also dials the socket.
func removeStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("listen on %s: the path is a file, and not a socket: remove it", path)
	}
	conn, err := Dial(ctx, path)
	if err == nil {
		return errors.Join(fmt.Errorf("listen on %s: %w", path, ErrInUse), conn.Close())
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("listen on %s, where a socket is already: %w", path, err)
	}
	return os.Remove(path)
}
