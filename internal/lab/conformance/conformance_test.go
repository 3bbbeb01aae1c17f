// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/reflect/protoreflect"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/api"
	"github.com/csi-proxy/csi-proxy/internal/serve/daemon"
	"github.com/csi-proxy/csi-proxy/internal/serve/pipe"
	"github.com/csi-proxy/csi-proxy/internal/serve/rpc"
	"github.com/csi-proxy/csi-proxy/simnode"
)

// expendable is a simulated node with all that the checks may need, and the options that
// name it.
func expendable(t testing.TB) (*simnode.Node, Options) {
	n := simnode.New(t)
	var disks []string
	// Each version of the disk group uses up a raw disk, and each of the volume group a
	// raw volume, which a disk of the former has.
	for i := range 7 {
		serial := fmt.Sprintf("expendable-%d", i)
		n.AttachDisk(simnode.Disk{SizeBytes: 1 << 30, Serial: serial,
			Page83: []simnode.Designator{simnode.T10Designator("page83-" + serial)}, Offline: i%2 == 0})
		disks = append(disks, serial)
	}
	password, chap, mutual := csiproxy.NewSecret("p&ss%word"), csiproxy.NewSecret("chap secret 1"), csiproxy.NewSecret("mutual secret")
	n.AddSMBShare(simnode.SMBShare{Server: "nas.example.com", Name: "Exports"})
	n.SetSMBUser("nas.example.com", `CORP\user`, password)
	n.AddISCSITarget(simnode.ISCSITarget{
		IQN: "iqn.2014-09.io.example:expendable", Portals: []csiproxy.ISCSIPortal{{Address: "192.0.2.7", Port: 3260}},
		CHAPUser: "node", CHAPSecret: chap, MutualSecret: mutual,
		LUNs: []simnode.Disk{{SizeBytes: 1 << 30, Serial: "lun"}},
	})
	n.AddService(simnode.Service{Name: "Expendable"})
	return n, Options{
		Dial: n.Dial, Disks: disks, Erase: true,
		Share: `\\nas.example.com\Exports`, ShareUsername: `CORP\user`, SharePassword: password,
		Portal: "192.0.2.7", Target: "iqn.2014-09.io.example:expendable",
		CHAPUsername: "node", CHAPSecret: chap, MutualCHAPSecret: mutual,
		Service: "Expendable", CrashChecks: true, Node: planter{n},
	}
}

// planter is a simulated node behind its daemon.
type planter struct{ *simnode.Node }

func (p planter) Mkdir(_ context.Context, path string) error { return p.MkdirAll(path) }
func (p planter) Symlink(_ context.Context, link, target string) error {
	return p.Node.Symlink(link, target)
}
func (p planter) Remove(_ context.Context, path string) error            { return p.Node.Remove(path) }
func (p planter) Names(_ context.Context, path string) ([]string, error) { return p.ReadDir(path) }

func (p planter) Overwrite(_ context.Context, number uint32, _, after []byte) error {
	p.WriteDisk(csiproxy.DiskNumber(number), after, 0)
	return nil
}

// serve serves a node with further interceptors, and returns how to connect to it.
func serve(t testing.TB, n *simnode.Node, interceptors ...grpc.UnaryServerInterceptor) func(context.Context, string,
	string) (net.Conn, error) {
	listeners := make(map[string]*bufconn.Listener)
	ops := n.Operations()
	s, err := daemon.New(daemon.Config{
		Operations:   rpc.Operations(*ops),
		Interceptors: interceptors,
		Listen: func(name string) (net.Listener, error) {
			listeners[name] = bufconn.Listen(64 << 10)
			return listeners[name], nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return func(ctx context.Context, group, version string) (net.Conn, error) {
		l := listeners[api.EndpointName(group, version)]
		if l == nil {
			return nil, fs.ErrNotExist
		}
		return l.DialContext(ctx)
	}
}

// overSockets connects to a node's sockets; in memory where there are none.
func overSockets(n *simnode.Node) func(context.Context, string, string) (net.Conn, error) {
	if runtime.GOOS == "windows" {
		return n.Dial
	}
	dir := n.EndpointDir()
	return func(ctx context.Context, group, version string) (net.Conn, error) {
		return pipe.Dial(ctx, pipe.Address(dir, api.EndpointName(group, version)))
	}
}

// With all inputs, our daemon passes all checks over its sockets, and the run leaves
// nothing behind.
func TestOurDaemon(t *testing.T) {
	n, o := expendable(t)
	o.Dial = overSockets(n)
	before := stateOf(t, n)
	results, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Outcome != Passed && r.Outcome != KnownDifference {
			t.Errorf("%s: %s: %s", r.ID(), r.Outcome, r.Why)
		}
	}
	if len(results) != len(o.selection()) {
		t.Errorf("%d results of %d", len(results), len(o.selection()))
	}
	if diff := cmp.Diff(before, stateOf(t, n)); diff != "" {
		t.Errorf("the run left something behind (-before +after):\n%s", diff)
	}
}

// stateOf is what a run has to leave as it was: the kubelet directory, and which of the
// disks are offline. The target's disk isn't among them: its driver leaves it offline.
func stateOf(t *testing.T, n *simnode.Node) (state []string) {
	t.Helper()
	state, err := n.ReadDir(`C:\var\lib\kubelet`)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range n.Disks() {
		if d.Offline && d.Serial != "lun" {
			state = append(state, d.Serial+" is offline")
		}
	}
	return state
}

// Without inputs, what needs them isn't applicable and says which; nothing fails.
func TestWithoutInputs(t *testing.T) {
	n, o := expendable(t)
	results, err := Run(t.Context(), Options{Dial: o.Dial})
	if err != nil {
		t.Fatal(err)
	}
	count := make(map[Outcome]int)
	for _, r := range results {
		count[r.Outcome]++
		if r.Outcome == Failed || r.Outcome == NotApplicable && !strings.Contains(r.Why, "--") {
			t.Errorf("%s: %s: %s", r.ID(), r.Outcome, r.Why)
		}
	}
	if count[Passed] == 0 || count[NotApplicable] == 0 {
		t.Errorf("outcomes: %v", count)
	}
	for _, d := range n.Disks() {
		if volumes, _ := n.Operations().Volume.ListVolumesOnDisk(t.Context(), d.Number, 0); d.Number > 0 && len(volumes) > 0 {
			t.Errorf("disk %d was partitioned", d.Number)
		}
	}
}

// A disk is erased only if exactly one has the id, it isn't kubelet's, and the caller
// confirms it.
func TestDisksAreNotErasedByMistake(t *testing.T) {
	n := simnode.New(t)
	n.AttachDisk(simnode.Disk{SizeBytes: 1 << 30, Serial: "one",
		Page83: []simnode.Designator{simnode.T10Designator("same")}})
	n.AttachDisk(simnode.Disk{SizeBytes: 1 << 30, Serial: "two",
		Page83: []simnode.Designator{simnode.T10Designator("same")}})
	system := n.Disks()[0].Serial
	for _, test := range []struct {
		id    string
		erase bool
		want  string // in the error
	}{
		{"one", false, "--erase-disks"},
		{"", true, "exactly one"},
		{"same", true, "2 disks"},
		{"none", true, "0 disks"},
		{"on", true, "0 disks"},
		{system, true, "holds the kubelet directory"},
	} {
		_, err := Run(t.Context(), Options{Dial: n.Dial, Disks: []string{test.id}, Erase: test.erase})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("--disk %q: error %v, want one with %q", test.id, err, test.want)
		}
	}
	for _, d := range n.Disks()[1:] {
		if volumes, _ := n.Operations().Volume.ListVolumesOnDisk(t.Context(), d.Number, 0); len(volumes) > 0 {
			t.Errorf("disk %s was partitioned", d.Serial)
		}
	}
}

func TestNobodyServes(t *testing.T) {
	results, err := Run(t.Context(), Options{Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil,
			fs.ErrNotExist
	}})
	if err == nil || len(results) > 0 {
		t.Errorf("%d results, error %v", len(results), err)
	}
}

// An interrupted run cleans up.
func TestInterrupted(t *testing.T) {
	n, o := expendable(t)
	before := stateOf(t, n)
	ctx, cancel := context.WithCancel(t.Context())
	o.Run = regexp.MustCompile("^volume.mount/")
	var inside atomic.Bool
	o.Dial = serve(t, n, func(ctx context.Context, req any, info *grpc.UnaryServerInfo,
		handler grpc.UnaryHandler) (any, error) {
		resp, err := handler(ctx, req)
		if strings.HasSuffix(info.FullMethod, "/MountVolume") {
			inside.Store(true)
			cancel()
		}
		return resp, err
	})
	if _, err := Run(ctx, o); !errors.Is(err, context.Canceled) || !inside.Load() {
		t.Errorf("error %v (mounted: %t)", err, inside.Load())
	}
	if diff := cmp.Diff(before, stateOf(t, n)); diff != "" {
		t.Errorf("the run left something behind (-before +after):\n%s", diff)
	}
}

// Each method of each version is in a check, which is more than a call that is refused.
func TestEveryMethodIsChecked(t *testing.T) {
	for _, group := range api.PublishedGroups() {
		for _, version := range api.Versions(group) {
			service, _ := api.Service(group, version)
			checked := make(map[protoreflect.Name]bool)
			for _, c := range Checks() {
				if c.Group != group || !slices.Contains(c.Versions(), version) || refusals.MatchString(c.Name) {
					continue
				}
				for _, method := range c.Methods {
					checked[methodOf(service, method).Name()] = true
				}
			}
			methods := service.Methods()
			for i := range methods.Len() {
				if name := methods.Get(i).Name(); !checked[name] {
					t.Errorf("%s is in no check", methods.Get(i).FullName())
				}
			}
		}
	}
}

// refusals are checks of calls that fail.
var refusals = regexp.MustCompile(`\.(served|idle|error|unknown|bad|paths-(malformed|strict|outside|beside)|.*-(refused|negative|loop|unknown|missing))`)

// Checks have unique names in their group, versions, and methods that they are about.
func TestChecksAreNamed(t *testing.T) {
	seen := make(map[string]bool)
	for _, c := range Checks() {
		if seen[c.Name] || !strings.HasPrefix(c.Name, c.Group+".") {
			t.Errorf("name %q in group %q", c.Name, c.Group)
		}
		seen[c.Name] = true
		if c.Promise == "" || len(c.Versions()) == 0 || (len(c.Methods) == 0) != (c.Group == driversGroup) {
			t.Errorf("%s: promise %q, versions %q, methods %q", c.Name, c.Promise, c.Versions(), c.Methods)
		}
	}
}
