// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"context"
	"errors"
	"fmt"
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

// setup is the published daemon as others install it.
type setup struct {
	source     string
	service    string // empty: it runs in a container, program is that one's
	settings   winservice.Settings
	nssm       string   // what nssm starts
	dependents []string // each depends on the one before, and the first on the service
	program    string
	becomes    string // the command line of ours in its place
}

// started are the settings of a service that something else starts.
func started(line string, recovery winservice.Recovery) winservice.Settings {
	return winservice.Settings{CommandLine: line, Start: winservice.Manual, Recovery: &recovery}
}

// byWindows are those of a service that Windows starts.
func byWindows(line string, recovery winservice.Recovery) winservice.Settings {
	s := started(line, recovery)
	s.Start = winservice.Automatic
	return s
}

var (
	restartAfter10s = winservice.Recovery{Actions: []winservice.RecoveryAction{{Type: 1, Milliseconds: 10000}}}
	restartAtOnce   = winservice.Recovery{Actions: []winservice.RecoveryAction{{Type: 1}}}
	noRecovery      winservice.Recovery
)

const toVarLog = " -windows-service -log_file=" + defaultLog + " -logtostderr=false"

var setups = map[string]setup{
	"AKS": {
		source: "github.com/Azure/AgentBaker 06836ee2, staging/cse/windows: configfunc.ps1, New-CsiProxyService; kubeletfunc.ps1, " +
			"New-NSSMService; windowsnodereset.ps1 starts it",
		service:    "csi-proxy",
		settings:   started(`C:\k\nssm.exe`, noRecovery),
		nssm:       `C:\k\csi-proxy.exe`,
		dependents: []string{"Kubelet", "Kubeproxy"},
		program:    `C:\k\csi-proxy.exe`,
		becomes:    ourPath + toVarLog,
	},
	"aks-engine": {
		source:     "github.com/Azure/aks-engine, parts/k8s/windowscsiproxyfunc.ps1 and windowskubeletfunc.ps1",
		service:    "csi-proxy-server",
		settings:   started(`C:\k\nssm.exe`, noRecovery),
		nssm:       `C:\k\csi-proxy-server.exe`,
		dependents: []string{"Kubelet", "Kubeproxy"},
		program:    `C:\k\csi-proxy-server.exe`,
		becomes:    ourPath + toVarLog,
	},
	"kube-up": {
		source:  "github.com/kubernetes/kubernetes v1.37.2, cluster/gce/windows/k8s-node-setup.psm1, Start-CSIProxy",
		service: "csiproxy",
		settings: started(`C:\etc\kubernetes\node\bin\csi-proxy.exe -windows-service `+
			`-log_file=C:\etc\kubernetes\logs\csi-proxy.log -logtostderr=false `, restartAfter10s),
		program: `C:\etc\kubernetes\node\bin\csi-proxy.exe`,
		becomes: ourPath + ` -windows-service -log_file=C:\etc\kubernetes\logs\csi-proxy.log -logtostderr=false`,
	},
	"first instructions": {
		source:  "github.com/kubernetes-csi/csi-proxy, README.md until v1.0: no drive",
		service: "csiproxy",
		settings: started(`\etc\kubernetes\node\bin\csi-proxy.exe -windows-service `+
			`-log_file=\etc\kubernetes\logs\csi-proxy.log -logtostderr=false`, restartAfter10s),
		program: `C:\etc\kubernetes\node\bin\csi-proxy.exe`,
		becomes: ourPath + ` -windows-service -log_file=\etc\kubernetes\logs\csi-proxy.log -logtostderr=false`,
	},
	"WMCO": {
		source:  "github.com/openshift/windows-machine-config-operator, pkg/services/services.go, csiProxyConfiguration, and its WICD",
		service: "csi-proxy",
		settings: started(`C:\k\csi-proxy.exe -log_file=C:\var\log\csi-proxy\csi-proxy.log `+
			`-logtostderr=false -windows-service --v=2`, noRecovery),
		program: `C:\k\csi-proxy.exe`,
		becomes: ourPath + ` -log_file=C:\var\log\csi-proxy\csi-proxy.log -logtostderr=false -windows-service --v=2`,
	},
	"Rancher": {
		source: "github.com/rancher/wins a4db373, pkg/csiproxy/csi.go and pkg/concierge/concierge.go: in the working directory of its own " +
			"service, to be started again after 10000 ns; rke2 depends on rancher-wins only",
		service: "csiproxy",
		settings: byWindows(`C:\Windows\System32\csi-proxy.exe -windows-service -log_file=\etc\rancher\wins\csi-proxy.log `+
			`-logtostderr=false`, restartAtOnce),
		program: `C:\Windows\System32\csi-proxy.exe`,
		becomes: ourPath + ` -windows-service -log_file=\etc\rancher\wins\csi-proxy.log -logtostderr=false`,
	},
	"ECS": {
		source: "github.com/aws/amazon-ecs-agent 8dfceca6, ecs-agent/manageddaemon/managed_daemon_windows.go mounts the pipes; how AWS' " +
			"images start the daemon isn't public, so this is the published instructions' service in the agent's directory",
		service: "csiproxy",
		settings: byWindows(`"C:\Program Files\Amazon\ECS\csi-proxy.exe" -windows-service -logtostderr=false `+
			`-log_file=C:\ProgramData\Amazon\ECS\log\csi-proxy.log`, restartAfter10s),
		program: `C:\Program Files\Amazon\ECS\csi-proxy.exe`,
		becomes: ourPath + ` -windows-service -logtostderr=false -log_file=C:\ProgramData\Amazon\ECS\log\csi-proxy.log`,
	},
	"Cluster API Azure": {
		source: "github.com/kubernetes-sigs/cluster-api-provider-azure 69ec3a40, templates/addons/windows/csi-proxy/csi-proxy.yaml; " +
			"sig-windows-tools' hostprocess/csi-proxy and csi-driver-smb's windows.csiproxy.enabled are alike",
		program: `C:\hpc\csi-proxy.exe`,
		becomes: ourPath + toVarLog,
	},
}

func (s setup) node(ours string) *node {
	n := &node{services: make(map[string]*service),
		files: map[string]string{s.program: published, ourPath: ours, newFile: oursNew}}
	if s.service == "" {
		n.serve(s.program)
		return n
	}
	n.services[s.service] = &service{settings: s.settings, application: s.nssm}
	n.launch(n.services[s.service])
	n.depend(s.service, s.dependents...)
	return n
}

// serves checks that one of the two daemons has the pipes, and is what the service runs.
func (n *node) serves(t *testing.T, name string) {
	t.Helper()
	s := n.services[name]
	if s == nil {
		t.Fatalf("no service: %s", strings.Join(n.log, "; "))
	}
	program, _, _ := n.SplitCommandLine(s.daemon())
	holder := n.processes[n.holder]
	if of := kind(holder.content); of != "ours" && of != "published" || s.state != winservice.Running ||
		program != holder.program {
		t.Fatalf("the service is in state %v with %s; the pipes are held by %q: %s", s.state, program, holder,
			strings.Join(n.log, "; "))
	}
	n.undisturbed(t)
}

func replaceHere(ctx context.Context, d *Deployer) error {
	_, err := d.Replace(ctx, Installation{Program: ourPath})
	return err
}

// After a failure of any call, a daemon serves, and the next run succeeds. After a death at any change, the
// next run succeeds, too. The dependents run on all the while.
func TestSetups(t *testing.T) {
	for name, s := range setups {
		if s.service == "" {
			t.Run(name, s.testContainer)
			continue
		}
		replaced := func() *node {
			n := s.node(oursOld)
			n.doesHere(t, replaceHere, nil)
			n.steps, n.calls, n.log = 0, 0, nil
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
			"restore": {replaced, uninstall(true), nil, isAsBefore},
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				if name == "AKS" || name == "kube-up" && !testing.Short() { // the others are like one of these
					everyDeath(t, tt.begin, tt.do, tt.fails, nil, tt.check)
				}
				every := 1
				if name != "AKS" {
					every = 11 // of the failures, of which many are questions whether the daemon is well by now
				}
				synctest.Test(t, func(t *testing.T) {
					n := tt.begin()
					n.doesHere(t, tt.do, tt.fails)
					total := n.calls
					for at := 1; at <= total; at += every {
						for _, after := range []bool{false, true} {
							n := tt.begin()
							n.failAt, n.after = at, after
							err := tt.do(t.Context(), n.deployer())
							n.serves(t, s.service)
							unchanged := err != nil && strings.Contains(err.Error(), "nothing was changed")
							if begun := tt.begin(); unchanged {
								n.isLike(t, begun, s.service)
							} else if err != nil && !n.hasChanged() {
								t.Errorf("a failure before the first change: %v", err)
							}
							n.failAt = 0
							n.doesHere(t, tt.do, tt.fails)
							tt.check(t, n)
							if t.Failed() {
								t.Fatalf("failed at call %d, after its effect %v: %s", at, after, strings.Join(n.log, "; "))
							}
						}
					}
				})
			})
		}
	}
}

// After a replacement that was cut off, a stop that fails doesn't forget what was there before.
func TestStopFailsAfterDeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setups["AKS"]
		var n *node
		for at := 1; n == nil || n.log[len(n.log)-1] != "start"; at++ {
			n = s.node(sick)
			n.dieAt, n.after = at, true
			if n.lives(func() { _ = replaceHere(t.Context(), n.deployer()) }) {
				t.Fatal("no death after the start of the daemon that doesn't work")
			}
		}
		n.dieAt, n.refuse = 0, "stop"
		n.doesHere(t, replaceHere, csiproxy.ErrInternal)
		n.refuse = ""
		n.doesHere(t, replaceHere, csiproxy.ErrFailedPrecondition)
		n.runs(t, s.service, published)
		n.undisturbed(t)
	})
}

// A restoration that fails leaves one of the two daemons running.
func TestRestoreFails(t *testing.T) {
	s := setups["AKS"]
	n := s.node(oursOld)
	n.does(t, replaceHere, nil)
	n.refuse = "configure"
	synctest.Test(t, func(t *testing.T) {
		if err := uninstall(true)(t.Context(), n.deployer()); err == nil {
			t.Error("no error")
		}
	})
	n.serves(t, s.service)
	n.refuse = ""
	n.does(t, uninstall(true), nil)
	n.runs(t, s.service, published)
	n.serves(t, s.service)
}

// A stop alone is refused while others depend on the service. A restart leaves them alone.
func TestCycle(t *testing.T) {
	cycle := func(stop, start bool) func(context.Context, *Deployer) error {
		return func(ctx context.Context, d *Deployer) error { return d.Cycle(ctx, "", stop, start) }
	}
	n := withOurs()
	n.does(t, func(ctx context.Context, d *Deployer) error {
		err := d.Cycle(ctx, "", true, false)
		if !strings.Contains(fmt.Sprint(err), "csi-proxyctl service restart") {
			t.Errorf("%v", err)
		}
		return err
	}, winservice.ErrDependents)
	n.runs(t, "csi-proxy", oursOld)
	before := n.holder
	n.does(t, cycle(true, true), nil)
	n.serves(t, "csi-proxy")
	if n.holder == before {
		t.Error("the daemon was not restarted")
	}
	delete(n.services, "kubelet")
	for range 2 {
		n.does(t, cycle(true, false), nil)
	}
	if n.holder != 0 {
		t.Error("the daemon runs on")
	}
	n.files[program] = crashing
	n.does(t, func(ctx context.Context, d *Deployer) error {
		if err := d.Cycle(ctx, "", false, true); err == nil {
			t.Error("no error of a daemon that ends at once")
		}
		return nil
	}, nil)
	n = &node{services: map[string]*service{}}
	n.does(t, cycle(true, false), nil)
	n.does(t, cycle(true, true), csiproxy.ErrNotFound)
}

// hasChanged reports whether a run has changed the service or its processes.
func (n *node) hasChanged() bool {
	return slices.ContainsFunc(n.log, func(step string) bool {
		what, _, _ := strings.Cut(step, " ")
		return slices.Contains([]string{"record", "stop", "leave", "terminate", "configure", "start"}, what)
	})
}

// isLike checks that a service and its program are as on another node.
func (n *node) isLike(t *testing.T, other *node, name string) {
	t.Helper()
	s, want := n.services[name], other.services[name]
	program, _, _ := n.SplitCommandLine(want.daemon())
	if diff := cmp.Diff(want.settings, s.settings); diff != "" || n.files[program] != other.files[program] {
		t.Errorf("the program %q, settings (-want +got):\n%s", n.files[program], diff)
	}
}

// testContainer: the published daemon in a container is no service's. It is not ended, and keeps the pipes until
// its DaemonSet is gone.
func (s setup) testContainer(t *testing.T) {
	n := s.node(oursOld)
	for range 2 {
		synctest.Test(t, func(t *testing.T) {
			if err := replaceHere(t.Context(), n.deployer()); !errors.Is(err, winservice.ErrHeld) ||
				!strings.Contains(err.Error(), s.program) || !strings.Contains(err.Error(), "nothing was changed") {
				t.Errorf("%v", err)
			}
		})
		if n.holds() != published || len(n.services) != 0 || len(n.log) != 0 {
			t.Errorf("the pipes are held by %q, services %v: %v", n.holds(), n.services, n.log)
		}
	}
	n.end(n.holder)
	n.does(t, replaceHere, nil)
	n.runs(t, "csi-proxy", oursOld)
	if got := n.services["csi-proxy"].settings.CommandLine; got != s.becomes {
		t.Errorf("command line %s, want %s", got, s.becomes)
	}
	n.does(t, upgradeTo(newFile), nil)
	n.runs(t, "csi-proxy", oursNew)
}

// A replacement keeps the log where it was, and says so if others can write there.
func TestReplaceWarnsOfWritableLog(t *testing.T) {
	for _, s := range []func() *node{func() *node { return setups["kube-up"].node(oursOld) },
		func() *node {
			return &node{services: map[string]*service{}, files: map[string]string{ourPath: oursOld}}
		}} {
		n := s()
		n.writers = map[string][]string{`C:\log`: {"Everyone"}}
		var log strings.Builder
		n.does(t, func(ctx context.Context, d *Deployer) error {
			d.Log = slog.New(slog.NewTextHandler(&log, nil))
			return replaceHere(ctx, d)
		}, nil)
		if !strings.Contains(log.String(), `C:\\log: Everyone`) {
			t.Errorf("%s", &log)
		}
	}
}

// Who reads the log of a removal sees what became of the service.
func TestUninstallSaysWhatBecame(t *testing.T) {
	replaced := setups["AKS"].node(oursOld)
	replaced.does(t, replaceHere, nil)
	ours := withOurs()
	delete(ours.services, "kubelet")
	for _, step := range []struct {
		n    *node
		want string
	}{
		{replaced, `msg="the replaced daemon is back" service=csi-proxy command_line=C:\k\csi-proxy.exe started=true`},
		{replaced, "and stays"},
		{ours, `msg="the service is removed" service=csi-proxy`},
		{ours, `msg="there is no service to remove" service=csi-proxy`},
	} {
		var log strings.Builder
		step.n.does(t, func(ctx context.Context, d *Deployer) error {
			d.Log = slog.New(slog.NewTextHandler(&log, nil))
			return uninstall(true)(ctx, d)
		}, nil)
		if !strings.Contains(log.String(), step.want) {
			t.Errorf("the log has no %q: %s", step.want, &log)
		}
	}
}

// An upgrade of our daemon under nssm leaves the service to nssm, and has replaced nothing.
func TestUpgradeUnderNSSM(t *testing.T) {
	s := setups["AKS"]
	n := s.node(oursOld)
	n.end(n.holder)
	n.files[s.program] = oursOld
	n.serve(s.program)
	n.does(t, upgradeTo(newFile), nil)
	n.runs(t, s.service, oursNew)
	n.serves(t, s.service)
	if line, pending, err := n.deployer().Replaced(s.service); line != "" || pending || err != nil ||
		n.services[s.service].settings.CommandLine != s.settings.CommandLine {
		t.Errorf("replaced %q, pending %v, %v; settings %+v", line, pending, err, n.services[s.service].settings)
	}
}

// Our daemon that somebody has put under nssm becomes a service of its own, and nssm's again.
func TestReplaceOursUnderNSSM(t *testing.T) {
	s := setups["AKS"]
	n := s.node(oursNew)
	n.end(n.holder)
	n.files[s.program] = oursOld
	n.serve(s.program)
	n.does(t, replaceHere, nil)
	n.runs(t, s.service, oursNew)
	for range 2 {
		n.does(t, uninstall(true), nil)
		n.runs(t, s.service, oursOld)
	}
	if got := n.services[s.service].settings.CommandLine; got != s.settings.CommandLine {
		t.Errorf("command line %s", got)
	}
}

// A service of the name that runs no CSI Proxy is not touched, not even by a record.
func TestReplaceRefusesOtherPrograms(t *testing.T) {
	for _, s := range []*service{
		{settings: winservice.Settings{CommandLine: `C:\k\nssm.exe`}, application: `C:\k\kubelet.exe`},
		{settings: winservice.Settings{CommandLine: `C:\k\nssm.exe`}},
		{settings: winservice.Settings{CommandLine: `C:\k\kubelet.exe`}},
	} {
		n := &node{services: map[string]*service{"csi-proxy": s}, files: map[string]string{ourPath: oursOld}}
		for _, do := range []func(context.Context, *Deployer) error{replaceHere, install(), upgradeTo(newFile), uninstall(true),
			uninstall(false),
			func(ctx context.Context, d *Deployer) error { return d.Cycle(ctx, "", true, false) },
			func(ctx context.Context, d *Deployer) error { return d.Cycle(ctx, "", false, true) },
		} {
			n.does(t, do, csiproxy.ErrFailedPrecondition)
		}
		if len(n.log) != 0 {
			t.Errorf("%s: %v", s.settings.CommandLine, n.log)
		}
	}
}
