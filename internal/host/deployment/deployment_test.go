// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/host/winservice"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
)

const (
	program   = `C:\k\csi-proxy.exe`
	rollback  = `C:\k\csi-proxy.rollback.exe`
	previous  = `C:\k\csi-proxy.previous.exe`
	fresh     = `C:\k\csi-proxy.new.exe`
	newFile   = `D:\csi-proxy.exe`
	oldDaemon = `C:\etc\csi-proxy.exe`
	flags     = " -windows-service -log_file=C:\\log\\csi-proxy.log -logtostderr=false"
)

// withOurs is a node on which our daemon runs as a service.
func withOurs() *node { return withProgram(oursOld) }

// withProgram is a node whose service runs a program of ours with this content.
func withProgram(content string) *node {
	n := &node{
		services: map[string]*service{"csi-proxy": {
			settings: winservice.Settings{CommandLine: program + flags, Start: winservice.Automatic}}},
		files: map[string]string{program: content, newFile: oursNew},
	}
	n.launch(n.services["csi-proxy"])
	n.depend("csi-proxy", "kubelet")
	return n
}

// withPublished is a node on which the published daemon runs as a service.
func withPublished() *node {
	n := &node{
		services: map[string]*service{"csiproxy": {
			settings: started(oldDaemon+flags, noRecovery)}},
		files: map[string]string{oldDaemon: published, program: oursOld},
	}
	n.launch(n.services["csiproxy"])
	return n
}

// runs checks that the service runs a program with this content, which serves.
func (n *node) runs(t *testing.T, name, content string) {
	t.Helper()
	s := n.services[name]
	if s == nil {
		t.Fatalf("no service %s", name)
	}
	file, _, _ := n.SplitCommandLine(s.daemon())
	if s.state != winservice.Running || n.files[file] != content || n.holds() != content {
		t.Errorf("the service is in state %v with the program %q, and the pipes are held by %q; want %q", s.state,
			n.files[file], n.holds(), content)
	}
}

// hasFiles checks which files there are beside those of begin.
func (n *node) hasFiles(t *testing.T, want map[string]string) {
	t.Helper()
	if diff := cmp.Diff(want, n.files); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// keeps checks that a program is whole at the service's path, and that old is somewhere.
func keeps(old string) func(*testing.T, *node) {
	return func(t *testing.T, n *node) {
		if content := n.files[program]; !slices.Contains([]string{oursOld, oursNew, sick, crashing}, content) {
			t.Errorf("at the service's path is %q", content)
		}
		if !slices.Contains(slices.Collect(maps.Values(n.files)), old) {
			t.Errorf("the program %q is lost: %q", old, n.files)
		}
	}
}

// does does something once, with an error that is want, or none, in a bubble of its own.
func (n *node) does(t *testing.T, do func(context.Context, *Deployer) error, want error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { n.doesHere(t, do, want) })
}

// doesHere is does in a bubble.
func (n *node) doesHere(t *testing.T, do func(context.Context, *Deployer) error, want error) {
	t.Helper()
	if err := do(context.Background(), n.deployer()); !errors.Is(err, want) {
		t.Errorf("%v, want %v", err, want)
	}
}

// replaced checks what the service has replaced, and that nothing is pending.
func (n *node) replaced(t *testing.T, want string) {
	t.Helper()
	if line, pending, err := n.deployer().Replaced("csiproxy"); line != want || pending || err != nil {
		t.Errorf("replaced: %q, pending %v, %v; want %q", line, pending, err, want)
	}
}

// stopsOnce checks that the service was stopped no second time.
func (n *node) stopsOnce(t *testing.T) {
	t.Helper()
	if i := slices.Index(n.log, "stop"); i < 0 || slices.Contains(n.log[i+1:], "stop") {
		t.Errorf("steps: %v", n.log)
	}
}

func TestUpgrade(t *testing.T) {
	everyDeath(t, withOurs, upgradeTo(newFile), nil, keeps(oursOld), func(t *testing.T, n *node) {
		n.runs(t, "csi-proxy", oursNew)
		n.hasFiles(t, map[string]string{program: oursNew, previous: oursOld, newFile: oursNew})
	})
}

func upgradeTo(file string) func(context.Context, *Deployer) error {
	return func(ctx context.Context, d *Deployer) error { _, err := d.Upgrade(ctx, "", file, false); return err }
}

// Going back is an upgrade to the program that the upgrade has kept.
func TestUpgradeToPrevious(t *testing.T) {
	everyDeath(t, func() *node {
		n := withProgram(oursNew)
		n.files = map[string]string{program: oursNew, previous: oursOld}
		return n
	}, upgradeTo(previous), nil, keeps(oursNew), func(t *testing.T, n *node) {
		got := []string{n.files[program], n.files[previous]}
		slices.Sort(got)
		if !slices.Equal(got, []string{oursOld, oursNew}) || len(n.files) != 2 {
			t.Errorf("%q", n.files)
		}
		// A run that has kept the program before, and died then, leaves that one to the
		// next run as the program to go back to. No other one does.
		done, _ := strings.CutSuffix(strings.Join(n.log, "; "), "died")
		if end := strings.LastIndex(done, "died"); n.files[program] != oursOld &&
			!strings.Contains(done[:max(end, 0)], "rename to "+previous) {
			t.Errorf("the service has the program %q: %s", n.files[program], done)
		}
		n.runs(t, "csi-proxy", n.files[program])
	})
}

// A program that doesn't work leaves the node as it was.
func TestUpgradeRollsBack(t *testing.T) {
	for _, bad := range []string{sick, crashing} {
		t.Run(bad, func(t *testing.T) {
			begin := func() *node { n := withOurs(); n.files[newFile] = bad; return n }
			everyDeath(t, begin, upgradeTo(newFile), csiproxy.ErrFailedPrecondition, keeps(oursOld),
				func(t *testing.T, n *node) {
					n.runs(t, "csi-proxy", oursOld)
					n.hasFiles(t, map[string]string{program: oursOld, newFile: bad})
				})
		})
	}
}

func TestUpgradeRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*node)
		from   string
		want   error
	}{
		"missing program":   {func(n *node) { delete(n.files, newFile) }, newFile, csiproxy.ErrInvalidArgument},
		"not a daemon":      {func(n *node) { n.files[newFile] = published }, newFile, csiproxy.ErrInvalidArgument},
		"a missing version": {func(n *node) { n.missing = true }, newFile, csiproxy.ErrFailedPrecondition},
		"its own program":   {func(*node) {}, strings.ToUpper(program), csiproxy.ErrInvalidArgument},
		"flags it lacks": {func(n *node) { n.services["csi-proxy"].settings.CommandLine += " -unknown" }, newFile,
			csiproxy.ErrInvalidArgument},
		"published daemon": {func(n *node) { *n = *withProgram(published) }, newFile, csiproxy.ErrFailedPrecondition},
		"disabled service": {func(n *node) { n.services["csi-proxy"].settings.Start = winservice.Disabled }, newFile,
			csiproxy.ErrFailedPrecondition},
		"two services": {func(n *node) { n.services["csiproxy"] = n.services["csi-proxy"] }, newFile,
			csiproxy.ErrFailedPrecondition},
		"old can't be copied": {func(n *node) { n.refuse = "write " + rollback }, newFile, nil},
	} {
		t.Run(name, func(t *testing.T) {
			n := withOurs()
			tt.change(n)
			before := n.files[program]
			_, err := n.deployer().Upgrade(t.Context(), "", tt.from, false)
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("%v, want %v", err, tt.want)
			}
			n.runs(t, "csi-proxy", before)
			if slices.Contains(n.log, "stop") {
				t.Errorf("the service was stopped: %v", n.log)
			}
			if _, ok := n.files[fresh]; ok {
				t.Error("the copy of the new program stays")
			}
		})
	}
	n := withOurs()
	if _, err := n.deployer().Upgrade(t.Context(), "none", newFile, false); !errors.Is(err, csiproxy.ErrNotFound) {
		t.Errorf("a missing service: %v", err)
	}
}

// The same program again changes nothing, and stops nothing.
func TestUpgradeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := withOurs()
		for range 2 {
			got, err := n.deployer().Upgrade(t.Context(), "", newFile, false)
			simtest.Must(t, err)
			if got.Version != oursNew {
				t.Errorf("%+v", got)
			}
		}
		n.stopsOnce(t)
		n.hasFiles(t, map[string]string{program: oursNew, previous: oursOld, newFile: oursNew})
	})
}

// Whoever has put the service into a directory that others can write to, as WMCO does, can upgrade it.
func TestUpgradeInWritableDirectory(t *testing.T) {
	n := withOurs()
	n.writers = map[string][]string{directoryOf(program): {"Everyone"}}
	n.does(t, upgradeTo(newFile), nil)
	n.runs(t, "csi-proxy", oursNew)
}

// An older program has no versions that came later.
func TestUpgradeToOlder(t *testing.T) {
	n := withOurs()
	n.missing = true
	n.does(t, func(ctx context.Context, d *Deployer) error {
		_, err := d.Upgrade(ctx, "", newFile, true)
		return err
	}, nil)
	n.runs(t, "csi-proxy", oursNew)
}

// If neither program works, the node can still get one that does.
func TestUpgradeAfterFailedRollback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := withProgram(crashing)
		n.files[newFile] = sick
		if _, err := n.deployer().Upgrade(t.Context(), "", newFile, false); !errors.Is(err, csiproxy.ErrInternal) ||
			!strings.Contains(err.Error(), rollback) {
			t.Errorf("%v", err)
		}
		if _, pending, err := n.deployer().Replaced("csi-proxy"); !pending || err != nil {
			t.Errorf("pending: %v, %v", pending, err)
		}
		n.files[newFile] = oursNew
		n.doesHere(t, upgradeTo(newFile), nil)
		n.runs(t, "csi-proxy", oursNew)
		keeps(crashing)(t, n)
		if _, pending, err := n.deployer().Replaced("csi-proxy"); pending || err != nil {
			t.Errorf("pending: %v, %v", pending, err)
		}
	})
}

// A caller who gives up gets the program before, not a node without one.
func TestUpgradeGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := withOurs()
		n.files[newFile] = sick
		ctx, cancel := context.WithCancel(t.Context())
		d := n.deployer()
		d.Healthy = func(ctx context.Context, endpoints []string) error { cancel(); return n.healthy(ctx, endpoints) }
		if _, err := d.Upgrade(ctx, "", newFile, false); err == nil {
			t.Error("no error")
		}
		n.runs(t, "csi-proxy", oursOld)
	})
}

func installation(args ...string) Installation {
	return Installation{Program: program, Args: args}
}

func TestReplace(t *testing.T) {
	everyDeath(t, withPublished, replaceBy("-v=2"), nil, keepsPublished, func(t *testing.T, n *node) {
		n.runs(t, "csiproxy", oursOld)
		want := winservice.Settings{CommandLine: program + flags + " -v=2", Start: winservice.Automatic, Recovery: &restartAfter10s}
		if diff := cmp.Diff(want, n.services["csiproxy"].settings); diff != "" {
			t.Errorf("settings (-want +got):\n%s", diff)
		}
		n.replaced(t, oldDaemon+flags)
		if len(n.services) != 1 {
			t.Errorf("%d services", len(n.services))
		}
	})
}

func replaceBy(args ...string) func(context.Context, *Deployer) error {
	return func(ctx context.Context, d *Deployer) error {
		_, err := d.Replace(ctx, installation(args...))
		return err
	}
}

func keepsPublished(t *testing.T, n *node) {
	if n.files[oldDaemon] != published {
		t.Error("the published daemon is lost")
	}
}

// isPublishedAgain checks that the published daemon is as it was.
func isPublishedAgain(t *testing.T, n *node) {
	n.runs(t, "csiproxy", published)
	if diff := cmp.Diff(withPublished().services["csiproxy"].settings, n.services["csiproxy"].settings); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	n.replaced(t, "")
}

func TestReplaceRollsBack(t *testing.T) {
	for _, bad := range []string{sick, crashing} {
		t.Run(bad, func(t *testing.T) {
			begin := func() *node { n := withPublished(); n.files[program] = bad; return n }
			everyDeath(t, begin, replaceBy(), csiproxy.ErrFailedPrecondition, nil, isPublishedAgain)
		})
	}
}

// What another process has the pipes of is no reason to end it.
func TestReplaceWithForeignPipes(t *testing.T) {
	n := withPublished()
	n.end(n.holder)
	n.files[`C:\foreign.exe`] = foreign
	n.serve(`C:\foreign.exe`)
	if _, err := n.deployer().Replace(t.Context(), installation()); err == nil ||
		!strings.Contains(err.Error(), `C:\foreign.exe`) || !errors.Is(err, winservice.ErrHeld) {
		t.Errorf("%v", err)
	}
	if n.services["csiproxy"].state != winservice.Stopped || n.holds() != foreign ||
		n.services["csiproxy"].settings.CommandLine != oldDaemon+flags {
		t.Errorf("%+v", n)
	}
}

// A service that was stopped before is stopped after a rollback.
func TestReplaceStopped(t *testing.T) {
	n := withPublished()
	n.end(n.holder)
	n.files[program] = crashing
	n.does(t, replaceBy(), csiproxy.ErrFailedPrecondition)
	if n.services["csiproxy"].state != winservice.Stopped ||
		n.services["csiproxy"].settings.CommandLine != oldDaemon+flags {
		t.Errorf("%+v", n.services["csiproxy"])
	}
}

func TestReplaceNothing(t *testing.T) {
	everyDeath(t, func() *node {
		return &node{services: map[string]*service{}, files: map[string]string{program: oursOld}}
	}, replaceBy(), nil, nil, func(t *testing.T, n *node) {
		n.runs(t, "csi-proxy", oursOld)
		want := program + " -windows-service -log_file=" + defaultLog + " -logtostderr=false"
		if got := n.services["csi-proxy"].settings.CommandLine; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
	n := &node{services: map[string]*service{}, files: map[string]string{program: crashing}}
	n.does(t, replaceBy(), csiproxy.ErrFailedPrecondition)
	if len(n.services) != 0 {
		t.Errorf("%d services of a daemon that doesn't work", len(n.services))
	}
}

// Where ours is already, nothing is stopped as long as the flags are the same, and what was
// replaced isn't forgotten.
func TestReplaceOurs(t *testing.T) {
	for name, args := range map[string][]string{"no flags": nil, "flags": {"-v=2"}} {
		t.Run(name, func(t *testing.T) {
			n := withPublished()
			for range 2 {
				n.does(t, replaceBy(args...), nil)
			}
			n.stopsOnce(t)
			want := strings.Join(append([]string{program + flags}, args...), " ")
			if got := n.services["csiproxy"].settings.CommandLine; got != want {
				t.Errorf("command line %s, want %s", got, want)
			}
			n.replaced(t, oldDaemon+flags)

			n.files[newFile] = crashing
			replace := func(ctx context.Context, d *Deployer) error {
				_, err := d.Replace(ctx, Installation{Program: newFile, Args: []string{"-v=4"}})
				return err
			}
			n.does(t, replace, csiproxy.ErrFailedPrecondition)
			n.runs(t, "csiproxy", oursOld)
			if got := n.services["csiproxy"].settings.CommandLine; got != want {
				t.Errorf("rolled back to %s, want %s", got, want)
			}

			n.files[newFile] = oursNew
			n.does(t, replace, nil)
			n.runs(t, "csiproxy", oursNew)
			n.replaced(t, oldDaemon+flags)
		})
	}
}

func uninstall(restore bool) func(context.Context, *Deployer) error {
	return func(ctx context.Context, d *Deployer) error { return d.Uninstall(ctx, "", restore) }
}

func TestRestore(t *testing.T) {
	everyDeath(t, func() *node {
		n := withPublished()
		n.doesHere(t, replaceBy(), nil)
		n.steps, n.log = 0, nil
		return n
	}, uninstall(true), nil, nil, isPublishedAgain)
	n := withPublished()
	for _, restore := range []bool{true, false} { // by a pod that starts again, or on a node that has just joined
		n.does(t, uninstall(restore), nil)
		isPublishedAgain(t, n)
	}
}

// Where no other daemon was replaced, the service is removed, with restore as without it.
func TestUninstall(t *testing.T) {
	for _, restore := range []bool{true, false} {
		n := withOurs()
		n.does(t, uninstall(restore), winservice.ErrDependents)
		n.runs(t, "csi-proxy", oursOld)
		everyDeath(t, func() *node {
			n := withOurs()
			delete(n.services, "kubelet")
			return n
		}, uninstall(restore), nil, nil, func(t *testing.T, n *node) {
			if len(n.services) != 0 {
				t.Errorf("restore %v: %d services", restore, len(n.services))
			}
		})
	}
}

// A second run with restore leaves alone what the first one has restored, whatever daemon that is.
func TestRestoreTwice(t *testing.T) {
	for _, content := range []string{published, fork} {
		n := withPublished()
		n.end(n.holder)
		n.files[oldDaemon] = content
		n.launch(n.services["csiproxy"])
		n.does(t, replaceBy(), nil)
		for range 2 {
			n.does(t, uninstall(true), nil)
			n.runs(t, "csiproxy", content)
			n.replaced(t, "")
		}
	}
}

// The advice is what can be done on this node: to bring the replaced daemon back only where there is one.
func TestUninstallWithDependents(t *testing.T) {
	replaced := setups["AKS"].node(oursOld)
	replaced.does(t, replaceHere, nil)
	for name, tt := range map[string]struct {
		n       *node
		restore bool
		advice  bool
	}{
		"replaced a daemon":         {replaced, false, true},
		"replaced nothing":          {withOurs(), false, false},
		"replaced nothing, restore": {withOurs(), true, false},
	} {
		tt.n.does(t, func(ctx context.Context, d *Deployer) error {
			err := d.Uninstall(ctx, "", tt.restore)
			if text := fmt.Sprint(err); !strings.Contains(strings.ToLower(text), "sc.exe config kubelet depend= /") ||
				strings.Contains(text, "--restore") != tt.advice || strings.Contains(text, "service.restore=true") != tt.advice {
				t.Errorf("%s: %v", name, err)
			}
			return err
		}, winservice.ErrDependents)
		tt.n.undisturbed(t)
	}
}

func install(args ...string) func(context.Context, *Deployer) error {
	return func(ctx context.Context, d *Deployer) error {
		_, err := d.Install(ctx, installation(args...))
		return err
	}
}

func TestInstall(t *testing.T) {
	n := &node{services: map[string]*service{}, files: map[string]string{program: oursOld}}
	for range 2 {
		n.does(t, install("-log_dir=x"), nil)
	}
	s := n.services["csi-proxy"]
	want := winservice.Settings{CommandLine: program + " -windows-service -log_dir=x", Start: winservice.Automatic}
	if diff := cmp.Diff(want, s.settings); diff != "" || s.state != winservice.Stopped {
		t.Errorf("state %v, settings (-want +got):\n%s", s.state, diff)
	}
	n.does(t, install("-unknown"), csiproxy.ErrInvalidArgument)
	n.does(t, func(ctx context.Context, d *Deployer) error {
		_, err := d.Install(ctx, Installation{Program: `C:\k\daemon.exe`})
		return err
	}, csiproxy.ErrInvalidArgument) // no later command would take it for a CSI Proxy

	s.state = winservice.Running
	for args, want := range map[string]bool{"-log_dir=x": false, "-log_dir=y": true} {
		if got, err := n.deployer().Install(t.Context(), installation(args)); got.RestartNeeded != want || err != nil {
			t.Errorf("%s: %+v, %v", args, got, err)
		}
		n.does(t, install("-log_dir=x"), nil)
	}

	n = withPublished()
	n.does(t, install(), csiproxy.ErrFailedPrecondition)
	n.runs(t, "csiproxy", published)
}

// Nobody but administrators can exchange what SYSTEM runs, or say where it writes its log.
func TestInstallRefusesWritableDirectories(t *testing.T) {
	for _, dir := range []string{directoryOf(program), `C:\log`} {
		n := &node{services: map[string]*service{}, files: map[string]string{program: oursOld},
			writers: map[string][]string{dir: {`NT AUTHORITY\Authenticated Users`}}}
		_, err := n.deployer().Install(t.Context(), installation())
		if !errors.Is(err, csiproxy.ErrFailedPrecondition) || !strings.Contains(err.Error(), "Authenticated Users; ") ||
			!strings.Contains(err.Error(), `icacls "`+dir+`"`) || len(n.services) > 0 {
			t.Errorf("%s: %v, services %v", dir, err, n.services)
		}
	}
}

func TestServiceArgs(t *testing.T) {
	for args, want := range map[string]string{
		"":                                    "-windows-service -log_file=" + defaultLog + " -logtostderr=false",
		"-v=2 -logtostderr":                   "-windows-service -v=2 -logtostderr",
		"--log_dir=x -windows-service":        "--log_dir=x -windows-service",
		"--windows-service --log_file=x -v=2": "--windows-service --log_file=x -v=2",
	} {
		if got := serviceArgs(strings.Fields(args)); !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%s: %q, want %s", args, got, want)
		}
	}
}
