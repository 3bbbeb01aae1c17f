// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// driverPaths is the part of the allowed directories that belongs to one driver.
type driverPaths struct {
	driver  string
	dirs    []location
	kubelet location // kubelet's directory
	share   func(path string) bool
}

// DriverPaths is the part of the allowed directories that belongs to one driver: its directories, and
// its published paths, pods\UID\volumes\kubernetes.io~csi\VOLUME\mount. Kubelet names the owner of
// a published path: before the driver publishes a volume there, kubelet writes the driver's name to
// vol_data.json beside the path, and removes the file after the driver has unpublished the volume
// (see checkPublished). Drivers publish by links, and mount volumes in their own directories.
type DriverPaths struct {
	// Driver is the name of one of Options.Drivers.
	Driver string
	// OfTheNode is Options.OfTheNode for the driver's own calls. Default: the policy's.
	OfTheNode VolumeCheck
	// Share reports whether a share, given by a UNC path, belongs to the driver.
	Share func(path string) bool
	// Logger gets the log of the driver's operations. Default: the policy's.
	Logger *slog.Logger
}

// Within returns the same policy for one driver: only paths in t are allowed. A walk still begins
// at the allowed directory, since others than the administrator may have write access between the
// allowed directory and the driver's. The driver's [System] checks the owner of a volume behind a
// mount point: it refuses to open other drivers' volumes.
func (p *Policy) Within(t DriverPaths) *Policy {
	q := *p
	q.held = new(atomic.Int64)
	q.log = cmp.Or(t.Logger, p.log)
	if t.OfTheNode != nil {
		q.ofTheNode = t.OfTheNode
	}
	q.driverPaths = &driverPaths{driver: t.Driver, dirs: p.drivers[t.Driver], share: t.Share,
		kubelet: p.allowed[0]}
	return &q
}

// IsOfDriver reports whether the policy belongs to a driver. Errors for a driver name only volumes of
// the driver.
func (p *Policy) IsOfDriver() bool { return p.driverPaths != nil }

// addDrivers adds the directories of the node's drivers to a policy, by the rules of
// [Policy.CheckDirectory].
func (p *Policy) addDrivers(drivers []Driver) error {
	p.drivers, p.reformat = make(map[string][]location), make(map[string][]location)
	for _, driver := range drivers {
		dirs, err := p.directoriesOf(driver)
		if err != nil {
			return &csiproxy.Error{Object: "driver " + driver.Name, Err: err}
		}
		p.drivers[driver.Name] = dirs
		if driver.Reformat {
			p.reformat[driver.Name] = dirs[len(p.namedDirectories(driver.Name)):]
		}
	}
	return nil
}

// directoriesOf returns a driver's own directories.
func (p *Policy) directoriesOf(driver Driver) ([]location, error) {
	if err := CheckDriverName(driver.Name); err != nil {
		return nil, &csiproxy.Error{Op: "allow directory", Object: "driver " + quote.Text(driver.Name), Err: err}
	}
	dirs := p.namedDirectories(driver.Name)
	for _, dir := range driver.Dirs {
		l, err := p.checkDirectory(driver.Name, dir)
		if err != nil {
			return nil, &csiproxy.Error{Op: "allow directory", Object: quote.Text(dir), Err: err}
		}
		dirs = append(dirs, l)
	}
	return dirs, nil
}

// namedDirectories returns kubelet's directories for the name of a driver.
func (p *Policy) namedDirectories(driver string) []location {
	kubelet := p.allowed[0]
	return []location{kubelet.below(pluginsDirectory, driver), kubelet.below(pluginsDirectory, sharedDirectory, csiDirectory, driver)}
}

// DirectoriesOf returns the directories of a driver of the node.
func (p *Policy) DirectoriesOf(driver string) (dirs []string) {
	for _, dir := range p.drivers[driver] {
		dirs = append(dirs, dir.String())
	}
	return dirs
}

// MayReformatAt reports whether an administrator allows formatting the volume at a path again, by
// naming its parent directory: for the driver if the policy is a driver's, else for all clients.
// Mount points further down do not count: a pod can create mount points inside its volume.
func (p *Policy) MayReformatAt(path string) bool {
	driver := ""
	if p.driverPaths != nil {
		driver = p.driverPaths.driver
	}
	l, err := split(path, "")
	return err == nil && slices.ContainsFunc(p.reformat[driver], func(dir location) bool {
		return l.inside(dir) && len(l.names) == len(dir.names)+1
	})
}

// below returns a directory further down.
func (l location) below(names ...string) location {
	return location{l.drive, slices.Concat(l.names, names)}
}

// has reports whether a path belongs to the driver by its text. The driver owns its directories,
// its published paths, and the parent directories of published paths: csi-driver-smb queries and
// creates them.
func (t *driverPaths) has(l location) bool {
	switch l.placeIn(t.kubelet).kind {
	case placeCSIVolume, placePublished, placeBelowPublished:
		return true
	}
	return slices.ContainsFunc(t.dirs, l.inside)
}

// place returns the place of the entry in kubelet's directory: placeElsewhere in a volume.
func (e Entry) place() kubeletPlace {
	return e.walk.policy.placeOf(e.beginning())
}

// beginning returns the start of the entry's path, with at least the names that tell the entry's
// place in the directory of pods: deep in a tree, the whole path is long.
func (e Entry) beginning() Path {
	path := e.start
	if e.dir != nil {
		path.names = e.dir.beginning
		if len(path.names) <= len(e.walk.policy.driverPaths.kubelet.names)+publishedNames {
			path.names = slices.Concat(path.names, e.names)
		}
	}
	return path
}

// maxVolumeData is the maximum length of kubelet's file in bytes. The file has four names of at
// most 253 characters, two ids of 68, and the driver's handle of the volume.
const maxVolumeData = 64 << 10

// checkPublished returns csiproxy.ErrPermissionDenied for a path below kubelet's directory of the
// pods, in root, unless kubelet has the driver publish a volume there. A missing path and a path of
// another driver give the same error.
//
// Source: https://github.com/kubernetes/kubernetes/blob/v1.37.2/pkg/volume/csi/csi_mounter.go
// (SetUpAt, TearDownAt), and csi_plugin.go at v1.24.0 (NewMounter)
func (w *Walk) checkPublished(ctx context.Context, root *File, path Path) error {
	t := w.policy.driverPaths
	if t == nil || !w.policy.placeOf(path).inPods() {
		return nil
	}
	names := path.names[:len(t.kubelet.names)+podVolumeNames-len(path.root.names)]
	driver, err := root.below(append(slices.Clone(names), csiData)).driverOfVolume(ctx)
	if errors.Is(err, winerr.ErrorReparsePointEncountered) { // a link on the way, or a bind filter: see openAt
		driver, err = driverOfVolumeBelow(ctx, root, names)
	}
	if err == nil && win.SameName(driver, t.driver) {
		return nil
	}
	isMissing := Missing(err) || winerr.IsAny(err, winerr.ErrorReparsePointEncountered, winerr.ErrorDirectory) // a link or a file on the way
	if err != nil && !isMissing {
		path.names = names
		return &csiproxy.Error{Object: quote.Text(path.String()), Err: err}
	}
	return csiproxy.Errorf(csiproxy.ErrPermissionDenied, "kubelet's %s in the volume's directory doesn't name driver %s",
		csiData, quote.Text(t.driver))
}

// driverOfVolumeBelow reads kubelet's file in a directory below dir, as driverOfVolume does, and opens
// one directory after the other.
func driverOfVolumeBelow(ctx context.Context, dir *File, names []string) (driver string, err error) {
	for _, name := range names {
		if dir, err = dir.Entry(name).openPlain(ctx); err != nil {
			return "", err
		}
		defer dir.CloseInto(&err)
	}
	return dir.Entry(csiData).driverOfVolume(ctx)
}

// driverOfVolume returns the driver named in kubelet's file, a JSON object of strings; "" if the
// file has other contents.
func (e Entry) driverOfVolume(ctx context.Context) (driver string, err error) {
	o := win.OpenOptions{
		Access:  win.FileListDirectory | win.FileReadAttributes | win.Synchronize, // the first is FILE_READ_DATA
		Share:   win.ShareRead | win.ShareWrite | win.ShareDelete,                 // kubelet may replace or remove the file meanwhile
		Options: win.FileNonDirectoryFile | win.FileOpenReparsePoint | win.FileOpenForBackup, Disposition: win.FileOpen,
	}
	f, err := e.walk.hold(ctx, e, o)
	if err != nil {
		return "", err
	}
	defer f.CloseInto(&err)
	contents := make([]byte, maxVolumeData)
	n, err := f.handle.Read(ctx, contents)
	if err != nil {
		return "", err
	}
	var data map[string]string
	if err := json.NewDecoder(bytes.NewReader(contents[:n])).Decode(&data); err != nil {
		return "", nil
	}
	return data["driverName"], nil
}

// mayOwn reports whether a link found by a search may belong to the driver, by the texts of its
// path and target. In its own directories the driver may own every link, at published paths only
// links to its directories or shares.
func (t *driverPaths) mayOwn(path Path, link Link) bool {
	full := path.full()
	if slices.ContainsFunc(t.dirs, full.inside) {
		return true
	}
	if full.placeIn(t.kubelet).kind != placePublished {
		return false
	}
	if link.Kind == LinkToShare {
		return t.share(link.Target())
	}
	return link.Kind == LinkInside && slices.ContainsFunc(t.dirs, link.Path.full().inside)
}

// CheckMountPath returns csiproxy.ErrPermissionDenied for a path in the directories of the pods, if
// the policy is a driver's: the owner of a missing volume would be unknown there.
func (p *Policy) CheckMountPath(path Path) error {
	if p.driverPaths == nil || !p.placeOf(path).inPods() {
		return nil
	}
	return csiproxy.Errorf(csiproxy.ErrPermissionDenied, "driver %s mounts volumes in its own directories only, and "+
		"publishes them by links", quote.Text(p.driverPaths.driver))
}

// checkCreation returns csiproxy.ErrPermissionDenied for entries that the driver could not remove
// again: a file or directory in a published path, and a link in place of the parent directory of a
// published path.
func (e Entry) checkCreation(isLink bool) error {
	t := e.walk.policy.driverPaths
	if t == nil {
		return nil
	}
	switch e.place().kind {
	case placeBelowPublished:
		return e.notOwn(t)
	case placeCSIVolume:
		if isLink {
			return e.notOwn(t)
		}
	}
	return nil
}

// HasShare reports whether the share of a UNC path belongs to the driver. For a policy of the whole
// node, HasShare is true.
func (p *Policy) HasShare(path string) bool { return p.driverPaths == nil || p.driverPaths.share(path) }

// CheckShare returns csiproxy.ErrPermissionDenied for another driver's share, given by a UNC path.
func (p *Policy) CheckShare(path string) error {
	if p.HasShare(path) {
		return nil
	}
	return csiproxy.Errorf(csiproxy.ErrPermissionDenied, "the server isn't one of driver %s's",
		quote.Text(p.driverPaths.driver))
}

// checkLinkTarget returns csiproxy.ErrPermissionDenied for a new link with a target outside the
// driver's own directories and shares. Drivers do not need such links; in the directory where all
// drivers publish, a link could lead a pod to another driver's data.
func (e Entry) checkLinkTarget(target string) error {
	t := e.walk.policy.driverPaths
	if t == nil {
		return nil
	}
	if isUNC(target) && t.share(target) {
		return nil
	}
	if l, err := split(target, ""); err == nil && slices.ContainsFunc(t.dirs, l.inside) {
		return nil
	}
	return e.refused(csiproxy.ErrPermissionDenied, "the link would lead out of the own directories of driver "+
		quote.Text(t.driver))
}

// Own returns the driver's links among all found links, as far as the texts tell. For a policy of
// the whole node, Own returns all links. To find the owner of a link's volume, ask the volume.
func (p *Policy) Own(all iter.Seq[*FoundLink]) (own []*FoundLink) {
	for l := range all {
		if p.driverPaths == nil || p.driverPaths.mayOwn(l.Path, l.Link) {
			own = append(own, l)
		}
	}
	return own
}

// DriverOf returns the driver whose own directories hold a path; "" if there is none.
func (p *Policy) DriverOf(path Path) string {
	if len(p.drivers) == 0 || path.volume != "" {
		return ""
	}
	full := path.full()
	for driver, dirs := range p.drivers {
		if slices.ContainsFunc(dirs, full.inside) {
			return driver
		}
	}
	return ""
}

// checkDeletion returns csiproxy.ErrPermissionDenied for an entry that the driver must not delete.
// In its own directories and volumes the driver may delete everything, including a mount point of
// any volume: removing the mount point leaves the volume intact. At a published path the driver may
// delete the entry at the path, but nothing below.
func (e Entry) checkDeletion() error {
	t := e.walk.policy.driverPaths
	if t == nil {
		return nil
	}
	switch e.place().kind {
	case placeCSIVolume, placeBelowPublished:
		return e.notOwn(t)
	}
	return nil
}

func (e Entry) notOwn(t *driverPaths) error {
	return e.refused(csiproxy.ErrPermissionDenied, "what is there isn't driver "+quote.Text(t.driver)+"'s")
}

// directories names the driver's directories.
func (t *driverPaths) directories() string {
	var names []string
	for _, dir := range t.dirs {
		names = append(names, quote.Text(dir.String()))
	}
	return "the directories of driver " + quote.Text(t.driver) + ": " + strings.Join(names, ", ") + ", and " +
		quote.Text(t.kubelet.below(podsDirectory, "*", volumesDirectory, csiVolumes, "*", csiMount).String())
}
