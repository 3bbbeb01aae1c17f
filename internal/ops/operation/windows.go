// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package operation

//go:generate go run ./callgen windows_gen.go

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
)

// Windows makes the calls of a [win.System], bounded and reported. All operations of a node share one.
type Windows struct {
	sys     win.System
	table   *table
	observe func(call string, took time.Duration, err error)
	log     *slog.Logger
}

// NewWindows returns sys with its calls bounded and reported. After each call that was answered, observe
// is called with the call's name, how long it took, and its error. The logger gets the calls that
// Windows doesn't answer in time, and at slog.LevelDebug every call. Both may be nil.
func NewWindows(sys win.System, observe func(call string, took time.Duration, err error), log *slog.Logger) *Windows {
	if observe == nil {
		observe = func(string, time.Duration, error) {}
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Windows{sys, newTable(log), observe, log}
}

// Load returns how many calls are under way, waiting and refused now.
func (s *Windows) Load() Load { return s.table.load() }

// Hangs reports whether Windows doesn't answer a call on a path in time, or on the server or volume that the path begins with.
func (s *Windows) Hangs(path string) bool {
	object := pathObject(path).name
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	for _, c := range s.table.objects[object] {
		if c.overdue {
			return true
		}
	}
	return false
}

// do waits until the call f may begin, makes it, and returns its error.
func do(ctx context.Context, s *Windows, name string, o object, f func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t := TrackerOf(ctx)
	c, err := s.table.enter(ctx, name, o)
	if err != nil {
		return err
	}
	t.begin(c)
	defer func() {
		t.end(c)
		s.table.leave(c)
	}()
	err = f()
	took := time.Since(c.Since)
	s.observe(name, took, err)
	if s.log.Enabled(ctx, slog.LevelDebug) {
		attrs := []slog.Attr{slog.String("call", name), slog.String("object", quote.Text(o.name)),
			slog.Duration("duration", took.Round(time.Microsecond))}
		if err != nil {
			attrs = append(attrs, slog.Any("err", err))
		}
		s.log.LogAttrs(ctx, slog.LevelDebug, "Windows call", attrs...)
	}
	return err
}

// get is do for a call with a result.
func get[T any](ctx context.Context, s *Windows, name string, o object, f func() (T, error)) (v T, err error) {
	err = do(ctx, s, name, o, func() error {
		v, err = f()
		return err
	})
	return v, err
}

func (s *Windows) NotifyArrivals(ctx context.Context, class winid.GUID) (arrived <-chan struct{}, stop func(), err error) {
	err = do(ctx, s, win.CallNotifyArrivals, object{name: "notices of devices of class " + class.String()},
		func() (err error) {
			arrived, stop, err = s.sys.NotifyArrivals(ctx, class)
			return err
		})
	return arrived, stop, err
}

func (s *Windows) OpenDevice(ctx context.Context, path string, access win.Access) (win.Device, error) {
	d, err := get(ctx, s, win.CallOpen, pathObject(path),
		func() (win.Device, error) { return s.sys.OpenDevice(ctx, path, access) })
	if err != nil {
		return nil, err
	}
	return &device{d, s, path}, nil
}

func (s *Windows) OpenFile(ctx context.Context, path string, o win.OpenOptions) (win.File, error) {
	f, err := get(ctx, s, win.CallOpen, pathObject(path), func() (win.File, error) { return s.sys.OpenFile(ctx, path, o) })
	if err != nil {
		return nil, err
	}
	return &file{f, s, path}, nil
}

type device struct {
	win.Device // Close isn't reported
	sys        *Windows
	path       string
}

// maxObject is the length, in bytes, of the longest path that names the object of a call. A path
// of the API has 260 characters; only RmdirContents goes deeper. 512 such names, one for each
// call under way, take two megabytes.
const maxObject = 4096

type file struct {
	win.File // Close isn't reported
	sys      *Windows
	path     string
}

func (f *file) OpenAt(ctx context.Context, name string, o win.OpenOptions) (win.File, error) {
	path := f.path + `\` + name
	// Windows opens the directories on the way, too. If one of them hangs, so would this.
	if err := f.sys.table.hangingOnTheWay(win.CallOpenAt, path, len(f.path)+1); err != nil {
		return nil, err
	}
	if len(path) > maxObject {
		path = f.path // everything deeper is one object: full paths of a deep tree would fill the memory
	}
	child, err := get(ctx, f.sys, win.CallOpenAt, pathObject(path),
		func() (win.File, error) { return f.File.OpenAt(ctx, name, o) })
	if err != nil {
		return nil, err
	}
	return &file{child, f.sys, path}, nil
}

// initiator is the object of the calls that are about no single portal, target or session.
var initiator = object{name: "the iSCSI initiator"}

func portalObject(p win.ISCSIPortal) object {
	return object{name: "portal " + p.Address}
}

func sessionObject(id win.ISCSISessionID) object {
	return object{name: fmt.Sprintf("session %x-%x", id.AdapterUnique, id.AdapterSpecific)}
}

// deviceObject is the device of an interface path, or the root of the device tree.
func deviceObject(interfacePath string) object {
	return object{name: cmp.Or(interfacePath, "the device tree")}
}

func processObject(id win.ProcessID) object { return object{name: fmt.Sprintf("process %d", id)} }
