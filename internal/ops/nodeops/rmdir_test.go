// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/ops/scope"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

func failOnce(call string) winsim.Match { return winsim.Match{Call: call, Count: 1} }

// garden grows one of everything that can be removed below dir, and what must stay
// beside it.
func garden(t *testing.T, sys *winsim.System, volume, dir string) {
	t.Helper()
	must(t, sys.MkdirAll(`C:\outside\sub`))
	must(t, sys.WriteFile(`C:\outside\sub\file`, []byte("outside")))
	must(t, sys.MkdirAll(kubelet+`\neighbour\sub`))
	must(t, sys.WriteFile(kubelet+`\neighbour\file`, []byte("neighbour")))

	must(t, sys.MkdirAll(dir+`\deep\deeper\deepest`))
	for i := range 50 { // more than one listing gives
		must(t, sys.WriteFile(fmt.Sprintf(`%s\deep\file%d`, dir, i), []byte("x")))
	}
	must(t, sys.WriteFile(dir+`\readonly`, []byte("x")))
	must(t, sys.SetFileAttributes(dir+`\readonly`, win.AttributeReadOnly))
	must(t, sys.MkdirAll(dir+`\readonlydir`))
	must(t, sys.SetFileAttributes(dir+`\readonlydir`, win.AttributeReadOnly))
	must(t, sys.Symlink(dir+`\symlink`, kubelet+`\neighbour`, true))
	must(t, sys.Symlink(dir+`\filelink`, kubelet+`\neighbour\file`, false))
	must(t, sys.Junction(dir+`\deep\junction`, kubelet+`\neighbour`))
	must(t, sys.Symlink(dir+`\evil`, `C:\outside`, true))
	must(t, sys.Junction(dir+`\deep\evil`, `C:\outside`))
	must(t, sys.Symlink(dir+`\share`, `\\server\share`, true))
	must(t, sys.Symlink(dir+`\dangling`, `none`, true))
	must(t, sys.Symlink(dir+`\volumelink`, volume, true))
	mount(t, sys, dir+`\mnt`, volume)
	mount(t, sys, dir+`\deep\mnt`, volume)
}

// surroundings is what removal must leave alone.
func surroundings(t *testing.T, sys *winsim.System) []map[string]string {
	return []map[string]string{
		tree(t, sys, `C:\outside`), tree(t, sys, `C:\Windows`), tree(t, sys, kubelet+`\neighbour`), tree(t, sys, `C:\mnt`),
	}
}

func TestRmdirForce(t *testing.T) {
	sys := newFileNode(t)
	f := newFilesystem(t, sys)
	volume, _ := newVolume(t, sys)
	mount(t, sys, `C:\mnt`, volume)
	must(t, sys.MkdirAll(`C:\mnt\sub`))
	must(t, sys.WriteFile(`C:\mnt\sub\data`, []byte("data")))

	for name, remove := range map[string]func(dir string) error{
		"Rmdir":         func(dir string) error { return f.Rmdir(t.Context(), dir, true) },
		"RmdirContents": func(dir string) error { return f.RmdirContents(t.Context(), dir) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := kubelet + `\` + name
			garden(t, sys, volume, dir)
			before := surroundings(t, sys)
			must(t, remove(dir))
			want := map[string]string{}
			if name == "RmdirContents" {
				want[dir] = "directory"
			}
			simtest.Want(t, "what is left", tree(t, sys, dir), want)
			simtest.Want(t, "the surroundings", surroundings(t, sys), before)
			// Through the mount manager, or it would remember them.
			if got := sys.MountPoints(); len(got) != 1 || got[0].Path != `C:\mnt` {
				t.Errorf("mount points %v", got)
			}
		})
	}
}

func TestRmdir(t *testing.T) {
	sys := newFileNode(t)
	f := newFilesystem(t, sys)
	volume, disk := newVolume(t, sys)
	mount(t, sys, `C:\mnt`, volume)
	must(t, sys.WriteFile(`C:\mnt\data`, []byte("data")))
	const dir = kubelet + `\x`
	garden(t, sys, volume, dir)
	before := surroundings(t, sys)

	for _, name := range []string{
		`readonlydir`, `deep\deeper\deepest`, `deep\file7`, `readonly`, `symlink`, `filelink`, `deep\junction`, `evil`,
		`deep\evil`, `share`, `dangling`, `volumelink`, `mnt`, `deep\mnt`,
	} {
		path := dir + `\` + name
		simtest.WantErrorOf(t, name, f.Rmdir(t.Context(), path, false), nil)
		if exists, err := f.PathExists(t.Context(), path); exists || err != nil {
			t.Errorf("%s afterwards: %v, %v", name, exists, err)
		}
		simtest.WantErrorOf(t, name+" again", f.Rmdir(t.Context(), path, false), csiproxy.ErrNotFound)
		simtest.WantErrorOf(t, name+" again with force", f.Rmdir(t.Context(), path, true), nil)
	}
	simtest.Want(t, "the surroundings", surroundings(t, sys), before)
	if got := sys.MountPoints(); len(got) != 1 || got[0].Path != `C:\mnt` {
		t.Errorf("mount points %v", got)
	}

	must(t, sys.Junction(dir+`\evil`, `C:\outside`))
	mount(t, sys, dir+`\mnt`, volume)
	for _, c := range []struct {
		path        string
		force, only error
		contents    error
	}{
		{dir + `\deep`, nil, csiproxy.ErrFailedPrecondition, nil},
		{dir + `\none`, nil, csiproxy.ErrNotFound, csiproxy.ErrNotFound},
		{dir + `\none\none`, nil, csiproxy.ErrNotFound, csiproxy.ErrNotFound},
		{kubelet + `\neighbour\file\x`, nil, csiproxy.ErrFailedPrecondition, csiproxy.ErrFailedPrecondition},
		{dir + `\evil\sub`, csiproxy.ErrPermissionDenied, csiproxy.ErrPermissionDenied, csiproxy.ErrPermissionDenied},
		{kubelet, csiproxy.ErrInvalidArgument, csiproxy.ErrInvalidArgument, csiproxy.ErrInvalidArgument},
	} {
		simtest.WantErrorOf(t, c.path+" without force", f.Rmdir(t.Context(), c.path, false), c.only)
		simtest.WantErrorOf(t, fmt.Sprintf("contents of %s", c.path), f.RmdirContents(t.Context(), c.path), c.contents)
		simtest.WantErrorOf(t, c.path+" with force", f.Rmdir(t.Context(), c.path, true), c.force)
	}
	for _, name := range []string{`evil`, `mnt`} {
		simtest.WantErrorOf(t, fmt.Sprintf("contents of %s", name), f.RmdirContents(t.Context(), dir+`\`+name),
			csiproxy.ErrFailedPrecondition)
	}
	simtest.Want(t, "the surroundings", surroundings(t, sys), before)

	// The mount point of a volume that has left the node.
	must(t, sys.DetachDisk(disk))
	must(t, f.Rmdir(t.Context(), dir, true))
	simtest.Want(t, "what is left", tree(t, sys, dir), map[string]string{})
}

// The mount manager of Windows may not know a volume that has left: then the
// reparse point alone is removed. Other errors of it keep the mount point.
func TestRmdirWithoutMountManager(t *testing.T) {
	sys := newFileNode(t)
	f := newFilesystem(t, sys)
	volume, _ := newVolume(t, sys)
	for errno, want := range map[winerr.Errno]error{
		winerr.ErrorFileNotFound:     nil,
		winerr.ErrorInvalidParameter: nil,
		winerr.ErrorNotAReparsePoint: nil, // and yet it is one
		winerr.ErrorAccessDenied:     csiproxy.ErrPermissionDenied,
	} {
		mount(t, sys, kubelet+`\mnt`, volume)
		must(t, sys.Fail(winsim.Match{Call: "DeleteVolumeMountPointW"}, errno))
		simtest.WantErrorOf(t, fmt.Sprintf("%v", errno), f.Rmdir(t.Context(), kubelet+`\mnt`, false), want)
		exists, err := f.PathExists(t.Context(), kubelet+`\mnt`)
		if exists != (want != nil) || err != nil {
			t.Errorf("%v: afterwards %v, %v", errno, exists, err)
		}
		sys.ResetRules()
		must(t, f.Rmdir(t.Context(), kubelet+`\mnt`, true))
	}
}

// What is in use stays, what is not goes, and a repeated call does the rest.
func TestRmdirBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := newFileNode(t)
		f := newFilesystem(t, sys)
		const dir = kubelet + `\x`
		for _, path := range []string{`\a\1`, `\busy\2`, `\c\3`} {
			must(t, sys.MkdirAll(dir+path))
		}
		must(t, sys.WriteFile(dir+`\busy\data`, []byte("data")))
		must(t, sys.WriteFile(dir+`\busy\other`, []byte("data")))
		used, err := sys.OpenFile(t.Context(), dir+`\busy\data`, win.OpenOptions{Access: win.GenericRead, Share: win.ShareRead | win.ShareWrite, Disposition: win.FileOpen})
		must(t, err)

		sys.OnCall(func(call winsim.Call) {
			if call.Name == "SetFileInformationByHandle" && (call.Object == dir || call.Object == dir+`\busy`) {
				t.Error("a directory above a busy file was to be deleted")
			}
		})
		for range 2 {
			simtest.WantError(t, f.Rmdir(t.Context(), dir, true), csiproxy.ErrUnavailable)
			want := map[string]string{dir: "directory", dir + `\busy`: "directory", dir + `\busy\data`: "file data"}
			simtest.Want(t, "what is left", tree(t, sys, dir), want)
		}
		sys.OnCall(nil)
		must(t, used.Close())
		must(t, f.Rmdir(t.Context(), dir, true))
		simtest.Want(t, "what is left", tree(t, sys, dir), map[string]string{})
	})
}

// A directory that somebody fills as fast as it is emptied isn't emptied forever.
func TestRmdirRace(t *testing.T) {
	sys := newFileNode(t)
	f := newFilesystem(t, sys)
	const dir = kubelet + `\x`
	for name, c := range map[string]struct {
		files int
		want  error
	}{
		"two more files":   {2, nil},
		"three more files": {3, csiproxy.ErrUnavailable}, // it has been listed three times then
		"no end":           {1000, csiproxy.ErrUnavailable},
	} {
		must(t, sys.MkdirAll(dir))
		must(t, sys.WriteFile(dir+`\file`, nil))
		files := 0
		sys.OnCall(func(call winsim.Call) {
			if call.Name == "SetFileInformationByHandle" && call.Object == dir && files < c.files {
				files++
				must(t, sys.WriteFile(fmt.Sprintf(`%s\%d`, dir, files), nil))
			}
		})
		err := f.Rmdir(t.Context(), dir, true)
		sys.OnCall(nil)
		simtest.WantErrorOf(t, name, err, c.want)
		if files == 0 {
			t.Errorf("%s: none was made", name)
		}
	}
}

// An entry that is removed between being listed and being opened is no error.
func TestRmdirVanished(t *testing.T) {
	sys := newFileNode(t)
	f := newFilesystem(t, sys)
	const dir = kubelet + `\x`
	must(t, sys.MkdirAll(dir+`\a`))
	must(t, sys.WriteFile(dir+`\b`, nil))
	sys.OnCall(func(call winsim.Call) {
		if call.Name == "NtCreateFile" && strings.HasPrefix(call.Object, dir+`\`) {
			must(t, sys.Remove(call.Object))
		}
	})
	err := f.Rmdir(t.Context(), dir, true)
	sys.OnCall(nil)
	simtest.WantError(t, err, nil)
	simtest.Want(t, "what is left", tree(t, sys, dir), map[string]string{})
}

// An entry may be another thing when it is opened than when it was listed.
func TestRmdirChanged(t *testing.T) {
	sys := newFileNode(t)
	f := newFilesystem(t, sys)
	volume, _ := newVolume(t, sys)
	const dir, entry = kubelet + `\x`, kubelet + `\x\entry`
	things := map[string]func(){
		"a file":      func() { must(t, sys.WriteFile(entry, nil)) },
		"a directory": func() { must(t, sys.MkdirAll(entry+`\sub`)) },
		"a link":      func() { must(t, sys.Junction(entry, `C:\Windows`)) },
		"a mount point": func() {
			must(t, sys.MkdirAll(entry))
			must(t,
				sys.SetReparsePoint(entry, win.NewMountPoint(volume)))
		},
	}
	before := tree(t, sys, `C:\Windows`)
	for was, makeFirst := range things {
		for is, makeThen := range things {
			must(t, sys.MkdirAll(dir))
			makeFirst()
			changed := false
			sys.OnCall(func(call winsim.Call) {
				if call.Name == "NtCreateFile" && call.Object == entry && !changed {
					changed = true
					if was == "a directory" {
						must(t, sys.Remove(entry+`\sub`))
					}
					must(t, sys.Remove(entry))
					makeThen()
				}
			})
			err := f.Rmdir(t.Context(), dir, true)
			sys.OnCall(nil)
			if err != nil || !changed {
				t.Errorf("%s that was %s: %v, changed %v", is, was, err, changed)
			}
			simtest.Want(t, fmt.Sprintf("%s that was %s", is, was), tree(t, sys, dir), map[string]string{})
		}
	}
	simtest.Want(t, `C:\Windows`, tree(t, sys, `C:\Windows`), before)
}

// deepTree makes directories one in the other, each through the handle of the one above,
// as no path is long enough.
func deepTree(t *testing.T, sys *winsim.System, dir, name string, depth int) {
	t.Helper()
	must(t, sys.MkdirAll(dir))
	open := win.OpenOptions{
		Access: win.FileListDirectory | win.FileTraverse, Share: win.ShareRead | win.ShareWrite | win.ShareDelete,
		Disposition: win.FileOpen, Options: win.FileDirectoryFile,
	}
	f, err := sys.OpenFile(t.Context(), dir, open)
	must(t, err)
	open.Disposition = win.FileCreate
	for range depth {
		below, err := f.OpenAt(t.Context(), name, open)
		must(t, err)
		must(t, f.Close())
		f = below
	}
	must(t, f.Close())
}

// A tree can be removed however deep it is.
func TestRmdirDeeperThanAnyPath(t *testing.T) {
	sys := newFileNode(t)
	f := newFilesystem(t, sys)
	deepTree(t, sys, kubelet+`\x`, strings.Repeat("d", 15), 2100) // a path has 32,767 characters at most
	must(t, f.Rmdir(t.Context(), kubelet+`\x`, true))
	if exists, err := f.PathExists(t.Context(), kubelet+`\x`); exists || err != nil {
		t.Errorf("afterwards: %v, %v", exists, err)
	}
}

// Each level of a deep tree takes the same memory, however long the path to it.
func TestRmdirMemory(t *testing.T) {
	const dir, depth = kubelet + `\x`, 300
	sys := newFileNode(t)
	f := newFilesystem(t, sys)
	inUse := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	deepTree(t, sys, dir, strings.Repeat("d", 250), depth)
	before, highest, deletions := inUse(), int64(0), 0
	sys.OnCall(func(c winsim.Call) {
		if c.Name == win.CallDeleteFile {
			if deletions++; deletions == 1 { // the deepest one
				highest = inUse()
			}
		}
	})
	err := f.Rmdir(t.Context(), dir, true)
	sys.OnCall(nil)
	if err != nil || deletions != depth+1 {
		t.Errorf("%v, %d deletions", err, deletions)
	}
	perLevel := (highest - before) / depth
	t.Logf("%d levels: %d bytes each", depth, perLevel)
	if perLevel > 4096 {
		t.Errorf("%d levels: %d bytes each", depth, perLevel)
	}
}

// Whether an entry may be removed is decided without its whole path, so a deep tree isn't slow: a level allocates as much as in a tree
// that is less deep, also for a driver.
func TestRmdirAllocations(t *testing.T) {
	for _, driver := range []string{"", "driver"} {
		perLevel := func(depth int) uint64 {
			const dir = kubelet + `\plugins\driver\x`
			sys := newFileNode(t)
			n, err := nodeops.New(sys, nodeops.Options{}, nodeops.Driver{Driver: scope.Driver{Name: "driver"}})
			must(t, err)
			operations := n.Operations
			if driver != "" {
				operations = n.Driver(driver)
			}
			f := operations.Filesystem.(*nodeops.Filesystem)
			f.CallDirectly(sys) // bounded calls name the whole path
			deepTree(t, sys, dir, "d", depth)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			must(t, f.Rmdir(t.Context(), dir, true))
			runtime.ReadMemStats(&after)
			return (after.TotalAlloc - before.TotalAlloc) / uint64(depth)
		}
		flat, deep := perLevel(250), perLevel(4000)
		t.Logf("driver %q: %d and %d bytes for each level", driver, flat, deep)
		if deep > 2*flat {
			t.Errorf("driver %q: in a deep tree %d bytes for each level, in another %d", driver, deep, flat)
		}
	}
}

// Of a tree that is deep and broad, few entries are kept in memory. All are removed, or
// all but what is in use and what is above that.
func TestRmdirDeepAndBroad(t *testing.T) {
	const dir, depth, broad = kubelet + `\x`, 20, 40
	listings := map[string]int{}
	for name, c := range map[string]struct {
		keep  int
		inUse bool
	}{
		"many kept":     {1_000_000, false},
		"few kept":      {10, false},
		"a file in use": {10, true},
	} {
		t.Run(name, func(t *testing.T) {
			sys := newFileNode(t)
			f := newFilesystem(t, sys)
			f.SetLimits(1_000_000, c.keep, 100)
			path := dir
			for range depth {
				must(t, sys.MkdirAll(path))
				for i := range broad {
					must(t, sys.WriteFile(fmt.Sprintf(`%s\z%d`, path, i), nil))
				}
				path += `\d`
			}
			if c.inUse {
				must(t, sys.MkdirAll(path))
				must(t, sys.WriteFile(path+`\used`, nil))
				used, err := sys.Hold(path+`\used`, win.OpenOptions{Access: win.GenericRead, Share: win.ShareRead | win.ShareWrite, Disposition: win.FileOpen})
				must(t, err)
				defer used.Close()
			}
			err := f.Rmdir(t.Context(), dir, true)
			listings[name] = sys.Calls()[win.CallReadDir]
			if c.inUse != (err != nil) {
				t.Errorf("error %v", err)
			}
			left := tree(t, sys, dir)
			if c.inUse && (left[path+`\used`] == "" || !errors.Is(err, csiproxy.ErrUnavailable)) || !c.inUse && len(left) > 0 {
				t.Errorf("%d entries are left; the error is %v", len(left), err)
			}
		})
	}
	if listings["few kept"] <= listings["many kept"] {
		t.Errorf("nothing was forgotten and listed again: %v", listings)
	}
}

// A tree that is deeper than a goroutine's stack could hold doesn't end the process.
func TestRmdirTooDeep(t *testing.T) {
	sys := newFileNode(t)
	f := newFilesystem(t, sys)
	must(t, sys.MkdirAll(kubelet+`\x`+strings.Repeat(`\d`, 9))) // ten levels
	f.SetLimits(100, 100, 9)
	simtest.WantErrorOf(t, "ten levels", f.Rmdir(t.Context(), kubelet+`\x`, true), csiproxy.ErrFailedPrecondition)
	f.SetLimits(100, 100, 10)
	must(t, f.Rmdir(t.Context(), kubelet+`\x`, true))
}

// What a driver's calls hold at the same time is bounded together, and doesn't count for another driver.
func TestRmdirsOfDriverTogether(t *testing.T) {
	w := newTenants(t)
	files := func(name string) *nodeops.Filesystem { return w.own[name].Filesystem.(*nodeops.Filesystem) }
	plant := func(driver, name string, levels, broad int) (dir string) {
		dir = kubelet + `\plugins\` + driver + `\` + name
		path := dir
		for level := range levels {
			w.must(w.sim.MkdirAll(path))
			for i := range broad {
				w.must(w.sim.WriteFile(fmt.Sprintf(`%s\z%d`, path, i), nil))
			}
			path += fmt.Sprintf(`\d%d`, level+1)
		}
		return dir
	}
	// first removes a tree of blue's, and calls during when the deepest of its directories is open.
	first := func(levels, broad int, during func()) {
		t.Helper()
		files(blue).SetLimits(1000, 20, 10)
		files(red).SetLimits(1000, 20, 10)
		dir, reached := plant(blue, "first", levels, broad), false
		w.sim.OnCall(func(c winsim.Call) {
			if !reached && c.Name == win.CallReadDir && strings.HasSuffix(c.Object, fmt.Sprintf(`\d%d`, levels-1)) {
				reached = true
				during()
			}
		})
		w.must(files(blue).Rmdir(t.Context(), dir, true))
		w.sim.OnCall(nil)
		if !reached {
			t.Error("the deepest directory wasn't listed")
		}
	}
	first(8, 0, func() {
		deep, flat := plant(blue, "deep", 3, 0), plant(blue, "flat", 2, 0)
		simtest.WantErrorOf(t, "three levels beside eight of ten", files(blue).Rmdir(t.Context(), deep, true), csiproxy.ErrResourceExhausted)
		w.must(files(blue).Rmdir(t.Context(), flat, true))
		w.must(files(red).Rmdir(t.Context(), plant(red, "deep", 3, 0), true))
	})
	w.must(files(blue).Rmdir(t.Context(), kubelet+`\plugins\`+blue+`\deep`, true))

	listings := func(name string) int {
		dir, before := plant(name, "broad", 2, 10), w.sim.Calls()[win.CallReadDir]
		w.must(files(name).Rmdir(t.Context(), dir, true))
		return w.sim.Calls()[win.CallReadDir] - before
	}
	alone := listings(blue)
	first(3, 10, func() {
		simtest.Want(t, "listings of another driver", listings(red), alone)
		simtest.Want(t, "listings beside a call with 20 of 20 entries", listings(blue), alone+1)
	})
}

// Somebody makes a file for each that is removed: the call ends, and says so.
func TestRmdirWithoutEnd(t *testing.T) {
	sys := newFileNode(t)
	f := newFilesystem(t, sys)
	f.SetLimits(100, 100, 100)
	const dir = kubelet + `\x`
	must(t, sys.MkdirAll(dir))
	must(t, sys.WriteFile(dir+`\00000`, nil))
	made := 0
	sys.OnCall(func(call winsim.Call) {
		if call.Name == win.CallDeleteFile && made < 1000 {
			made++
			must(t, sys.WriteFile(fmt.Sprintf(`%s\%05d`, dir, made), nil)) // behind all others
		}
	})
	for name, remove := range map[string]func() error{
		"Rmdir":         func() error { return f.Rmdir(t.Context(), dir, true) },
		"RmdirContents": func() error { return f.RmdirContents(t.Context(), dir) },
	} {
		before := made
		if err := remove(); !errors.Is(err, csiproxy.ErrUnavailable) || made-before != 100 {
			t.Errorf("%s: %v after %d files", name, err, made-before)
		}
	}
	sys.OnCall(nil)
	must(t, f.Rmdir(t.Context(), dir, true))
}

// The mount manager and the reparse point's removal say that the mount point isn't there,
// and yet it is: nothing is said to be removed.
func TestRmdirBelievesItsOwnEyes(t *testing.T) {
	sys := newFileNode(t)
	f := newFilesystem(t, sys)
	volume, _ := newVolume(t, sys)
	mount(t, sys, kubelet+`\x\mnt`, volume)
	for _, errno := range []winerr.Errno{winerr.ErrorFileNotFound, winerr.ErrorPathNotFound, winerr.ErrorDirectory} {
		must(t, sys.Fail(winsim.Match{Call: win.CallDeleteVolumeMountPoint}, errno))
		// It isn't tried after each of these errors.
		must(t, sys.Fail(winsim.Match{Call: "FSCTL_DELETE_REPARSE_POINT", Fires: winsim.MayFire}, errno))
		for _, path := range []string{kubelet + `\x\mnt`, kubelet + `\x`} {
			err := f.Rmdir(t.Context(), path, true)
			if number, _ := csiproxy.WindowsErrorOf(err); number != uint32(errno) {
				t.Errorf("%v: removing %s gives %v", errno, path, err)
			}
		}
		sys.ResetRules()
	}
	must(t, f.Rmdir(t.Context(), kubelet+`\x`, true))
}

// Who mounts a volume again where this call has unmounted one has come after it, and keeps it.
func TestRmdirWhereSomebodyMountsAgain(t *testing.T) {
	sys := newFileNode(t)
	f := newFilesystem(t, sys)
	const dir = kubelet + `\x`
	name, _ := newVolume(t, sys)
	must(t, sys.MkdirAll(dir))
	mount(t, sys, dir, name)
	unmounts, mounted := 0, true
	sys.OnCall(func(call winsim.Call) {
		switch {
		case call.Name == win.CallDeleteVolumeMountPoint:
			unmounts++
			mounted = false
		case call.Name == win.CallOpenAt && call.Object == dir && !mounted:
			mounted = true // before the call, which comes by here too
			mount(t, sys, dir, name)
		}
	})
	err := f.Rmdir(t.Context(), dir, true)
	sys.OnCall(nil)
	if !errors.Is(err, csiproxy.ErrUnavailable) || unmounts != 1 {
		t.Errorf("after %d unmounts: %v", unmounts, err)
	}
	if got, err := sys.VolumeNameForMountPoint(t.Context(), dir+`\`); err != nil || got != name {
		t.Errorf("mounted is %q, %v", got, err)
	}
}

// A junction that is none any more when it is read is removed as what it is.
func TestRmdirOfWhatWasAJunction(t *testing.T) {
	for skip := range 2 {
		sys := newFileNode(t)
		must(t, sys.MkdirAll(kubelet+`\x`))
		must(t, sys.Junction(kubelet+`\junction`, kubelet+`\x`))
		must(t, sys.Fail(winsim.Match{Call: win.FsctlGetReparsePoint.String(), Object: "junction", Skip: skip, Count: 1},
			winerr.ErrorNotAReparsePoint))
		must(t, newFilesystem(t, sys).Rmdir(t.Context(), kubelet+`\junction`, true))
		if got := tree(t, sys, kubelet); got[kubelet+`\junction`] != "" || got[kubelet+`\x`] == "" {
			t.Errorf("there is %q", got)
		}
	}
}
