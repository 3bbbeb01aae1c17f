// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package drivers_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/dynamicpb"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/api"
	"github.com/csi-proxy/csi-proxy/internal/lab/drivers"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/serve/daemon"
	"github.com/csi-proxy/csi-proxy/internal/serve/pipe"
	"github.com/csi-proxy/csi-proxy/internal/serve/rpc"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/iscsitarget"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/smbserver"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// served is a simulated node whose daemon drivers call. A driver may die after a call, and the
// daemon may be restarted there.
type served struct {
	t    *testing.T
	sim  *winsim.System
	dir  string                      // of the daemon's sockets; "": it serves in memory
	conn map[string]*grpc.ClientConn // by group
	stop func()

	calls    []string // that were made
	lives    int      // calls until the driver dies; negative if it doesn't
	restarts restarts
	after    func(method string) // looks at the node after each call
}

// restarts says when the daemon is restarted.
type restarts string

const (
	never         restarts = "no restart"
	atThePoint    restarts = "a restart at the point"
	afterEachCall restarts = "a restart after each call"
)

var errDied = errors.New("the driver has died")

// Call makes a call, unless the driver has died.
func (n *served) Call(ctx context.Context, method string, request drivers.Fields) ([]byte, error) {
	if n.lives == 0 {
		return nil, errDied
	}
	n.lives--
	response, err := n.call(ctx, method, withDrive(method, request))
	n.calls = append(n.calls, method)
	if n.restarts == afterEachCall || n.restarts == atThePoint && n.lives == 0 {
		n.stop()
		n.start()
	}
	if n.after != nil {
		n.after(method)
	}
	if n.lives == 0 {
		return nil, errDied // before it has seen the answer
	}
	return response, err
}

// withDrive adds the drive to paths of kubelet's that have none, as GCE PD's driver does for these methods.
func withDrive(method string, request drivers.Fields) drivers.Fields {
	if !slices.Contains([]string{"PathExists", "Mkdir", "Rmdir", "CreateSymlink"}, method) {
		return request
	}
	for name, value := range request {
		if path, ok := value.(string); ok && strings.HasPrefix(path, `\`) {
			request = request.With(name, simtest.Kubelet[:2]+path)
		}
	}
	return request
}

func (n *served) call(ctx context.Context, method string, request drivers.Fields) ([]byte, error) {
	for _, group := range api.PublishedGroups() {
		version := "v1"
		if group == "iscsi" {
			version = "v1alpha2"
		}
		service, ok := api.Service(group, version)
		if !ok {
			continue
		}
		m := drivers.MethodOf(service, method)
		if m == nil {
			continue
		}
		in, out := dynamicpb.NewMessage(m.Input()), dynamicpb.NewMessage(m.Output())
		simtest.Must(n.t, drivers.Encode(in, request))
		if err := n.conn[group].Invoke(ctx, "/"+api.ServiceName(group, version)+"/"+string(m.Name()), in, out); err != nil {
			return nil, err
		}
		return protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(out)
	}
	n.t.Fatalf("no group has the method %s", method)
	return nil, nil
}

// start starts a daemon.
func (n *served) start() {
	ops, err := nodeops.New(n.sim, nodeops.Options{})
	simtest.Must(n.t, err)
	listen, dial, closeEndpoints := n.endpoints()
	s, err := daemon.New(daemon.Config{Operations: rpc.Operations(ops.Operations), Listen: listen})
	simtest.Must(n.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	n.conn = make(map[string]*grpc.ClientConn)
	for group, version := range map[string]string{"disk": "v1", "volume": "v1", "filesystem": "v1", "smb": "v1",
		"iscsi": "v1alpha2"} {
		name := api.EndpointName(group, version)
		n.conn[group], err = grpc.NewClient("passthrough:///"+group, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx, name) }))
		simtest.Must(n.t, err)
	}
	n.stop = func() {
		for _, conn := range n.conn {
			simtest.Must(n.t, conn.Close())
		}
		cancel()
		simtest.Must(n.t, <-ended)
		simtest.Must(n.t, closeEndpoints())
	}
}

// endpoints are how a daemon listens on its endpoints and how drivers dial them.
func (n *served) endpoints() (listen func(name string) (net.Listener, error),
	dial func(ctx context.Context, name string) (net.Conn, error), closeEndpoints func() error) {
	if n.dir != "" {
		claimed, err := pipe.Claim(n.dir)
		simtest.Must(n.t, err)
		listen = func(name string) (net.Listener, error) { return claimed.Listen(context.Background(), name) }
		dial = func(ctx context.Context, name string) (net.Conn, error) {
			return pipe.Dial(ctx, pipe.Address(n.dir, name))
		}
		return listen, dial, claimed.Close
	}
	listeners := make(map[string]*bufconn.Listener)
	listen = func(name string) (net.Listener, error) {
		listeners[name] = bufconn.Listen(64 << 10)
		return listeners[name], nil
	}
	dial = func(ctx context.Context, name string) (net.Conn, error) { return listeners[name].DialContext(ctx) }
	return listen, dial, func() error { return nil }
}

// own is what the SMB driver sees of the node by itself.
type own struct{ *served }

func (o own) Sees(path string) error {
	_, err := o.sim.ReadDir(path)
	return err
}
func (o own) MakeDirectory(path string) error             { return o.sim.MkdirAll(path) }
func (o own) ReadLink(path string) (link string, _ error) { return o.sim.ReadLink(path) }

// pod is a volume that a driver stages and publishes for a pod.
type pod struct {
	drivers.Driver
	staging, target string
	disk            func() any // what Windows says of the disk; nil for a share
}

func (n *served) pod(name string, d drivers.Driver, disk func() any) *pod {
	p := &pod{d, fmt.Sprintf(`%s\plugins\kubernetes.io\csi\example\%s\globalmount`, simtest.Kubelet, name),
		fmt.Sprintf(`%s\pods\%s\volumes\kubernetes.io~csi\pvc\mount`, simtest.Kubelet, name), disk}
	for _, path := range []string{p.staging, p.target} {
		simtest.Must(n.t, n.sim.MkdirAll(path[:strings.LastIndexByte(path, '\\')]))
	}
	return p
}

// path is where the pod has its volume; where it will have it from if it hasn't started.
func (p *pod) path(started bool) string {
	if started {
		return p.target
	}
	return p.staging
}

// state is all that the node has of a volume. Reading it also proves that the volume can be used.
func (n *served) state(p *pod, started bool) string {
	file := p.path(started) + `\` + name(p)
	data, err := n.sim.ReadFile(file)
	if err == nil {
		err = n.sim.WriteFile(file, data)
	}
	state := fmt.Sprintf("data %q, %v", data, err)
	for _, path := range []string{p.staging, p.target} {
		link, err := n.sim.ReadLink(path)
		state += fmt.Sprintf("\nlink %q, %v", link, err)
	}
	for _, m := range n.sim.MountPoints() {
		if strings.HasSuffix(strings.TrimSuffix(m.Path, `\`), p.staging[2:]) {
			state += fmt.Sprintf("\nmounted: %v", m)
		}
	}
	if p.disk != nil {
		state += fmt.Sprintf("\n%v", p.disk())
	}
	return state
}

// name is the last name but one of a volume's staging path.
func name(p *pod) string { return strings.Split(p.staging[len(simtest.Kubelet):], `\`)[5] }

// beside makes two volumes of a driver. The first one's pod ends, the second one's must notice nothing.
type beside struct {
	driver, neighbour string
	volumes           func(n *served) (ends, stays *pod)
	// fails: cut off after this call, the driver fails to unstage ever after, for a reason of its own.
	fails string
	// keeps: the driver never unmaps a share. The others have done so in the end, unless the daemon has
	// been restarted: it may not know then that the mapping was to go.
	keeps bool
	// refused: the daemon refuses to take the disk offline, since the other volume is on it.
	refused bool
}

// diskDrivers make a driver of the disk with a serial number, or with a disk number.
var diskDrivers = map[string]func(n *served, serial string, number csiproxy.DiskNumber) drivers.Driver{
	"EBS": func(n *served, serial string, _ csiproxy.DiskNumber) drivers.Driver {
		return drivers.NewEBS(n, func(ids drivers.DiskIDs) bool { return ids.SerialNumber == serial })
	},
	"GCE PD": func(n *served, serial string, _ csiproxy.DiskNumber) drivers.Driver {
		return drivers.NewGCEPD(n, func(ids drivers.DiskIDs) bool { return ids.SerialNumber == serial })
	},
	"Azure Disk": func(n *served, _ string, number csiproxy.DiskNumber) drivers.Driver {
		return drivers.NewAzureDisk(n, func(d uint32, _ string) bool { return csiproxy.DiskNumber(d) == number }, false)
	},
	"vSphere": func(n *served, serial string, _ csiproxy.DiskNumber) drivers.Driver {
		return drivers.NewVSphere(n, func(ids drivers.DiskIDs) bool { return ids.SerialNumber == serial }, own{n})
	},
}

// smbDrivers make a driver of a share.
var smbDrivers = map[string]func(s drivers.SMB) drivers.Driver{
	"SMB":                 func(s drivers.SMB) drivers.Driver { return s },
	"Azure File":          func(s drivers.SMB) drivers.Driver { s.Volumes = nil; return s },
	"SMB, forgets counts": func(s drivers.SMB) drivers.Driver { s.Volumes = new(drivers.VolumesOnShares); return s },
	"democratic-csi":      func(s drivers.SMB) drivers.Driver { return drivers.NewDemocraticSMB(s.Node, s.SMBVolume) },
	"Trident":             func(s drivers.SMB) drivers.Driver { return drivers.Trident{SMB: s} },
}

// iscsiDrivers make a driver of a target of the portal.
var iscsiDrivers = map[string]func(n *served, iqn string) drivers.Driver{
	"local iSCSI": func(n *served, iqn string) drivers.Driver {
		return drivers.NewLocalISCSI(n, "10.0.0.1", 3260, iqn)
	},
	"democratic-csi, iSCSI": func(n *served, iqn string) drivers.Driver {
		return drivers.NewDemocraticISCSI(n, "10.0.0.1", 3260, iqn)
	},
}

func neighbours() (all []beside) {
	for name, newDriver := range diskDrivers {
		attached := func(n *served, name string, partitions int) (number csiproxy.DiskNumber, p *pod) {
			number = simtest.Attach(n.t, n.sim, winsim.DiskSpec{Serial: name})
			if partitions > 0 {
				simtest.Partition(n.t, n.sim, number, partitions)
			}
			n.sim.Settle()
			return number, n.pod(name, newDriver(n, name, number), func() any { return n.diskOf(name) })
		}
		fails := ""
		if name == "GCE PD" || name == "vSphere" { // it asks for the volume at a path where none is any more
			fails = "UnmountVolume"
		}
		all = append(all, beside{driver: name, neighbour: "another disk", fails: fails,
			volumes: func(n *served) (ends, stays *pod) {
				_, ends = attached(n, "vol-1", 0)
				_, stays = attached(n, "vol-2", 0)
				return ends, stays
			}}, beside{driver: name, neighbour: "another volume of the disk", fails: fails, refused: name != "Azure Disk",
			volumes: func(n *served) (ends, stays *pod) {
				number, ends := attached(n, "vol-1", 2)
				return ends, n.pod("vol-2", onDisk{drivers.Calls{Node: n}, number}, ends.disk)
			}})
	}
	for name, newDriver := range smbDrivers {
		for neighbour, source := range map[string]string{"another volume of the share": "//server/data",
			"another share of the server": "//server/more"} {
			b := beside{driver: name, neighbour: neighbour, keeps: name == "Azure File",
				volumes: func(n *served) (ends, stays *pod) {
					counts := new(drivers.VolumesOnShares)
					share := func(source, id string) *pod {
						return n.pod(id, newDriver(drivers.NewSMB(n, drivers.SMBVolume{Source: source, ID: id, Volumes: counts,
							Credentials: func() (string, string) { return "user", "password" }, Container: own{n}})), nil)
					}
					return share("//server/data", "vol-1"), share(source, "vol-2")
				}}
			if name == "SMB, forgets counts" || name == "SMB" && source == "//server/more" {
				b.fails = "RemoveSmbGlobalMapping" // it has counted the volume down, and can't do so twice
			}
			all = append(all, b)
		}
	}
	for name, newDriver := range iscsiDrivers {
		all = append(all, beside{driver: name, neighbour: "another target of the portal",
			volumes: func(n *served) (ends, stays *pod) {
				target := func(name string) *pod {
					iqn := "iqn.2026-01.com.example:" + name
					return n.pod(name, newDriver(n, iqn), func() any { return fmt.Sprint(n.diskOf("lun-"+name), n.sessionOf(iqn)) })
				}
				return target("vol-1"), target("vol-2")
			}})
	}
	slices.SortFunc(all, func(a, b beside) int {
		return strings.Compare(a.driver+a.neighbour, b.driver+b.neighbour)
	})
	return all
}

// diskOf is what Windows says of the disk with a serial number.
func (n *served) diskOf(serial string) any {
	for _, d := range n.sim.Disks() {
		if d.Spec.Serial == serial {
			return fmt.Sprint(d.Number, d.State, d.Attributes, d.Persistent)
		}
	}
	return "no disk"
}

func (n *served) sessionOf(iqn string) any {
	sessions, err := n.sim.ISCSISessions(context.Background())
	simtest.Must(n.t, err)
	return slices.DeleteFunc(sessions, func(s win.ISCSISession) bool { return s.Target != iqn })
}

// onDisk stages the second volume of a disk, as a driver of local volumes does, and leaves the disk online.
type onDisk struct {
	drivers.Calls
	disk csiproxy.DiskNumber
}

func (d onDisk) Stage(staging string) error {
	s := d.Step(context.Background())
	if volumes := s.ListVolumesOnDisk(uint32(d.disk)); len(volumes) == 2 {
		s.FormatVolume(volumes[1])
		s.MountVolume(volumes[1], staging)
	}
	return s.Err
}

func (d onDisk) Publish(staging, target string) error {
	s := d.Step(context.Background())
	s.CreateSymlink(staging, target)
	return s.Err
}

func (d onDisk) Unstage(staging string) error {
	s := d.Step(context.Background())
	s.Rmdir(staging, true)
	return s.Err
}

// newServed serves a node at sockets in a directory; in memory if dir is "".
func newServed(t *testing.T, dir string) *served {
	n := &served{t: t, sim: simtest.OpenNode(t, winsim.Config{}), dir: dir, lives: -1, restarts: never}
	simtest.Must(t, n.sim.MkdirAll(simtest.Kubelet))
	for _, name := range []string{"data", "more"} {
		simtest.Must(t, n.sim.SMB().AddShare(smbserver.Share{Server: "server", Name: name}))
	}
	simtest.Must(t, n.sim.SMB().SetUser("server", "user", csiproxy.NewSecret("password")))
	for _, name := range []string{"vol-1", "vol-2"} {
		simtest.Must(t, n.sim.ISCSI().AddTarget(iscsitarget.Target{IQN: "iqn.2026-01.com.example:" + name,
			Portals: []win.ISCSIPortal{{Address: "10.0.0.1", Port: 3260}}}, winsim.DiskSpec{SizeBytes: 1 << 30, Serial: "lun-" + name}))
	}
	n.start()
	t.Cleanup(func() { n.stop() })
	return n
}

// A driver stages, publishes, unpublishes and unstages a volume over the daemon's sockets, each step twice
// as kubelet may repeat it. In its second life, the volume still has its data.
func TestLives(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("pipes of Windows are the machine's: module test/windows calls a daemon through them")
	}
	tried := map[string]bool{}
	for _, b := range neighbours() {
		if tried[b.driver] {
			continue
		}
		tried[b.driver] = true
		t.Run(b.driver, func(t *testing.T) {
			t.Parallel()
			n := newServed(t, simtest.SocketDir(t))
			p, _ := b.volumes(n)
			drive := simtest.Kubelet[:2]
			if b.driver == "GCE PD" { // which hands over kubelet's paths as they are
				drive = ""
			}
			staging, target := drive+p.staging[2:], drive+p.target[2:]
			twice := func(step string, life int, f func() error) {
				t.Helper()
				for range 2 {
					if err := f(); err != nil {
						t.Fatalf("%s, in life %d: %v. The calls were %q", step, life, err, n.calls)
					}
				}
			}
			for life := range 2 {
				twice("stage", life, func() error { return p.Stage(staging) })
				twice("publish", life, func() error { return p.Publish(staging, target) })
				if life == 0 {
					simtest.Must(t, n.sim.WriteFile(p.target+`\file`, []byte("of a pod")))
				}
				data, err := n.sim.ReadFile(p.target + `\file`)
				simtest.Want(t, "the pod's data", string(data), "of a pod")
				simtest.Must(t, err)
				twice("unpublish", life, func() error { return p.Unpublish(target) })
				twice("unstage", life, func() error { return p.Unstage(staging) })
				for _, path := range []string{p.staging, p.target} {
					if link, err := n.sim.ReadLink(path); err == nil {
						t.Errorf("in life %d, %s still leads to %s", life, path, link)
					}
				}
			}
		})
	}
}

// A pod's volume is unpublished and unstaged, and its driver dies after any of its calls, so that kubelet
// begins again. The volume of another pod beside it stays as it is after each call, also if the
// daemon restarts there, and if the other pod has yet to start. Once the driver lives, the volume is released.
func TestUnstageIsRepeated(t *testing.T) {
	for _, b := range neighbours() {
		t.Run(b.driver+"/"+b.neighbour, func(t *testing.T) {
			t.Parallel()
			var calls []string
			synctest.Test(t, func(t *testing.T) { calls = b.end(t, -1, never, true) })
			all := []restarts{never, atThePoint, afterEachCall}
			for point := range calls {
				for i, r := range all {
					for _, started := range []bool{true, false} {
						if simtest.Sampled() && (i != point%len(all) || started != (point%2 == 0)) {
							continue // a sixth of them
						}
						t.Run(fmt.Sprintf("%d %s/%s/the other pod has started %v", point+1, calls[point], r, started),
							func(t *testing.T) {
								synctest.Test(t, func(t *testing.T) { b.end(t, point+1, r, started) })
							})
					}
				}
			}
			t.Logf("after each of %s", strings.Join(calls, ", "))
		})
	}
}

// end unpublishes and unstages a volume with a driver that dies after some calls, and comes again twice.
// It returns the calls of the first attempt.
func (b beside) end(t *testing.T, lives int, r restarts, started bool) (calls []string) {
	n := newServed(t, "")
	ends, stays := b.volumes(n)
	for _, p := range []*pod{ends, stays} {
		simtest.Must(t, p.Stage(p.staging))
		if p == ends || started {
			simtest.Must(t, p.Publish(p.staging, p.target))
		}
		simtest.Must(t, n.sim.WriteFile(p.path(p == ends || started)+`\`+name(p), []byte(name(p)+"'s data")))
	}
	before := n.state(stays, started)
	n.after = func(method string) {
		if now := n.state(stays, started); now != before {
			t.Fatalf("after %s the other volume has\n%s\nand before\n%s\nThe calls were %q", method, now, before, n.calls)
		}
	}
	attempt := func(p *pod) error {
		if err := p.Unpublish(p.target); err != nil {
			return err
		}
		return p.Unstage(p.staging)
	}
	n.calls, n.lives, n.restarts = nil, lives, r
	err := attempt(ends)
	calls = n.calls
	if lives < 0 {
		if refused := err != nil && strings.Contains(err.Error(), "a volume of it is mounted"); refused != b.refused {
			t.Fatalf("refused: %v (%v)", refused, err)
		}
	} else if len(calls) != lives {
		t.Fatalf("the driver died after %q", calls)
	}
	n.lives = -1
	for range 2 {
		err = attempt(ends)
	}
	switch failed := b.fails != "" && lives > 0 && calls[lives-1] == b.fails; {
	case failed && err == nil:
		t.Errorf("unstaging succeeds, though the driver has died after %s", b.fails)
	case failed:
		simtest.Must(t, n.sim.Remove(ends.staging)) // as a person does
	case err != nil:
		t.Errorf("unstaging fails: %v. The calls were %q", err, n.calls)
	}
	if link, err := n.sim.ReadLink(ends.staging); err == nil {
		t.Errorf("the staging path still leads to %s", link)
	}
	n.after = nil
	if !started {
		simtest.Must(t, stays.Publish(stays.staging, stays.target))
	}
	simtest.Must(t, attempt(stays))
	if mapped, err := n.sim.SMBGlobalMappings(t.Context()); err != nil || r == never && b.fails == "" && len(mapped) > 0 != b.keeps {
		t.Errorf("mapped in the end: %v, %v", mapped, err)
	}
	return calls
}
