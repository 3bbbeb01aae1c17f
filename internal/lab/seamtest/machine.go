// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package seamtest

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/secret"
)

// noShare is on a server that answers, or that at least says at once that it doesn't.
const noShare = `\\localhost\csi-proxy-no-such-share`

func (s *Share) options() win.SMBMappingOptions {
	return win.SMBMappingOptions{Username: s.Username, Password: s.Password}
}

// unmapped is the share, which stops being mapped when the test ends.
func (f *Fixture) unmapped(t *testing.T) *Share {
	t.Helper()
	// if the test hasn't
	t.Cleanup(func() { _ = f.System.RemoveSMBGlobalMapping(context.WithoutCancel(t.Context()), f.Share.Path) })
	return f.Share
}

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
		method: "SMBMappings.CreateSMBGlobalMapping", name: "maps", needs: []need{aShare},
		promise: "maps a share",
		test: func(t *testing.T, f *Fixture) {
			share := f.unmapped(t)
			must(t, f.System.CreateSMBGlobalMapping(t.Context(), share.Path, share.options()))
			if !f.mapped(t, share.Path) {
				t.Error("it isn't listed")
			}
			h := f.openFile(t, share.Path+`\`, open(win.FileListDirectory))
			wantErrno(t, "the volume of a file on it", errorOf(h.Volume(t.Context())), win.ErrorPathNotFound)
			closing(t, h)
			wantErrno(t, "mapped twice", f.System.CreateSMBGlobalMapping(t.Context(), share.Path, share.options()),
				win.ErrorAlreadyAssigned, 1202)
			must(t, f.System.RemoveSMBGlobalMapping(t.Context(), share.Path))
			if f.mapped(t, share.Path) {
				t.Error("it is listed when it was removed")
			}
		},
	},
	{
		method: "SMBMappings.CreateSMBGlobalMapping", name: "errors", needs: []need{aShare},
		promise: "67 no such share; 86, 1326 and kin the server refuses the credentials",
		test: func(t *testing.T, f *Fixture) {
			share := f.unmapped(t)
			server := share.Path[:strings.LastIndexByte(share.Path, '\\')]
			wantErrno(t, "no such share", f.System.CreateSMBGlobalMapping(t.Context(), server+`\csi-proxy-none`, share.options()), win.ErrorBadNetName)
			wrong := share.options()
			wrong.Password = secret.New("hidden")
			err := f.System.CreateSMBGlobalMapping(t.Context(), share.Path, wrong)
			wantErrno(t, "another password", err, win.ErrorLogonFailure, win.ErrorInvalidPassword)
			if strings.Contains(fmt.Sprintf("%+v", err), "hidden") {
				t.Error("the error has the password")
			}
			if f.mapped(t, share.Path) {
				t.Error("a failure left a mapping")
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
	{
		method: "SMBMappings.RemoveSMBGlobalMapping", name: "with open files", needs: []need{aShare},
		promise: "removes the mapping of a share, also one with open files",
		test: func(t *testing.T, f *Fixture) {
			share := f.unmapped(t)
			must(t, f.System.CreateSMBGlobalMapping(t.Context(), share.Path, share.options()))
			f.openFile(t, share.Path+`\`, open(win.FileListDirectory))
			must(t, f.System.RemoveSMBGlobalMapping(t.Context(), share.Path))
		},
	},
}

// noPortal is on the network of documentation: nothing answers there.
var noPortal = win.ISCSIPortal{Address: "192.0.2.1", Port: 3260}

// known makes the target one that the initiator knows, until the test ends.
func (f *Fixture) known(t *testing.T) *Target {
	t.Helper()
	must(t, f.System.AddISCSISendTargetPortal(t.Context(), f.Target.Portal))
	// if the test hasn't
	t.Cleanup(func() { _ = f.System.RemoveISCSISendTargetPortal(context.WithoutCancel(t.Context()), f.Target.Portal) })
	return f.Target
}

// login logs in to the target, until the test ends.
func (f *Fixture) login(t *testing.T, target *Target) win.ISCSISessionID {
	t.Helper()
	id, err := f.System.LoginISCSITarget(t.Context(), win.ISCSILogin{Target: target.IQN, Portal: target.Portal})
	must(t, err)
	t.Cleanup(func() { _ = f.System.LogoutISCSITarget(context.WithoutCancel(t.Context()), id) }) // if the test hasn't
	return id
}

// lun waits for the disk of a session.
func (f *Fixture) lun(t *testing.T, id win.ISCSISessionID) (lun win.ISCSIDevice) {
	t.Helper()
	f.await(t, "the session has a disk", func() bool {
		devices, err := f.System.ISCSISessionDevices(t.Context(), id)
		must(t, err)
		for _, d := range devices {
			if d.Device.DeviceType == win.FileDeviceDisk && d.Device.DeviceNumber != win.NoNumber {
				lun = d
				return true
			}
		}
		return false
	})
	return lun
}

var iscsiRows = []row{
	{
		method: "ISCSIInitiator.AddISCSISendTargetPortal", name: "finds targets", needs: []need{aTarget},
		promise: "adds a portal for good and asks it for its targets. An added one is asked again.",
		test: func(t *testing.T, f *Fixture) {
			target := f.known(t)
			must(t, f.System.AddISCSISendTargetPortal(t.Context(), target.Portal))
			portals, err := f.System.ISCSISendTargetPortals(t.Context())
			if err != nil || !slices.Contains(portals, target.Portal) {
				t.Errorf("portals %v, %v", portals, err)
			}
			targets, err := f.System.ISCSITargets(t.Context())
			if err != nil || !slices.Contains(targets, target.IQN) {
				t.Errorf("targets %q, %v", targets, err)
			}
			how, err := f.System.ISCSIDiscoveryMechanisms(t.Context(), target.IQN)
			if err != nil || !slices.ContainsFunc(how,
				func(m string) bool { return strings.Contains(m, target.Portal.Address) }) {
				t.Errorf("discovery mechanisms %q, %v", how, err)
			}
		},
	},
	{
		method: "ISCSIInitiator.AddISCSISendTargetPortal", name: "of nothing", needs: []need{aTarget},
		promise: "Errors: [ISDSCConnectionFailed] the portal doesn't answer.",
		test: func(t *testing.T, f *Fixture) {
			wantErrno(t, "add", f.System.AddISCSISendTargetPortal(t.Context(), noPortal), win.ISDSCConnectionFailed)
		},
	},
	{
		method: "ISCSIInitiator.RefreshISCSISendTargetPortal", name: "known and unknown", needs: []need{aTarget},
		promise: "it asks the portal for its targets again. Errors as for adding and removing.",
		test: func(t *testing.T, f *Fixture) {
			wantErrno(t, "an unknown one", f.System.RefreshISCSISendTargetPortal(t.Context(), noPortal), win.ISDSCPortalNotFound)
			wantErrno(t, "a known one", f.System.RefreshISCSISendTargetPortal(t.Context(), f.known(t).Portal))
		},
	},
	{
		method: "ISCSIInitiator.RemoveISCSISendTargetPortal", name: "forgets", needs: []need{aTarget},
		promise: "Targets of which only this portal has told are forgotten; sessions go on. Errors: " +
			"[ISDSCPortalNotFound] for one that wasn't added.",
		test: func(t *testing.T, f *Fixture) {
			target := f.known(t)
			must(t, f.System.RemoveISCSISendTargetPortal(t.Context(), target.Portal))
			if targets, err := f.System.ISCSITargets(t.Context()); err != nil || slices.Contains(targets, target.IQN) {
				t.Errorf("targets %q, %v", targets, err)
			}
			if portals, err := f.System.ISCSISendTargetPortals(t.Context()); err != nil ||
				slices.Contains(portals, target.Portal) {
				t.Errorf("portals %v, %v", portals, err)
			}
			wantErrno(t, "remove it again", f.System.RemoveISCSISendTargetPortal(t.Context(), target.Portal),
				win.ISDSCPortalNotFound)
		},
	},
	{
		method: "ISCSIInitiator.ISCSISendTargetPortals", name: "without any", needs: []need{aTarget},
		promise: "ISCSISendTargetPortals is ReportIScsiSendTargetPortalsExW.",
		test: func(t *testing.T, f *Fixture) {
			if portals, err := f.System.ISCSISendTargetPortals(t.Context()); err != nil || slices.Contains(portals, noPortal) {
				t.Errorf("%v, %v", portals, err)
			}
		},
	},
	{
		method: "ISCSIInitiator.ISCSITargets", name: "without asking", needs: []need{aTarget},
		promise: "the names of the targets that the initiator knows, without asking any portal",
		test: func(t *testing.T, f *Fixture) {
			if targets, err := f.System.ISCSITargets(t.Context()); err != nil || slices.Contains(targets, f.Target.IQN) {
				t.Errorf("%q, %v", targets, err)
			}
		},
	},
	{
		method: "ISCSIInitiator.ISCSIDiscoveryMechanisms", name: "of an unknown target", needs: []need{aTarget},
		promise: "Errors: [ISDSCTargetNotFound].",
		test: func(t *testing.T, f *Fixture) {
			_, err := f.System.ISCSIDiscoveryMechanisms(t.Context(), "iqn.2026-01.com.example:none")
			wantErrno(t, "ask", err, win.ISDSCTargetNotFound)
		},
	},
	{
		method: "ISCSIInitiator.LoginISCSITarget", name: "session", needs: []need{aTarget},
		promise: "The target must be known. Disks arrive after it has returned.",
		test: func(t *testing.T, f *Fixture) {
			target := f.known(t)
			id := f.login(t, target)
			sessions, err := f.System.ISCSISessions(t.Context())
			if err != nil || !slices.ContainsFunc(sessions, func(s win.ISCSISession) bool {
				return s.ID == id && s.Target == target.IQN && slices.Contains(s.Portals, target.Portal)
			}) {
				t.Errorf("sessions %+v, %v", sessions, err)
			}
			f.lun(t, id)
			_, err = f.System.LoginISCSITarget(t.Context(), win.ISCSILogin{Target: target.IQN, Portal: target.Portal})
			wantErrno(t, "log in again", err, win.ISDSCTargetAlreadyLoggedIn)
			must(t, f.System.LogoutISCSITarget(t.Context(), id))
			if sessions, err := f.System.ISCSISessions(t.Context()); err != nil ||
				slices.ContainsFunc(sessions, func(s win.ISCSISession) bool { return s.ID == id }) {
				t.Errorf("sessions %+v, %v after the logout", sessions, err)
			}
		},
	},
	{
		method: "ISCSIInitiator.LoginISCSITarget", name: "to an unknown target", needs: []need{aTarget},
		promise: "Errors: [ISDSCTargetNotFound]; [ISDSCTargetAlreadyLoggedIn]",
		test: func(t *testing.T, f *Fixture) {
			_, err := f.System.LoginISCSITarget(t.Context(),
				win.ISCSILogin{Target: "iqn.2026-01.com.example:none", Portal: f.known(t).Portal})
			wantErrno(t, "log in", err, win.ISDSCTargetNotFound)
		},
	},
	{
		method: "ISCSIInitiator.LogoutISCSITarget", name: "in use", needs: []need{aTarget},
		promise: "Errors: [ISDSCDeviceBusyOnSession] while a handle to a disk or volume of the session is open; " +
			"[ISDSCInvalidSessionID].",
		test: func(t *testing.T, f *Fixture) {
			id := f.login(t, f.known(t))
			d := f.device(t, physicalDrive(f.lun(t, id).Device.DeviceNumber), win.GenericRead)
			wantErrno(t, "while a disk is open", f.System.LogoutISCSITarget(t.Context(), id), win.ISDSCDeviceBusyOnSession)
			closing(t, d)
			must(t, f.System.LogoutISCSITarget(t.Context(), id))
			wantErrno(t, "log out again", f.System.LogoutISCSITarget(t.Context(), id), win.ISDSCInvalidSessionID)
		},
	},
	{
		method: "ISCSIInitiator.ISCSISessions", name: "without any", needs: []need{aTarget},
		promise: "ISCSISessions is GetIScsiSessionListW, of all targets.",
		test: func(t *testing.T, f *Fixture) {
			sessions, err := f.System.ISCSISessions(t.Context())
			if err != nil || slices.ContainsFunc(sessions, func(s win.ISCSISession) bool { return s.Target == f.Target.IQN }) {
				t.Errorf("%+v, %v", sessions, err)
			}
		},
	},
	{
		method: "ISCSIInitiator.ISCSISessionDevices", name: "of no session", needs: []need{aTarget},
		promise: "Disks that multipath I/O has taken over aren't among them. Errors: [ISDSCInvalidSessionID].",
		test: func(t *testing.T, f *Fixture) {
			_, err := f.System.ISCSISessionDevices(t.Context(), win.ISCSISessionID{AdapterUnique: 1, AdapterSpecific: 1})
			wantErrno(t, "ask", err, win.ISDSCInvalidSessionID)
		},
	},
	{
		method: "ISCSIInitiator.ISCSIPersistentLogins", name: "a session isn't one", needs: []need{aTarget},
		promise: "for a session that ends when the node shuts down",
		test: func(t *testing.T, f *Fixture) {
			f.login(t, f.known(t))
			logins, err := f.System.ISCSIPersistentLogins(t.Context())
			if err != nil || slices.ContainsFunc(logins,
				func(l win.ISCSIPersistentLogin) bool { return l.Target == f.Target.IQN }) {
				t.Errorf("%+v, %v", logins, err)
			}
		},
	},
	{
		method: "ISCSIInitiator.RemoveISCSIPersistentLogin", name: "of none", needs: []need{aTarget},
		promise: "Error 1168: it isn't there.",
		test: func(t *testing.T, f *Fixture) {
			err := f.System.RemoveISCSIPersistentLogin(t.Context(), win.ISCSIPersistentLogin{Target: f.Target.IQN, Initiator: `ROOT\ISCSIPRT\0000_0`, Portal: f.Target.Portal})
			wantErrno(t, "remove", err, win.ErrorNotFound)
		},
	},
	{
		method: "ISCSIInitiator.SetISCSIInitiatorCHAPSecret", name: "of 12 bytes", needs: []need{aTarget},
		promise: "12 to 16 bytes without IPsec.",
		test: func(t *testing.T, f *Fixture) {
			wantErrno(t, "set", f.System.SetISCSIInitiatorCHAPSecret(t.Context(), secret.New("twelve bytes")))
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
