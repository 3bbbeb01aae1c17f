// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winservice

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/registry"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

func (s *testService) settings(t *testing.T) Settings {
	t.Helper()
	return s.query(t).Settings
}

// Configure gives a service its settings, whatever they were.
func TestSettings(t *testing.T) {
	s := newService(t, "runs")
	s.install(t)
	first := s.settings(t)
	if first.CommandLine != s.CommandLine || first.Start != Automatic {
		t.Errorf("installed: %+v", first)
	}
	other := Settings{CommandLine: s.CommandLine + " --v=2", Start: Manual}
	must(t, services.Configure(s.Name, other))
	second := s.settings(t)
	if second.CommandLine != other.CommandLine || second.Start != Manual {
		t.Errorf("changed: %+v", second)
	}
	if diff := cmp.Diff(first.Recovery, second.Recovery); diff != "" {
		t.Errorf("recovery, which stays (-want +got):\n%s", diff)
	}
	for _, start := range []StartType{Automatic, Automatic, Manual, Manual, Disabled} {
		first.Start = start
		must(t, services.Configure(s.Name, first))
		if diff := cmp.Diff(first, s.settings(t)); diff != "" {
			t.Errorf("restored (-want +got):\n%s", diff)
		}
	}
}

func TestStartAndStop(t *testing.T) {
	for _, does := range []string{"runs", "outlives"} {
		t.Run(does, func(t *testing.T) {
			s := newService(t, does)
			s.install(t)
			for range 2 {
				must(t, Start(t.Context(), services, s.Name))
			}
			if status := s.query(t); status.State != Running {
				t.Errorf("started: %+v", status)
			}
			s.endProcess(t, 0, func() {
				for range 2 {
					must(t, Stop(t.Context(), services, discard, s.Name, false))
				}
			})
			if status := s.query(t); status.State != Stopped {
				t.Errorf("stopped: %+v", status)
			}
		})
	}
	if err := Stop(t.Context(), services, discard, "csi-proxy-wintest-missing", false); err != nil {
		t.Errorf("stop of a missing service: %v", err)
	}
	if err := Start(t.Context(), services, "csi-proxy-wintest-missing"); !errors.Is(err, csiproxy.ErrNotFound) {
		t.Errorf("start of a missing service: %v", err)
	}
}

// A service that ends instead of serving is an error with the reason's place.
func TestStartOfFailingService(t *testing.T) {
	s := newService(t, "fails")
	s.install(t)
	must(t, os.WriteFile(filepath.Join(s.dir, "fail"), nil, 0o600))
	// It may have said that it runs before it fails.
	err := Start(t.Context(), services, s.Name)
	if err == nil {
		s.await(t, Stopped)
		return
	}
	if !errors.Is(err, csiproxy.ErrUnavailable) || !strings.Contains(err.Error(), "Event Log") {
		t.Errorf("%v", err)
	}
}

func TestRecord(t *testing.T) {
	s := newService(t, "runs")
	if err := services.SetRecord(s.Name, []byte("x")); !errors.Is(err, csiproxy.ErrNotFound) {
		t.Errorf("without a service: %v", err)
	}
	s.install(t)
	for _, want := range []string{"", `{"a":"\\ ü"}`, "other", ""} {
		record := []byte(want)
		if want == "" {
			record = nil
		}
		must(t, services.SetRecord(s.Name, record))
		if got, err := services.Record(s.Name); string(got) != want || err != nil {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
}

// A wrapper's service counts as the daemon's, and gets its command line back as it was.
func TestWrappedService(t *testing.T) {
	s := newService(t, "runs")
	s.install(t)
	ours := s.settings(t)
	program, _, err := services.SplitCommandLine(ours.CommandLine)
	must(t, err)
	key, _, err := registry.CreateKey(registry.LOCAL_MACHINE, servicesKey+s.Name+`\Parameters`, registry.SET_VALUE)
	must(t, err)
	defer key.Close()
	must(t, key.SetExpandStringValue("Application", program))
	if got := s.settings(t).Wrapped; got != "" {
		t.Errorf("the daemon itself counts as a wrapper of %s", got)
	}
	under := ours
	under.CommandLine = `"` + filepath.Join(s.dir, "nssm.exe") + `"`
	must(t, services.Configure(s.Name, under))
	got := s.settings(t)
	if wrapped, _, err := services.SplitCommandLine(got.Wrapped); got.CommandLine != under.CommandLine ||
		wrapped != program || err != nil {
		t.Errorf("%s runs %s, want %s (%v)", got.CommandLine, got.Wrapped, program, err)
	}
	must(t, services.Configure(s.Name, ours))
	if diff := cmp.Diff(ours, s.settings(t)); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
}

func TestLock(t *testing.T) {
	for range 2 {
		unlock, err := Lock()
		must(t, err)
		if _, err := Lock(); !errors.Is(err, csiproxy.ErrUnavailable) {
			t.Errorf("locked twice: %v", err)
		}
		must(t, unlock())
	}
}

func TestMakeDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "log")
	for range 2 {
		must(t, services.MakeDirectory(dir))
	}
	descriptor, err := windows.GetNamedSecurityInfo(dir, windows.SE_FILE_OBJECT, windows.DACL_SECURITY_INFORMATION)
	must(t, err)
	// Two entries. Wine takes the Administrators for the user who runs it.
	if got := descriptor.String(); !strings.Contains(got, "(A;OICI;FA;;;SY)") ||
		strings.Count(got, "(A;OICI;FA;;;") != 2 || strings.Count(got, "(") != 2 {
		t.Errorf("access list %s", got)
	}
	// The list of one that is there is its administrator's.
	before, err := windows.GetNamedSecurityInfo(filepath.Dir(dir), windows.SE_FILE_OBJECT,
		windows.DACL_SECURITY_INFORMATION)
	must(t, err)
	must(t, services.MakeDirectory(filepath.Dir(dir)))
	after, err := windows.GetNamedSecurityInfo(filepath.Dir(dir), windows.SE_FILE_OBJECT,
		windows.DACL_SECURITY_INFORMATION)
	if err != nil || before.String() != after.String() {
		t.Errorf("%v, %v, %v", before, after, err)
	}
	file := filepath.Join(dir, "file")
	must(t, os.WriteFile(file, nil, 0o600))
	for _, bad := range []string{file, "log", ""} {
		if err := services.MakeDirectory(bad); !errors.Is(err, csiproxy.ErrInvalidArgument) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestWriters: those count who can write and aren't administrators, by the list and as the owner.
func TestWriters(t *testing.T) {
	for text, want := range map[string]string{
		"O:BAD:(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)(A;OICI;0x1200a9;;;BU)(A;OICIIO;GA;;;CO)": "",
		"O:BAD:(A;;FA;;;SY)(A;;0x1301bf;;;AU)":                                           "S-1-5-11",
		"O:BAD:(A;;FA;;;SY)(A;;0x4;;;WD)(A;;0x40;;;BU)":                                  "S-1-1-0 S-1-5-32-545",
		"O:WDD:(A;;FA;;;BA)":             "S-1-1-0",
		"O:SYD:(D;;FA;;;WD)(A;;FR;;;WD)": "",
		"O:SYD:(A;;WD;;;BU)":             "S-1-5-32-545",
		"O:SY":                           "S-1-1-0",
		"O:S-1-5-80-956008885-3418522649-1831038044-1853292631-2271478464D:(A;;FA;;;BA)": "",
	} {
		descriptor, err := windows.SecurityDescriptorFromString(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		sids, err := writers(descriptor)
		var got []string
		for _, sid := range sids {
			got = append(got, sid.String())
		}
		if strings.Join(got, " ") != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", text, got, err, want)
		}
	}
	dir := filepath.Join(t.TempDir(), "log")
	must(t, services.MakeDirectory(dir))
	for _, dir := range []string{dir, filepath.Join(dir, "missing")} {
		if names, err := services.Writers(dir); len(names) > 0 || err != nil {
			t.Errorf("%s: %q, %v", dir, names, err)
		}
	}
}
