// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package seamtest

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/win"
)

// noShare is on a server that answers, or that at least says at once that it doesn't.
const noShare = `\\localhost\csi-proxy-no-such-share`

func (f *Fixture) mapped(t *testing.T, path string) bool {
	t.Helper()
	mappings, err := f.System.SMBGlobalMappings(t.Context())
	must(t, err)
	return slices.ContainsFunc(mappings, func(m win.SMBMapping) bool { return strings.EqualFold(m.RemotePath, path) })
}

var smbRows = []row{
	{
		method: "SMBMappings.SMBGlobalMappings", name: "are listed",
		promise: "SMBGlobalMappings returns all mappings.",
		test: func(t *testing.T, f *Fixture) {
			if f.mapped(t, noShare) {
				t.Errorf("%s is mapped", noShare)
			}
		},
	},
	{
		method: "SMBMappings.RemoveSMBGlobalMapping", name: "of none",
		promise: "Error 2250: there is none.",
		test: func(t *testing.T, f *Fixture) {
			wantErrno(t, "remove", f.System.RemoveSMBGlobalMapping(t.Context(), noShare), win.ErrorNotConnected)
		},
	},
}

// awaitState waits until a service is in a state.
func (f *Fixture) awaitState(t *testing.T, name string, want win.ServiceState) win.Service {
	t.Helper()
	var got win.Service
	f.await(t, fmt.Sprintf("service %s is in state %d", name, want), func() bool {
		var err error
		got, err = f.System.QueryService(t.Context(), name)
		must(t, err)
		return got.State == want
	})
	return got
}

var serviceRows = []row{
	{
		method: "Services.QueryService", name: "of a new service", needs: []need{services},
		promise: "is QueryServiceConfigW and QueryServiceStatusEx",
		test: func(t *testing.T, f *Fixture) {
			s := f.NewServices(t)
			got, err := f.System.QueryService(t.Context(), strings.ToUpper(s.Plain))
			if err != nil || got.State != win.ServiceStopped || got.StartType != win.ServiceDemandStart ||
				got.DisplayName == "" {
				t.Errorf("%+v, %v", got, err)
			}
		},
	},
	{
		method: "Services.QueryService", name: "of none",
		promise: "Error 1060: no such service.",
		test: func(t *testing.T, f *Fixture) {
			for method, call := range Calls[win.Services](f.System, "csi-proxy-none", nil) {
				wantErrno(t, method, call(t.Context()), win.ErrorServiceDoesNotExist)
			}
		},
	},
	{
		method: "Services.QueryService", name: "of what is no name",
		promise: "A path or a name with a NUL within gives [ErrorInvalidName].",
		test: func(t *testing.T, f *Fixture) {
			_, queryErr := f.System.QueryService(t.Context(), "name\x00")
			_, dependentsErr := f.System.ActiveDependentServices(t.Context(), "name\x00")
			for method, err := range map[string]error{
				"QueryService": queryErr, "ActiveDependentServices": dependentsErr,
				"StartService": f.System.StartService(t.Context(), "name\x00"),
				"StopService":  f.System.StopService(t.Context(), "name\x00"),
			} {
				wantErrno(t, method, err, win.ErrorInvalidName)
			}
		},
	},
	{
		method: "Services.StartService", name: "starts and stops", needs: []need{services},
		promise: "Errors: 1056 it is running or starting",
		test: func(t *testing.T, f *Fixture) {
			name := f.NewServices(t).Plain
			wantErrno(t, "stop what is stopped", f.System.StopService(t.Context(), name), win.ErrorServiceNotActive)
			for range 2 {
				must(t, f.System.StartService(t.Context(), name))
				f.awaitState(t, name, win.ServiceRunning)
				wantErrno(t, "start what runs", f.System.StartService(t.Context(), name), win.ErrorServiceAlreadyRunning)
				must(t, f.System.StopService(t.Context(), name))
				if got := f.awaitState(t, name, win.ServiceStopped); got.ExitCode != 0 {
					t.Errorf("exit code %v", got.ExitCode)
				}
			}
		},
	},
	{
		method: "Services.StartService", name: "of a disabled one", needs: []need{services},
		promise: "1058 disabled",
		test: func(t *testing.T, f *Fixture) {
			wantErrno(t, "start", f.System.StartService(t.Context(), f.NewServices(t).Disabled), win.ErrorServiceDisabled)
		},
	},
	{
		method: "Services.StopService", name: "of one that isn't running", needs: []need{services},
		promise: "Errors: 1062 it isn't running",
		test: func(t *testing.T, f *Fixture) {
			wantErrno(t, "stop", f.System.StopService(t.Context(), f.NewServices(t).Plain), win.ErrorServiceNotActive)
		},
	},
	{
		method: "Services.ActiveDependentServices", name: "in the order in which to stop them", needs: []need{services},
		promise: "the services that depend on one and aren't stopped, in the order in which to stop them",
		test: func(t *testing.T, f *Fixture) {
			chain := f.NewServices(t).Chain
			top, middle, base := chain[0], chain[1], chain[2]
			if names, err := f.System.ActiveDependentServices(t.Context(), base); err != nil || len(names) > 0 {
				t.Errorf("while all are stopped: %q, %v", names, err)
			}
			must(t, f.System.StartService(t.Context(), top)) // and what it needs
			f.awaitState(t, top, win.ServiceRunning)
			wantErrno(t, "stop what others need", f.System.StopService(t.Context(), base), win.ErrorDependentServicesRunning)
			names, err := f.System.ActiveDependentServices(t.Context(), base)
			if err != nil || !slices.EqualFunc(names, []string{top, middle}, strings.EqualFold) {
				t.Fatalf("%q, %v", names, err)
			}
			for _, name := range append(names, base) {
				must(t, f.System.StopService(t.Context(), name))
				f.awaitState(t, name, win.ServiceStopped)
			}
		},
	},
}

var machineRows = []row{
	{
		method: "Firmware.FirmwareTable", name: "header",
		promise: "a RawSMBIOSData header with the SMBIOS table",
		test: func(t *testing.T, f *Fixture) {
			table, err := f.System.FirmwareTable(t.Context())
			must(t, err)
			const header = 8 // bytes of RawSMBIOSData before the table
			if len(table) < header || int(binary.LittleEndian.Uint32(table[4:])) != len(table)-header {
				t.Errorf("%d bytes with the header % x", len(table), table[:min(header, len(table))])
			}
		},
	},
	{
		method: "Registry.RegistryStrings", name: "of none",
		promise: "Errors: 2 no such key or value",
		test: func(t *testing.T, f *Fixture) {
			for _, key := range []string{`SYSTEM\csi-proxy-none`, win.RegistrySetup} {
				wantErrno(t, key, errorOf(f.System.RegistryStrings(t.Context(), key, "csi-proxy-none")), win.ErrorFileNotFound)
			}
		},
	},
	{
		method: "Registry.RegistryStrings", name: "in any case", needs: []need{aValue},
		promise: "its strings without empty ones",
		test: func(t *testing.T, f *Fixture) {
			key, value := f.StringsValue[0], f.StringsValue[1]
			want, err := f.System.RegistryStrings(t.Context(), key, value)
			if err != nil || len(want) == 0 || slices.Contains(want, "") {
				t.Errorf("%q, %v", want, err)
			}
			got, err := f.System.RegistryStrings(t.Context(), strings.ToLower(key), strings.ToUpper(value))
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("in another case %q, %v", got, err)
			}
		},
	},
	{
		method: "Registry.SystemWindowsDirectory", name: "is there",
		promise: "the directory that Windows runs from",
		test: func(t *testing.T, f *Fixture) {
			dir, err := f.System.SystemWindowsDirectory(t.Context())
			must(t, err)
			if a, err := f.System.FileAttributes(t.Context(), dir); err != nil || a&win.AttributeDirectory == 0 {
				t.Errorf("%s: attributes %#x, %v", dir, a, err)
			}
		},
	},
}
