// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/ops/scope"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/smbserver"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// mappingsOfOthers are mappings that CSI Proxy hasn't made for a staged path.
var mappingsOfOthers = map[string]func(t *testing.T, sim *winsim.System, n *nodeops.Node){
	"an administrator's": func(t *testing.T, sim *winsim.System, _ *nodeops.Node) {
		simtest.Must(t, sim.CreateSMBGlobalMapping(t.Context(), `\\filer\data`, win.SMBMappingOptions{Username: `EXAMPLE\app`, Password: csiproxy.NewSecret("password")}))
	},
	"one without a local path": func(t *testing.T, _ *winsim.System, n *nodeops.Node) {
		r := stagingShareRequest(`\\filer\data`, "")
		simtest.Must(t, n.SMB.NewSMBGlobalMapping(t.Context(), r.RemotePath, "", r.Credentials))
	},
	"one that is used without a local path, too": func(t *testing.T, _ *winsim.System, n *nodeops.Node) {
		r := stagingShareRequest(`\\filer\data`, sharePath)
		simtest.Must(t, n.Storage.StageShare(t.Context(), r))
		simtest.Must(t, n.SMB.NewSMBGlobalMapping(t.Context(), r.RemotePath, "", r.Credentials))
		_, err := n.Storage.UnstageShare(t.Context(), csiproxy.UnstageShareRequest{StagingPath: sharePath})
		simtest.Must(t, err)
	},
	"an administrator's, after a restart of Windows": func(t *testing.T, sim *winsim.System, n *nodeops.Node) {
		simtest.Must(t, n.Storage.StageShare(t.Context(), stagingShareRequest(`\\filer\data`, sharePath)))
		simtest.Must(t, sim.Remove(sharePath))
		simtest.Must(t, sim.Reboot())
		_, err := n.Storage.ListVolumes(t.Context())
		simtest.Must(t, err)
		simtest.Must(t, sim.CreateSMBGlobalMapping(t.Context(), `\\filer\data`, win.SMBMappingOptions{Username: `EXAMPLE\app`, Password: csiproxy.NewSecret("password")}))
	},
}

// Mappings that others have made are listed, and are removed neither by CleanUp nor with the
// last staged path.
func TestMappingsOfOthersStay(t *testing.T) {
	for name, makeIt := range mappingsOfOthers {
		t.Run(name, func(t *testing.T) {
			sim, n := newStagingShares(t)
			ctx := t.Context()
			makeIt(t, sim, n)
			list, err := n.Storage.ListVolumes(ctx)
			if err != nil || len(list.Mounts) != 1 || list.Mounts[0].Kind != csiproxy.MountKindMapping ||
				list.Mounts[0].LeftoverReason != "" {
				t.Errorf("listed are %+v, %v", list, err)
			}
			left, err := n.Storage.CleanUp(ctx, true)
			if err != nil || len(left.Mounts) != 0 || mappings(t, sim) != `\\filer\data` {
				t.Errorf("cleaned up are %+v, %v; mapped are %s", left, err, mappings(t, sim))
			}
			for _, process := range []string{"the same process", "a later one"} {
				simtest.Must(t, n.Storage.StageShare(ctx, stagingShareRequest(`\\filer\data`, sharePath)))
				done, err := n.Storage.UnstageShare(ctx, csiproxy.UnstageShareRequest{StagingPath: sharePath, RemotePath: `\\filer\data`})
				if err != nil || done != (csiproxy.UnstagedShare{Unlinked: true}) || mappings(t, sim) != `\\filer\data` {
					t.Errorf("%s unstages: %+v, %v; mapped are %s", process, done, err, mappings(t, sim))
				}
				n, err = nodeops.New(sim, nodeops.Options{})
				simtest.Must(t, err)
			}
		})
	}
}

// Mappings of other programs are listed by the names that Windows has for them. One that its server refuses keeps the server
// from other credentials, so CleanUp reports it, with the way to remove it, and doesn't touch it.
func TestRefusedMappingsOfOthersAreReported(t *testing.T) {
	for name, mapping := range map[string]smbserver.Mapping{
		`\\filer\data\pvc-1`: {RemotePath: `\\filer\data\pvc-1`},
		`Z:`:                 {RemotePath: `\\filer\data`, LocalPath: "Z:"},
		`\\Filer\Data`:       {RemotePath: `\\Filer\Data`},
	} {
		t.Run(name, func(t *testing.T) {
			sim, n := newStagingShares(t)
			mapping.SMBMappingOptions = win.SMBMappingOptions{Username: `EXAMPLE\app`, Password: csiproxy.NewSecret("password")}
			simtest.Must(t, sim.SMB().Map(mapping))
			list, err := n.Storage.ListVolumes(t.Context())
			simtest.Must(t, err)
			simtest.Want(t, "listed", list.Mounts, []csiproxy.Mount{{Kind: csiproxy.MountKindMapping, Path: mapping.LocalPath,
				Target: mapping.RemotePath, Volume: csiproxy.Volume{Share: `\\filer\data`, Unencrypted: true}}})
			left, err := n.Storage.CleanUp(t.Context(), true)
			simtest.Must(t, err)
			simtest.Want(t, "leftovers while it works", len(left.Mounts), 0)
			simtest.Must(t, sim.SMB().SetUser("filer", `EXAMPLE\app`, csiproxy.NewSecret("changed")))
			left, err = n.Storage.CleanUp(t.Context(), true)
			simtest.Must(t, err)
			if len(left.Mounts) != 1 || left.Mounts[0].Removed || left.Mounts[0].Target != mapping.RemotePath ||
				!strings.Contains(left.Mounts[0].LeftoverReason, "csi-proxyctl smb unmap "+name) {
				t.Errorf("leftovers: %+v", left.Mounts)
			}
			simtest.Must(t, n.SMB.RemoveSMBGlobalMapping(t.Context(), name))
			simtest.Want(t, "mapped", mappings(t, sim), "")
		})
	}
}

// A mapping that isn't recorded goes with the last link if its removal was asked for since the share
// was asked for last, and not without.
func TestAskedMappingGoesWithTheLastStagedPath(t *testing.T) {
	for name, test := range map[string]struct {
		again bool // the share is asked for after the removal
		want  string
	}{"asked": {false, ""}, "asked, and the share was asked for since": {true, `\\filer\data`}} {
		t.Run(name, func(t *testing.T) {
			sim, n := newStagingShares(t)
			ctx := t.Context()
			r := stagingShareRequest(`\\filer\data`, sharePath)
			mapIt := func() { simtest.Must(t, n.SMB.NewSMBGlobalMapping(ctx, r.RemotePath, "", r.Credentials)) }
			mapIt()
			for _, path := range []string{sharePath, share2Path} {
				simtest.Must(t, n.Storage.StageShare(ctx, stagingShareRequest(r.RemotePath, path)))
			}
			for range 2 {
				simtest.Must(t, n.SMB.RemoveSMBGlobalMapping(ctx, r.RemotePath))
			}
			if test.again {
				mapIt()
			}
			for _, path := range []string{sharePath, share2Path} {
				simtest.Want(t, "mapped before "+path, mappings(t, sim), `\\filer\data`)
				_, err := n.Storage.UnstageShare(ctx, csiproxy.UnstageShareRequest{StagingPath: path})
				simtest.Must(t, err)
			}
			simtest.Want(t, "mapped in the end", mappings(t, sim), test.want)
			for range 2 { // repeated, and more
				simtest.Must(t, n.SMB.RemoveSMBGlobalMapping(ctx, r.RemotePath))
				if test.again {
					break
				}
			}
		})
	}
}

// A share with an open file is in use, though no link leads to it.
func TestOpenFilesKeepTheMapping(t *testing.T) {
	sim, n := newStagingShares(t)
	ctx := t.Context()
	simtest.Must(t, n.Storage.StageShare(ctx, stagingShareRequest(`\\filer\data`, sharePath)))
	simtest.Must(t, sim.WriteFile(sharePath+file, []byte("precious")))
	open, err := sim.OpenFile(ctx, `\\filer\data`+file, win.OpenOptions{Access: win.GenericRead, Disposition: win.FileOpen})
	simtest.Must(t, err)
	done, err := n.Storage.UnstageShare(ctx, csiproxy.UnstageShareRequest{StagingPath: sharePath})
	if err != nil || done != (csiproxy.UnstagedShare{Unlinked: true}) {
		t.Errorf("unstaged: %+v, %v", done, err)
	}
	left, err := n.Storage.CleanUp(ctx, true)
	if err != nil || len(left.Mounts) != 0 {
		t.Errorf("cleaned up are %+v, %v", left, err)
	}
	if _, err := open.Info(ctx); err != nil {
		t.Errorf("the open file: %v", err)
	}
	// Windows doesn't tell: it may be open.
	simtest.Must(t, sim.Fail(winsim.Match{Call: win.CallSMBConnections, Count: 1}, winerr.ErrorAccessDenied))
	if list, err := n.Storage.ListVolumes(ctx); err != nil || list.Complete() || len(list.Mounts) != 1 ||
		list.Mounts[0].LeftoverReason != "" {
		t.Errorf("listed are %+v, %v", list, err)
	}
	simtest.Must(t, open.Close())
	left, err = n.Storage.CleanUp(ctx, true)
	if err != nil || len(left.Mounts) != 1 || !left.Mounts[0].Removed || mappings(t, sim) != "" {
		t.Errorf("cleaned up are %+v, %v", left, err)
	}
}

// A pod's link leads to the staged path: the share is in use.
func TestPublishedShareIsNotUnstaged(t *testing.T) {
	for what, target := range map[string]string{"the staging path": sharePath, "a directory on the share": sharePath + `\dir`} {
		t.Run(what, func(t *testing.T) {
			sim, n := newStagingShares(t)
			ctx := t.Context()
			simtest.Must(t, n.Storage.StageShare(ctx, stagingShareRequest(`\\filer\data`, sharePath)))
			simtest.Must(t, sim.MkdirAll(sharePath+`\dir`))
			simtest.Must(t, sim.MkdirAll(targetPath[:strings.LastIndex(targetPath, `\`)]))
			simtest.Must(t, sim.Symlink(targetPath, target, true))
			_, err := n.Storage.UnstageShare(ctx, csiproxy.UnstageShareRequest{StagingPath: sharePath})
			simtest.WantErrorOf(t, "UnstageShare", err, csiproxy.ErrFailedPrecondition, "published at", targetPath)
			_, err = n.Storage.UnstageVolume(ctx, csiproxy.UnstageVolumeRequest{StagingPath: sharePath})
			simtest.WantErrorOf(t, "UnstageVolume", err, csiproxy.ErrFailedPrecondition, "published at", targetPath)
			simtest.Must(t, sim.WriteFile(targetPath+file, nil))
			// By force the link goes, and the mapping stays for the pod.
			if done := unstageVolume(t, n, csiproxy.UnstageVolumeRequest{StagingPath: sharePath,
				Force: true}); done != (csiproxy.UnstagedVolume{Unmounted: true}) {
				t.Errorf("by force: %+v", done)
			}
			simtest.Must(t, sim.WriteFile(`\\filer\data`+file, nil))
		})
	}
}

// One probe that fails isn't a password that was accepted.
func TestFailedProbeAcceptsNobody(t *testing.T) {
	for _, number := range []winerr.Errno{53, 59, 64, 121, 1117, 1231} {
		for who, c := range map[string]csiproxy.SMBCredentials{
			"a wrong password": {Username: `EXAMPLE\app`, Password: csiproxy.NewSecret("wrong")},
			"another user":     {Username: `EXAMPLE\other`, Password: csiproxy.NewSecret("password")},
		} {
			sim, n := newStagingShares(t)
			simtest.Must(t, n.Storage.StageShare(t.Context(), stagingShareRequest(`\\filer\data`, sharePath)))
			for at, fired := 0, true; fired; at++ {
				hits, err := sim.AddRule(winsim.Match{Call: win.CallFileAttributes, Skip: at, Count: 1, Fires: winsim.MayFire},
					winsim.Effect{Fail: number})
				simtest.Must(t, err)
				r := stagingShareRequest(`\\filer\data`, share2Path)
				r.Credentials = c
				if err := n.Storage.StageShare(t.Context(), r); err == nil {
					t.Errorf("%s is staged after probe %d gave %d", who, at, uint32(number))
				}
				fired = hits() > 0
				sim.ResetRules()
			}
			if there, err := n.Filesystem.PathExists(t.Context(), share2Path); there || err != nil {
				t.Errorf("%s: the link is there: %v, %v", who, there, err)
			}
		}
	}
}

// After a restart of the process the password of a mapping isn't known. While nothing uses it, it
// is made again with the caller's, which the server judges.
func TestPasswordAfterARestart(t *testing.T) {
	wrong := stagingShareRequest(`\\filer\data`, share2Path)
	wrong.Credentials.Password = csiproxy.NewSecret("wrong")
	other := stagingShareRequest(`\\filer\data`, share2Path)
	other.Credentials.Username = `EXAMPLE\other`
	t.Run("unused", func(t *testing.T) {
		sim, n := newStagingShares(t)
		simtest.Must(t, n.Storage.StageShare(t.Context(), stagingShareRequest(`\\filer\data`, sharePath)))
		simtest.Must(t, sim.Remove(sharePath))
		n, err := nodeops.New(sim, nodeops.Options{})
		simtest.Must(t, err)
		simtest.WantErrorOf(t, "a wrong password", n.Storage.StageShare(t.Context(), wrong), csiproxy.ErrUnauthenticated)
		simtest.Must(t, sim.SMB().SetUser("filer", `EXAMPLE\other`, csiproxy.NewSecret("password")))
		simtest.Must(t, n.Storage.StageShare(t.Context(), other))
	})
	t.Run("used", func(t *testing.T) {
		sim, n := newStagingShares(t)
		simtest.Must(t, n.Storage.StageShare(t.Context(), stagingShareRequest(`\\filer\data`, sharePath)))
		n, err := nodeops.New(sim, nodeops.Options{})
		simtest.Must(t, err)
		simtest.WantErrorOf(t, "another user", n.Storage.StageShare(t.Context(), other),
			csiproxy.ErrFailedPrecondition, "another user")
		simtest.Must(t, n.Storage.StageShare(t.Context(), stagingShareRequest(`\\filer\data`, share2Path)))
		simtest.Must(t, sim.WriteFile(sharePath+file, nil))
	})
	t.Run("an administrator's", func(t *testing.T) {
		sim, n := newStagingShares(t)
		mappingsOfOthers["an administrator's"](t, sim, n)
		simtest.WantErrorOf(t, "another user", n.Storage.StageShare(t.Context(), other),
			csiproxy.ErrFailedPrecondition, "another user")
		simtest.Want(t, "mapped", mappings(t, sim), `\\filer\data`)
	})
}

// The cost of a list for each mapping doesn't grow with their number. The list asks for connections once.
func TestManyMappings(t *testing.T) {
	perMapping := func(count int) uint64 {
		w := newTenants(t)
		b := w.own[blue]
		for i := range count {
			name := fmt.Sprintf("share-%06d", i)
			w.must(w.sim.SMB().AddShare(smbserver.Share{Server: "other", Name: name}))
			staging := fmt.Sprintf(`%s-%d`, b.shareStaging, i)
			w.must(b.Storage.StageShare(t.Context(), csiproxy.StageShareRequest{RemotePath: `\\other\` + name, StagingPath: staging,
				Credentials: user}))
			w.must(w.sim.Remove(staging))
		}
		asked := w.sim.Calls()[win.CallSMBConnections]
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		list, err := b.Storage.ListVolumes(t.Context())
		runtime.ReadMemStats(&after)
		w.must(err)
		for _, m := range list.Mounts {
			if m.LeftoverReason == "" {
				t.Errorf("%s isn't left over", m.Target)
			}
		}
		simtest.Want(t, "mounts", len(list.Mounts), count)
		simtest.Want(t, "queries of connections", w.sim.Calls()[win.CallSMBConnections]-asked, 1)
		return (after.Mallocs - before.Mallocs) / uint64(count)
	}
	few, many := perMapping(50), perMapping(400)
	if t.Logf("%d and %d allocations for each mapping", few, many); many > 2*few {
		t.Errorf("%d allocations for each of many mappings, and %d for each of few", many, few)
	}
}

// A driver can't map any number of shares. Other drivers, and shares that are mapped already, aren't affected.
func TestDriversMappingsAreBounded(t *testing.T) {
	w := newTenants(t)
	b, r := w.own[blue], w.own[red]
	const most = 512
	var last string
	for i := range most {
		last = fmt.Sprintf("share-%d", i)
		w.must(w.sim.SMB().AddShare(smbserver.Share{Server: "other", Name: last}))
		w.must(w.sim.SMB().Map(smbserver.Mapping{RemotePath: `\\other\` + last,
			SMBMappingOptions: win.SMBMappingOptions{Username: user.Username, Password: user.Password}}))
	}
	stage := func(d *tenant, remote string) error {
		return d.Storage.StageShare(t.Context(), csiproxy.StageShareRequest{RemotePath: remote, StagingPath: d.shareStaging, Credentials: user})
	}
	if err := stage(b, b.share); !errors.Is(err, csiproxy.ErrResourceExhausted) {
		t.Errorf("one more mapping: %v", err)
	}
	w.must(stage(r, r.share))
	w.must(b.SMB.NewSMBGlobalMapping(t.Context(), `\\other\`+last, "", user))
	w.must(b.SMB.RemoveSMBGlobalMapping(t.Context(), `\\other\`+last))
	w.must(stage(b, b.share))
}

// Calls on different servers at the same time don't exceed the bound together.
func TestConcurrentMappingsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most, atOnce = 512, 20
		sim := simtest.Open(t, winsim.Delays{Calls: map[string]time.Duration{win.CallCreateSMBGlobalMapping: time.Second}})
		driver := nodeops.Driver{Driver: scope.Driver{Name: blue, Servers: []string{"full"}}}
		add := func(server, share string) string {
			simtest.Must(t, sim.SMB().AddShare(smbserver.Share{Server: server, Name: share}))
			simtest.Must(t, sim.SMB().SetUser(server, user.Username, user.Password))
			return `\\` + server + `\` + share
		}
		for i := range most - 2 {
			simtest.Must(t, sim.SMB().Map(smbserver.Mapping{RemotePath: add("full", fmt.Sprintf("share-%d", i)),
				SMBMappingOptions: win.SMBMappingOptions{Username: user.Username, Password: user.Password}}))
		}
		var remotes []string
		for i := range atOnce {
			server := fmt.Sprintf("server-%d", i)
			driver.Servers = append(driver.Servers, server)
			remotes = append(remotes, add(server, "data"))
		}
		n, err := nodeops.New(sim, nodeops.Options{}, driver)
		simtest.Must(t, err)
		mapAll := func() {
			var wg sync.WaitGroup
			for _, remote := range remotes {
				wg.Go(func() {
					err := n.Driver(blue).SMB.NewSMBGlobalMapping(t.Context(), remote, "", user)
					if err != nil && !errors.Is(err, csiproxy.ErrResourceExhausted) {
						t.Errorf("%s: %v", remote, err)
					}
				})
			}
			wg.Wait()
		}
		count := func() int {
			all, err := sim.SMBGlobalMappings(t.Context())
			simtest.Must(t, err)
			return len(all)
		}
		mapAll()
		if count() > most {
			t.Errorf("there are %d mappings", count())
		}
		for _, remote := range remotes { // one after the other, the last ones are used
			_ = n.Driver(blue).SMB.NewSMBGlobalMapping(t.Context(), remote, "", user)
		}
		simtest.Want(t, "mappings", count(), most)
	})
}
