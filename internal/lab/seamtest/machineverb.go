// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package seamtest

import (
	"slices"
	"strings"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// runMap maps a share, as somebody whom no server knows.
func runMap(t *testing.T, r *oracleRun, s OracleStep) error {
	o := win.SMBMappingOptions{Username: "csi-proxy-nobody", Password: csiproxy.NewSecret("hidden")}
	return r.f.System.CreateSMBGlobalMapping(t.Context(), r.path(t, s.Args[0]), o)
}

func runUnmap(t *testing.T, r *oracleRun, s OracleStep) error {
	return r.f.System.RemoveSMBGlobalMapping(t.Context(), r.path(t, s.Args[0]))
}

// service is the name of a service: one that the system has for the test, or any other.
func (r *oracleRun) service(t *testing.T, arg string) string {
	t.Helper()
	if offered[arg] != services {
		return arg
	}
	if r.offered == nil {
		s := r.f.NewServices(t)
		r.offered = map[string]string{"@plain": s.Plain, "@disabled": s.Disabled,
			"@top": s.Chain[0], "@middle": s.Chain[1], "@base": s.Chain[2]}
	}
	return r.offered[arg]
}

// runService asks for a service. With a second argument, it waits until the service is running, or has
// stopped without an error.
func runService(t *testing.T, r *oracleRun, s OracleStep) error {
	name := r.service(t, s.Args[0])
	got, err := r.f.System.QueryService(t.Context(), name)
	if err != nil || len(s.Args) == 1 {
		return err
	}
	want, ok := map[string]win.ServiceState{"running": win.ServiceRunning, "stopped": win.ServiceStopped}[s.Args[1]]
	if !ok {
		t.Fatalf("a service has no state %q", s.Args[1])
	}
	r.f.await(t, s.String(), func() bool {
		got, err = r.f.System.QueryService(t.Context(), name)
		must(t, err)
		return got.State == want
	})
	if got.ExitCode != 0 {
		t.Errorf("%s: exit code %v", s, got.ExitCode)
	}
	return nil
}

func runStart(t *testing.T, r *oracleRun, s OracleStep) error {
	return r.f.System.StartService(t.Context(), r.service(t, s.Args[0]))
}

func runStop(t *testing.T, r *oracleRun, s OracleStep) error {
	return r.f.System.StopService(t.Context(), r.service(t, s.Args[0]))
}

// runDependents compares the services that need one, in their order.
func runDependents(t *testing.T, r *oracleRun, s OracleStep) error {
	names, err := r.f.System.ActiveDependentServices(t.Context(), r.service(t, s.Args[0]))
	var want []string
	for _, arg := range s.Args[1:] {
		want = append(want, r.service(t, arg))
	}
	if err == nil && !slices.EqualFunc(names, want, strings.EqualFold) {
		t.Errorf("%s: there are %q", s, names)
	}
	return err
}

// registryValue is a key with a value: what the system has for the test, or what the arguments name.
func registryValue(t *testing.T, r *oracleRun, args []string) (key, value string) {
	t.Helper()
	switch {
	case args[0] == "@strings":
		args = r.f.StringsValue[:]
	case args[0] == "@number":
		args = r.f.NumberValue[:]
	case len(args) != 2:
		t.Fatalf("%q is no key with a value", args)
	}
	return args[0], args[1]
}

// runNumber asks for a number that isn't 0, also by names in another case.
func runNumber(t *testing.T, r *oracleRun, s OracleStep) error {
	key, value := registryValue(t, r, s.Args)
	want, err := r.f.System.RegistryNumber(t.Context(), key, value)
	if err != nil {
		return err
	}
	got, err := r.f.System.RegistryNumber(t.Context(), strings.ToLower(key), strings.ToUpper(value))
	if err == nil && (want == 0 || got != want) {
		t.Errorf("%s: %d, and in another case %d", s, want, got)
	}
	return err
}

// runStrings asks for strings, of which there are some and none is empty, also by names in another case.
func runStrings(t *testing.T, r *oracleRun, s OracleStep) error {
	key, value := registryValue(t, r, s.Args)
	want, err := r.f.System.RegistryStrings(t.Context(), key, value)
	if err != nil {
		return err
	}
	got, err := r.f.System.RegistryStrings(t.Context(), strings.ToLower(key), strings.ToUpper(value))
	if err == nil && (len(want) == 0 || slices.Contains(want, "") || !slices.Equal(got, want)) {
		t.Errorf("%s: %q, and in another case %q", s, want, got)
	}
	return err
}
