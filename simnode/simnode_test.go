// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simnode_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/api"
	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/internal/serve/pipe"
	"github.com/csi-proxy/csi-proxy/node"
	"github.com/csi-proxy/csi-proxy/simnode"
)

const dir = `C:\var\lib\kubelet\plugins\x`

// exists asks the daemon, through a client of any kind.
func exists(t *testing.T, c *client.Client, path string) bool {
	t.Helper()
	is, err := c.Filesystem.PathExists(t.Context(), path)
	must(t, err)
	return is
}

func skipWithoutSockets(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("pipes aren't in a directory on Windows")
	}
}

func TestClientsOverSocketsAndInMemory(t *testing.T) {
	skipWithoutSockets(t)
	n := simnode.New(t)
	sockets := client.New(client.WithEndpointDir(n.EndpointDir()))
	defer sockets.Close()
	must(t, n.MkdirAll(dir))
	for name, c := range map[string]*client.Client{"sockets": sockets, "memory": n.Client()} {
		if !exists(t, c, dir) || exists(t, c, dir+`\y`) {
			t.Errorf("%s: the answers are wrong", name)
		}
	}
	if first, second := n.EndpointDir(), n.EndpointDir(); first != second {
		t.Errorf("the directory changes from %s to %s", first, second)
	}
}

func TestEndpointDirGoesWithTheTest(t *testing.T) {
	skipWithoutSockets(t)
	var endpoints string
	t.Run("inner", func(t *testing.T) {
		endpoints = simnode.New(t).EndpointDir()
		if sockets, err := filepath.Glob(filepath.Join(endpoints, "*.sock")); err != nil ||
			len(sockets) != api.VersionCount()+1 /* the control of the node */ {
			t.Errorf("%d sockets, %v", len(sockets), err)
		}
	})
	if _, err := os.Stat(endpoints); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is left behind: %v", endpoints, err)
	}
}

// A node serves its endpoints in a directory of its caller's from the start, which stays; another node can't have it.
func TestWithEndpointDir(t *testing.T) {
	skipWithoutSockets(t)
	endpoints, err := pipe.MkdirTemp("endpoints") // that of the test may be too long for a socket
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(endpoints)) })
	n, err := simnode.Start(simnode.WithEndpointDir(endpoints))
	must(t, err)
	must(t, n.MkdirAll(dir))
	sockets := client.New(client.WithEndpointDir(endpoints))
	defer sockets.Close()
	if !exists(t, sockets, dir) || n.EndpointDir() != endpoints {
		t.Errorf("it isn't served in %s", endpoints)
	}
	if second, err := simnode.Start(simnode.WithEndpointDir(endpoints)); err == nil {
		t.Error("a second node serves there, too")
		must(t, second.Close())
	}
	if n.RestartDaemon(); !exists(t, sockets, dir) {
		t.Error("it isn't served any more after a restart")
	}
	must(t, n.Close())
	if left, err := filepath.Glob(filepath.Join(endpoints, "*.sock")); err != nil || len(left) > 0 {
		t.Errorf("after its end there is %q, %v", left, err)
	}
	if _, err := os.Stat(endpoints); err != nil {
		t.Errorf("the directory of the caller's went with it: %v", err)
	}
}

func TestNoDaemon(t *testing.T) {
	skipWithoutSockets(t)
	n := simnode.New(t)
	n.StopDaemon()
	n.StopDaemon()
	sockets := client.New(client.WithEndpointDir(n.EndpointDir()))
	defer sockets.Close()
	for _, c := range []*client.Client{n.Client(), sockets} {
		// In memory, nobody has dialled an endpoint that an error could name.
		err := c.Ready(t.Context())
		if !errors.Is(err, csiproxy.ErrUnavailable) || strings.Contains(err.Error(), n.EndpointDir()) != (c == sockets) {
			t.Errorf("without the daemon: %v", err)
		}
	}
	if _, err := n.Operations().Disk.ListDiskIDs(t.Context()); err != nil {
		t.Errorf("in process: %v", err)
	}
	n.StartDaemon()
	n.StartDaemon()
	for _, c := range []*client.Client{n.Client(), sockets} {
		if err := c.Ready(t.Context()); err != nil {
			t.Errorf("with the daemon: %v", err)
		}
	}
}

// What isn't the test's process controls the node as the test does.
func TestControl(t *testing.T) {
	skipWithoutSockets(t)
	n := simnode.New(t)
	address := "unix:" + filepath.Join(n.EndpointDir(), simv1.EndpointName+".sock")
	for name, options := range map[string]struct {
		target string
		dial   func(context.Context, string) (net.Conn, error)
	}{
		"sockets": {target: address},
		"memory": {"passthrough:///node", func(ctx context.Context, _ string) (net.Conn, error) {
			return n.Dial(ctx, "sim", "v1")
		}},
	} {
		dial := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
		if options.dial != nil {
			dial = append(dial, grpc.WithContextDialer(options.dial))
		}
		conn, err := grpc.NewClient(options.target, dial...)
		must(t, err)
		defer conn.Close()
		_, err = simv1.Call[simv1.DiskNumber](t.Context(), conn, "AttachDisk",
			&simv1.DiskHardware{SizeBytes: 1 << 30, SerialNumber: name})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if disks := n.Disks(); disks[len(disks)-1].Serial != name {
			t.Errorf("%s: disks %+v", name, disks)
		}
	}
}

// A driver's connection lives on when the daemon is upgraded or the node reboots.
func TestClientGoesOn(t *testing.T) {
	skipWithoutSockets(t)
	n := simnode.New(t)
	must(t, n.MkdirAll(dir))
	sockets := client.New(client.WithEndpointDir(n.EndpointDir()))
	defer sockets.Close()
	for _, event := range []func(){func() {}, n.RestartDaemon, n.Reboot, n.PowerLoss} {
		event()
		for _, c := range []*client.Client{n.Client(), sockets} {
			for {
				_, err := c.Filesystem.PathExists(t.Context(), dir)
				if err == nil {
					break
				}
				if !errors.Is(err, csiproxy.ErrUnavailable) {
					t.Fatal(err)
				}
			}
		}
	}
}

func TestDiskInfos(t *testing.T) {
	n := simnode.New(t)
	system := n.Disks()[0]
	want := simnode.DiskInfo{
		State: simnode.DiskPresent, Serial: "s", SizeBytes: 1 << 30, Offline: true, WhyOffline: simnode.OfflinePolicy,
	}
	check := func(when string) {
		t.Helper()
		disks := n.Disks()
		if want.State == simnode.DiskDetached {
			disks[1].Number = 0
		}
		if diff := cmp.Diff([]simnode.DiskInfo{system, want}, disks); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	want.Number = n.AttachDisk(simnode.Disk{SizeBytes: 1 << 30, Serial: "s", Offline: true})
	check("attached")
	n.SetDiskAttributes(want.Number, false, true)
	want.Offline, want.ReadOnly, want.WhyOffline = false, true, simnode.OfflineUnknown
	check("read-only")
	n.Reboot()
	check("after a reboot")
	n.SetDiskAttributes(want.Number, true, false)
	want.Offline, want.ReadOnly, want.WhyOffline = true, false, simnode.OfflinePolicy
	check("offline")
	n.GrowDisk(want.Number, 2<<30)
	want.SizeBytes = 2 << 30
	check("grown")
	n.WriteDisk(want.Number, []byte("XFSB"), 1<<20)
	image := filepath.Join(t.TempDir(), "image")
	n.ExportDisk(want.Number, image)
	f, err := os.Open(image)
	must(t, err)
	defer f.Close()
	written := make([]byte, 4)
	if _, err := f.ReadAt(written, 1<<20); err != nil || string(written) != "XFSB" {
		t.Errorf("the image has %q, %v", written, err)
	}

	n.DetachDisk(want.Number)
	want.Number, want.State = 0, simnode.DiskDetached
	check("detached")
	want.Number = n.AttachDisk(simnode.Disk{Serial: "s", NeedsRescan: true})
	want.State = simnode.DiskAttached
	check("not seen yet")
	if err := n.Operations().Disk.Rescan(t.Context()); err != nil {
		t.Error(err)
	}
	n.DetachDisk(1)
	n.DeleteDisk("s")
	if diff := cmp.Diff([]simnode.DiskInfo{system}, n.Disks()); diff != "" {
		t.Errorf("deleted (-want +got):\n%s", diff)
	}
}

func TestFaults(t *testing.T) {
	n := simnode.New(t)
	list := func() error { _, err := n.Operations().Disk.ListDiskIDs(t.Context()); return err }
	n.Fail("CM_Get_Device_Interface_ListW", 1117, 1)
	if number, _ := csiproxy.WindowsErrorOf(list()); number != 1117 {
		t.Errorf("failed with %d", number)
	}
	if err := list(); err != nil {
		t.Errorf("the second time: %v", err)
	}
	n.Fail("CM_Get_Device_Interface_ListW", 5, 0)
	if err := list(); !errors.Is(err, csiproxy.ErrPermissionDenied) {
		t.Errorf("failed with %v", err)
	}
	n.ClearFaults()
	if err := list(); err != nil {
		t.Errorf("after ClearFaults: %v", err)
	}
	n.Delay("CM_Get_Device_Interface_ListW", time.Millisecond, 1)
	start := time.Now()
	if err := list(); err != nil || time.Since(start) < time.Millisecond {
		t.Errorf("delayed: %v after %v", err, time.Since(start))
	}
	if calls := n.Calls()["CM_Get_Device_Interface_ListW"]; calls != 5 {
		t.Errorf("%d calls, want 5", calls)
	}
}

// If the delayed format is interrupted, the next StageVolume formats the volume; if it goes on, the next one waits for it.
func TestDelaysBeyondTheDeadline(t *testing.T) {
	const format, delay = "MSFT_Volume.Format", 3 * time.Second
	for name, test := range map[string]struct {
		delay   func(n *simnode.Node)
		formats int
	}{
		"the call is interrupted": {func(n *simnode.Node) { n.Delay(format, delay, 1) }, 2},
		"the call goes on":        {func(n *simnode.Node) { n.DelayUncancellable(format, delay, 1) }, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := simnode.New(t)
			n.AttachDisk(simnode.Disk{SizeBytes: 1 << 30, Serial: "s"})
			test.delay(n)
			stage := func(ctx context.Context) error {
				_, err := n.Operations().Storage.StageVolume(ctx,
					csiproxy.StageVolumeRequest{Disk: csiproxy.Selector{SerialNumber: "s"}, StagingPath: dir})
				return err
			}
			short, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := stage(short); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: the first: %v", name, err)
			}
			must(t, stage(t.Context()))
			if got := n.Calls()[format]; got != test.formats {
				t.Errorf("%s: %d formats, want %d", name, got, test.formats)
			}
		})
	}
}

func TestErrorsNameTheStep(t *testing.T) {
	for call, want := range map[string]string{
		"MSFT_Volume.Format":             "while formatting: the request is not supported",
		"SetVolumeMountPointW":           "SetVolumeMountPointW: the request is not supported",
		"IOCTL_DISK_SET_DRIVE_LAYOUT_EX": "IOCTL_DISK_SET_DRIVE_LAYOUT_EX: the request is not supported",
	} {
		n := simnode.New(t)
		n.AttachDisk(simnode.Disk{SizeBytes: 1 << 30, Serial: "s"})
		n.Fail(call, 50, 1) // which isn't retried
		_, err := n.Operations().Storage.StageVolume(t.Context(),
			csiproxy.StageVolumeRequest{Disk: csiproxy.Selector{SerialNumber: "s"}, StagingPath: dir})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", call, err, want)
		}
	}
}

func TestUnknownCallIsAnsweredWithAllCalls(t *testing.T) {
	n, err := simnode.Start()
	must(t, err)
	defer func() {
		mistake := fmt.Sprint(recover())
		for _, want := range []string{`no call "FormatVolume"`, "MSFT_Volume.Format", "IOCTL_DISK_GROW_PARTITION"} {
			if !strings.Contains(mistake, want) {
				t.Errorf("the error lacks %s: %s", want, mistake)
			}
		}
		must(t, n.Close())
	}()
	n.Fail("FormatVolume", 5, 1)
}

// fatal is a test that ends.
type fatal struct {
	testing.TB
	message string
}

func (f *fatal) Helper()        {}
func (f *fatal) Cleanup(func()) {}
func (f *fatal) Fatalf(format string, args ...any) {
	f.message = format
	panic(f)
}

// ending is a test with Cleanup and Errorf.
type ending struct {
	testing.TB
	cleanups []func()
	errors   []string
}

func (e *ending) Helper()          {}
func (e *ending) Failed() bool     { return false }
func (e *ending) Skipped() bool    { return false }
func (e *ending) Cleanup(f func()) { e.cleanups = append(e.cleanups, f) }
func (e *ending) Errorf(format string, args ...any) {
	e.errors = append(e.errors, fmt.Sprintf(format, args...))
}

// A test whose faults no call meets would test nothing.
func TestFaultsThatNeverFire(t *testing.T) {
	const call, another = "CM_Get_Device_Interface_ListW", "MSFT_Volume.Format"
	for name, test := range map[string]struct {
		faults func(n *simnode.Node)
		want   string
	}{
		"none":                      {func(*simnode.Node) {}, ""},
		"one that fires":            {func(n *simnode.Node) { n.Fail(call, 1117, 1) }, ""},
		"a delay that fires":        {func(n *simnode.Node) { n.Delay(call, time.Nanosecond, 1) }, ""},
		"one that needn't fire":     {func(n *simnode.Node) { n.FailIfCalled(another, 1117, 1) }, ""},
		"a call that doesn't come":  {func(n *simnode.Node) { n.Forbid(another) }, ""},
		"a forbidden one that does": {func(n *simnode.Node) { n.Forbid(call) }, "has fired 1 times, and must not"},
		"one that never fires":      {func(n *simnode.Node) { n.Fail(another, 1117, 1) }, another + " has never fired"},
		"one that is cleared":       {func(n *simnode.Node) { n.Fail(another, 1117, 1); n.ClearFaults() }, another + " has never fired"},
		"a delay that never fires":  {func(n *simnode.Node) { n.Delay(another, time.Nanosecond, 0) }, another + " has never fired"},
		"a second that never fires": {func(n *simnode.Node) { n.Fail(call, 1117, 0); n.Fail(call, 5, 0) }, call + " has never fired"},
	} {
		tb := &ending{TB: t}
		n := simnode.New(tb)
		test.faults(n)
		_, _ = n.Operations().Disk.ListDiskIDs(t.Context())
		for _, end := range tb.cleanups {
			end()
		}
		got := strings.Join(tb.errors, "\n")
		if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestMistakesEndTheTest(t *testing.T) {
	for name, mistake := range map[string]func(*simnode.Node){
		"unknown call":  func(n *simnode.Node) { n.Fail("NoSuchCall", 5, 1) },
		"bad disk":      func(n *simnode.Node) { n.AttachDisk(simnode.Disk{SizeBytes: -1}) },
		"unknown disk":  func(n *simnode.Node) { n.DetachDisk(77) },
		"attached disk": func(n *simnode.Node) { n.DeleteDisk("SIMSYSTEM") },
		"no disk":       func(n *simnode.Node) { n.SetDiskAttributes(77, false, false) },
		"shrunken disk": func(n *simnode.Node) { n.GrowDisk(0, 1) },
	} {
		wantFatal(t, name, mistake)
	}
}

func wantFatal(t *testing.T, name string, mistake func(*simnode.Node)) {
	t.Helper()
	tb := &fatal{TB: t}
	n := simnode.New(tb)
	func() {
		defer func() {
			if recover() != any(tb) {
				t.Errorf("%s doesn't end the test", name)
			}
		}()
		mistake(n)
	}()
	if err := n.Close(); err != nil {
		t.Error(err)
	}
}

func TestOptions(t *testing.T) {
	state := filepath.Join(t.TempDir(), "node.db")
	options := []simnode.Option{
		simnode.WithStateFile(state),
		simnode.WithNodeOptions(node.Options{KubeletPath: `C:\k`, WorkingDirs: []string{`C:\work`}}),
	}
	first, err := simnode.Start(options...)
	must(t, err)
	if err := first.Operations().Filesystem.Mkdir(t.Context(), `C:\work\x`); err != nil {
		t.Error(err)
	}
	if err := first.Operations().Filesystem.Mkdir(t.Context(), `C:\var\lib\kubelet\x`); !errors.Is(err, csiproxy.ErrInvalidArgument) {
		t.Errorf("outside: %v", err)
	}
	if err := first.Symlink(`C:\work\link`, `C:\work\x`); err != nil {
		t.Error(err)
	}
	must(t, first.Close())
	second := simnode.New(t, options...)
	names, err := second.ReadDir(`C:\work`)
	if err != nil || strings.Join(names, " ") != "link x" {
		t.Errorf("%q, %v", names, err)
	}
	if err := second.Remove(`C:\work\link`); err != nil {
		t.Error(err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
