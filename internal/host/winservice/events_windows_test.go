// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winservice

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"golang.org/x/sys/windows/registry"
	"golang.org/x/sys/windows/svc/eventlog"
)

func TestEventSource(t *testing.T) {
	s := newService(t, "runs")
	source := sourcesKey + `\` + s.Name
	read := func() (string, error) {
		key, err := registry.OpenKey(registry.LOCAL_MACHINE, source, registry.QUERY_VALUE)
		if err != nil {
			return "", err
		}
		defer key.Close()
		types, _, typesErr := key.GetIntegerValue("TypesSupported")
		file, _, err := key.GetStringValue("EventMessageFile")
		return fmt.Sprint(file, " ", types), errors.Join(typesErr, err)
	}
	want := fmt.Sprint(eventMessages, " ", eventlog.Error|eventlog.Warning|eventlog.Info)

	s.install(t)
	if got, err := read(); got != want || err != nil {
		t.Errorf("source is %q, %v; want %q", got, err, want)
	}
	// As if the installation had ended amid.
	key, err := registry.OpenKey(registry.LOCAL_MACHINE, source, registry.SET_VALUE)
	must(t, err)
	defer key.Close()
	must(t, errors.Join(key.DeleteValue("EventMessageFile"), key.DeleteValue("TypesSupported")))
	s.install(t)
	if got, err := read(); got != want || err != nil {
		t.Errorf("source is %q, %v; want %q", got, err, want)
	}

	s.start(t)
	if log := s.read(t, "log"); log != "" {
		t.Errorf("the service has logged %q", log)
	}
	must(t, Uninstall(t.Context(), services, discard, s.Name))
	if got, err := read(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after Uninstall the source is %q, %v", got, err)
	}
}

func TestEventSourceOfAnotherProgram(t *testing.T) {
	s := newService(t, "runs")
	const foreign = `C:\another.dll`
	must(t, eventlog.Install(s.Name, foreign, false, eventlog.Info))
	defer eventlog.Remove(s.Name)
	s.install(t)
	must(t, Uninstall(t.Context(), services, discard, s.Name))
	key, err := registry.OpenKey(registry.LOCAL_MACHINE, sourcesKey+`\`+s.Name, registry.QUERY_VALUE)
	must(t, err)
	defer key.Close()
	if file, _, err := key.GetStringValue("EventMessageFile"); file != foreign || err != nil {
		t.Errorf("the source's file is %q, %v", file, err)
	}
}

// A service that sc.exe has made is no source, which its log notes once.
func TestWithoutEventSource(t *testing.T) {
	s := newService(t, "runs")
	s.install(t)
	must(t, uninstallSource(s.Name))
	s.start(t)
	if log := s.read(t, "log"); strings.Count(log, "\n") != 1 || !strings.Contains(log, s.Name) {
		t.Errorf("the log is %q", log)
	}
}
