// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// Every call reaches the system and the observer, under the name that the simulated node
// counts it by; and all names of calls are among them.
func TestEveryCallIsReported(t *testing.T) {
	sim, err := winsim.Open(winsim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	observed := make(map[string]int)
	sys := NewWindows(sim, func(call string, _ time.Duration, _ error) { observed[call]++ }, nil)

	ignore := func(string, []reflect.Value) {}
	callAll(t, reflect.TypeFor[win.System](), sys, ignore)
	device, err := sys.OpenDevice(t.Context(), `\\.\PhysicalDrive0`, win.GenericRead|win.GenericWrite)
	if err != nil {
		t.Fatal(err)
	}
	callAll(t, reflect.TypeFor[win.Device](), device, ignore)
	directory, err := sys.OpenFile(t.Context(), `C:\`, win.OpenOptions{
		Access: win.FileListDirectory, Disposition: win.FileOpen, Options: win.FileDirectoryFile | win.FileOpenForBackup,
	})
	if err != nil {
		t.Fatal(err)
	}
	callAll(t, reflect.TypeFor[win.File](), directory, ignore)

	if diff := cmp.Diff(sim.Calls(), observed); diff != "" {
		t.Errorf("-the node's count +observed:\n%s", diff)
	}
	for _, name := range win.CallNames() {
		// There is one method for all control codes.
		if control := strings.Contains(name, "CTL_") || name == win.CallUnknownControl; !control && observed[name] == 0 {
			t.Errorf("%s wasn't observed", name)
		}
	}
}

// callAll calls all methods of an interface but those of which nothing is reported, with
// zeros, and check with the name of each and its results.
func callAll(t *testing.T, methods reflect.Type, on any, check func(method string, results []reflect.Value)) {
	t.Helper()
	for i := range methods.NumMethod() {
		m := reflect.ValueOf(on).MethodByName(methods.Method(i).Name)
		if methods.Method(i).Name == "Close" {
			continue
		}
		args := []reflect.Value{reflect.ValueOf(t.Context())}
		for arg := 1; arg < m.Type().NumIn(); arg++ {
			value := reflect.Zero(m.Type().In(arg))
			if value.Type() == reflect.TypeFor[win.IoctlCode]() {
				value = reflect.ValueOf(win.IoctlStorageGetDeviceNumber)
			}
			args = append(args, value)
		}
		results := m.Call(args)
		check(methods.Method(i).Name, results)
		for _, result := range results {
			if stop, ok := result.Interface().(func()); ok && stop != nil {
				stop()
			}
		}
	}
}

// The caller gets the error of every call.
func TestEveryErrorIsPassedOn(t *testing.T) {
	sim, err := winsim.Open(winsim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	sys := NewWindows(sim, nil, nil)
	device, err := sys.OpenDevice(t.Context(), `\\.\PhysicalDrive0`, win.AccessNone)
	if err != nil {
		t.Fatal(err)
	}
	file, err := sys.OpenFile(t.Context(), `C:\`, win.OpenOptions{Disposition: win.FileOpen})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range win.CallNames() {
		if err := sim.Fail(winsim.Match{Call: name}, winerr.ErrorIODevice); err != nil {
			t.Fatal(err)
		}
	}
	check := func(method string, results []reflect.Value) {
		if err, isError := results[len(results)-1].Interface().(error); !isError || !errors.Is(err, winerr.ErrorIODevice) {
			t.Errorf("%s: %v", method, err)
		}
	}
	callAll(t, reflect.TypeFor[win.System](), sys, check)
	callAll(t, reflect.TypeFor[win.Device](), device, check)
	callAll(t, reflect.TypeFor[win.File](), file, check)
}

func TestNoCallWithAnEndedContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	sys := NewWindows(nil, func(call string, _ time.Duration, _ error) { t.Errorf("%s was made", call) }, nil)
	if _, err := sys.FindVolumes(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if err := sys.ReenumerateDevice(ctx, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestEveryCallIsLoggedForDebugging(t *testing.T) {
	sim, err := winsim.Open(winsim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	for level, want := range map[slog.Level][]string{
		slog.LevelInfo: nil,
		slog.LevelDebug: {
			`level=DEBUG msg="Windows call" call=GetFileAttributesW object=C:\Windows duration=X`,
			`level=DEBUG msg="Windows call" call=GetFileAttributesW object=C:\nothing duration=X err="The system cannot find the file specified (Windows error 2)"`,
		},
	} {
		var log bytes.Buffer
		sys := NewWindows(sim, nil, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: level})))
		sys.FileAttributes(t.Context(), `C:\Windows`)
		sys.FileAttributes(t.Context(), `C:\nothing`)
		var got []string
		for line := range strings.Lines(log.String()) {
			_, line, _ = strings.Cut(strings.TrimSpace(line), " ") // the time
			got = append(got, regexp.MustCompile(`duration=\S+`).ReplaceAllString(line, "duration=X"))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the lines at level %v (-want +got):\n%s", level, diff)
		}
	}
}

// A call that panics ends, so that it takes no room from later calls. It has no answer to observe.
func TestCallThatPanicsEnds(t *testing.T) {
	sim, err := winsim.Open(winsim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	sim.OnCall(func(winsim.Call) { panic("a bug") })
	sys := NewWindows(sim, func(call string, _ time.Duration, _ error) { t.Errorf("%s was observed", call) }, nil)
	ctx, tracker := WithTracker(t.Context())
	func() {
		defer func() {
			if p := recover(); p != "a bug" {
				t.Errorf("The caller's panic is %v.", p)
			}
		}()
		sys.FileAttributes(ctx, `C:\`)
	}()
	if load := sys.Load(); load.Running != 0 {
		t.Errorf("%d calls are under way after the panic.", load.Running)
	}
	if c, waits := tracker.Oldest(); waits {
		t.Errorf("The operation waits for %v after the panic.", c)
	}
}
