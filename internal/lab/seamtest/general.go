// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package seamtest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// Calls are the methods of one of the seam's interfaces, such as win.System, but Close. Their
// arguments are text, the open file h, buffers of a sector, and else zero.
func Calls[T any](of T, text string, h win.File) map[string]func(ctx context.Context) error {
	all := map[string]func(ctx context.Context) error{}
	methods := reflect.TypeFor[T]()
	for i := range methods.NumMethod() {
		name := methods.Method(i).Name
		if name == "Close" {
			continue
		}
		method := reflect.ValueOf(of).MethodByName(name)
		all[name] = func(ctx context.Context) error {
			in := []reflect.Value{reflect.ValueOf(ctx)}
			for j := 1; j < method.Type().NumIn(); j++ {
				switch t := method.Type().In(j); t {
				case reflect.TypeFor[string]():
					in = append(in, reflect.ValueOf(text))
				case reflect.TypeFor[win.File]():
					in = append(in, reflect.ValueOf(h))
				case reflect.TypeFor[[]byte]():
					in = append(in, reflect.ValueOf(make([]byte, 512)))
				default:
					in = append(in, reflect.Zero(t))
				}
			}
			out := method.Call(in)
			err, _ := out[len(out)-1].Interface().(error)
			return err
		}
	}
	return all
}

var generalRows = []row{
	{
		method: "System", name: "ended context", needs: []need{aDirectory},
		promise: "A call whose ctx has ended isn't begun.",
		test: func(t *testing.T, f *Fixture) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			check := func(calls map[string]func(context.Context) error) {
				for name, call := range calls {
					if err := call(ctx); !errors.Is(err, context.Canceled) {
						t.Errorf("%s: error %v", name, err)
					}
				}
			}
			h := f.openFile(t, f.Directory, open(win.FileListDirectory|win.Delete))
			none := f.Directory + `\missing\`
			check(Calls(f.System, none, h))
			check(Calls(h, "missing", h))
			check(Calls(f.device(t, deviceOf(f.systemVolume(t)), win.AccessNone), none, h))
			if left := list(t, h, true); len(left) > 0 {
				t.Errorf("a call was begun, and left %v", left)
			}
		},
	},
	{
		method: "System", name: "context that ends while a call reads", needs: []need{aBlocked},
		promise: "When ctx ends during a call that only reads, Windows is asked to give the call up, and it returns " +
			"ctx's error if Windows does so.",
		test: func(t *testing.T, f *Fixture) {
			call, begun := f.Blocked(t)
			ctx, cancel := context.WithCancel(t.Context())
			returned := make(chan error)
			go func() { returned <- call(ctx) }()
			if begun != nil {
				<-begun
			}
			cancel() // otherwise before or after the call has begun
			if err := <-returned; !errors.Is(err, context.Canceled) {
				t.Errorf("error %v", err)
			}
		},
	},
	{
		method: "System", name: "context that ends while a call changes something", needs: []need{aDirectory},
		promise: "A call that changes something always runs to its end, since nobody would know how far it got otherwise.",
		test: func(t *testing.T, f *Fixture) {
			dir := f.dir(t)
			for i := range 50 {
				name := fmt.Sprint("new", i)
				ctx, cancel := context.WithCancel(t.Context())
				go cancel()
				h, err := dir.OpenAt(ctx, name, creating(win.FileCreate, win.FileDirectoryFile))
				there := at(t, dir, name, open(win.FileReadAttributes)) == nil
				if (err == nil) != there || err != nil && !errors.Is(err, context.Canceled) {
					t.Errorf("error %v, and the directory is there: %t", err, there)
				}
				if err == nil {
					closing(t, h)
				}
				cancel()
			}
		},
	},
	{
		method: "System", name: "concurrent calls", needs: []need{aDirectory},
		promise: "They may be called concurrently.",
		test: func(t *testing.T, f *Fixture) {
			dir := f.dir(t)
			var wg sync.WaitGroup
			for i := range 8 {
				wg.Go(func() {
					name := fmt.Sprint("dir", i)
					for range 10 {
						if err := at(t, dir, name, creating(win.FileCreate, win.FileDirectoryFile)); err != nil {
							t.Errorf("%s: %v", name, err)
						}
						if _, err := f.System.FileAttributes(t.Context(), f.Directory+`\`+name); err != nil {
							t.Errorf("%s: %v", name, err)
						}
						if err := deletion(t, dir, name); err != nil {
							t.Errorf("%s: %v", name, err)
						}
					}
				})
			}
			wg.Wait()
			if left := list(t, dir, true); len(left) > 0 {
				t.Errorf("%v are left", left)
			}
		},
	},
	{
		method: "File.Close", name: "closed handle", needs: []need{aDirectory},
		promise: "Every call on a handle that was closed gives [ErrorInvalidHandle], a second Close too.",
		test: func(t *testing.T, f *Fixture) {
			h := f.openFile(t, f.Directory, open(win.FileListDirectory|win.Delete))
			closing(t, h)
			for name, call := range Calls(h, "missing", h) {
				wantErrno(t, name, call(t.Context()), winerr.ErrorInvalidHandle)
			}
			wantErrno(t, "Close", h.Close(), winerr.ErrorInvalidHandle)
		},
	},
	{
		method: "Device.Close", name: "closed handle",
		promise: "Every call on a handle that was closed gives [ErrorInvalidHandle], a second Close too.",
		test: func(t *testing.T, f *Fixture) {
			d := f.device(t, deviceOf(f.systemVolume(t)), win.AccessNone)
			closing(t, d)
			for name, call := range Calls(d, "", nil) {
				wantErrno(t, name, call(t.Context()), winerr.ErrorInvalidHandle)
			}
			wantErrno(t, "Close", d.Close(), winerr.ErrorInvalidHandle)
		},
	},
}
