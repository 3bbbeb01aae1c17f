// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/host/winservice"
)

// ourPath is where ours is put on all nodes.
const ourPath = `C:\ours\csi-proxy.exe`

// setup is the service of the published daemon as others make it.
type setup struct {
	source, service string
	settings        winservice.Settings
	nssm            string // what nssm starts
	program         string
	becomes         string // the command line of ours in its place
}

var restartAfter10s = &winservice.Recovery{Actions: []winservice.RecoveryAction{{Type: 1, Milliseconds: 10000}}}

const toVarLog = " -windows-service -log_file=" + defaultLog + " -logtostderr=false"

var setups = map[string]setup{
	"AKS": {
		source:  "github.com/Azure/AgentBaker, New-CsiProxyService; windowsnodereset.ps1 starts it",
		service: "csi-proxy",
		settings: winservice.Settings{CommandLine: `C:\k\nssm.exe`, DisplayName: "csi-proxy", Description: "csi-proxy",
			Start: winservice.Manual},
		nssm:    `C:\k\csi-proxy.exe`,
		program: `C:\k\csi-proxy.exe`,
		becomes: ourPath + toVarLog,
	},
	"aks-engine": {
		source:  "github.com/Azure/aks-engine, parts/k8s/windowscsiproxyfunc.ps1",
		service: "csi-proxy-server",
		settings: winservice.Settings{CommandLine: `C:\k\nssm.exe`, DisplayName: "csi-proxy-server",
			Description: "csi-proxy-server", Start: winservice.Manual},
		nssm:    `C:\k\csi-proxy-server.exe`,
		program: `C:\k\csi-proxy-server.exe`,
		becomes: ourPath + toVarLog,
	},
	"GCE": {
		source:  "github.com/kubernetes/cloud-provider-gcp, cluster/gce/windows/k8s-node-setup.psm1, Start-CSIProxy",
		service: "csiproxy",
		settings: winservice.Settings{CommandLine: `C:\etc\kubernetes\node\bin\csi-proxy.exe -windows-service ` +
			`-log_file=C:\etc\kubernetes\logs\csi-proxy.log -logtostderr=false `, DisplayName: "csiproxy",
			Start: winservice.Manual, Recovery: restartAfter10s},
		program: `C:\etc\kubernetes\node\bin\csi-proxy.exe`,
		becomes: ourPath + ` -windows-service -log_file=C:\etc\kubernetes\logs\csi-proxy.log -logtostderr=false`,
	},
	"first instructions": {
		source:  "github.com/kubernetes-csi/csi-proxy, README.md until v1.0: no drive",
		service: "csiproxy",
		settings: winservice.Settings{CommandLine: `\etc\kubernetes\node\bin\csi-proxy.exe -windows-service ` +
			`-log_file=\etc\kubernetes\logs\csi-proxy.log -logtostderr=false`, DisplayName: "csiproxy",
			Start: winservice.Manual, Recovery: restartAfter10s},
		program: `C:\etc\kubernetes\node\bin\csi-proxy.exe`,
		becomes: ourPath + ` -windows-service -log_file=\etc\kubernetes\logs\csi-proxy.log -logtostderr=false`,
	},
	"WMCO": {
		source:  "github.com/openshift/windows-machine-config-operator, pkg/services/services.go, csiProxyConfiguration, and its WICD",
		service: "csi-proxy",
		settings: winservice.Settings{CommandLine: `C:\k\csi-proxy.exe -log_file=C:\var\log\csi-proxy\csi-proxy.log ` +
			`-logtostderr=false -windows-service --v=2`, DisplayName: "csi-proxy", Start: winservice.Manual},
		program: `C:\k\csi-proxy.exe`,
		becomes: ourPath + ` -log_file=C:\var\log\csi-proxy\csi-proxy.log -logtostderr=false -windows-service --v=2`,
	},
}

func (s setup) node(ours string) *node {
	return &node{
		services: map[string]*service{s.service: {settings: s.settings, application: s.nssm, state: winservice.Running}},
		files:    map[string]string{s.program: published, ourPath: ours, newFile: oursNew},
		holder:   published,
		holderOf: s.program,
	}
}

// serves checks that one of the two daemons has the pipes, and is what the service runs.
func (n *node) serves(t *testing.T, name string) {
	t.Helper()
	s := n.services[name]
	if s == nil {
		t.Fatalf("no service: %s", strings.Join(n.log, "; "))
	}
	program, _, _ := n.SplitCommandLine(s.daemon())
	if of := kind(n.holder); of != "ours" && of != "published" || s.state != winservice.Running ||
		program != n.holderOf {
		t.Fatalf("the service is in state %v with %s; the pipes are held by %q, %s: %s", s.state, program, n.holder,
			n.holderOf, strings.Join(n.log, "; "))
	}
}

func replaceHere(ctx context.Context, d *Deployer) error {
	_, err := d.Replace(ctx, Installation{Program: ourPath})
	return err
}

func restoreHere(ctx context.Context, d *Deployer) error {
	err := d.Uninstall(ctx, "", true)
	if errors.Is(err, csiproxy.ErrFailedPrecondition) && strings.Contains(err.Error(), "replaced no other") {
		return nil // it was done already
	}
	return err
}

// Wherever a step fails, a daemon serves afterwards, and the next run ends as if nothing had failed.
func TestSetups(t *testing.T) {
	for name, s := range setups {
		replaced := func() *node {
			n := s.node(oursOld)
			n.does(t, replaceHere, nil)
			n.steps, n.log = 0, nil
			return n
		}
		isOurs := func(content string) func(*testing.T, *node) {
			return func(t *testing.T, n *node) {
				n.runs(t, s.service, content)
				if got := n.services[s.service].settings.CommandLine; got != s.becomes {
					t.Errorf("command line %s, want %s", got, s.becomes)
				}
				if line, pending, err := n.deployer().Replaced(s.service); line != s.settings.CommandLine || pending || err != nil {
					t.Errorf("replaced %s, pending %v, %v", line, pending, err)
				}
			}
		}
		isAsBefore := func(t *testing.T, n *node) {
			n.runs(t, s.service, published)
			if diff := cmp.Diff(s.settings, n.services[s.service].settings); diff != "" ||
				n.services[s.service].application != s.nssm {
				t.Errorf("settings (-want +got):\n%s", diff)
			}
		}
		for what, tt := range map[string]struct {
			begin func() *node
			do    func(context.Context, *Deployer) error
			fails error
			check func(*testing.T, *node)
		}{
			"replace":   {func() *node { return s.node(oursOld) }, replaceHere, nil, isOurs(oursOld)},
			"roll back": {func() *node { return s.node(sick) }, replaceHere, csiproxy.ErrFailedPrecondition, isAsBefore},
			"upgrade":   {replaced, upgradeTo(newFile), nil, isOurs(oursNew)},
			"roll back the upgrade": {func() *node {
				n := replaced()
				n.files[newFile] = sick
				return n
			}, upgradeTo(newFile), csiproxy.ErrFailedPrecondition, isOurs(oursOld)},
			"restore": {replaced, restoreHere, nil, isAsBefore},
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					n := tt.begin()
					n.does(t, tt.do, tt.fails)
					tt.check(t, n)
					total := n.steps
					if total < 4 {
						t.Fatalf("%d steps: %v", total, n.log)
					}
					for at := 1; at <= total; at++ {
						for _, after := range []bool{false, true} {
							n := tt.begin()
							n.failAt, n.after = at, after
							_ = tt.do(t.Context(), n.deployer())
							n.serves(t, s.service)
							n.failAt = 0
							n.does(t, tt.do, tt.fails)
							tt.check(t, n)
							if t.Failed() {
								t.Fatalf("failed at step %d, after its effect %v: %s", at, after, strings.Join(n.log, "; "))
							}
						}
					}
				})
			})
		}
	}
}

// The death of the process at any step, too, leaves nssm's service whole.
func TestDeathsUnderNSSM(t *testing.T) {
	s := setups["AKS"]
	everyDeath(t, func() *node { return s.node(oursOld) }, replaceHere, nil, nil, func(t *testing.T, n *node) {
		n.runs(t, s.service, oursOld)
	})
	everyDeath(t, func() *node { return s.node(sick) }, replaceHere, csiproxy.ErrFailedPrecondition, nil,
		func(t *testing.T, n *node) {
			n.runs(t, s.service, published)
			if diff := cmp.Diff(s.settings, n.services[s.service].settings); diff != "" {
				t.Errorf("settings (-want +got):\n%s", diff)
			}
		})
	everyDeath(t, func() *node {
		n := s.node(oursOld)
		n.does(t, replaceHere, nil)
		n.steps, n.log = 0, nil
		return n
	}, restoreHere, nil, nil, func(t *testing.T, n *node) { n.runs(t, s.service, published) })
}

// A replacement keeps the log where it was, and says so if others can write there.
func TestReplaceWarnsOfWritableLog(t *testing.T) {
	for _, s := range []func() *node{func() *node { return setups["GCE"].node(oursOld) },
		func() *node {
			return &node{services: map[string]*service{}, files: map[string]string{ourPath: oursOld}}
		}} {
		n := s()
		n.writers = map[string][]string{`C:\log`: {"Everyone"}}
		var log strings.Builder
		d := n.deployer()
		d.Log = slog.New(slog.NewTextHandler(&log, nil))
		if err := replaceHere(t.Context(), d); err != nil || !strings.Contains(log.String(), `C:\\log: Everyone`) {
			t.Errorf("%v: %s", err, &log)
		}
	}
}

// Our daemon that somebody has put under nssm becomes a service of its own, and nssm's again.
func TestReplaceOursUnderNSSM(t *testing.T) {
	s := setups["AKS"]
	n := s.node(oursNew)
	n.files[s.program], n.holder = oursOld, oursOld
	n.does(t, replaceHere, nil)
	n.runs(t, s.service, oursNew)
	n.does(t, restoreHere, nil)
	n.runs(t, s.service, oursOld)
	if got := n.services[s.service].settings.CommandLine; got != s.settings.CommandLine {
		t.Errorf("command line %s", got)
	}
}

// The published daemon as a container, as by sig-windows-tools' hostprocess/csi-proxy and
// csi-driver-smb's windows.csiproxy.enabled, is no service's: it is not ended, and keeps the pipes.
func TestReplaceDaemonSet(t *testing.T) {
	const container = `C:\hpc\csi-proxy.exe`
	n := &node{services: map[string]*service{}, files: map[string]string{container: published, ourPath: oursOld},
		holder: published, holderOf: container}
	for range 2 {
		if err := replaceHere(t.Context(), n.deployer()); err == nil || !strings.Contains(err.Error(), container) {
			t.Errorf("%v", err)
		}
		if n.holder != published || len(n.services) != 0 || slices.Contains(n.log, "install") {
			t.Errorf("the pipes are held by %q, services %v: %v", n.holder, n.services, n.log)
		}
	}
	n.holder, n.holderOf = "", "" // its DaemonSet is gone
	n.does(t, replaceHere, nil)
	n.runs(t, "csi-proxy", oursOld)
}

// A service of the name that runs no CSI Proxy is not touched, not even by a record.
func TestReplaceRefusesOtherPrograms(t *testing.T) {
	for _, s := range []*service{
		{settings: winservice.Settings{CommandLine: `C:\k\nssm.exe`}, application: `C:\k\kubelet.exe`},
		{settings: winservice.Settings{CommandLine: `C:\k\nssm.exe`}},
		{settings: winservice.Settings{CommandLine: `C:\k\kubelet.exe`}},
	} {
		n := &node{services: map[string]*service{"csi-proxy": s}, files: map[string]string{ourPath: oursOld}}
		for _, do := range []func(context.Context, *Deployer) error{replaceHere, install(), upgradeTo(newFile)} {
			n.does(t, do, csiproxy.ErrFailedPrecondition)
		}
		if len(n.log) != 0 {
			t.Errorf("%s: %v", s.settings.CommandLine, n.log)
		}
	}
}
