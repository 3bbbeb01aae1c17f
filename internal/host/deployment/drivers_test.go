// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
)

// driversFile is where a file of drivers with this content is put.
func driversFile(content string) string {
	sum := sha256.Sum256([]byte(content))
	return fmt.Sprintf(`C:\k\csi-proxy.drivers-%x.json`, sum[:8])
}

// withDrivers is a node on which our daemon runs with a file of drivers.
func withDrivers() *node {
	n := withOurs()
	n.files[driversFile(someDrivers)] = someDrivers
	n.services["csi-proxy"].settings.CommandLine += " -drivers=" + driversFile(someDrivers)
	return n
}

// deploysDrivers brings the new program, with a file of drivers; "" is none.
func deploysDrivers(content string) func(context.Context, *Deployer) error {
	return func(ctx context.Context, d *Deployer) error {
		in := installation(strings.Fields(flags)...)
		if content != "" {
			in.Drivers = []byte(content)
		}
		in.From = newFile
		_, err := d.Replace(ctx, in)
		return err
	}
}

// hasDrivers checks that the service has a file of drivers, and that there is no other one; "" is none.
func (n *node) hasDrivers(t *testing.T, service, content string) {
	t.Helper()
	file, ok := driversOf(n.services[service].settings.CommandLine)
	if ok != (content != "") || n.files[file] != content {
		t.Errorf("the service has the file %q with %q, want %q", file, n.files[file], content)
	}
	for path := range n.files {
		if strings.Contains(path, ".drivers-") && path != file {
			t.Errorf("%s is left", path)
		}
	}
}

// neverShared checks that the service has a whole file of drivers, without which all drivers would have the node.
func neverShared(t *testing.T, n *node) {
	t.Helper()
	s := n.services["csi-proxy"]
	if s == nil {
		return
	}
	file, ok := driversOf(s.daemon())
	if content := n.files[file]; !ok || !slices.Contains([]string{someDrivers, otherDrivers, crashingDrivers}, content) {
		t.Errorf("the service has the file %q with %q: %s", file, content, strings.Join(n.log, "; "))
	}
}

func TestDrivers(t *testing.T) {
	for name, test := range map[string]struct {
		begin func() *node
		do    func(context.Context, *Deployer) error
		fails error
		keeps func(*testing.T, *node)
		check func(*testing.T, *node)
	}{
		"installed": {func() *node {
			return &node{services: map[string]*service{}, files: map[string]string{newFile: oursNew}}
		}, deploysDrivers(someDrivers), nil, neverShared, func(t *testing.T, n *node) {
			n.runs(t, "csi-proxy", oursNew)
			n.hasDrivers(t, "csi-proxy", someDrivers)
		}},
		"given to a service without": {withOurs, deploysDrivers(someDrivers), nil, nil, func(t *testing.T, n *node) {
			n.runs(t, "csi-proxy", oursNew)
			n.hasDrivers(t, "csi-proxy", someDrivers)
		}},
		"exchanged": {withDrivers, deploysDrivers(otherDrivers), nil, neverShared, func(t *testing.T, n *node) {
			n.runs(t, "csi-proxy", oursNew)
			n.hasDrivers(t, "csi-proxy", otherDrivers)
		}},
		"rolled back": {withDrivers, deploysDrivers(crashingDrivers), csiproxy.ErrFailedPrecondition, neverShared,
			func(t *testing.T, n *node) {
				n.runs(t, "csi-proxy", oursOld)
				n.hasDrivers(t, "csi-proxy", someDrivers)
			}},
		"refused": {withDrivers, deploysDrivers(wrongDrivers), csiproxy.ErrInvalidArgument, neverShared,
			func(t *testing.T, n *node) {
				n.runs(t, "csi-proxy", oursOld)
				n.hasDrivers(t, "csi-proxy", someDrivers)
			}},
		"kept by an upgrade": {withDrivers, upgradeTo(newFile), nil, neverShared, func(t *testing.T, n *node) {
			n.runs(t, "csi-proxy", oursNew)
			n.hasDrivers(t, "csi-proxy", someDrivers)
		}},
		"removed": {withDrivers, deploysDrivers(""), nil, nil, func(t *testing.T, n *node) {
			n.runs(t, "csi-proxy", oursNew)
			n.hasDrivers(t, "csi-proxy", "")
		}},
	} {
		t.Run(name, func(t *testing.T) { everyDeath(t, test.begin, test.do, test.fails, test.keeps, test.check) })
	}
}

// Where the file is gone, the service doesn't start, and the next run brings one.
func TestDriversGone(t *testing.T) {
	for _, content := range []string{someDrivers, otherDrivers} {
		n := withDrivers()
		delete(n.files, driversFile(someDrivers))
		n.end(n.holder)
		if err := n.StartService("csi-proxy"); err == nil {
			t.Error("it starts without its file of drivers")
		}
		n.does(t, deploysDrivers(content), nil)
		n.runs(t, "csi-proxy", oursNew)
		n.hasDrivers(t, "csi-proxy", content)
	}
}

// Without flags, ours keeps those that it has, and gets the other file.
func TestDriversWithoutFlags(t *testing.T) {
	n := withDrivers()
	n.does(t, func(ctx context.Context, d *Deployer) error {
		_, err := d.Replace(ctx, Installation{Program: program, Drivers: []byte(otherDrivers)})
		return err
	}, nil)
	n.hasDrivers(t, "csi-proxy", otherDrivers)
	simtest.Want(t, "command line", n.services["csi-proxy"].settings.CommandLine, program+flags+" -drivers="+driversFile(otherDrivers))
}

// An installation without a start has the file for the next start.
func TestDriversOfInstall(t *testing.T) {
	n := withDrivers()
	n.does(t, func(ctx context.Context, d *Deployer) error {
		in := installation(strings.Fields(flags)...)
		in.Drivers = []byte(otherDrivers)
		_, err := d.Install(ctx, in)
		return err
	}, nil)
	n.hasDrivers(t, "csi-proxy", otherDrivers)
}

// The end of the service ends its file. Another service's, an administrator's, and another program's stay.
func TestDriversOfUninstall(t *testing.T) {
	others := map[string]string{
		driversFile(otherDrivers):                             otherDrivers, // csiproxy's
		`C:\k\csi-proxy.drivers-mine.json`:                    "an administrator's",
		`C:\k\csi-proxy-other.drivers-0123456789abcdef.json`:  "another program's",
		`C:\k\k\csi-proxy.drivers-0123456789abcdef.json`:      "elsewhere",
		`C:\k\csi-proxy.drivers-0123456789abcdef.json.backup`: "a copy",
	}
	n := withDrivers()
	delete(n.services, "kubelet")
	n.services["csiproxy"] = &service{}
	n.services["csiproxy"].settings.CommandLine = program + ` -drivers=` + driversFile(otherDrivers)
	maps.Copy(n.files, others)
	n.does(t, func(ctx context.Context, d *Deployer) error { return d.Uninstall(ctx, "csi-proxy", false) }, nil)
	maps.Copy(others, map[string]string{program: oursOld, newFile: oursNew})
	n.hasFiles(t, others)

	n = withPublished()
	n.files[newFile] = oursNew
	n.does(t, deploysDrivers(someDrivers), nil)
	n.hasDrivers(t, "csiproxy", someDrivers)
	n.does(t, func(ctx context.Context, d *Deployer) error { return d.Uninstall(ctx, "", true) }, nil)
	n.runs(t, "csiproxy", published)
	n.hasDrivers(t, "csiproxy", "")
}

// A replacement that was cut off can be rolled back also after another run has failed: what it began with stays.
func TestDriversOfPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := withDrivers()
		n.files[newFile] = oursOld
		n.doesHere(t, deploysDrivers(someDrivers), nil)
		cutOff := func(at int) *node {
			n := n.clone()
			n.dieAt, n.steps = at, 0
			if n.lives(func() { _ = deploysDrivers(crashingDrivers)(t.Context(), n.deployer()) }) {
				t.Fatal("no death")
			}
			n.dieAt = 0
			return n
		}
		for at := 1; !strings.Contains(n.services["csi-proxy"].settings.CommandLine, driversFile(crashingDrivers)); at++ {
			if cut := cutOff(at); strings.Contains(cut.services["csi-proxy"].settings.CommandLine, driversFile(crashingDrivers)) {
				n = cut
			}
		}
		n.doesHere(t, deploysDrivers(wrongDrivers), csiproxy.ErrInvalidArgument)
		n.doesHere(t, deploysDrivers(crashingDrivers), csiproxy.ErrFailedPrecondition)
		n.runs(t, "csi-proxy", oursOld)
		n.hasDrivers(t, "csi-proxy", someDrivers)
	})
}

// lingering is a node on which somebody has the service open: it is there until they close it.
type lingering struct{ *node }

func (lingering) DeleteService(string) error { return nil }

func TestDriversOfLingeringService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := withDrivers()
		delete(n.services, "kubelet")
		d := n.deployer()
		d.Services = lingering{n}
		simtest.Must(t, d.Uninstall(t.Context(), "", false))
		n.hasFiles(t, map[string]string{program: oursOld, newFile: oursNew})
	})
}
