// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/internal/doctor"
	"github.com/csi-proxy/csi-proxy/internal/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/services"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/smbserver"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/secret"
	"github.com/csi-proxy/csi-proxy/smb"
	"github.com/csi-proxy/csi-proxy/storage"
)

// fixture is a simulated node where all is well: a daemon of ours runs as a service, with
// a mounted volume and a mapped share.
type fixture struct {
	*doctor.Node
	sim       *winsim.System
	endpoints []client.Endpoint
	owners    map[string]uint32 // of endpoints; 4000 if not here
	service   []doctor.Service
	writers   map[string][]string // of directories
	eventText string
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
	simtest.Must(t, sim.SMB().SetUser("filer", "user", secret.New("password")))
	n, err := nodeops.New(sim, nodeops.Options{})
	simtest.Must(t, err)
	c := smb.Credentials{Username: "user", Password: secret.New("password")}
	simtest.Must(t, n.SMB.NewSMBGlobalMapping(t.Context(), `\\filer\data`, simtest.Kubelet+`\share`, c))
	f := &fixture{
		sim: sim,
		endpoints: []client.Endpoint{
			{Group: "disk", Version: "v1", Address: "disk-v1", Served: true},
			{Group: "storage", Version: "v1alpha1", Address: "storage-v1alpha1", Served: true},
		},
		owners: map[string]uint32{},
		service: []doctor.Service{{
			Name: "csi-proxy", Running: true, State: "running", ProcessID: daemonProcess, Account: "LocalSystem",
			Privileges: []string{"SeBackupPrivilege", "SeRestorePrivilege"},
			Program:    `C:\k\csi-proxy.exe`, Log: `C:\log\csi-proxy.log`,
		}},
	}
	f.Node = &doctor.Node{
		System: "windows", Windows: sim,
		Endpoints: func(context.Context) []client.Endpoint { return f.endpoints },
		Server: func(_ context.Context, address string) (uint32, string, error) {
			if f.owners[address] == otherProcess {
				return otherProcess, `C:\etc\csi-proxy-old.exe`, nil
			}
			return daemonProcess, `C:\k\csi-proxy.exe`, nil
		},
		Build: func(program string) (*debug.BuildInfo, error) {
			module := "github.com/csi-proxy/csi-proxy"
			if strings.Contains(program, "old") {
				module = "github.com/kubernetes-csi/csi-proxy/v2"
			}
			return &debug.BuildInfo{GoVersion: "go1.26", Main: debug.Module{Path: module, Version: "v1.2.3"},
				Settings: []debug.BuildSetting{
					{Key: "-ldflags", Value: "-X main.version=v1.2.3"}, {Key: "GOOS", Value: "windows"},
				}}, nil
		},
		Services:    func(context.Context) ([]doctor.Service, error) { return f.service, nil },
		Writers:     func(dir string) ([]string, error) { return f.writers[dir], nil },
		Events:      f.events,
		Privileges:  []string{"SeRestorePrivilege", "SeBackupPrivilege"},
		Local:       doctor.Operations{Disk: n.Disk, Storage: n.Storage, System: n.System},
		KubeletPath: simtest.Kubelet,
	}
	return f
}

// azure attaches a disk with LUN 1 and a volume as Azure does, with a file if it has a name, and
// returns its drive.
func azure(t *testing.T, f *fixture, serial, name string) (letter string) {
	t.Helper()
	_, _, letter = simtest.Lettered(t, f.sim, winsim.DiskSpec{Serial: serial, SCSI: onItsOwnBus(f)})
	if name != "" {
		simtest.Must(t, f.sim.WriteFile(letter+name, nil))
	}
	return letter[:2]
}

// onItsOwnBus is an address with LUN 1 on a bus that has no other disk.
func onItsOwnBus(f *fixture) *win.SCSIAddress {
	return &win.SCSIAddress{PortNumber: uint8(10 + len(f.sim.Disks())), LUN: 1}
}

// Each fault is found by its check, and by no other. Without a fault all checks are fine.
func TestFaults(t *testing.T) {
	attachVolume := func(t *testing.T, f *fixture) string {
		volume, _ := simtest.Volume(t, f.sim)
		return volume
	}
	for name, test := range map[string]struct {
		make    func(t *testing.T, f *fixture)
		check   string
		verdict doctor.Verdict
		says    string
		also    string // the checks that have an opinion on the fault, too
	}{
		"none": {make: func(*testing.T, *fixture) {}},
		"no daemon": {
			make: func(_ *testing.T, f *fixture) {
				for i := range f.endpoints {
					f.endpoints[i].Served = false
				}
			},
			check: "endpoints", verdict: doctor.Problem, says: "isn't running",
		},
		"an older daemon": {
			make:  func(_ *testing.T, f *fixture) { f.endpoints[1].Served = false },
			check: "endpoints", verdict: doctor.Warning, says: "storage v1alpha1",
		},
		"a daemon that hangs": {
			make: func(_ *testing.T, f *fixture) {
				f.endpoints[0].Served, f.endpoints[0].Err = false, errors.New("no answer")
			},
			check: "endpoints", verdict: doctor.Problem, says: "disk-v1 doesn't answer: no answer",
		},
		"no access to the pipes": {
			make: func(_ *testing.T, f *fixture) {
				for i := range f.endpoints {
					f.endpoints[i].Served, f.endpoints[i].Err = false, fs.ErrPermission
				}
			},
			check: "endpoints", verdict: doctor.Unknown, says: "this account may not connect to the endpoints",
		},
		"the published daemon has the pipes": {
			make: func(_ *testing.T, f *fixture) {
				f.endpoints[1].Served = false
				f.owners["disk-v1"] = otherProcess
			},
			check: "pipe-owner", verdict: doctor.Problem, also: "endpoints",
			says: `the published CSI Proxy, process 5000 (C:\etc\csi-proxy-old.exe), serves the endpoints, in the place of the service csi-proxy, process 4000`,
		},
		"another daemon has a pipe": {
			make:  func(_ *testing.T, f *fixture) { f.owners["disk-v1"] = otherProcess },
			check: "pipe-owner", verdict: doctor.Problem, says: `process 5000 (C:\etc\csi-proxy-old.exe) has disk-v1`,
		},
		"a process that was left behind": {
			make: func(_ *testing.T, f *fixture) {
				f.service[0].Running, f.service[0].State, f.service[0].ProcessID = false, "stopped", 0
			},
			check: "pipe-owner", verdict: doctor.Warning, says: "no service of CSI Proxy runs", also: "service",
		},
		"a program that isn't CSI Proxy": {
			make: func(_ *testing.T, f *fixture) {
				f.Node.Server = func(context.Context, string) (uint32, string, error) {
					return daemonProcess, `C:\csi-proxy\squatter.exe`, nil
				}
			},
			check: "pipe-owner", verdict: doctor.Problem, says: "isn't CSI Proxy",
		},
		"the service has failed": {
			make: func(_ *testing.T, f *fixture) {
				for i := range f.endpoints {
					f.endpoints[i].Served = false
				}
				f.service[0] = doctor.Service{Name: "csi-proxy", State: "stopped", ExitCode: 1066, SpecificExitCode: 1,
					Account: "LocalSystem"}
			},
			check: "service", verdict: doctor.Problem, says: "csi-proxy is stopped; its exit code is 1066 (1)",
			also: "endpoints",
		},
		"the service is disabled": {
			make: func(_ *testing.T, f *fixture) {
				for i := range f.endpoints {
					f.endpoints[i].Served = false
				}
				f.service[0].Running, f.service[0].Disabled = false, true
			},
			check: "service", verdict: doctor.Problem, says: "disabled", also: "endpoints",
		},
		"two services": {
			make: func(_ *testing.T, f *fixture) {
				f.service = append(f.service, doctor.Service{Name: "csiproxy", Running: true, Account: "LocalSystem"})
			},
			check: "service", verdict: doctor.Problem, says: "more than one service of CSI Proxy: csi-proxy, csiproxy",
		},
		"another account": {
			make:  func(_ *testing.T, f *fixture) { f.service[0].Account = `.\csi` },
			check: "account", verdict: doctor.Warning, says: `runs as .\csi`,
		},
		"too few privileges": {
			make:  func(_ *testing.T, f *fixture) { f.service[0].Privileges = []string{"sebackupprivilege"} },
			check: "account", verdict: doctor.Problem, says: "that the daemon needs: SeRestorePrivilege",
		},
		"a program that all users can exchange": {
			make: func(_ *testing.T, f *fixture) {
				f.writers = map[string][]string{`C:\k`: {"Everyone"}}
			},
			check: "directories", verdict: doctor.Warning, says: `the program of the service csi-proxy, C:\k: Everyone`,
		},
		"a log that all users can lead elsewhere": {
			make: func(_ *testing.T, f *fixture) {
				f.writers = map[string][]string{`C:\log`: {"Everyone"}}
			},
			check: "directories", verdict: doctor.Warning, says: `the log of the service csi-proxy, C:\log: Everyone`,
		},
		"no kubelet directory": {
			make:  func(_ *testing.T, f *fixture) { f.KubeletPath = `C:\var\lib\other` },
			check: "kubelet-directory", verdict: doctor.Problem, says: `there is no C:\var\lib\other`,
		},
		"the kubelet directory is a link": {
			make: func(t *testing.T, f *fixture) {
				simtest.Must(t, f.sim.Junction(`C:\kubelet`, simtest.Kubelet))
				f.KubeletPath = `C:\kubelet`
			},
			check: "kubelet-directory", verdict: doctor.Warning, says: `C:\kubelet is a link`,
		},
		"a link on the way to the kubelet directory": {
			make: func(t *testing.T, f *fixture) {
				simtest.Must(t, f.sim.Junction(`C:\data`, `C:\var`))
				f.KubeletPath = `C:\data\lib\kubelet`
			},
			check: "kubelet-directory", verdict: doctor.Warning, says: `C:\data is a link`,
		},
		"the kubelet directory is a file": {
			make: func(t *testing.T, f *fixture) {
				simtest.Must(t, f.sim.WriteFile(`C:\var\file`, []byte("x")))
				f.KubeletPath = `C:\var\file`
			},
			check: "kubelet-directory", verdict: doctor.Problem,
			says: `C:\var\file, on the way to the kubelet directory, is a file`,
		},
		"the kubelet directory is on ReFS": {
			make: func(t *testing.T, f *fixture) {
				volume := attachVolume(t, f)
				simtest.Must(t, f.sim.FormatVolume(t.Context(), volume, win.FormatOptions{FileSystem: "ReFS"}))
				simtest.Mount(t, f.sim, `C:\data`, volume)
				simtest.Must(t, f.sim.MkdirAll(`C:\data\kubelet`))
				f.KubeletPath = `C:\data\kubelet\`
			},
			check: "kubelet-directory", verdict: doctor.Problem, says: "lies on ReFS",
		},
		"MSiSCSI disabled": {
			make: func(t *testing.T, f *fixture) {
				simtest.Must(t, f.sim.Services().Remove(services.ISCSIInitiator))
				simtest.Must(t, f.sim.Services().Add(services.Spec{Name: services.ISCSIInitiator, StartType: win.ServiceDisabled}))
			},
			check: "iscsi-service", verdict: doctor.Warning, says: "is disabled",
		},
		"no MSiSCSI": {
			make: func(t *testing.T, f *fixture) {
				simtest.Must(t, f.sim.Services().Remove(services.ISCSIInitiator))
			},
			check: "iscsi-service", verdict: doctor.Warning, says: "there is no service MSiSCSI",
		},
		"automatic mounting off": {
			make: func(t *testing.T, f *fixture) {
				simtest.Must(t, f.sim.SetSettings(winsim.Settings{NoAutomount: true}))
			},
			check: "automatic-mounting", verdict: doctor.Warning, says: "automatic mounting is off",
		},
		"SAN policy OfflineAll": {
			make: func(t *testing.T, f *fixture) {
				simtest.Must(t, f.sim.SetRegistryNumber(win.RegistryPartitionManager, win.RegistrySANPolicy,
					uint32(win.SANOfflineAll)))
			},
			check: "san-policy", verdict: doctor.Warning, says: "OfflineAll",
		},
		"SAN policy OfflineInternal": {
			make: func(t *testing.T, f *fixture) {
				simtest.Must(t, f.sim.SetRegistryNumber(win.RegistryPartitionManager, win.RegistrySANPolicy,
					uint32(win.SANOfflineInternal)))
			},
			check: "san-policy", verdict: doctor.Warning, says: "OfflineInternal",
		},
		"SAN policy OfflineShared": {
			make: func(t *testing.T, f *fixture) {
				simtest.Must(t, f.sim.SetRegistryNumber(win.RegistryPartitionManager, win.RegistrySANPolicy,
					uint32(win.SANOfflineShared)))
			},
		},
		"a SAN policy of the future": {
			make: func(t *testing.T, f *fixture) {
				simtest.Must(t, f.sim.SetRegistryNumber(win.RegistryPartitionManager, win.RegistrySANPolicy, 9))
			},
			check: "san-policy", verdict: doctor.Unknown, says: "9",
		},
		"BitLocker has locked a volume": {
			make: func(t *testing.T, f *fixture) {
				simtest.Must(t, f.sim.SetVolumeLocked(attachVolume(t, f), true))
			},
			check: "bitlocker", verdict: doctor.Problem, says: "locked the volume",
		},
		"BitLocker's policy denies writing": {
			make: func(t *testing.T, f *fixture) {
				simtest.Must(t, f.sim.SetRegistryNumber(win.RegistryBitLockerPolicy, win.RegistryDenyWriteAccess, 1))
			},
			check: "bitlocker", verdict: doctor.Problem, says: "read-only",
		},
		"a clone": {
			make: func(t *testing.T, f *fixture) {
				_, err := f.sim.CloneDisk(1, winsim.DiskSpec{Serial: "clone"})
				simtest.Must(t, err)
				f.sim.Settle()
			},
			check: "clones", verdict: doctor.Problem, says: "have the same id",
		},
		"a clone whose table Windows doesn't show": {
			make: func(t *testing.T, f *fixture) {
				simtest.Must(t, f.sim.SetSettings(winsim.Settings{OfflineLayoutRAW: true}))
				_, err := f.sim.CloneDisk(1, winsim.DiskSpec{Serial: "clone"})
				simtest.Must(t, err)
				f.sim.Settle()
			},
			check: "clones", verdict: doctor.Problem, says: "is offline, since it has the ids of another disk",
		},
		"two disks with one LUN": {
			make: func(t *testing.T, f *fixture) {
				azure(t, f, "data-1", "")
				azure(t, f, "data-2", "")
			},
			check: "luns", verdict: doctor.Warning, says: "have the same LUN, 1: ",
		},
		"two disks with one LUN where no driver looks at that": {
			make: func(t *testing.T, f *fixture) {
				for _, serial := range []string{"one", "two"} {
					simtest.Attach(t, f.sim, winsim.DiskSpec{Serial: serial, VendorID: "VMware", SCSI: onItsOwnBus(f)})
				}
			},
		},
		"Azure's temporary disk": {
			make:  func(t *testing.T, f *fixture) { azure(t, f, "temporary", "DATALOSS_WARNING_README.txt") },
			check: "luns", verdict: doctor.Warning, says: "is Azure's temporary disk, at ",
		},
		"Azure's temporary disk that is protected, and a data disk with its LUN": {
			make: func(t *testing.T, f *fixture) {
				letter := azure(t, f, "temporary", "DATALOSS_WARNING_README.txt")
				azure(t, f, "data", "")
				n, err := nodeops.New(f.sim, nodeops.Options{ProtectedVolumes: []string{letter}})
				simtest.Must(t, err)
				f.Daemon = doctor.Operations{Disk: n.Disk}
			},
		},
		"a disk that answers with errors": {
			make: func(t *testing.T, f *fixture) {
				simtest.Must(t, f.sim.Fail(winsim.Match{Call: "IOCTL_DISK_GET_DRIVE_LAYOUT_EX", Object: "PhysicalDrive1"},
					win.ErrorIODevice))
			},
			check: "silent-disks", verdict: doctor.Problem, says: "disk 1", also: "mounted-volumes clones",
		},
		"a disk of which it isn't known whether it is a clone": {
			make: func(t *testing.T, f *fixture) {
				simtest.Must(t, f.sim.Fail(winsim.Match{Call: "IOCTL_DISK_GET_DRIVE_LAYOUT_EX", Object: "PhysicalDrive1"},
					win.ErrorIODevice))
			},
			check: "clones", verdict: doctor.Unknown, says: "doesn't tell its id", also: "mounted-volumes silent-disks",
		},
		"the server of a mapping is gone": {
			make: func(t *testing.T, f *fixture) {
				simtest.Must(t, f.sim.SMB().SetState("filer", smbserver.State{Unreachable: true}))
			},
			check: "smb-mappings", verdict: doctor.Problem, says: `the share \\filer\data, at C:\var\lib\kubelet\share: `,
		},
		"a server that refuses a log-on": {
			make: func(t *testing.T, f *fixture) {
				simtest.Must(t, f.sim.SMB().AddShare(smbserver.Share{Server: "nas", Name: "data"}))
				c := smb.Credentials{Username: "nobody", Password: secret.New("wrong")}
				err := f.Local.Storage.StageShare(t.Context(),
					storage.StageShareRequest{RemotePath: `\\nas\data`, StagingPath: simtest.Kubelet + `\other`, Credentials: c})
				if !errors.Is(err, csiproxy.ErrUnauthenticated) {
					t.Errorf("staged: %v", err)
				}
			},
			check: "smb-log-ons", verdict: doctor.Problem, says: `the server of \\nas\data has refused a log-on`,
		},
		"a volume that needs a repair": {
			make: func(t *testing.T, f *fixture) {
				simtest.Must(t, f.sim.SetVolumeDirty(simtest.Kubelet+`\plugins\volume`, true))
			},
			check: "mounted-volumes", verdict: doctor.Problem, says: `the volume at C:\var\lib\kubelet\plugins\volume: `,
		},
		"a link to nothing": {
			make: func(t *testing.T, f *fixture) {
				simtest.Must(t, f.sim.Symlink(simtest.Kubelet+`\dangling`, simtest.Kubelet+`\none`, true))
			},
			check: "leftovers", verdict: doctor.Warning,
			says: `the link C:\var\lib\kubelet\dangling, to C:\var\lib\kubelet\none: it leads to nothing`,
		},
		"many links to nothing": {
			make: func(t *testing.T, f *fixture) {
				for i := range 25 {
					simtest.Must(t, f.sim.Symlink(fmt.Sprintf(simtest.Kubelet+`\dangling-%d`, i), simtest.Kubelet+`\none`, true))
				}
			},
			check: "leftovers", verdict: doctor.Warning, says: "5 more: csi-proxyctl storage volumes",
		},
		"a mount of a disk that has left": {
			make: func(t *testing.T, f *fixture) {
				simtest.Must(t, f.sim.DetachDisk(1))
			},
			check: "leftovers", verdict: doctor.Warning, says: `the mount point C:\var\lib\kubelet\plugins\volume, to `,
		},
		"a mapping without a user": {
			make: func(t *testing.T, f *fixture) {
				simtest.Must(t, f.sim.Remove(simtest.Kubelet+`\share`))
			},
			check: "leftovers", verdict: doctor.Warning, says: `the mapping of \\filer\data: `,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			test.make(t, f)
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

// What the daemon doesn't serve, the node is asked for; what it answers counts.
func TestDaemonFirst(t *testing.T) {
	f := newFixture(t)
	local := f.Local
	for name, test := range map[string]struct {
		daemon doctor.Operations
		want   doctor.Verdict
	}{
		"no daemon":                {refusing(csiproxy.ErrUnavailable, local), doctor.OK},
		"a daemon without the API": {refusing(csiproxy.ErrUnimplemented, local), doctor.OK},
		"a daemon that fails":      {refusing(csiproxy.ErrPermissionDenied, local), doctor.Unknown},
	} {
		f.Daemon = test.daemon
		for _, got := range doctor.Examine(t.Context(), f.Node) {
			if got.Check == "silent-disks" && got.Verdict != test.want {
				t.Errorf("%s: %+v", name, got)
			}
		}
	}
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
