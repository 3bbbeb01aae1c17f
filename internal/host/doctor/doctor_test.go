// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/internal/host/doctor"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/services"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/smbserver"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// fixture is a simulated node where all is well: a daemon of ours runs as a service, with
// a mounted volume and a mapped share.
type fixture struct {
	*doctor.Node
	t         *testing.T
	sim       *winsim.System
	endpoints []client.Endpoint
	owners    map[string]uint32 // of endpoints; 4000 if not here
	service   []doctor.Service
}

const (
	daemonProcess = 4000
	otherProcess  = 5000
)

func newFixture(t *testing.T) *fixture {
	t.Helper()
	sim := simtest.Open(t, winsim.Delays{})
	simtest.Must(t, sim.MkdirAll(simtest.Kubelet))
	volume, _ := simtest.Volume(t, sim)
	simtest.Mount(t, sim, simtest.Kubelet+`\plugins\volume`, volume)
	simtest.Must(t, sim.SMB().AddShare(smbserver.Share{Server: "filer", Name: "data"}))
	simtest.Must(t, sim.SMB().SetUser("filer", "user", csiproxy.NewSecret("password")))
	n, err := nodeops.New(sim, nodeops.Options{})
	simtest.Must(t, err)
	c := csiproxy.SMBCredentials{Username: "user", Password: csiproxy.NewSecret("password")}
	simtest.Must(t, n.SMB.NewSMBGlobalMapping(t.Context(), `\\filer\data`, simtest.Kubelet+`\share`, c))
	f := &fixture{
		t: t, sim: sim,
		endpoints: []client.Endpoint{
			{Group: "disk", Version: "v1", Address: "disk-v1", Served: true},
			{Group: "storage", Version: "v1alpha1", Address: "storage-v1alpha1", Served: true},
		},
		owners: map[string]uint32{},
		service: []doctor.Service{{
			Name: "csi-proxy", Running: true, State: "running", ProcessID: daemonProcess, Account: "LocalSystem",
			Program: `C:\k\csi-proxy.exe`, Log: `C:\log\csi-proxy.log`,
		}},
	}
	f.Node = &doctor.Node{
		System: "windows", Windows: simulated{sim},
		Endpoints: func(context.Context) []client.Endpoint { return f.endpoints },
		Server: func(_ context.Context, address string) (uint32, string, error) {
			if f.owners[address] == otherProcess {
				return otherProcess, `C:\etc\csi-proxy-old.exe`, nil
			}
			return daemonProcess, `C:\k\csi-proxy.exe`, nil
		},
		Services:    func(context.Context) ([]doctor.Service, error) { return f.service, nil },
		Metrics:     func(context.Context) (string, error) { return "", nil },
		Storage:     n.Storage,
		KubeletPath: simtest.Kubelet,
	}
	return f
}

// simulated is the simulated node's Windows.
type simulated struct{ *winsim.System }

func (s simulated) VolumeOf(ctx context.Context, directory string) (string, error) {
	f, err := s.OpenFile(ctx, directory, win.OpenOptions{
		Access: win.FileReadAttributes, Share: win.ShareRead | win.ShareWrite | win.ShareDelete,
		Disposition: win.FileOpen, Options: win.FileOpenForBackup,
	})
	if err != nil {
		return "", err
	}
	volume, err := f.Volume(ctx)
	return volume, errors.Join(err, f.Close())
}

// protecting is the metrics of a daemon with a protected volume; missing is 1 if it isn't there.
func protecting(volume string, missing int) string {
	return fmt.Sprintf("csi_proxy_disks 1\ncsi_proxy_protected_volume_missing{volume=%q} %d\n", volume, missing)
}

// metrics are those that the daemon answers with.
func metrics(page string, err error) func(*fixture) {
	return func(f *fixture) {
		f.Metrics = func(context.Context) (string, error) { return page, err }
	}
}

func (f *fixture) must(err error) { f.t.Helper(); simtest.Must(f.t, err) }

// eachEndpoint is a fault of all endpoints: nobody serves them, for err.
func eachEndpoint(err error) func(*fixture) {
	return func(f *fixture) {
		for i := range f.endpoints {
			f.endpoints[i].Served, f.endpoints[i].Err = false, err
		}
	}
}

// registered is a number in the registry.
func registered(key, value string, number uint32) func(*fixture) {
	return func(f *fixture) { f.must(f.sim.SetRegistryNumber(key, value, number)) }
}

func sanPolicy(p win.SANPolicy) func(*fixture) {
	return registered(win.RegistryPartitionManager, win.RegistrySANPolicy, uint32(p))
}

// withoutLayout is a disk that doesn't tell its partitions.
func withoutLayout(f *fixture) {
	f.must(f.sim.Fail(winsim.Match{Call: "IOCTL_DISK_GET_DRIVE_LAYOUT_EX", Object: "PhysicalDrive1"}, winerr.ErrorIODevice))
}

const (
	warns   = doctor.Warning
	problem = doctor.Problem
	unknown = doctor.Unknown
)

// Each fault is found by its check, and by no other. Without a fault all checks are fine.
func TestFaults(t *testing.T) {
	for name, test := range map[string]struct {
		check   string
		verdict doctor.Verdict
		says    string
		also    string // the checks that have an opinion on the fault, too
		make    func(f *fixture)
	}{
		"none":      {"", "", "", "", func(*fixture) {}},
		"no daemon": {"endpoints", problem, "isn't running", "", eachEndpoint(nil)},
		"no access to the pipes": {"endpoints", unknown, "this account may not connect", "pipe-owner",
			eachEndpoint(fs.ErrPermission)},
		"no access to the pipes' owner": {"pipe-owner", unknown, "this account may not connect", "endpoints",
			eachEndpoint(fs.ErrPermission)},
		"an older daemon": {"endpoints", warns, "storage v1alpha1", "",
			func(f *fixture) { f.endpoints[1].Served = false }},
		"a daemon that hangs": {"endpoints", problem, "no answer at disk-v1: it hangs", "",
			func(f *fixture) { f.endpoints[0].Served, f.endpoints[0].Err = false, errors.New("it hangs") }},
		"a daemon that is drained": {"endpoints", problem, "no answer at disk-v1 and 1 more: it stops", "",
			eachEndpoint(errors.New("it stops"))},
		"the published daemon has the pipes": {"pipe-owner", problem, `process 5000 ` +
			`(C:\etc\csi-proxy-old.exe) serves the endpoints, in the place of the service csi-proxy, process 4000`, "endpoints",
			func(f *fixture) {
				f.endpoints[1].Served = false
				f.owners["disk-v1"] = otherProcess
			}},
		"another daemon has a pipe": {"pipe-owner", problem, `process 5000 (C:\etc\csi-proxy-old.exe) has disk-v2`, "",
			func(f *fixture) {
				f.owners["disk-v2"] = otherProcess
				f.endpoints = append(f.endpoints, client.Endpoint{Group: "disk", Version: "v2", Address: "disk-v2", Served: true})
			}},
		"a daemon under nssm, which is the service's process": {"", "", "", "",
			func(f *fixture) { f.service[0].ProcessID = 0 }},
		"a process that was left behind": {"pipe-owner", warns, "no service of CSI Proxy runs", "service",
			func(f *fixture) {
				f.service[0] = doctor.Service{Name: "csi-proxy", State: "stopped", Account: "LocalSystem"}
			}},
		"a program that isn't CSI Proxy": {"pipe-owner", problem, "isn't CSI Proxy", "",
			func(f *fixture) {
				f.Node.Server = func(context.Context, string) (uint32, string, error) {
					return daemonProcess, `C:\csi-proxy\squatter.exe`, nil
				}
			}},
		"the service has failed": {"service", problem, "csi-proxy is stopped; its exit code is 1066 (1)", "endpoints",
			func(f *fixture) {
				eachEndpoint(nil)(f)
				f.service[0] = doctor.Service{Name: "csi-proxy", State: "stopped", ExitCode: 1066, SpecificExitCode: 1,
					Account: "LocalSystem"}
			}},
		"the service is disabled": {"service", problem, "disabled", "endpoints",
			func(f *fixture) {
				eachEndpoint(nil)(f)
				f.service[0].Running, f.service[0].Disabled = false, true
			}},
		"two services": {"service", problem, "more than one service of CSI Proxy: csi-proxy, csiproxy", "",
			func(f *fixture) {
				f.service = append(f.service, doctor.Service{Name: "csiproxy", Running: true, Account: "LocalSystem"})
			}},
		"odd flags": {"service", warns, `the flags of the service csi-proxy: -working-dir=C:\: it holds C:\Windows`, "",
			func(f *fixture) {
				f.Node.Check = func(_ context.Context, s doctor.Service) ([]string, error) {
					return []string{"-" + s.Args[0] + `: it holds C:\Windows`}, nil
				}
				f.service[0].Args = []string{`working-dir=C:\`}
			}},
		"flags that are refused": {"service", problem, "the service csi-proxy can't start with its flags: the file names no driver", "",
			func(f *fixture) {
				f.Node.Check = func(context.Context, doctor.Service) ([]string, error) {
					return nil, errors.New("the file names no driver")
				}
			}},
		"no kubelet directory": {"kubelet-directory", problem, `there is no C:\var\lib\other`, "",
			func(f *fixture) { f.KubeletPath = `C:\var\lib\other` }},
		"the kubelet directory is a link": {"kubelet-directory", warns, `C:\kubelet is a link`, "",
			func(f *fixture) {
				f.must(f.sim.Junction(`C:\kubelet`, simtest.Kubelet))
				f.KubeletPath = `C:\kubelet`
			}},
		"a link on the way to the kubelet directory": {"kubelet-directory", warns, `C:\data is a link`, "",
			func(f *fixture) {
				f.must(f.sim.Junction(`C:\data`, `C:\var`))
				f.KubeletPath = `C:\data\lib\kubelet`
			}},
		"the kubelet directory is a file": {"kubelet-directory", problem,
			`C:\var\file, on the way to the kubelet directory, is a file`, "",
			func(f *fixture) {
				f.must(f.sim.WriteFile(`C:\var\file`, []byte("x")))
				f.KubeletPath = `C:\var\file`
			}},
		"the kubelet directory is on ReFS": {"kubelet-directory", problem, "lies on ReFS", "",
			func(f *fixture) {
				volume, _ := simtest.Volume(f.t, f.sim)
				f.must(f.sim.FormatVolume(f.t.Context(), volume, win.FormatOptions{FileSystem: "ReFS"}))
				simtest.Mount(f.t, f.sim, `C:\data`, volume)
				f.must(f.sim.MkdirAll(`C:\data\kubelet`))
				f.KubeletPath = `C:\data\kubelet\`
			}},
		"a disk is mounted in the kubelet directory": {"kubelet-directory", warns, `kubelet\pods is a link or a mount point`, "",
			func(f *fixture) {
				volume, _ := simtest.Volume(f.t, f.sim)
				simtest.Mount(f.t, f.sim, simtest.Kubelet+`\pods`, volume)
			}},
		"SAN policy OfflineAll":      {"san-policy", warns, "OfflineAll", "", sanPolicy(win.SANOfflineAll)},
		"SAN policy OfflineInternal": {"san-policy", warns, "OfflineInternal", "", sanPolicy(win.SANOfflineInternal)},
		"SAN policy OfflineShared":   {"", "", "", "", sanPolicy(win.SANOfflineShared)},
		"BitLocker has locked a volume": {"bitlocker", problem, "locked the volume", "",
			func(f *fixture) {
				volume, _ := simtest.Volume(f.t, f.sim)
				f.must(f.sim.SetVolumeLocked(volume, true))
			}},
		"BitLocker's policy denies writing": {"bitlocker", problem, "read-only", "",
			registered(win.RegistryBitLockerPolicy, win.RegistryDenyWriteAccess, 1)},
		"a protected volume that is there": {"", "", "", "", metrics(protecting("D:", 0), nil)},
		"a protected drive letter that no volume has": {"protected-volumes", warns, "names X:, ", "",
			metrics(protecting("X:", 1), nil)},
		"a protected volume that isn't there": {"protected-volumes", warns, `names \\?\Volume{1}\, `, "",
			metrics(protecting(`\\?\Volume{1}\`, 1), nil)},
		"a daemon that tells no metrics": {"protected-volumes", unknown, "no daemon answers", "",
			metrics("", errors.New("no daemon answers"))},
		"a disk that answers with errors": {"silent-disks", problem, "disk 1", "mounted-volumes", withoutLayout},
		"the server of a mapping is gone": {"smb-mappings", problem,
			`the share \\filer\data, at C:\var\lib\kubelet\share: `, "",
			func(f *fixture) { f.must(f.sim.SMB().SetState("filer", smbserver.State{Unreachable: true})) }},
		"a mapping without encryption": {"smb-mappings", warns, `the share \\plain\other is mapped without encryption`, "",
			func(f *fixture) {
				f.must(f.sim.SMB().AddShare(smbserver.Share{Server: "plain", Name: "other"}))
				f.must(f.sim.SMB().SetUser("plain", "me", csiproxy.NewSecret("password")))
				f.must(f.sim.SMB().Map(smbserver.Mapping{RemotePath: `\\plain\other\dir`, LocalPath: "Z:",
					SMBMappingOptions: win.SMBMappingOptions{Username: "me", Password: csiproxy.NewSecret("password")}}))
			}},
		"the Workstation service is stopped": {"smb-client", problem, "LanmanWorkstation doesn't run", "",
			func(f *fixture) {
				f.must(f.sim.StopService(f.t.Context(), "SessionEnv"))
				f.must(f.sim.StopService(f.t.Context(), "LanmanWorkstation"))
			}},
		"storage management is disabled": {"smb-client", problem, "smphost is disabled", "",
			func(f *fixture) {
				f.must(f.sim.Services().Add(services.Spec{Name: "smphost", StartType: win.ServiceDisabled}))
			}},
		"NTLM is blocked": {"smb-client", warns, "blocks NTLM", "",
			registered(win.RegistrySMBClientPolicy, win.RegistryBlockNTLM, 1)},
		"a volume that needs a repair": {"mounted-volumes", problem, `the volume at C:\var\lib\kubelet\plugins\volume: `, "",
			func(f *fixture) { f.must(f.sim.SetVolumeDirty(simtest.Kubelet+`\plugins\volume`, true)) }},
		"a link to nothing": {"leftovers", warns,
			`the link C:\var\lib\kubelet\dangling, to C:\var\lib\kubelet\none: it leads to nothing`, "",
			func(f *fixture) { f.must(f.sim.Symlink(simtest.Kubelet+`\dangling`, simtest.Kubelet+`\none`, true)) }},
		"a mount of a disk that has left": {"leftovers", warns,
			`the mount point C:\var\lib\kubelet\plugins\volume, to `, "",
			func(f *fixture) { f.must(f.sim.DetachDisk(1)) }},
		"a mapping without a user": {"leftovers", warns, `the mapping of \\filer\data: `, "",
			func(f *fixture) { f.must(f.sim.Remove(simtest.Kubelet + `\share`)) }},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			test.make(f)
			findings := doctor.Examine(t.Context(), f.Node)
			found := false
			for _, got := range findings {
				switch {
				case got.Check == test.check && got.Verdict == test.verdict && strings.Contains(got.Text, test.says):
					found = true
					if got.Advice == "" && got.Verdict != doctor.Unknown {
						t.Errorf("no advice: %+v", got)
					}
				case got.Verdict != doctor.OK && got.Check != test.check && !strings.Contains(test.also, got.Check):
					t.Errorf("%+v", got)
				}
			}
			if !found && test.check != "" {
				t.Errorf("%+v", findings)
			}
		})
	}
}

// Each check has a finding, and each name is told.
func TestEachCheckHasAFinding(t *testing.T) {
	f := newFixture(t)
	var names []string
	for _, got := range doctor.Examine(t.Context(), f.Node) {
		names = append(names, got.Check)
		if got.Text == "" {
			t.Errorf("%s says nothing", got.Check)
		}
	}
	if !slices.Equal(names, doctor.Names()) {
		t.Errorf("%q, want %q", names, doctor.Names())
	}
}

// Where there is nothing to ask, everything is unknown, with a reason.
func TestNothingToAsk(t *testing.T) {
	for _, got := range doctor.Examine(t.Context(), &doctor.Node{System: "linux"}) {
		if got.Verdict != doctor.Unknown || !strings.Contains(got.Text, "linux") {
			t.Errorf("%+v", got)
		}
	}
}

// What the daemon doesn't answer is unknown, with its reason, and the rest is known all the same.
func TestWithoutDaemon(t *testing.T) {
	for _, kind := range []error{csiproxy.ErrUnavailable, csiproxy.ErrUnimplemented, csiproxy.ErrPermissionDenied} {
		f := newFixture(t)
		f.Storage = refusing{f.Storage, kind}
		for _, got := range doctor.Examine(t.Context(), f.Node) {
			switch got.Check {
			case "silent-disks":
				if got.Verdict != doctor.Unknown || !strings.Contains(got.Text, "refused") {
					t.Errorf("%v: %+v", kind, got)
				}
			default:
				if got.Verdict != doctor.OK {
					t.Errorf("%v: %+v", kind, got)
				}
			}
		}
	}
}

// refusing is a daemon's operations that fail.
type refusing struct {
	csiproxy.StorageOperations
	kind error
}

func (r refusing) ListDisks(context.Context, csiproxy.Selector) ([]csiproxy.Disk, error) {
	return nil, csiproxy.Errorf(r.kind, "refused")
}

// A check that gets no answer keeps no other from its finding.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silence := make(chan struct{})
		defer close(silence)
		n := &doctor.Node{
			System:    "windows",
			Endpoints: func(context.Context) []client.Endpoint { <-silence; return nil },
			Services: func(context.Context) ([]doctor.Service, error) {
				return []doctor.Service{{Name: "csi-proxy", Running: true, Account: "LocalSystem"}}, nil
			},
		}
		start := time.Now()
		findings := doctor.Examine(t.Context(), n)
		if waited := time.Since(start); waited != 20*time.Second {
			t.Errorf("it took %v", waited)
		}
		verdicts := map[string]doctor.Verdict{}
		for _, f := range findings {
			verdicts[f.Check] = f.Verdict
		}
		if verdicts["endpoints"] != doctor.Unknown || verdicts["service"] != doctor.OK {
			t.Errorf("%+v", findings)
		}
	})
}
