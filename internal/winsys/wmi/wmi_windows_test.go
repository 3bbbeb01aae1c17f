// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package wmi

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/win"
)

func connect(t *testing.T, namespace string, f func(s *Services) error) {
	t.Helper()
	if err := Connect(t.Context(), namespace, f); err != nil {
		t.Error(err)
	}
}

func TestSelect(t *testing.T) {
	connect(t, `root\cimv2`, func(s *Services) error {
		count := 0
		err := s.Select(t.Context(), "SELECT * FROM Win32_OperatingSystem", func(o *Object) error {
			count++
			for name, want := range map[string]any{
				"Caption": "", "Primary": true, "ServicePackMajorVersion": int64(0), "TotalVisibleMemorySize": "",
			} {
				got, err := o.Get(name)
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				switch want.(type) { // strings and numbers differ from system to system
				case string:
					if s, ok := got.(string); !ok || s == "" {
						t.Errorf("%s = %#v; want a string", name, got)
					}
				case int64:
					if _, ok := got.(int64); !ok {
						t.Errorf("%s = %#v; want an integer", name, got)
					}
				default:
					if got != want {
						t.Errorf("%s = %#v; want %#v", name, got, want)
					}
				}
			}
			if path, err := o.String("__PATH"); err != nil || !strings.Contains(path, "Win32_OperatingSystem") {
				t.Errorf("path %q, %v", path, err)
			}
			if v, err := o.Uint32("Caption"); err == nil {
				t.Errorf("a string is the integer %d", v)
			}
			_, err := o.Get("NoSuchProperty")
			wantErrno(t, "an unknown property", err, win.ErrorNotFound)
			return nil
		})
		if count != 1 {
			t.Errorf("%d operating systems", count)
		}
		return err
	})
}

func TestSelectEnds(t *testing.T) {
	connect(t, `root\cimv2`, func(s *Services) error {
		enough := errors.New("enough")
		count := 0
		err := s.Select(t.Context(), "SELECT * FROM Win32_Process", func(*Object) error {
			if count++; count == 2 {
				return enough
			}
			return nil
		})
		if err != enough || count != 2 {
			t.Errorf("error %v after %d objects", err, count)
		}
		ctx, cancel := context.WithCancel(t.Context())
		err = s.Select(ctx, "SELECT * FROM Win32_Process", func(*Object) error { cancel(); return nil })
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error %v; want Canceled", err)
		}
		return nil
	})
}

func TestCall(t *testing.T) {
	connect(t, `root\default`, func(s *Services) error {
		const localMachine = uint32(0x80000002)
		out, err := s.Call("StdRegProv", "StdRegProv", "GetStringValue", map[string]any{
			"hDefKey":     localMachine,
			"sSubKeyName": `SYSTEM\CurrentControlSet\Control\Session Manager\Environment`,
			"sValueName":  "OS",
		})
		if err != nil {
			return err
		}
		defer out.Close()
		if result, err := out.Uint32("ReturnValue"); err != nil || result != 0 {
			t.Errorf("result %d, %v", result, err)
		}
		if got, err := out.String("sValue"); err != nil || got != "Windows_NT" {
			t.Errorf("OS is %q, %v", got, err)
		}
		if _, err := s.Call("StdRegProv", "StdRegProv", "GetStringValue", map[string]any{"NoSuchParameter": "x"}); err == nil {
			t.Error("an unknown parameter is accepted")
		}
		_, err = s.Call("StdRegProv", "StdRegProv", "NoSuchMethod", nil)
		wantErrno(t, "an unknown method", err, win.ErrorNotFound)
		_, err = s.Call("NoSuchClass", "NoSuchClass", "NoSuchMethod", nil)
		wantErrno(t, "an unknown class", err, win.ErrorNotFound)
		_, err = s.Call("StdRegProv", "StdRegProv", "GetStringValue", map[string]any{"sValueName": 1.5})
		wantErrno(t, "a value of an unknown type", err, win.ErrorInvalidParameter)
		return nil
	})
}

// A method of one object, found by the path of that.
func TestCallOfObject(t *testing.T) {
	called := false
	connect(t, `root\cimv2`, func(s *Services) error {
		return s.Select(t.Context(), "SELECT * FROM Win32_Process WHERE Name LIKE '%.test.exe'", func(o *Object) error {
			path, err := o.String("__PATH")
			if err != nil {
				return err
			}
			out, err := s.Call("Win32_Process", path, "GetOwner", nil)
			if err != nil {
				return err
			}
			defer out.Close()
			if user, err := out.String("User"); err != nil || user == "" {
				t.Errorf("owner of %s: %q, %v", path, user, err)
			}
			called = true
			return nil
		})
	})
	if !called {
		t.Error("this process isn't among the processes")
	}
}

func TestErrors(t *testing.T) {
	none := func(*Services) error { t.Error("connected"); return nil }
	err := Connect(t.Context(), `root\no\such\namespace`, none)
	wantErrno(t, "an unknown namespace", err, win.ErrorNotSupported)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Connect(ctx, `root\cimv2`, none); err != context.Canceled {
		t.Errorf("error %v; want Canceled", err)
	}
	connect(t, `root\cimv2`, func(s *Services) error {
		err := s.Select(t.Context(), "SELECT * FROM", func(*Object) error { return nil })
		if err == nil {
			t.Error("a bad query is accepted")
		}
		return nil
	})
}

func wantErrno(t *testing.T, what string, err error, want win.Errno) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: error %v; want %v", what, err, want)
	}
}
