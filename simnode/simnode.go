// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package simnode is a simulated Windows node with CSI Proxy on it, for tests of CSI
// drivers, in process and on any system. It has disks to attach and grow, the real API
// over sockets or in memory, the file system as a pod sees it, faults and power loss.
//
//	node := simnode.New(t)
//	number := node.AttachDisk(simnode.Disk{SizeBytes: 10 << 30, Serial: "vol-1"})
//	driver := mydriver.New(node.Client())
//
// CSI Proxy's own code runs, down to the bytes of each call to Windows. Only the
// answers to these calls are simulated. docs/test-your-driver.md says how far.
package simnode

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
	"github.com/csi-proxy/csi-proxy/node"
)

// Node is a simulated node with a running CSI Proxy. Its methods may be called
// concurrently. A mistake of the test, such as an unknown disk, ends the test.
type Node struct {
	fail    func(err error) // doesn't return
	helper  func()
	sys     *winsim.System
	options options
	daemon  *runner
	client  *client.Client
}

type options struct {
	node      node.Options
	config    winsim.Config
	endpoints *string // nil: they aren't served until EndpointDir is called
}

// Option changes the node that New and Start make.
type Option func(*options)

// WithRealisticDelays makes calls and arrivals take as long as on a quick cloud
// node. By default nothing takes time.
func WithRealisticDelays() Option {
	return func(o *options) { o.config.Delays = winsim.RealisticDelays() }
}

// WithStateFile keeps the node, its hardware and its data in a file. A new node with
// the same file continues from there.
func WithStateFile(path string) Option {
	return func(o *options) { o.config.StateFile = path }
}

// WithEndpointDir serves all endpoints in dir from the start, as the daemon does: see EndpointDir.
// On Windows they are named pipes, and dir must be empty. If another process serves them, the node
// doesn't start.
func WithEndpointDir(dir string) Option {
	return func(o *options) { o.endpoints = &dir }
}

// WithNodeOptions configures CSI Proxy: allowed directories, bounds, observers.
func WithNodeOptions(n node.Options) Option {
	return func(o *options) { o.node = n }
}

// New starts a node with one disk, from which Windows runs, and CSI Proxy on it.
// Both end with the test.
func New(t testing.TB, opts ...Option) *Node {
	t.Helper()
	n, err := Start(opts...)
	if err != nil {
		t.Fatalf("simnode: %v", err)
	}
	n.helper = t.Helper
	n.fail = func(err error) {
		t.Helper()
		t.Fatalf("simnode: %v", err)
	}
	t.Cleanup(func() {
		if err := n.CheckFaults(); err != nil && !t.Failed() && !t.Skipped() {
			t.Errorf("simnode: %v", err)
		}
		if err := n.Close(); err != nil {
			t.Errorf("simnode: %v", err)
		}
	})
	return n
}

// Start is New for a program that isn't a test. The program must Close the node. A
// mistake in a call of the node panics.
func Start(opts ...Option) (*Node, error) {
	n := &Node{helper: func() {}, fail: func(err error) { panic(err) }}
	for _, o := range opts {
		o(&n.options)
	}
	var err error
	if n.sys, err = winsim.Open(n.options.config); err != nil {
		return nil, err
	}
	n.daemon = newRunner(n.sys, n.options.node)
	if err := n.daemon.begin(n.options.endpoints); err != nil {
		return nil, errors.Join(err, n.daemon.close(), n.sys.Close())
	}
	n.client = client.New(client.WithDialer(n.Dial))
	return n, nil
}

// Close ends a node that came from Start. Calls under way are cut off.
func (n *Node) Close() error {
	return errors.Join(n.client.Close(), n.daemon.close(), n.sys.Close())
}

func (n *Node) must(err error) {
	n.helper()
	if err != nil {
		n.fail(err)
	}
}

// mustRule is must for a rule about a call. Its error lists the calls if there is none of that name.
func (n *Node) mustRule(err error) {
	n.helper()
	if errors.Is(err, csiproxy.ErrNotFound) {
		err = fmt.Errorf("%w; the calls are %s", err, strings.Join(win.CallNames(), ", "))
	}
	n.must(err)
}

// Client returns a client of the node's CSI Proxy, connected in memory. It keeps
// working after RestartDaemon, Reboot and PowerLoss, and ends with the node.
func (n *Node) Client() *client.Client { return n.client }

// Operations returns the node's operations in process, as a driver in a
// HostProcess container uses them.
func (n *Node) Operations() *node.Node { return n.daemon.operations() }

// EndpointDir returns a directory with the sockets of all endpoints. They have the
// daemon's names: csi-proxy-disk-v1.sock. The first call makes the directory. It is for
// drivers that run in another process, and for csi-proxyctl --endpoint-dir. The
// socket csi-proxy-sim-v1.sock controls the node, so csi-proxyctl sim works too. On
// Windows, where pipes aren't in a directory, EndpointDir ends the test.
func (n *Node) EndpointDir() string {
	n.helper()
	dir, err := n.daemon.endpointDir()
	n.must(err)
	return dir
}

// Dial connects to the endpoint of a version of an API group, such as "disk" and
// "v1", in memory. The control of the node, package simv1, is "sim" and "v1".
func (n *Node) Dial(ctx context.Context, group, version string) (net.Conn, error) {
	return n.daemon.dial(ctx, group, version)
}

// StopDaemon stops CSI Proxy, as at the beginning of an upgrade: its endpoints aren't
// served any more. Calls under way are cut off after half a second. The node itself
// keeps running, and Operations can still be used.
func (n *Node) StopDaemon() {
	n.helper()
	n.must(n.daemon.stop())
}

// StartDaemon starts CSI Proxy again after StopDaemon.
func (n *Node) StartDaemon() {
	n.helper()
	n.must(n.daemon.start())
}

// RestartDaemon is StopDaemon and StartDaemon, as for an upgrade.
func (n *Node) RestartDaemon() {
	n.helper()
	n.StopDaemon()
	n.StartDaemon()
}

// Reboot shuts the node down and starts it again, with CSI Proxy. Disks may have
// other numbers afterwards.
func (n *Node) Reboot() {
	n.helper()
	n.must(n.daemon.stop())
	n.must(n.sys.Reboot())
	n.must(n.daemon.start())
}

// PowerLoss is a Reboot without the shutdown: the contents of files that weren't
// flushed are lost.
func (n *Node) PowerLoss() {
	n.helper()
	n.must(n.daemon.stop())
	n.must(n.sys.PowerLoss())
	n.must(n.daemon.start())
}

// The calls below do what a process in a pod does on a path of the node. They
// follow links and mount points, and return Windows' errors.

// WriteFile replaces the contents of a file. It creates the file if it is missing.
func (n *Node) WriteFile(path string, data []byte) error { return n.sys.WriteFile(path, data) }

// ReadFile returns the contents of a file.
func (n *Node) ReadFile(path string) ([]byte, error) { return n.sys.ReadFile(path) }

// ReadDir returns the names in a directory, sorted.
func (n *Node) ReadDir(path string) ([]string, error) {
	entries, err := n.sys.ReadDir(path)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name)
	}
	slices.SortFunc(names, strings.Compare)
	return names, err
}

// MkdirAll makes a directory and the missing ones above it.
func (n *Node) MkdirAll(path string) error { return n.sys.MkdirAll(path) }

// User is whose processes use files: the access lists of volumes decide what they may do. Shares are used
// with the user of their mapping, whoever uses them.
type User struct {
	SID    string   // such as S-1-5-93-2-2
	Groups []string // SIDs of the groups that it belongs to
}

// Users of containers, with the groups that count for files.
var (
	ContainerUser          = userOf(winsim.ContainerUser)
	ContainerAdministrator = userOf(winsim.ContainerAdministrator)
)

func userOf(a *winsim.Account) User {
	u := User{SID: string(a.SID)}
	for _, group := range a.Groups {
		u.Groups = append(u.Groups, string(group))
	}
	return u
}

// Files does with files what a process of a user does. The calls of Node on files are those of SYSTEM,
// who may do everything.
type Files struct{ files winsim.Files }

// As returns the files as processes of a user have them.
func (n *Node) As(u User) Files {
	a := &winsim.Account{SID: winid.SID(u.SID)}
	for _, group := range u.Groups {
		a.Groups = append(a.Groups, winid.SID(group))
	}
	return Files{n.sys.As(a)}
}

// WriteFile replaces the contents of a file. It creates the file if it is missing.
func (f Files) WriteFile(path string, data []byte) error { return f.files.WriteFile(path, data) }

// ReadFile returns the contents of a file.
func (f Files) ReadFile(path string) ([]byte, error) { return f.files.ReadFile(path) }

// MkdirAll makes a directory and the missing ones above it.
func (f Files) MkdirAll(path string) error { return f.files.MkdirAll(path) }

// Remove removes a file, an empty directory or a link.
func (f Files) Remove(path string) error { return f.files.Remove(path) }

// Symlink makes a symbolic link to a directory.
func (n *Node) Symlink(path, target string) error { return n.sys.Symlink(path, target, true) }

// Remove removes a file, an empty directory or a link.
func (n *Node) Remove(path string) error { return n.sys.Remove(path) }

// Fail makes the next count calls of a Windows function or control code, such as
// "SetVolumeMountPointW" or "IOCTL_DISK_GROW_PARTITION", fail with a Windows error
// number; a count of 0 makes all fail until ClearFaults. CSI Proxy retries most changes of a disk or volume for 30
// seconds, so one failure of these doesn't reach the driver: see csiproxy.StorageOperations.StageVolume. A name that doesn't exist
// ends the test with the list of those that do. If no call has met the fault until ClearFaults or the end of
// the test, the test fails: it has tested nothing.
func (n *Node) Fail(call string, windowsError uint32, count int) {
	n.helper()
	n.mustRule(n.sys.Fail(winsim.Match{Call: call, Count: count}, winerr.Errno(windowsError)))
}

// FailIfCalled is Fail for a call that need not be made, such as one that only the wait for a late volume needs.
func (n *Node) FailIfCalled(call string, windowsError uint32, count int) {
	n.helper()
	n.mustRule(n.sys.Fail(winsim.Match{Call: call, Count: count, Fires: winsim.MayFire}, winerr.Errno(windowsError)))
}

// Forbid makes all calls of a Windows function or control code fail until ClearFaults, as not supported. If
// there is such a call, the test fails, too.
func (n *Node) Forbid(call string) {
	n.helper()
	n.mustRule(n.sys.Fail(winsim.Match{Call: call, Fires: winsim.MustNotFire}, winerr.ErrorNotSupported))
}

// Delay makes the next count calls take d longer; a count of 0 delays all calls until
// ClearFaults. When the context of its caller ends, a delayed call ends at once, and has done nothing.
// A delay that no call meets fails the test, as that of Fail.
func (n *Node) Delay(call string, d time.Duration, count int) {
	n.helper()
	n.mustRule(n.sys.Delay(winsim.Match{Call: call, Count: count}, d))
}

// DelayUncancellable is Delay for calls that nothing interrupts, as is true of most of Windows' calls: such a call goes on after
// its caller's context has ended, keeps the locks of its operation meanwhile, and does its work. ClearFaults ends
// the delay.
func (n *Node) DelayUncancellable(call string, d time.Duration, count int) {
	n.helper()
	n.mustRule(n.sys.DelayUncancellable(winsim.Match{Call: call, Count: count}, d))
}

// ClearFaults ends the effects of Fail, FailIfCalled, Forbid, Delay and DelayUncancellable.
func (n *Node) ClearFaults() { n.sys.ResetRules() }

// CheckFaults is ClearFaults, and returns an error if a fault of Fail, Delay or DelayUncancellable has met no call, or one of Forbid
// has. The end of a test does so for a node that is New.
func (n *Node) CheckFaults() error { return n.sys.CheckRules() }

// Calls returns how often each call to Windows was made so far.
func (n *Node) Calls() map[string]int { return n.sys.Calls() }

// String names the node in messages of a test.
func (n *Node) String() string {
	return fmt.Sprintf("simulated node with %d disks", len(n.sys.Disks()))
}
