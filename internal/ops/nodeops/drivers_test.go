// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/ops/scope"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/iscsitarget"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// tenants is a node with two drivers, each with a disk, a staged and published volume, a share and a target.
type tenants struct {
	*rig
	node    *nodeops.Node
	drivers []nodeops.Driver
	own     map[string]*tenant

	clone csiproxy.DiskNumber // of the other's disk, which is the driver's own
}

// tenant is one of the drivers, with what is its.
type tenant struct {
	nodeops.Operations
	name            string
	number          csiproxy.DiskNumber // of a disk with the volume
	raw             csiproxy.DiskNumber // of a blank disk
	serial, page83  string
	volume          csiproxy.VolumeID
	rawVolume       csiproxy.VolumeID // of the blank disk, once that is partitioned
	staging, target string            // of the volume
	share           string
	shareStaging    string
	podVolume       string // a published path at which a test mounts the volume itself
	podShare        string // a published path that a test makes a link to the share
	portal          csiproxy.ISCSIPortal
	iqn             csiproxy.IQN
	service         string
	vendor          string
}

const (
	red  = "red.csi.example.com"
	blue = "blue.csi.example.com"
)

func newTenants(t testing.TB) *tenants { return newSlowTenants(t, winsim.Delays{}) }

// newSlowTenants is newTenants on a node whose calls and arrivals take time.
func newSlowTenants(t testing.TB, delays winsim.Delays) *tenants {
	r := newSlowRig(t, delays)
	w := &tenants{rig: r, own: map[string]*tenant{}}
	for i, name := range []string{red, blue} {
		color, _, _ := strings.Cut(name, ".")
		d := &tenant{name: name, vendor: strings.ToUpper(color), serial: color + "-1", service: []string{"example", "needs-example"}[i],
			staging:   simtest.Kubelet + `\plugins\kubernetes.io\csi\` + name + `\1\globalmount`,
			target:    simtest.Kubelet + `\pods\` + color + `\volumes\kubernetes.io~csi\pv-1\mount`,
			podVolume: simtest.Kubelet + `\pods\` + color + `\volumes\kubernetes.io~csi\volume\mount`,
			podShare:  simtest.Kubelet + `\pods\` + color + `\volumes\kubernetes.io~csi\share\mount`,
			share:     `\\` + []string{"server", "other"}[i] + `\data`, shareStaging: simtest.Kubelet + `\plugins\` + name + `\share`,
			portal: []csiproxy.ISCSIPortal{portal, {Address: "10.0.0.2", Port: 3260}}[i],
			iqn:    []csiproxy.IQN{iqn, "iqn.2026-01.com.example:vol-2"}[i],
		}
		w.own[name] = d
		w.drivers = append(w.drivers, nodeops.Driver{Driver: scope.Driver{Name: name,
			Disks:    []scope.DiskPattern{{Vendor: d.vendor, Product: "Disk*"}},
			Servers:  []string{[]string{"server", "other"}[i]},
			Portals:  []csiproxy.ISCSIPortal{d.portal},
			Services: []string{d.service}}})
	}
	r.must(r.sim.ISCSI().AddTarget(iscsitarget.Target{IQN: "iqn.2026-01.com.example:vol-2",
		Portals: []win.ISCSIPortal{{Address: "10.0.0.2", Port: 3260}}}, winsim.DiskSpec{SizeBytes: 1 << 30}))
	var err error
	w.node, err = nodeops.New(r.sim, nodeops.Options{}, w.drivers...)
	r.must(err)
	for name, d := range w.own {
		d.Operations = w.node.Driver(name)
		r.must(d.have(r.sim, d.target, d.podVolume, d.podShare))
	}
	return w
}

// have has kubelet prepare published paths for a driver: it makes the directories, with its file.
func (d *tenant) have(sys *winsim.System, published ...string) error {
	for _, path := range published {
		directory := strings.TrimSuffix(path, `\mount`)
		if err := sys.MkdirAll(directory); err != nil {
			return err
		}
		data := fmt.Sprintf(`{"driverName":%q,"volumeHandle":"volume","volumeLifecycleMode":"Persistent"}`, d.name)
		if err := sys.WriteFile(directory+`\vol_data.json`, []byte(data)); err != nil {
			return err
		}
	}
	return nil
}

// begin has a driver stage and publish all that it has.
func (w *tenants) begin(d *tenant) {
	ctx := context.Background()
	attach := func(serial string) csiproxy.DiskNumber {
		return w.attach(winsim.DiskSpec{SizeBytes: 1 << 30, VendorID: d.vendor, ProductID: "Disk 1", Serial: serial})
	}
	d.number, d.raw = attach(d.serial), attach(d.vendor+"-raw")
	staged, err := d.Storage.StageVolume(ctx, csiproxy.StageVolumeRequest{
		Disk: csiproxy.Selector{SerialNumber: d.serial}, StagingPath: d.staging})
	w.must(err)
	d.volume = staged.VolumeID
	ids, err := d.Disk.ListDiskIDs(ctx)
	w.must(err)
	d.page83 = ids[d.number].Page83
	w.must(d.Storage.PublishVolume(ctx, d.staging, d.target))
	w.must(d.Storage.StageShare(ctx, csiproxy.StageShareRequest{RemotePath: d.share, StagingPath: d.shareStaging,
		Credentials: user}))
	w.must(d.ISCSI.AddTargetPortal(ctx, d.portal))
	w.must(d.ISCSI.ConnectTarget(ctx, d.portal, d.iqn, csiproxy.ISCSIAuthentication{}))
	w.must(w.sim.WriteFile(d.staging+file, []byte("precious")))
}

// end has a driver give up all that it has.
func (w *tenants) end(d *tenant) {
	ctx := context.Background()
	w.must(d.Storage.UnpublishVolume(ctx, d.target))
	_, err := d.Storage.UnstageVolume(ctx, csiproxy.UnstageVolumeRequest{StagingPath: d.staging})
	w.must(err)
	unstaged, err := d.Storage.UnstageShare(ctx, csiproxy.UnstageShareRequest{StagingPath: d.shareStaging})
	w.must(err)
	simtest.Want(w.t, "the share is unmapped", unstaged.Unmapped, true)
	w.must(d.ISCSI.DisconnectTarget(ctx, d.portal, d.iqn))
	w.must(d.ISCSI.RemoveTargetPortal(ctx, d.portal))
}

// state is all that a driver could change of another's.
func (w *tenants) state() []string {
	ctx := context.Background()
	all := strings.Split(fmt.Sprint(simtest.State(w.sim)), "\n")
	mappings, err := w.sim.SMBGlobalMappings(ctx)
	w.must(err)
	sessions, err := w.sim.ISCSISessions(ctx)
	w.must(err)
	portals, err := w.sim.ISCSISendTargetPortals(ctx)
	w.must(err)
	all = append(all, fmt.Sprint(mappings), fmt.Sprint(sessions), fmt.Sprint(portals), fmt.Sprintf("%+v", w.sim.Services().List()))
	var below func(path string)
	below = func(path string) {
		entries, err := w.sim.ReadDir(path)
		if err != nil {
			return
		}
		for _, e := range entries {
			link, _ := w.sim.ReadLink(path + `\` + e.Name)
			all = append(all, path+`\`+e.Name+" -> "+link)
			if link == "" {
				below(path + `\` + e.Name)
			}
		}
	}
	below(simtest.Kubelet)
	below(`C:\ProgramData`)
	return all
}

// Two drivers live side by side, and each ends what it began.
func TestDriversSideBySide(t *testing.T) {
	w := newTenants(t)
	for _, d := range w.own {
		w.begin(d)
	}
	whole, err := w.node.Storage.ListVolumes(t.Context())
	w.must(err)
	for _, d := range w.own {
		list, err := d.Storage.ListVolumes(t.Context())
		w.must(err)
		var paths []string
		for _, m := range list.Mounts {
			paths = append(paths, m.Path)
			if m.Kind == csiproxy.MountKindLink {
				continue
			}
			ofNode := whole.Mounts[slices.IndexFunc(whole.Mounts, func(other csiproxy.Mount) bool { return other.Path == m.Path })]
			simtest.Want(t, "the driver of "+m.Path, []string{m.Volume.Driver, ofNode.Volume.Driver}, []string{d.name, d.name})
		}
		slices.Sort(paths)
		simtest.Want(t, "mounts of "+d.name, fmt.Sprint(paths), fmt.Sprint(slices.Sorted(slices.Values([]string{d.staging, d.shareStaging, d.target}))))
		all, err := d.Storage.ListDisks(t.Context(), csiproxy.Selector{})
		w.must(err)
		for _, one := range all {
			if one.Vendor != d.vendor && (one.ISCSI == nil || one.ISCSI.IQN != d.iqn) {
				t.Errorf("%s sees the disk %v", d.name, one)
			}
		}
		simtest.Want(t, "disks of "+d.name, len(all), 3)
	}
	for _, d := range w.own {
		w.end(d)
	}
}

// So they do where Windows knows no devices of partitions, and all volumes of the node are searched.
func TestDriversSearchVolumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		beginAndEnd(t, winsim.Settings{NoPartitionDevices: true})
	})
}

func TestDriversOnOtherWindows(t *testing.T) {
	simtest.EachSwitch(t, func(t *testing.T, settings winsim.Settings) {
		synctest.Test(t, func(t *testing.T) { beginAndEnd(t, settings) })
	})
}

func beginAndEnd(t *testing.T, settings winsim.Settings) {
	w := newTenants(t)
	w.must(w.sim.SetSettings(settings))
	for _, d := range w.own {
		w.begin(d)
	}
	for _, d := range w.own {
		w.end(d)
	}
}

// A disk that fits the patterns of two drivers is neither's.
func TestDiskThatFitsTwoDrivers(t *testing.T) {
	r := newRig(t)
	n, err := nodeops.New(r.sim, nodeops.Options{},
		nodeops.Driver{Driver: scope.Driver{Name: red, Disks: []scope.DiskPattern{{Product: "Disk*"}}}},
		nodeops.Driver{Driver: scope.Driver{Name: blue, Disks: []scope.DiskPattern{{Vendor: "blue"}}}})
	r.must(err)
	both := r.attach(winsim.DiskSpec{SizeBytes: 1 << 30, VendorID: "BLUE", ProductID: "Disk 1"})
	own := r.attach(winsim.DiskSpec{SizeBytes: 1 << 30, VendorID: "BLUE", ProductID: "Other"})
	for _, name := range []string{red, blue} {
		simtest.WantErrorOf(t, name, n.Driver(name).Disk.PartitionDisk(t.Context(), both), csiproxy.ErrNotFound)
	}
	r.must(n.Driver(blue).Disk.PartitionDisk(t.Context(), own))
	all, err := n.Storage.ListDisks(t.Context(), csiproxy.Selector{})
	r.must(err)
	for _, d := range all {
		simtest.Want(t, fmt.Sprint("driver of ", d), d.Driver, map[csiproxy.DiskNumber]string{own: blue}[d.Number])
	}
}

// A driver's target may copy what another driver's disks say of themselves, also while Windows names none of the driver's portals for the
// session: it has no connection, or the target has redirected the login to another address.
func TestTargetThatCopiesAnothersDisk(t *testing.T) {
	for name, portals := range map[string][]win.ISCSIPortal{
		"connected": {{Address: "10.0.0.2", Port: 3260}}, "no connection": nil, "redirected": {{Address: "203.0.113.9", Port: 3260}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTenants(t)
			d, other := w.own[red], w.own[blue]
			const target = "iqn.2026-01.com.example:copy"
			w.must(w.sim.ISCSI().AddTarget(iscsitarget.Target{IQN: target, Portals: []win.ISCSIPortal{{Address: "10.0.0.2", Port: 3260}}},
				winsim.DiskSpec{SizeBytes: 1 << 30, VendorID: d.vendor, ProductID: "Disk 1", Serial: d.serial}))
			sys := &sessions{System: w.sim}
			node, err := nodeops.New(sys, nodeops.Options{}, w.drivers...)
			w.must(err)
			w.must(node.Driver(blue).ISCSI.AddTargetPortal(t.Context(), other.portal))
			w.must(node.Driver(blue).ISCSI.ConnectTarget(t.Context(), other.portal, target, csiproxy.ISCSIAuthentication{}))
			sys.broken = func(all []win.ISCSISession) ([]win.ISCSISession, error) {
				for i := range all {
					all[i].Portals = portals
				}
				return all, nil
			}
			list, err := node.Driver(red).Storage.ListDisks(t.Context(), csiproxy.Selector{})
			w.must(err)
			simtest.Want(t, "disks of the other driver", len(list), 0)
			simtest.WantErrorOf(t, "StageVolume of the other driver", second(node.Driver(red).Storage.StageVolume(t.Context(),
				csiproxy.StageVolumeRequest{StagingPath: d.staging, Disk: csiproxy.Selector{SerialNumber: d.serial}, Wait: -1})), csiproxy.ErrNotFound)
		})
	}
}

// The error about a copy of another driver's disk doesn't name that.
func TestCopyOfAnothersDisk(t *testing.T) {
	w := newTenants(t)
	d, other := w.own[red], w.own[blue]
	at := csiproxy.DiskNumber(4711)
	original := w.attach(winsim.DiskSpec{VendorID: other.vendor, ProductID: "Disk 1", Number: &at})
	simtest.Partition(t, w.sim, original, 1)
	w.sim.Settle()
	copied, err := w.sim.CloneDisk(original, winsim.DiskSpec{VendorID: d.vendor, ProductID: "Disk 1", Serial: "copy", Offline: true})
	w.must(err)
	w.sim.Settle()
	w.must(w.sim.SetSettings(winsim.Settings{ClonesStayOffline: true}))
	for _, own := range []bool{true, false} {
		ops, name := d.Operations, "a copy of a disk that isn't driver"
		if !own {
			ops, name = w.node.Operations, "a copy of disk 4711"
		}
		list, err := ops.Storage.ListDisks(t.Context(), csiproxy.Selector{SerialNumber: "copy"})
		w.must(err)
		texts := map[string]string{"ListDisks": list[0].OfflineReason}
		for what, err := range map[string]error{
			"SetDiskState": ops.Disk.SetDiskState(t.Context(), copied, true),
			"StageVolume": second(ops.Storage.StageVolume(t.Context(), csiproxy.StageVolumeRequest{ReadOnly: true,
				Disk: csiproxy.Selector{SerialNumber: "copy"}, StagingPath: d.staging})),
		} {
			simtest.WantErrorOf(t, what, err, csiproxy.ErrFailedPrecondition)
			texts[what] = fmt.Sprint(err)
		}
		for what, text := range texts {
			if !strings.Contains(text, name) || strings.Contains(text, "4711") == own {
				t.Errorf("%s: %s", what, text)
			}
		}
	}
}

// Another driver's share is as if it weren't there, by its name and where it is published.
func TestAnothersShare(t *testing.T) {
	w := newTenants(t)
	d, other := w.own[blue], w.own[red]
	w.begin(other)
	published := simtest.Kubelet + `\pods\red\volumes\kubernetes.io~csi\share\mount`
	nothing := strings.Replace(published, `\red\`, `\other\`, 1)
	w.must(other.SMB.NewSMBGlobalMapping(t.Context(), other.share, published, user))
	w.must(w.sim.MkdirAll(nothing[:strings.LastIndex(nothing, `\`)]))
	for name, ask := range map[string]func(path string) error{
		"GetVolume": func(path string) error { return second(d.Storage.GetVolume(t.Context(), path)) },
		"ExpandVolume": func(path string) error {
			return second(d.Storage.ExpandVolume(t.Context(), csiproxy.ExpandVolumeRequest{StagingPath: path}))
		},
		"GetVolumeIDFromTargetPath":        func(path string) error { return second(d.Volume.GetVolumeIDFromTargetPath(t.Context(), path)) },
		"GetClosestVolumeIDFromTargetPath": func(path string) error { return second(d.Volume.GetClosestVolumeIDFromTargetPath(t.Context(), path)) },
	} {
		text := func(path string, want error) string {
			err := ask(path)
			simtest.WantErrorOf(t, name+" at "+path, err, want)
			return strings.NewReplacer(quote.Text(path), "PATH", strconv.Quote(path), "PATH").Replace(fmt.Sprint(err))
		}
		simtest.Want(t, name+" where it is published", text(published, csiproxy.ErrPermissionDenied),
			text(nothing, csiproxy.ErrPermissionDenied))
		if name == "GetVolume" {
			simtest.Want(t, name+" by its name", text(other.share, csiproxy.ErrNotFound), text(`\\nobody\data`, csiproxy.ErrNotFound))
		}
	}
}

// A driver isn't told which services of others depend on its own, and doesn't stop them.
func TestServiceThatDependsOnAnothers(t *testing.T) {
	w := newTenants(t)
	d, other := w.own[red], w.own[blue]
	w.must(other.System.StartService(t.Context(), other.service))
	for _, force := range []bool{false, true} {
		err := d.System.StopService(t.Context(), d.service, force)
		simtest.WantErrorOf(t, "StopService", err, csiproxy.ErrFailedPrecondition, "services of others")
		if strings.Contains(err.Error(), other.service) {
			t.Errorf("it names the other driver's service: %v", err)
		}
	}
	service, err := other.System.GetService(t.Context(), other.service)
	w.must(err)
	simtest.Want(t, "the other driver's service runs", service.Status, 4)
}

// A driver makes links to what lies in its own directories, and to no published path.
func TestLinksOfDriver(t *testing.T) {
	w := newTenants(t)
	for _, d := range w.own {
		w.begin(d)
	}
	d, other := w.own[blue], w.own[red]
	pod := func(d *tenant, volume string) string {
		path := simtest.Kubelet + `\pods\pod\volumes\kubernetes.io~csi\` + volume + `\mount`
		w.must(d.have(w.sim, path))
		return path
	}
	published, target := pod(other, "share"), pod(d, "target")
	w.must(other.SMB.NewSMBGlobalMapping(t.Context(), other.share, published, user))
	for _, source := range []string{published, other.target, d.target, pod(d, "nothing")} {
		simtest.WantErrorOf(t, "link to "+source, d.Filesystem.CreateSymlink(t.Context(), source, target), csiproxy.ErrPermissionDenied)
	}
	w.must(d.Filesystem.CreateSymlink(t.Context(), d.staging, target))
	w.must(d.Filesystem.Rmdir(t.Context(), target, false))
}

// When a disk leaves and another driver's gets its number, the number means that one.
func TestNumberOfDiskChangesHands(t *testing.T) {
	w := newTenants(t)
	for _, d := range w.own {
		w.begin(d)
	}
	d, other := w.own[red], w.own[blue]
	number := d.raw
	r := w.rig
	r.must(r.sim.DetachDisk(number))
	replaced := w.attach(winsim.DiskSpec{SizeBytes: 1 << 30, VendorID: other.vendor, ProductID: "Disk 2", Number: &number})
	simtest.Want(t, "number", replaced, number)
	simtest.WantError(t, d.Disk.PartitionDisk(t.Context(), number), csiproxy.ErrNotFound)
	r.must(other.Disk.PartitionDisk(t.Context(), number))
}

// The driver of a volume whose disk has left ends it by its path. No other driver can.
func TestMissingDiskOfDriver(t *testing.T) {
	w := newTenants(t)
	for _, d := range w.own {
		w.begin(d)
	}
	d, other := w.own[red], w.own[blue]
	w.must(w.sim.DetachDisk(d.number))
	before := w.state()
	for what, err := range map[string]error{
		"UnpublishVolume": other.Storage.UnpublishVolume(t.Context(), d.target),
		"Rmdir":           other.Filesystem.Rmdir(t.Context(), d.target, true),
		"UnstageVolume":   second(other.Storage.UnstageVolume(t.Context(), csiproxy.UnstageVolumeRequest{StagingPath: d.staging, Force: true})),
		"UnmountVolume":   other.Volume.UnmountVolume(t.Context(), d.volume, d.staging),
	} {
		if err == nil {
			t.Errorf("%s of the other driver succeeds", what)
		}
	}
	leftovers, err := other.Storage.CleanUp(t.Context(), true)
	w.must(err)
	if strings.Contains(fmt.Sprintf("%+v", leftovers.Mounts), d.name) {
		t.Errorf("another driver sees %+v", leftovers.Mounts)
	}
	if diff := cmp.Diff(before, w.state()); diff != "" {
		t.Fatalf("the node has changed (-before +after):\n%s", diff)
	}
	w.end(d)
	w.end(other)
}

// What was staged at the shared endpoints is ended at a driver's own ones, and the other way round.
func TestFromSharedToOwnEndpoints(t *testing.T) {
	for _, back := range []bool{false, true} {
		w := newTenants(t)
		d := w.own[red]
		own, shared := d.Operations, w.node.Operations
		if back {
			own, shared = shared, own
		}
		d.Operations = shared
		w.begin(d)
		d.Operations = own
		list, err := d.Storage.ListVolumes(t.Context())
		w.must(err)
		simtest.Want(t, "mounts", len(list.Mounts), 3)
		w.end(d)
	}
}

// What a driver's pods plant in its volume or beside its links leads it to nothing of another's.
func TestPlantedLinksOfDriver(t *testing.T) {
	w := newTenants(t)
	for _, d := range w.own {
		w.begin(d)
	}
	d, other := w.own[blue], w.own[red]
	w.must(w.sim.Symlink(d.staging+`\planted`, other.staging, true))
	w.must(w.sim.MkdirAll(d.staging + `\directory`))
	w.must(w.sim.Symlink(d.staging+`\directory\planted`, `\\?\`+string(other.volume)[len(`\\?\`):], true))
	before := w.state()[:]
	for what, err := range map[string]error{
		"PathExists":     second(d.Filesystem.PathExists(t.Context(), d.staging+`\planted`+file)),
		"Mkdir":          d.Filesystem.Mkdir(t.Context(), d.staging+`\planted\made`),
		"Rmdir":          d.Filesystem.Rmdir(t.Context(), d.staging+`\planted`+file, true),
		"GetVolumeStats": second(d.Volume.GetVolumeIDFromTargetPath(t.Context(), d.staging+`\planted`)),
	} {
		simtest.WantErrorOf(t, what, err, csiproxy.ErrPermissionDenied)
	}
	_, err := d.Storage.ExpandVolume(t.Context(), csiproxy.ExpandVolumeRequest{StagingPath: d.staging + `\directory\planted`})
	simtest.WantErrorOf(t, "ExpandVolume", err, csiproxy.ErrNotFound) // as if the volume weren't there
	if diff := cmp.Diff(before, w.state()); diff != "" {
		t.Fatalf("the node has changed (-before +after):\n%s", diff)
	}
	// Its own links go all the same.
	w.must(d.Filesystem.RmdirContents(t.Context(), d.staging+`\directory`))
	w.must(d.Filesystem.Rmdir(t.Context(), d.staging+`\planted`, true))
	data, err := w.sim.ReadFile(other.staging + file)
	w.must(err)
	simtest.Want(t, "the other's file", string(data), "precious")
}

// Drivers that can't be told apart are refused at the start.
func TestDriversThatOverlap(t *testing.T) {
	driver := func(name string, change func(*nodeops.Driver)) nodeops.Driver {
		d := nodeops.Driver{Driver: scope.Driver{Name: name}}
		if change != nil {
			change(&d)
		}
		return d
	}
	for what, drivers := range map[string][]nodeops.Driver{
		"names":       {driver(red, nil), driver(strings.ToUpper(red), nil)},
		"directories": {driver(red, nil), driver("kubernetes.io", nil)},
		"more directories": {driver(red, nil), driver(blue, func(d *nodeops.Driver) {
			d.Dirs = []string{simtest.Kubelet + `\PLUGINS\` + red + `\below`}
		})},
		"a directory outside": {driver(red, func(d *nodeops.Driver) { d.Dirs = []string{`C:\Windows`} })},
		"servers": {driver(red, func(d *nodeops.Driver) { d.Servers = []string{".example.com"} }),
			driver(blue, func(d *nodeops.Driver) { d.Servers = []string{"FILES.example.com"} })},
		"portals": {driver(red, func(d *nodeops.Driver) { d.Portals = []csiproxy.ISCSIPortal{{Address: "10.0.0.1"}} }),
			driver(blue, func(d *nodeops.Driver) { d.Portals = []csiproxy.ISCSIPortal{{Address: "10.0.0.1", Port: 3260}} })},
		"all disks":        {driver(red, func(d *nodeops.Driver) { d.Disks = []scope.DiskPattern{{}} })},
		"no name":          {driver("", nil)},
		"a path as a name": {driver(`a\b`, nil)},
	} {
		_, err := nodeops.New(nil, nodeops.Options{}, drivers...)
		simtest.WantErrorOf(t, what, err, csiproxy.ErrInvalidArgument)
	}
}

// The load of the node has the calls of drivers, so that one of theirs that hangs is seen.
func TestLoadHasCallsOfDrivers(t *testing.T) {
	w := newTenants(t)
	running := 0
	simtest.BeforeCalls(w.sim, func(int, winsim.Call) { running = max(running, w.node.Load().Running) })
	w.must(second(w.own[red].Filesystem.PathExists(t.Context(), w.own[red].staging)))
	simtest.Want(t, "calls that run", running, 1)
}

// Drivers may have one account of a domain. A server that refuses it for one driver doesn't hold the other's log-on back, and is asked
// whether or not the other has used the password.
func TestAccountOfAnotherDriver(t *testing.T) {
	w := newTenants(t)
	d, other := w.own[red], w.own[blue]
	account := csiproxy.SMBCredentials{Username: `DOMAIN\service`, Password: csiproxy.NewSecret("old")}
	logOns := 0
	w.sim.OnCall(func(c winsim.Call) {
		if c.Name == win.CallCreateSMBGlobalMapping && strings.Contains(c.Object, other.share) {
			logOns++
		}
	})
	stage := func(d *tenant) error {
		return d.Storage.StageShare(t.Context(), csiproxy.StageShareRequest{RemotePath: d.share, StagingPath: d.shareStaging, Credentials: account})
	}
	simtest.WantErrorOf(t, "an old password", stage(d), csiproxy.ErrUnauthenticated)
	simtest.WantErrorOf(t, "the same at the other server", stage(other), csiproxy.ErrUnauthenticated)
	simtest.Want(t, "log-ons to the other server", logOns, 1)
	account.Password = csiproxy.NewSecret("new")
	simtest.WantErrorOf(t, "the other server", stage(other), csiproxy.ErrUnauthenticated)
	w.must(w.sim.SMB().SetUser("server", account.Username, account.Password))
	w.must(stage(d))
}

// A driver's list drops the stale records of its own shares, and leaves those of other drivers' shares to them.
func TestRecordsOfAnothersShares(t *testing.T) {
	w := newTenants(t)
	for _, d := range w.own {
		w.begin(d)
		w.must(w.sim.RemoveSMBGlobalMapping(t.Context(), d.share))
	}
	records := func() (names []string) {
		entries, err := w.sim.ReadDir(`C:\Windows\csi-proxy-mappings`)
		w.must(err)
		for _, e := range entries {
			names = append(names, e.Name)
		}
		return names
	}
	simtest.Want(t, "records", len(records()), 2)
	w.must(second(w.own[red].Storage.ListVolumes(t.Context())))
	simtest.Want(t, "records after one driver's list", fmt.Sprint(records()), "[other+data]")
	w.must(second(w.node.Storage.ListVolumes(t.Context())))
	simtest.Want(t, "records after the node's list", len(records()), 0)
}
