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

// Windows makes the calls of a [win.System], limits how many are under way, and reports them. All
// operations of a node share one.
type Windows struct {
	sys     win.System
	table   *table
	observe func(call string, took time.Duration, err error)
	log     *slog.Logger
}

// NewWindows returns a Windows that makes the calls of sys. After each answered call, observe gets
// the call's name, duration and error. The logger gets overdue calls, and at slog.LevelDebug every
// call. Both may be nil.
func NewWindows(sys win.System, observe func(call string, took time.Duration, err error), log *slog.Logger) *Windows {
	if observe == nil {
		observe = func(string, time.Duration, error) {}
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Windows{sys, newTable(log), observe, log}
}

// ForDriver makes all calls on behalf of the driver name: see the function ForDriver. It returns s.
func (s *Windows) ForDriver(name string) *Windows {
	s.table.driver = name
	return s
}

// Load returns how many calls are under way, waiting and refused now.
func (s *Windows) Load() Load { return s.table.load() }

// Hangs reports whether a call is overdue on a path, or on the server or volume at the path's
// beginning.
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

// begin waits until a call may begin. The caller makes the call, and defers end.
func (s *Windows) begin(ctx context.Context, name string, o object) (*call, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c, err := s.table.enter(ctx, name, o)
	if err != nil {
		return nil, err
	}
	TrackerOf(ctx).begin(c)
	return c, nil
}

// end reports a call that Windows has answered with *err. A panicking call has no answer.
func (s *Windows) end(ctx context.Context, c *call, err *error) {
	took := time.Since(c.Since)
	TrackerOf(ctx).end(c)
	s.table.leave(c)
	if p := recover(); p != nil {
		panic(p)
	}
	s.observe(c.Name, took, *err)
	if !s.log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	attrs := []slog.Attr{slog.String("call", c.Name), slog.String("object", quote.Text(c.Object)),
		slog.Duration("duration", took.Round(time.Microsecond))}
	if *err != nil {
		attrs = append(attrs, slog.Any("err", *err))
	}
	s.log.LogAttrs(ctx, slog.LevelDebug, "Windows call", attrs...)
}

func (s *Windows) NotifyArrivals(ctx context.Context, class winid.GUID) (arrived <-chan struct{}, stop func(), err error) {
	c, err := s.begin(ctx, win.CallNotifyArrivals, object{name: "notices of devices of class " + class.String()})
	if err != nil {
		return nil, nil, err
	}
	defer s.end(ctx, c, &err)
	return s.sys.NotifyArrivals(ctx, class)
}

func (s *Windows) OpenDevice(ctx context.Context, path string, access win.Access) (_ win.Device, err error) {
	c, err := s.begin(ctx, win.CallOpen, pathObject(path))
	if err != nil {
		return nil, err
	}
	defer s.end(ctx, c, &err)
	d, err := s.sys.OpenDevice(ctx, path, access)
	if err != nil {
		return nil, err
	}
	return &device{d, s, path}, nil
}

func (s *Windows) OpenFile(ctx context.Context, path string, o win.OpenOptions) (_ win.File, err error) {
	c, err := s.begin(ctx, win.CallOpen, pathObject(path))
	if err != nil {
		return nil, err
	}
	defer s.end(ctx, c, &err)
	f, err := s.sys.OpenFile(ctx, path, o)
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

// maxObject is the maximum length, in bytes, of a path as the object of a call. A path in the API
// has 260 characters; only RmdirContents goes deeper. 512 paths of this length, one for each call
// under way, take two megabytes.
const maxObject = 4096

type file struct {
	win.File // Close isn't reported
	sys      *Windows
	path     string
}

func (f *file) OpenAt(ctx context.Context, name string, o win.OpenOptions) (_ win.File, err error) {
	path := f.path + `\` + name
	// Windows also opens the directories on the way. If one of them hangs, the call would hang too.
	next := Call{Name: win.CallOpenAt, isOfDriver: f.sys.table.driver != "" || isForDriver(ctx)}
	if err := f.sys.table.hangingOnTheWay(next, path, len(f.path)+1); err != nil {
		return nil, err
	}
	if len(path) > maxObject {
		path = f.path // everything deeper is one object: full paths of a deep tree would fill the memory
	}
	c, err := f.sys.begin(ctx, win.CallOpenAt, pathObject(path))
	if err != nil {
		return nil, err
	}
	defer f.sys.end(ctx, c, &err)
	child, err := f.File.OpenAt(ctx, name, o)
	if err != nil {
		return nil, err
	}
	return &file{child, f.sys, path}, nil
}

// initiator is the object of calls about the initiator as a whole, rather than a portal, target or
// session.
var initiator = object{name: "the iSCSI initiator"}

func portalObject(p win.ISCSIPortal) object {
	return object{name: "portal " + p.Address}
}

func sessionObject(id win.ISCSISessionID) object {
	return object{name: fmt.Sprintf("session %x-%x", id.AdapterUnique, id.AdapterSpecific)}
}

// deviceObject is the device with an interface path, or the root of the device tree.
func deviceObject(interfacePath string) object {
	return object{name: cmp.Or(interfacePath, "the device tree")}
}

func processObject(id win.ProcessID) object { return object{name: fmt.Sprintf("process %d", id)} }
