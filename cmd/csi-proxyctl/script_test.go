// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"google.golang.org/grpc/test/bufconn"

	"github.com/csi-proxy/csi-proxy/api"
	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
	"github.com/csi-proxy/csi-proxy/internal/host/nodemetrics"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/serve/admin"
	"github.com/csi-proxy/csi-proxy/internal/serve/daemon"
	"github.com/csi-proxy/csi-proxy/internal/serve/pipe"
	"github.com/csi-proxy/csi-proxy/internal/serve/rpc"
	"github.com/csi-proxy/csi-proxy/internal/serve/server"
	"github.com/csi-proxy/csi-proxy/internal/serve/server/exporter"
	"github.com/csi-proxy/csi-proxy/internal/sim/simcontrol"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
)

// Each script has a simulated node of its own, with a daemon. In scripts:
//
//	csi-proxyctl ARG...   runs the program with the node's endpoint directory
//	code N                checks the exit code of the last csi-proxyctl
//	capture NAME REGEXP   sets the variable NAME to what the group in REGEXP, or
//	                      all of it, matches in the last output
//	input FILE            is the standard input of the next csi-proxyctl
//	daemon ENDPOINT...    starts the daemon again, with these endpoints only;
//	                      without any, it is stopped
//	protect VOLUME...     starts the daemon again, with -protected-volume for each
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			d, err := newDaemon()
			if err != nil {
				return err
			}
			env.Values[daemonKey{}] = d
			env.Defer(func() {
				if err := d.close(); err != nil {
					t.Error(err)
				}
			})
			env.Setenv("ENDPOINTS", d.dir)
			env.Setenv("VERSIONS", strconv.Itoa(api.VersionCount()))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"csi-proxyctl": runProgram,
			"code":         checkCode,
			"capture":      capture,
			"input":        input,
			"daemon":       restart,
			"protect":      protect,
		},
	})
}

type daemonKey struct{}

func daemonOf(ts *testscript.TestScript) *testDaemon { return ts.Value(daemonKey{}).(*testDaemon) }

func runProgram(ts *testscript.TestScript, negated bool, args []string) {
	d := daemonOf(ts)
	if !slices.Contains(args, "--endpoint-dir") {
		// In front, but not of cobra's hidden command for completion.
		at := 0
		if len(args) > 0 && args[0] == "__complete" {
			at = 1
		}
		args = slices.Insert(slices.Clone(args), at, "--endpoint-dir", d.dir)
	}
	d.code = run(context.Background(), args, strings.NewReader(d.input), ts.Stdout(), ts.Stderr())
	d.input = ""
	if (d.code != 0) != negated {
		ts.Fatalf("exit code %d", d.code)
	}
}

func checkCode(ts *testscript.TestScript, _ bool, args []string) {
	if got := strconv.Itoa(daemonOf(ts).code); len(args) != 1 || args[0] != got {
		ts.Fatalf("exit code %s, want %s", got, args)
	}
}

func capture(ts *testscript.TestScript, _ bool, args []string) {
	match := regexp.MustCompile(args[1]).FindStringSubmatch(ts.ReadFile("stdout"))
	if match == nil {
		ts.Fatalf("%s matches nothing", args[1])
	}
	ts.Setenv(args[0], match[len(match)-1])
}

func input(ts *testscript.TestScript, _ bool, args []string) {
	daemonOf(ts).input = ts.ReadFile(args[0])
}

func restart(ts *testscript.TestScript, _ bool, args []string) {
	d := daemonOf(ts)
	ts.Check(d.stop())
	if len(args) > 0 {
		ts.Check(d.start(args))
	}
}

func protect(ts *testscript.TestScript, _ bool, args []string) {
	d := daemonOf(ts)
	ts.Check(d.stop())
	d.protected = args
	ts.Check(d.start(nil))
}

// testDaemon is a daemon on a simulated node, in this process.
type testDaemon struct {
	sys   *winsim.System
	claim *pipe.Claimed
	dir   string
	stop  func() error

	protected []string // volumes

	code  int    // exit code of the last csi-proxyctl
	input string // of the next
}

func newDaemon() (*testDaemon, error) {
	d := &testDaemon{stop: func() error { return nil }}
	var err error
	if d.sys, err = winsim.Open(winsim.Config{}); err != nil {
		return nil, err
	}
	// The directory of a script is too deep for sockets.
	if d.dir, err = pipe.MkdirTemp("ctl"); err != nil {
		return nil, err
	}
	if d.claim, err = pipe.Claim(d.dir); err != nil {
		return nil, err
	}
	return d, d.start(nil)
}

// start serves some endpoints, or all.
func (d *testDaemon) start(names []string) error {
	ops, err := nodeops.New(d.sys, nodeops.Options{ProtectedVolumes: d.protected})
	if err != nil {
		return err
	}
	s, err := daemon.New(daemon.Config{
		Operations: rpc.Operations(ops.Operations),
		Control:    map[string]server.Service{simv1.EndpointName: simcontrol.New(d.sys)},
		Listen: func(name string) (net.Listener, error) {
			if len(names) > 0 && !slices.Contains(names, strings.TrimPrefix(name, "csi-proxy-")) {
				return bufconn.Listen(1), nil // nobody finds it
			}
			return d.claim.Listen(context.Background(), name)
		},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	administrators, err := d.serveAdministrators(ctx, ops, s, names)
	d.stop = func() error {
		d.stop = func() error { return nil }
		cancel()
		return errors.Join(<-ended, administrators())
	}
	return err
}

// serveAdministrators serves the endpoint of administrators, unless others are named, until ctx is
// done. Call close then.
func (d *testDaemon) serveAdministrators(ctx context.Context, ops *nodeops.Node,
	served *daemon.Daemon, names []string) (close func() error, _ error) {
	if len(names) > 0 {
		return func() error { return nil }, nil
	}
	l, err := d.claim.Administrators().Listen(ctx, admin.EndpointName)
	if err != nil {
		return func() error { return nil }, err
	}
	metrics, node := exporter.New(exporter.Build{}, slog.New(slog.DiscardHandler)), nodemetrics.NewNode()
	node.Watch(nodemetrics.Sources{
		Load: ops.Load, Disks: ops.DiskStates, StagedVolumes: ops.StagedVolumes, Mappings: ops.MappingStates,
		Links: ops.Links, ForeignRecords: ops.ForeignRecords, VolumeUse: ops.VolumeUse, MissingVolumes: ops.MissingVolumes,
	})
	metrics.Register(node)
	metrics.SetReadiness(served.Readiness)
	adminEnded := make(chan error, 1)
	go func() { adminEnded <- admin.Serve(ctx, l, served.Drain, metrics.Admin()) }()
	return func() error {
		node.CloseInventory()
		return <-adminEnded
	}, nil
}

func (d *testDaemon) close() error {
	return errors.Join(d.stop(), d.claim.Close(), d.sys.Close(), os.RemoveAll(d.dir))
}
