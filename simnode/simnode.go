// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package simnode is a simulated Windows node with CSI Proxy on it, for tests of CSI drivers, in
// process and on any system. The node has disks to attach and grow, the real API over sockets or in
// memory, the file system as a pod sees it, faults and power loss.
//
//	node := simnode.New(t)
//	number := node.AttachDisk(simnode.Disk{SizeBytes: 10 << 30, Serial: "vol-1"})
//	driver := mydriver.New(node.Client())
//
// CSI Proxy's own code runs, down to the bytes of each call to Windows. Only the answers to these
// calls are simulated. docs/test-your-driver.md says how far.
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

// Option configures the node made by New or Start.
type Option func(*options)

// WithRealisticDelays makes calls and arrivals take as long as on a fast cloud node. By default,
// calls and arrivals are immediate.
func WithRealisticDelays() Option {
	return func(o *options) { o.config.Delays = winsim.RealisticDelays() }
}

// WithStateFile keeps the node, its hardware and its data in a file. A new node with
// the same file continues from there.
func WithStateFile(path string) Option {
	return func(o *options) { o.config.StateFile = path }
}

// WithEndpointDir serves all endpoints in dir from the start, like the daemon: see EndpointDir. On
// Windows, endpoints are named pipes, and dir must be empty. If another process serves the
// endpoints, the node fails to start.
func WithEndpointDir(dir string) Option {
	return func(o *options) { o.endpoints = &dir }
}

// WithNodeOptions configures CSI Proxy: allowed directories, bounds, observers.
func WithNodeOptions(n node.Options) Option {
	return func(o *options) { o.node = n }
}

// New starts a node with one disk, the disk of Windows, and CSI Proxy on the node. Both end with
// the test.
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

// Start is New for a program other than a test. The program must Close the node. A mistake in a
// call of the node panics.
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

// Close ends a node made by Start. Calls in progress are cut off.
func (n *Node) Close() error {
	return errors.Join(n.client.Close(), n.daemon.close(), n.sys.Close())
}

func (n *Node) must(err error) {
	n.helper()
	if err != nil {
		n.fail(err)
	}
}

// mustRule is must for a rule about a call. If the call is unknown, the error lists all calls.
func (n *Node) mustRule(err error) {
	n.helper()
	if errors.Is(err, csiproxy.ErrNotFound) {
		err = fmt.Errorf("%w; the calls are %s", err, strings.Join(win.CallNames(), ", "))
	}
	n.must(err)
}

// Client returns a client of the node's CSI Proxy, connected in memory. The client keeps working
// after RestartDaemon, Reboot and PowerLoss, and ends with the node.
func (n *Node) Client() *client.Client { return n.client }

// Operations returns the node's operations in process, for a driver in a HostProcess container.
func (n *Node) Operations() *node.Node { return n.daemon.operations() }

// EndpointDir returns a directory with the sockets of all endpoints, for drivers in another process
// and for csi-proxyctl --endpoint-dir. The first call makes the directory. The sockets have the
// daemon's names: csi-proxy-disk-v1.sock. The socket csi-proxy-sim-v1.sock controls the node, for
// csi-proxyctl sim. On Windows, where pipes need no directory, EndpointDir ends the test.
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

// StopDaemon stops CSI Proxy and its endpoints, as at the beginning of an upgrade. Calls in
// progress are cut off after half a second. The node keeps running, and Operations still works.
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

// Reboot shuts the node down and starts the node again, with CSI Proxy. Disk numbers may change.
func (n *Node) Reboot() {
	n.helper()
	n.must(n.daemon.stop())
	n.must(n.sys.Reboot())
	n.must(n.daemon.start())
}

// PowerLoss is a Reboot without the shutdown: unflushed contents of files are lost.
func (n *Node) PowerLoss() {
	n.helper()
	n.must(n.daemon.stop())
	n.must(n.sys.PowerLoss())
	n.must(n.daemon.start())
}

// The calls below act on a path of the node like a process in a pod. They follow links and mount
// points, and return Windows' errors.

// WriteFile replaces the contents of a file. A missing file is created.
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

// MkdirAll makes a directory and its missing parents.
func (n *Node) MkdirAll(path string) error { return n.sys.MkdirAll(path) }

// User is the account of a process: access lists of volumes decide what the user may do. Shares
// ignore the user of the process and use the user of their mapping.
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

// Files are the node's files as a user's processes see them. The file methods of Node act as
// SYSTEM, with all rights.
type Files struct{ files winsim.Files }

// As returns the node's files as seen by processes of a user.
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

// MkdirAll makes a directory and its missing parents.
func (f Files) MkdirAll(path string) error { return f.files.MkdirAll(path) }

// Remove removes a file, an empty directory or a link.
func (f Files) Remove(path string) error { return f.files.Remove(path) }

// Symlink makes a symbolic link to a directory.
func (n *Node) Symlink(path, target string) error { return n.sys.Symlink(path, target, true) }

// Remove removes a file, an empty directory or a link.
func (n *Node) Remove(path string) error { return n.sys.Remove(path) }

// Fail makes the next count calls of a Windows function or control code, such as
// "SetVolumeMountPointW" or "IOCTL_DISK_GROW_PARTITION", fail with a Windows error number; a count
// of 0 makes all calls fail until ClearFaults. CSI Proxy retries most changes of a disk or volume
// for 30 seconds, which hides a single failure from the driver: see
// csiproxy.StorageOperations.StageVolume. An unknown name ends the test with the list of known
// names. If the fault meets no call until ClearFaults or the end of the test, the test fails,
// because it has tested nothing.
func (n *Node) Fail(call string, windowsError uint32, count int) {
	n.helper()
	n.mustRule(n.sys.Fail(winsim.Match{Call: call, Count: count}, winerr.Errno(windowsError)))
}

// FailIfCalled is Fail for an optional call, such as a call made only while waiting for a late
// volume.
func (n *Node) FailIfCalled(call string, windowsError uint32, count int) {
	n.helper()
	n.mustRule(n.sys.Fail(winsim.Match{Call: call, Count: count, Fires: winsim.MayFire}, winerr.Errno(windowsError)))
}

// Forbid makes all calls of a Windows function or control code fail as not supported, until
// ClearFaults. Any such call also fails the test.
func (n *Node) Forbid(call string) {
	n.helper()
	n.mustRule(n.sys.Fail(winsim.Match{Call: call, Fires: winsim.MustNotFire}, winerr.ErrorNotSupported))
}

// Delay makes the next count calls take d longer; a count of 0 delays all calls until ClearFaults.
// When the caller's context ends, a delayed call ends at once, without effect. As with Fail, a
// delay that meets no call fails the test.
func (n *Node) Delay(call string, d time.Duration, count int) {
	n.helper()
	n.mustRule(n.sys.Delay(winsim.Match{Call: call, Count: count}, d))
}

// DelayUncancellable is Delay for uninterruptible calls, like most of Windows' calls: after the
// caller's context has ended, the call goes on, keeps the locks of its operation, and does its
// work. ClearFaults ends the delay.
func (n *Node) DelayUncancellable(call string, d time.Duration, count int) {
	n.helper()
	n.mustRule(n.sys.DelayUncancellable(winsim.Match{Call: call, Count: count}, d))
}

// ClearFaults ends the effects of Fail, FailIfCalled, Forbid, Delay and DelayUncancellable.
func (n *Node) ClearFaults() { n.sys.ResetRules() }

// CheckFaults is ClearFaults with a result: the error reports each Fail, Delay or
// DelayUncancellable without a call, and each Forbid with a call. For a node made by New, the end
// of the test calls CheckFaults.
func (n *Node) CheckFaults() error { return n.sys.CheckRules() }

// Calls returns the number of calls to Windows so far, by name.
func (n *Node) Calls() map[string]int { return n.sys.Calls() }

// String describes the node in messages of a test.
func (n *Node) String() string {
	return fmt.Sprintf("simulated node with %d disks", len(n.sys.Disks()))
}
