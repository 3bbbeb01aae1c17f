// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// attempt is a call by which a driver names what is another's.
type attempt struct {
	name string
	// pods says that it names a path where all drivers publish. That something is there may be seen.
	pods bool
	// named is what of the other's the call names, so that its error may do so.
	named func(other *tenant) []string
	call  func(ctx context.Context, d, other *tenant) (seen any, err error)
}

// tells returns what an error tells of the other's that the call hasn't named; "" if nothing.
func (a attempt) tells(err error, other *tenant) string {
	text := fmt.Sprint(err)
	for _, name := range a.named(other) {
		text = strings.NewReplacer(strconv.Quote(name), "", quote.Text(name), "").Replace(text)
	}
	guid := strings.TrimPrefix(string(other.volume), `\\?\Volume`)
	for _, secret := range []string{other.name, guid, `\pods\red`, other.share, other.serial, other.page83, string(other.iqn),
		other.portal.Address} {
		if strings.Contains(strings.ToLower(text), strings.ToLower(secret)) {
			return secret
		}
	}
	return ""
}

func noAnswer(err error) (any, error) { return nil, err }

func namesVolume(other *tenant) []string { return []string{string(other.volume)} }

// attemptsAt are the calls that take a path.
func attemptsAt(path func(other *tenant) string) []attempt {
	return []attempt{
		{name: "PathExists", call: func(ctx context.Context, d, other *tenant) (any, error) {
			return noAnswer(second(d.Filesystem.PathExists(ctx, path(other))))
		}},
		{name: "Mkdir", call: func(ctx context.Context, d, other *tenant) (any, error) {
			return noAnswer(d.Filesystem.Mkdir(ctx, path(other)+`\made`))
		}},
		{name: "Rmdir", call: func(ctx context.Context, d, other *tenant) (any, error) {
			return noAnswer(d.Filesystem.Rmdir(ctx, path(other), false))
		}},
		{name: "Rmdir with force", call: func(ctx context.Context, d, other *tenant) (any, error) {
			return noAnswer(d.Filesystem.Rmdir(ctx, path(other), true))
		}},
		{name: "RmdirContents", call: func(ctx context.Context, d, other *tenant) (any, error) {
			return noAnswer(d.Filesystem.RmdirContents(ctx, path(other)))
		}},
		{name: "CreateSymlink to it", call: func(ctx context.Context, d, other *tenant) (any, error) {
			return noAnswer(d.Filesystem.CreateSymlink(ctx, path(other), strings.Replace(d.target, "pv-1", "new", 1)))
		}},
		{name: "CreateSymlink at it", call: func(ctx context.Context, d, other *tenant) (any, error) {
			return noAnswer(d.Filesystem.CreateSymlink(ctx, d.staging, path(other)))
		}},
		{name: "IsSymlink", call: func(ctx context.Context, d, other *tenant) (any, error) {
			if is, err := d.Filesystem.IsSymlink(ctx, path(other)); err != nil || !is {
				return noAnswer(err)
			}
			return "a link", nil
		}},
		{name: "MountVolume of its own", call: func(ctx context.Context, d, other *tenant) (any, error) {
			return noAnswer(d.Volume.MountVolume(ctx, d.volume, path(other)))
		}},
		{name: "MountVolume", named: namesVolume, call: func(ctx context.Context, d, other *tenant) (any, error) {
			return noAnswer(d.Volume.MountVolume(ctx, other.volume, path(other)))
		}},
		{name: "UnmountVolume", named: namesVolume, call: func(ctx context.Context, d, other *tenant) (any, error) {
			return noAnswer(d.Volume.UnmountVolume(ctx, other.volume, path(other)))
		}},
		{name: "GetVolumeIDFromTargetPath", call: func(ctx context.Context, d, other *tenant) (any, error) {
			return noAnswer(second(d.Volume.GetVolumeIDFromTargetPath(ctx, path(other))))
		}},
		{name: "GetClosestVolumeIDFromTargetPath", call: func(ctx context.Context, d, other *tenant) (any, error) {
			return noAnswer(second(d.Volume.GetClosestVolumeIDFromTargetPath(ctx, path(other))))
		}},
		{name: "NewSMBGlobalMapping", call: func(ctx context.Context, d, other *tenant) (any, error) {
			return noAnswer(d.SMB.NewSMBGlobalMapping(ctx, d.share, path(other), user))
		}},
		{name: "StageVolume", call: func(ctx context.Context, d, other *tenant) (any, error) {
			return noAnswer(second(d.Storage.StageVolume(ctx, csiproxy.StageVolumeRequest{StagingPath: path(other), Disk: csiproxy.Selector{SerialNumber: d.serial}, Wait: -1})))
		}},
		{name: "StageVolume of its blank disk", call: func(ctx context.Context, d, other *tenant) (any, error) {
			return noAnswer(second(d.Storage.StageVolume(ctx, csiproxy.StageVolumeRequest{StagingPath: path(other), Disk: csiproxy.Selector{Number: &d.raw}})))
		}},
		{name: "UnstageVolume", call: func(ctx context.Context, d, other *tenant) (any, error) {
			return noAnswer(second(d.Storage.UnstageVolume(ctx, csiproxy.UnstageVolumeRequest{StagingPath: path(other), Force: true})))
		}},
		{name: "UnmountVolume of a missing one", call: func(ctx context.Context, d, other *tenant) (any, error) {
			return noAnswer(d.Volume.UnmountVolume(ctx, `\\?\Volume{00000000-0000-0000-0000-000000000001}\`, path(other)))
		}},
		{name: "PublishVolume of it", call: func(ctx context.Context, d, other *tenant) (any, error) {
			return noAnswer(d.Storage.PublishVolume(ctx, path(other), strings.Replace(d.target, "pv-1", "new", 1)))
		}},
		{name: "PublishVolume at it", call: func(ctx context.Context, d, other *tenant) (any, error) {
			return noAnswer(d.Storage.PublishVolume(ctx, d.staging, path(other)))
		}},
		{name: "UnpublishVolume", call: func(ctx context.Context, d, other *tenant) (any, error) {
			return noAnswer(d.Storage.UnpublishVolume(ctx, path(other)))
		}},
		{name: "ExpandVolume", call: func(ctx context.Context, d, other *tenant) (any, error) {
			return noAnswer(second(d.Storage.ExpandVolume(ctx, csiproxy.ExpandVolumeRequest{StagingPath: path(other)})))
		}},
		{name: "GetVolume", call: func(ctx context.Context, d, other *tenant) (any, error) {
			return noAnswer(second(d.Storage.GetVolume(ctx, path(other))))
		}},
		{name: "CheckVolume", call: func(ctx context.Context, d, other *tenant) (any, error) {
			return noAnswer(second(d.Storage.CheckVolume(ctx, csiproxy.CheckVolumeRequest{StagingPath: path(other), SpotFix: true})))
		}},
		{name: "StageShare", call: func(ctx context.Context, d, other *tenant) (any, error) {
			return noAnswer(d.Storage.StageShare(ctx, csiproxy.StageShareRequest{RemotePath: d.share, StagingPath: path(other), Credentials: user}))
		}},
		{name: "UnstageShare", call: func(ctx context.Context, d, other *tenant) (any, error) {
			return noAnswer(second(d.Storage.UnstageShare(ctx, csiproxy.UnstageShareRequest{StagingPath: path(other)})))
		}},
	}
}

func attempts() []attempt {
	var all []attempt
	paths := map[string]func(other *tenant) string{
		"its staging path":                     func(other *tenant) string { return other.staging },
		"a directory in its volume":            func(other *tenant) string { return other.staging + `\directory` },
		"its staging path of a share":          func(other *tenant) string { return other.shareStaging },
		"its directory":                        func(other *tenant) string { return simtest.Kubelet + `\plugins\` + other.name },
		"its published path":                   func(other *tenant) string { return other.target },
		"its published path of a volume":       func(other *tenant) string { return other.podVolume },
		"its published path of a share":        func(other *tenant) string { return other.podShare },
		"a directory below its published path": func(other *tenant) string { return other.target + `\directory` },
		"the directory of a pod":               func(other *tenant) string { return simtest.Kubelet + `\pods\red` },
	}
	for what, path := range paths {
		for _, a := range attemptsAt(path) {
			a.name += " by " + what
			a.pods = strings.Contains(what, "published")
			names := a.named
			a.named = func(other *tenant) []string {
				named := []string{path(other) + `\made`, path(other), strings.TrimSuffix(path(other), `\directory`)}
				if names != nil {
					named = append(named, names(other)...)
				}
				return named
			}
			all = append(all, a)
		}
	}
	for what, selector := range map[string]func(other *tenant) csiproxy.Selector{
		"number":  func(other *tenant) csiproxy.Selector { return csiproxy.Selector{Number: &other.number} },
		"serial":  func(other *tenant) csiproxy.Selector { return csiproxy.Selector{SerialNumber: other.serial} },
		"page 83": func(other *tenant) csiproxy.Selector { return csiproxy.Selector{Identifier: other.page83} },
		"vendor":  func(other *tenant) csiproxy.Selector { return csiproxy.Selector{Vendor: other.vendor} },
		"raw":     func(other *tenant) csiproxy.Selector { return csiproxy.Selector{Number: &other.raw} },
	} {
		all = append(all,
			attempt{name: "StageVolume by " + what, call: func(ctx context.Context, d, other *tenant) (any, error) {
				return noAnswer(second(d.Storage.StageVolume(ctx, csiproxy.StageVolumeRequest{StagingPath: d.staging + "-new", Disk: selector(other), Wait: -1})))
			}},
			attempt{name: "ListDisks by " + what, call: func(ctx context.Context, d, other *tenant) (any, error) {
				list, err := d.Storage.ListDisks(ctx, selector(other))
				if len(list) == 0 {
					return nil, errors.Join(err, csiproxy.ErrNotFound)
				}
				return list, err
			}})
	}
	byDisk := func(name string, call func(ctx context.Context, d *tenant, n csiproxy.DiskNumber) error) {
		all = append(all,
			attempt{name: name, call: func(ctx context.Context, d, other *tenant) (any, error) { return noAnswer(call(ctx, d, other.number)) }},
			attempt{name: name + " of a blank one", call: func(ctx context.Context, d, other *tenant) (any, error) { return noAnswer(call(ctx, d, other.raw)) }})
	}
	byDisk("PartitionDisk", func(ctx context.Context, d *tenant, n csiproxy.DiskNumber) error { return d.Disk.PartitionDisk(ctx, n) })
	byDisk("GetDiskStats", func(ctx context.Context, d *tenant, n csiproxy.DiskNumber) error {
		return second(d.Disk.GetDiskStats(ctx, n))
	})
	byDisk("GetDiskState", func(ctx context.Context, d *tenant, n csiproxy.DiskNumber) error {
		return second(d.Disk.GetDiskState(ctx, n))
	})
	byDisk("SetDiskState offline", func(ctx context.Context, d *tenant, n csiproxy.DiskNumber) error {
		return d.Disk.SetDiskState(ctx, n, false)
	})
	byDisk("SetDiskState online", func(ctx context.Context, d *tenant, n csiproxy.DiskNumber) error {
		return d.Disk.SetDiskState(ctx, n, true)
	})
	byDisk("ListVolumesOnDisk", func(ctx context.Context, d *tenant, n csiproxy.DiskNumber) error {
		return second(d.Volume.ListVolumesOnDisk(ctx, n, 0))
	})
	byDisk("DataVolumeOfDisk", func(ctx context.Context, d *tenant, n csiproxy.DiskNumber) error {
		return second(d.Volume.DataVolumeOfDisk(ctx, n))
	})
	byVolume := func(name string, call func(ctx context.Context, d *tenant, id csiproxy.VolumeID) error) {
		all = append(all, attempt{name: name, named: namesVolume, call: func(ctx context.Context, d, other *tenant) (any, error) { return noAnswer(call(ctx, d, other.volume)) }})
	}
	byVolume("IsVolumeFormatted", func(ctx context.Context, d *tenant, id csiproxy.VolumeID) error {
		return second(d.Volume.IsVolumeFormatted(ctx, id))
	})
	byVolume("FormatVolume", func(ctx context.Context, d *tenant, id csiproxy.VolumeID) error {
		return d.Volume.FormatVolume(ctx, id)
	})
	byVolume("ResizeVolume", func(ctx context.Context, d *tenant, id csiproxy.VolumeID) error {
		return d.Volume.ResizeVolume(ctx, id, 0)
	})
	byVolume("GetVolumeStats", func(ctx context.Context, d *tenant, id csiproxy.VolumeID) error {
		return second(d.Volume.GetVolumeStats(ctx, id))
	})
	byVolume("WriteVolumeCache", func(ctx context.Context, d *tenant, id csiproxy.VolumeID) error {
		return d.Volume.WriteVolumeCache(ctx, id)
	})
	byVolume("GetDiskNumberFromVolumeID", func(ctx context.Context, d *tenant, id csiproxy.VolumeID) error {
		return second(d.Volume.GetDiskNumberFromVolumeID(ctx, id))
	})
	byVolume("MountVolume in its own directory", func(ctx context.Context, d *tenant, id csiproxy.VolumeID) error {
		return d.Volume.MountVolume(ctx, id, d.staging+"-new")
	})
	byVolume("UnmountVolume in its own directory", func(ctx context.Context, d *tenant, id csiproxy.VolumeID) error {
		return d.Volume.UnmountVolume(ctx, id, d.staging)
	})
	all = append(all,
		attempt{name: "FindDiskByPage83", call: func(ctx context.Context, d, other *tenant) (any, error) {
			return noAnswer(second(d.Disk.FindDiskByPage83(ctx, other.page83)))
		}},
		attempt{name: "NewSMBGlobalMapping", call: func(ctx context.Context, d, other *tenant) (any, error) {
			return noAnswer(d.SMB.NewSMBGlobalMapping(ctx, other.share, "", user))
		}},
		attempt{name: "NewSMBGlobalMapping in its own directory", call: func(ctx context.Context, d, other *tenant) (any, error) {
			return noAnswer(d.SMB.NewSMBGlobalMapping(ctx, other.share, d.shareStaging+"-new", user))
		}},
		attempt{name: "RemoveSMBGlobalMapping", call: func(ctx context.Context, d, other *tenant) (any, error) {
			return noAnswer(d.SMB.RemoveSMBGlobalMapping(ctx, other.share))
		}},
		attempt{name: "RemoveSMBGlobalMapping by another spelling", call: func(ctx context.Context, d, other *tenant) (any, error) {
			return noAnswer(d.SMB.RemoveSMBGlobalMapping(ctx, strings.ToUpper(other.share)+`\`))
		}},
		attempt{name: "StageShare", call: func(ctx context.Context, d, other *tenant) (any, error) {
			return noAnswer(d.Storage.StageShare(ctx, csiproxy.StageShareRequest{RemotePath: other.share, StagingPath: d.shareStaging + "-new", Credentials: user}))
		}},
		attempt{name: "UnstageShare", call: func(ctx context.Context, d, other *tenant) (any, error) {
			return noAnswer(second(d.Storage.UnstageShare(ctx, csiproxy.UnstageShareRequest{RemotePath: other.share, StagingPath: d.shareStaging + "-new"})))
		}},
		attempt{name: "GetVolume of a share", call: func(ctx context.Context, d, other *tenant) (any, error) {
			return noAnswer(second(d.Storage.GetVolume(ctx, other.share)))
		}},
		attempt{name: "AddTargetPortal", call: func(ctx context.Context, d, other *tenant) (any, error) {
			return noAnswer(d.ISCSI.AddTargetPortal(ctx, other.portal))
		}},
		attempt{name: "DiscoverTargetPortal", call: func(ctx context.Context, d, other *tenant) (any, error) {
			return noAnswer(second(d.ISCSI.DiscoverTargetPortal(ctx, other.portal)))
		}},
		attempt{name: "RemoveTargetPortal", call: func(ctx context.Context, d, other *tenant) (any, error) {
			return noAnswer(d.ISCSI.RemoveTargetPortal(ctx, other.portal))
		}},
		attempt{name: "ConnectTarget", call: func(ctx context.Context, d, other *tenant) (any, error) {
			return noAnswer(d.ISCSI.ConnectTarget(ctx, other.portal, other.iqn, csiproxy.ISCSIAuthentication{}))
		}},
		attempt{name: "ConnectTarget by its own portal", call: func(ctx context.Context, d, other *tenant) (any, error) {
			return noAnswer(d.ISCSI.ConnectTarget(ctx, d.portal, other.iqn, csiproxy.ISCSIAuthentication{}))
		}},
		attempt{name: "GetService", call: func(ctx context.Context, d, other *tenant) (any, error) {
			return noAnswer(second(d.System.GetService(ctx, other.service)))
		}},
		attempt{name: "StartService", call: func(ctx context.Context, d, other *tenant) (any, error) {
			return noAnswer(d.System.StartService(ctx, other.service))
		}},
		attempt{name: "StopService", call: func(ctx context.Context, d, other *tenant) (any, error) {
			return noAnswer(d.System.StopService(ctx, other.service, true))
		}},
		attempt{name: "StopService of the initiator", call: func(ctx context.Context, d, other *tenant) (any, error) {
			return noAnswer(d.System.StopService(ctx, "msiscsi", false))
		}},
		attempt{name: "StageVolume of a target", call: func(ctx context.Context, d, other *tenant) (any, error) {
			return noAnswer(second(d.Storage.StageVolume(ctx, csiproxy.StageVolumeRequest{StagingPath: d.staging + "-new", Wait: -1,
				Disk: csiproxy.Selector{ISCSI: &csiproxy.ISCSISelector{Portal: other.portal, IQN: other.iqn}}, Login: csiproxy.ISCSILogin{ISCSIAuthentication: csiproxy.ISCSIAuthentication{Secret: csiproxy.NewSecret("")}}})))
		}},
	)
	for i := range all {
		if all[i].named == nil {
			all[i].named = func(other *tenant) []string {
				return []string{other.share, strings.ToUpper(other.share) + `\`, other.serial, other.page83, string(other.iqn),
					other.portal.String()}
			}
		}
	}
	return all
}

func second[T any](_ T, err error) error { return err }

// Whatever name a driver has for what is another's: it learns nothing of it, and changes nothing.
func TestDriverNamesWhatIsAnothers(t *testing.T) {
	w := newTenants(t)
	for _, d := range w.own {
		w.begin(d)
	}
	d, other := w.own[blue], w.own[red]
	w.must(w.sim.MkdirAll(other.staging + `\directory`))
	w.must(w.node.Volume.MountVolume(t.Context(), other.volume, other.podVolume))
	w.must(w.sim.MkdirAll(other.podShare[:strings.LastIndex(other.podShare, `\`)]))
	w.must(other.SMB.NewSMBGlobalMapping(t.Context(), other.share, other.podShare, user))
	before := w.state()
	for _, a := range attempts() {
		seen, err := a.call(t.Context(), d, other)
		switch kind := csiproxy.KindOf(err); {
		case seen != nil:
			t.Errorf("%s: %v", a.name, seen)
		case strings.HasPrefix(a.name, "IsSymlink by its published path of a"): // it answers no, as if nothing were there
		case a.name == "UnmountVolume in its own directory" && kind == csiproxy.ErrFailedPrecondition: // another one is there
		case a.pods && (strings.HasPrefix(a.name, "PathExists ") || kind == csiproxy.ErrFailedPrecondition):
		case err == nil && !strings.HasPrefix(a.name, "UnstageShare"): // nothing to do is no error
			t.Errorf("%s: succeeds", a.name)
		case err != nil && kind != csiproxy.ErrNotFound && kind != csiproxy.ErrPermissionDenied:
			t.Errorf("%s: %v", a.name, err)
		}
		if secret := a.tells(err, other); secret != "" {
			t.Errorf("%s: tells %s: %v", a.name, secret, err)
		}
		if diff := cmp.Diff(before, w.state()); diff != "" {
			t.Fatalf("%s: the node has changed (-before +after):\n%s", a.name, diff)
		}
	}
	// The other driver's own calls go on.
	w.must(w.node.Volume.UnmountVolume(t.Context(), other.volume, other.podVolume))
	w.must(other.Filesystem.Rmdir(t.Context(), other.podShare, false))
	w.end(other)
	w.end(d)
}

// So it is if somebody mounts another driver's volume in a driver's directory while the driver unstages there.
func TestAnothersVolumeIsMountedMeanwhile(t *testing.T) {
	w := newTenants(t)
	for _, d := range w.own {
		w.begin(d)
	}
	d, other := w.own[blue], w.own[red]
	w.must(d.Disk.SetDiskState(t.Context(), d.raw, true))
	happened := w.during(win.IoctlDiskSetDiskAttributes.String(), "PhysicalDrive"+d.raw.String(), func(ctx context.Context) {
		w.must(w.node.Volume.MountVolume(ctx, other.volume, d.staging+"-2"))
	})
	_, err := d.Storage.UnstageVolume(t.Context(), csiproxy.UnstageVolumeRequest{StagingPath: d.staging + "-2",
		Disk: csiproxy.Selector{Number: &d.raw}})
	simtest.WantErrorOf(t, "UnstageVolume", err, csiproxy.ErrUnavailable, "another volume was mounted there")
	if strings.Contains(err.Error(), string(other.volume)[len(`\\?\Volume`):]) {
		t.Errorf("it tells the volume: %v", err)
	}
	simtest.Want(t, "the volume was mounted", happened(), true)
}
