// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

const (
	newLink = kubelet + `\link`
	source  = kubelet + `\staged`
)

// makeSymlink makes newLink a symlink to source.
func makeSymlink(ctx context.Context, t *testing.T, sys *winsim.System, file bool) (made bool, err error) {
	t.Helper()
	p := newPolicy(t)
	err = p.Reach(ctx, sys, mustParse(t, p, newLink), func(e pathpolicy.Entry) (err error) {
		made, err = e.MakeSymlink(ctx, source, file, func(l pathpolicy.Link) bool { return l.Target() == source })
		return err
	})
	return made, err
}

// thereIs describes what is at newLink.
func thereIs(t *testing.T, sys *winsim.System) string {
	t.Helper()
	entries, err := sys.ReadDir(kubelet)
	must(t, err)
	for _, e := range entries {
		switch {
		case e.Name != "link":
		case e.IsReparsePoint() && e.IsDir():
			target, err := sys.ReadLink(newLink)
			must(t, err)
			return "a link to " + target
		case e.IsReparsePoint():
			target, err := sys.ReadLink(newLink)
			must(t, err)
			return "a file's link to " + target
		case e.IsDir():
			return "a directory"
		default:
			return "a file"
		}
	}
	return "nothing"
}

// A link is made where nothing is. What is there stays, and only the same symlink is a success.
func TestMakeSymlink(t *testing.T) {
	const another = kubelet + `\another`
	directory := func(sys *winsim.System) error { return sys.MkdirAll(newLink) }
	for name, c := range map[string]struct {
		prepare func(sys *winsim.System) error // nil: nothing is there
		file    bool
		made    bool
		want    string // in the error
		there   string // afterwards
	}{
		"a link to a directory": {made: true, there: "a link to " + source},
		"a link to a file":      {file: true, made: true, there: "a file's link to " + source},
		"the same":              {prepare: symlink(source), there: "a link to " + source},
		"another": {prepare: symlink(another),
			want: "there already, to " + another, there: "a link to " + another},
		"a junction": {prepare: func(sys *winsim.System) error { return sys.Junction(newLink, source) },
			want: "there already, to " + source, there: "a link to " + source},
		"a directory": {prepare: directory, want: "a file or directory is there", there: "a directory"},
		"a file": {prepare: func(sys *winsim.System) error { return sys.WriteFile(newLink, nil) },
			want: "a file or directory is there", there: "a file"},
	} {
		t.Run(name, func(t *testing.T) {
			sys := newNode(t)
			must(t, sys.MkdirAll(kubelet))
			if c.prepare != nil {
				must(t, c.prepare(sys))
			}
			made, err := makeSymlink(t.Context(), t, sys, c.file)
			if c.want == "" {
				must(t, err)
			} else if !errors.Is(err, csiproxy.ErrAlreadyExists) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %s", err, c.want)
			}
			if got := thereIs(t, sys); made != c.made || got != c.there {
				t.Errorf("made is %v, and there is %s, want %s", made, got, c.there)
			}
		})
	}
	sys, p := newNode(t), newPolicy(t)
	must(t, sys.MkdirAll(kubelet))
	must(t, p.Reach(t.Context(), sys, mustParse(t, p, kubelet), func(e pathpolicy.Entry) error {
		_, err := e.MakeSymlink(t.Context(), source, false, func(pathpolicy.Link) bool { return true })
		simtest.WantErrorOf(t, "in place of an allowed directory", err, csiproxy.ErrInvalidArgument)
		return nil
	}))
}

func symlink(target string) func(sys *winsim.System) error {
	return func(sys *winsim.System) error { return sys.Symlink(newLink, target, true) }
}

// beforeOpens calls f before each open of newLink, with its index.
func beforeOpens(sys *winsim.System, f func(i int)) {
	i := 0
	sys.OnCall(func(c winsim.Call) {
		if c.Name == win.CallOpenAt && strings.HasSuffix(c.Object, `\link`) {
			f(i)
			i++
		}
	})
}

// What is there may have gone when it is looked at. Then the link is made, but not forever.
func TestMakeSymlinkWhereSomebodyRemoves(t *testing.T) {
	for name, c := range map[string]struct {
		times int // that somebody makes a directory and removes it
		want  error
	}{"at last": {3, nil}, "forever": {4, csiproxy.ErrUnavailable}} {
		t.Run(name, func(t *testing.T) {
			sys := newNode(t)
			must(t, sys.MkdirAll(kubelet))
			beforeOpens(sys, func(i int) {
				switch {
				case i >= 2*c.times:
				case i%2 == 0:
					must(t, sys.MkdirAll(newLink))
				default:
					must(t, sys.Remove(newLink))
				}
			})
			made, err := makeSymlink(t.Context(), t, sys, false)
			if !errors.Is(err, c.want) || made != (c.want == nil) {
				t.Errorf("made is %v, error %v, want %v", made, err, c.want)
			}
		})
	}
}

// While another call is about to make a directory a link, it is waited for.
func TestMakeSymlinkAwaitsAnother(t *testing.T) {
	for name, c := range map[string]struct {
		ends   bool   // after 300 ms
		target string // of what it makes then; "" if it fails
		want   error
	}{
		"that makes it":      {true, source, nil},
		"that makes another": {true, kubelet, csiproxy.ErrAlreadyExists},
		"that fails":         {true, "", csiproxy.ErrAlreadyExists},
		"forever":            {false, "", winerr.ErrorSharingViolation},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sys := newNode(t)
				must(t, sys.MkdirAll(newLink))
				maker, err := sys.Hold(newLink, win.OpenOptions{Access: win.FileWriteAttributes | win.Delete,
					Share: win.ShareRead | win.ShareWrite, Disposition: win.FileOpen, Options: win.FileDirectoryFile})
				must(t, err)
				if c.ends {
					time.AfterFunc(300*time.Millisecond, func() {
						var err error
						if c.target != "" {
							err = sys.SetReparsePoint(newLink, win.NewSymlink(c.target))
						}
						if err = errors.Join(err, maker.Close()); err != nil {
							t.Error(err)
						}
					})
				} else {
					defer maker.Close()
				}
				if made, err := makeSymlink(t.Context(), t, sys, false); made || !errors.Is(err, c.want) {
					t.Errorf("made is %v, error %v, want %v", made, err, c.want)
				}
			})
		})
	}
}

// What was made for a link that fails is removed again, also if the caller has given up.
func TestMakeSymlinkLeavesNothing(t *testing.T) {
	sys := newNode(t)
	must(t, sys.MkdirAll(kubelet))
	fsctl := winsim.Match{Call: win.FsctlSetReparsePoint.String(), Count: 1}
	ctx, cancel := context.WithCancel(t.Context())
	must(t, sys.Fail(fsctl, winerr.ErrorInvalidFunction))
	sys.OnCall(func(c winsim.Call) {
		if c.Name == fsctl.Call {
			cancel()
		}
	})
	made, err := makeSymlink(ctx, t, sys, false)
	sys.OnCall(nil)
	if got := thereIs(t, sys); made || err == nil || got != "nothing" {
		t.Errorf("made is %v, error %v, and there is %s", made, err, got)
	}

	must(t, sys.Fail(fsctl, winerr.ErrorInvalidFunction))
	must(t, sys.Fail(winsim.Match{Call: win.CallDeleteFile, Count: 1}, winerr.ErrorWriteProtect))
	made, err = makeSymlink(t.Context(), t, sys, false)
	if made || !errors.Is(err, winerr.ErrorInvalidFunction) ||
		!strings.Contains(err.Error(), "an empty file or directory is left") {
		t.Errorf("made is %v, and what is left isn't told: %v", made, err)
	}
}

func TestMakeSymlinkFailures(t *testing.T) {
	sys := newNode(t)
	must(t, sys.MkdirAll(kubelet))
	eachCallFails(t, sys, func() error {
		_ = sys.Remove(newLink)
		_, err := makeSymlink(t.Context(), t, sys, false)
		return err
	})
	_ = sys.Remove(newLink)
	must(t, symlink(source)(sys))
	eachCallFails(t, sys, func() error {
		_, err := makeSymlink(t.Context(), t, sys, false)
		return err
	})
}

// What goes wrong when something is closed is told.
func TestLinksTellErrorsOfClosing(t *testing.T) {
	making := func(e pathpolicy.Entry) error {
		_, err := e.MakeSymlink(t.Context(), source, false, func(pathpolicy.Link) bool { return true })
		return err
	}
	for name, c := range map[string]struct {
		there string
		do    func(e pathpolicy.Entry) error
	}{
		"a link that is there": {"link", making},
		"an empty directory": {"directory", func(e pathpolicy.Entry) error {
			_, err := e.RemoveEmptyDirectory(t.Context())
			return err
		}},
	} {
		sys, p := newNode(t), newPolicy(t)
		must(t, symlink(source)(sys))
		must(t, sys.MkdirAll(kubelet+`\directory`))
		var err error
		_ = p.Reach(t.Context(), unclosable{sys}, mustParse(t, p, kubelet+`\`+c.there), func(e pathpolicy.Entry) error {
			err = c.do(e)
			return nil
		})
		simtest.WantErrorOf(t, name, err, winerr.ErrorIODevice)
	}
}

// A link is read also if its target is longer than links of kubelet and drivers have.
func TestLongLink(t *testing.T) {
	sys, p := newNode(t), newPolicy(t)
	for _, names := range []int{1, 3, 16} {
		target := kubelet + strings.Repeat(`\`+strings.Repeat("n", 240), names)
		must(t, sys.MkdirAll(target))
		must(t, sys.Symlink(newLink, target, true))
		r, err := p.Resolve(t.Context(), sys, mustParse(t, p, newLink))
		if err != nil || r.Kind != pathpolicy.PlainDirectory || !r.ByLink || r.Target != target {
			t.Errorf("a link to %d names of 240 characters: %+v, %v", names, r, err)
		}
		must(t, sys.Remove(newLink))
	}
}

// An empty directory alone is removed.
func TestRemoveEmptyDirectory(t *testing.T) {
	remove := func(sys *winsim.System, path string) (removed bool, err error) {
		p := newPolicy(t)
		err = p.Reach(t.Context(), sys, mustParse(t, p, path), func(e pathpolicy.Entry) (err error) {
			removed, err = e.RemoveEmptyDirectory(t.Context())
			return err
		})
		return removed, err
	}
	sys := newNode(t)
	must(t, sys.MkdirAll(kubelet))
	for name, c := range map[string]struct {
		prepare func() error
		want    error
		there   string
	}{
		"a directory": {func() error { return sys.MkdirAll(newLink) }, nil, "nothing"},
		"a link":      {func() error { return symlink(source)(sys) }, nil, "a link to " + source},
		"a file":      {func() error { return sys.WriteFile(newLink, nil) }, nil, "a file"},
		"one with entries": {func() error { return sys.MkdirAll(newLink + `\x`) }, winerr.ErrorDirNotEmpty,
			"a directory"},
		"nothing": {func() error { return nil }, winerr.ErrorFileNotFound, "nothing"},
	} {
		must(t, c.prepare())
		removed, err := remove(sys, newLink)
		if got := thereIs(t, sys); !errors.Is(err, c.want) || got != c.there || removed != (name == "a directory") {
			t.Errorf("%s: removed is %v, error %v, and there is %s", name, removed, err, got)
		}
		_ = sys.Remove(newLink + `\x`)
		_ = sys.Remove(newLink)
	}
	eachCallFails(t, sys, func() error {
		must(t, sys.MkdirAll(newLink))
		_, err := remove(sys, newLink)
		return err
	})
	if removed, err := remove(sys, kubelet); removed || !errors.Is(err, csiproxy.ErrInvalidArgument) {
		t.Errorf("an allowed directory: %v, %v", removed, err)
	}
}
