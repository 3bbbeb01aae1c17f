// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// territory is what of the allowed directories is one driver's.
type territory struct {
	driver string
	dirs   []location
	pods   location // kubelet's directory of the pods
	share  func(path string) bool
}

// Territory is what of the allowed directories is one driver's: its directories, and the paths at which kubelet has it
// publish volumes, pods\UID\volumes\kubernetes.io~csi\VOLUME\mount. Kubelet says whose these are: before it has a driver
// publish there, it writes the name of the driver to vol_data.json beside the path, and it removes the file after the
// driver has unpublished (see checkPublished). Drivers publish by links, and mount volumes in their own directories.
type Territory struct {
	// Driver is the name of one of Options.Drivers.
	Driver string
	// OfTheNode is Options.OfTheNode, asked by the driver's own calls. Default: that of the policy.
	OfTheNode VolumeCheck
	// Share reports whether a share, given by a UNC path, is the driver's.
	Share func(path string) bool
	// Logger is that of the driver's operations. Default: that of the policy.
	Logger *slog.Logger
}

// Within returns the same policy for one driver: only paths in t are allowed. A walk still begins at the allowed directory,
// since others than the administrator may write between that and the driver's. Whether a volume that a mount point leads to
// is the driver's is up to the driver's [System], which opens no other driver's.
func (p *Policy) Within(t Territory) *Policy {
	q := *p
	q.log = cmp.Or(t.Logger, p.log)
	if t.OfTheNode != nil {
		q.ofTheNode = t.OfTheNode
	}
	q.territory = &territory{driver: t.Driver, dirs: p.drivers[t.Driver], share: t.Share,
		pods: p.allowed[0].below(podsDirectory)}
	return &q
}

// IsOfDriver reports whether the policy is a driver's. A driver isn't told which other volume is mounted in its directories.
func (p *Policy) IsOfDriver() bool { return p.territory != nil }

// addDrivers adds the directories of the node's drivers to a policy. [Policy.CheckDirectory] has the rules.
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

// namedDirectories returns the directories that kubelet has for a driver by its name.
func (p *Policy) namedDirectories(driver string) []location {
	kubelet := p.allowed[0]
	return []location{kubelet.below("plugins", driver), kubelet.below("plugins", "kubernetes.io", "csi", driver)}
}

// DirectoriesOf returns the directories of a driver of the node.
func (p *Policy) DirectoriesOf(driver string) (dirs []string) {
	for _, dir := range p.drivers[driver] {
		dirs = append(dirs, dir.String())
	}
	return dirs
}

// MayReformatAt reports whether the volume that is mounted at a path may be formatted again, since an administrator has named
// the directory right above: for the driver if the policy is a driver's, else for all clients. Directories further down don't
// count: a pod can make mount points inside its volume.
func (p *Policy) MayReformatAt(path string) bool {
	driver := ""
	if p.territory != nil {
		driver = p.territory.driver
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

// has reports whether a path belongs to the driver by its text: it lies in the driver's directories, or is a published path
// or the directory of one, which csi-driver-smb asks for and makes.
func (t *territory) has(l location) bool {
	_, isPublished := t.publishedDepth(l)
	return isPublished || slices.ContainsFunc(t.dirs, l.inside)
}

// publishedDepth reports whether a path is a published path, in one, or the directory of one. The depth is 0, more than 0, or
// -1 then.
func (t *territory) publishedDepth(l location) (depth int, isPublished bool) {
	if !l.inside(t.pods) {
		return 0, false
	}
	names := l.names[len(t.pods.names):] // UID, volumes, kubernetes.io~csi, VOLUME, mount
	isPublished = len(names) >= podVolumeNames && win.SameName(names[1], volumesDirectory) &&
		win.SameName(names[2], csiVolumes) && (len(names) == podVolumeNames || win.SameName(names[podVolumeNames], csiMount))
	return len(names) - podVolumeNames - 1, isPublished
}

// beginning returns the entry's path to as many names as publishedDepth needs: deep in a tree, the whole path is long.
func (e Entry) beginning() Path {
	path := e.start
	if e.dir != nil {
		path.names = e.dir.beginning
		if len(path.names) < len(e.walk.policy.territory.pods.names)+podVolumeNames+2 {
			path.names = slices.Concat(path.names, e.names)
		}
	}
	return path
}

// maxVolumeData is how long kubelet's file may be. It has four names of at most 253 characters, two ids of 68, and the
// driver's handle of the volume.
const maxVolumeData = 64 << 10

// checkPublished returns csiproxy.ErrPermissionDenied for a path below kubelet's directory of the pods, in root, if kubelet
// doesn't have the driver publish a volume there. What isn't there gives the same error as what belongs to another driver.
//
// Source: https://github.com/kubernetes/kubernetes/blob/v1.37.2/pkg/volume/csi/csi_mounter.go (SetUpAt, TearDownAt), and
// csi_plugin.go at v1.24.0 (NewMounter)
func (w *walk) checkPublished(ctx context.Context, root *File, path Path) error {
	t := w.policy.territory
	if t == nil || path.volume != "" || !path.full().inside(t.pods) {
		return nil
	}
	names := path.names[:len(t.pods.names)+podVolumeNames-len(path.root.names)]
	driver, err := root.below(append(slices.Clone(names), csiData)).driverOfVolume(ctx)
	if errors.Is(err, winerr.ErrorReparsePointEncountered) { // a link on the way, or a bind filter: see openAt
		driver, err = driverOfVolumeBelow(ctx, root, names)
	}
	switch {
	case Missing(err) || winerr.IsAny(err, winerr.ErrorReparsePointEncountered, winerr.ErrorDirectory): // a link or a file on the way
	case err != nil:
		path.names = names
		return &csiproxy.Error{Object: quote.Text(path.String()), Err: err}
	case win.SameName(driver, t.driver):
		return nil
	}
	return csiproxy.Errorf(csiproxy.ErrPermissionDenied, "kubelet's %s in the volume's directory doesn't name driver %s",
		csiData, quote.Text(t.driver))
}

// driverOfVolumeBelow is driverOfVolume of the file in a directory below dir, and opens one directory after the other.
func driverOfVolumeBelow(ctx context.Context, dir *File, names []string) (driver string, err error) {
	for _, name := range names {
		if dir, err = dir.Entry(name).openPlain(ctx); err != nil {
			return "", err
		}
		defer dir.CloseInto(&err)
	}
	return dir.Entry(csiData).driverOfVolume(ctx)
}

// driverOfVolume returns the driver that kubelet's file names; "" if the file has no such contents, which are a JSON object
// of texts.
func (e Entry) driverOfVolume(ctx context.Context) (driver string, err error) {
	o := win.OpenOptions{
		Access:  win.FileListDirectory | win.FileReadAttributes | win.Synchronize, // the first is FILE_READ_DATA
		Share:   win.ShareRead | win.ShareWrite | win.ShareDelete,                 // kubelet may replace or remove it meanwhile
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

// mayOwn reports whether a link that a search has found may be the driver's, by the texts of its path and its target: all in
// the driver's own directories, and at published paths those to the driver's directories or shares.
func (t *territory) mayOwn(path Path, link Link) bool {
	depth, isPublished := t.publishedDepth(path.full())
	if path.volume != "" || !t.has(path.full()) || isPublished && depth != 0 {
		return false
	}
	if !isPublished {
		return true
	}
	if link.Kind == LinkToShare {
		return t.share(link.Target())
	}
	return link.Kind == LinkInside && slices.ContainsFunc(t.dirs, link.Path.full().inside)
}

// CheckMountPath returns csiproxy.ErrPermissionDenied for a path in the directories of the pods, if the policy is a driver's:
// if a volume that is mounted there were missing, nobody could tell whose it was.
func (p *Policy) CheckMountPath(path Path) error {
	if p.territory == nil || !path.full().inside(p.territory.pods) {
		return nil
	}
	return csiproxy.Errorf(csiproxy.ErrPermissionDenied, "driver %s mounts volumes in its own directories only, and "+
		"publishes them by links", quote.Text(p.territory.driver))
}

// checkCreation returns csiproxy.ErrPermissionDenied for what the driver couldn't remove again: a file or directory in a
// published path, and a link in place of the directory of a published path.
func (e Entry) checkCreation(isLink bool) error {
	t := e.walk.policy.territory
	if t == nil || e.start.volume != "" {
		return nil
	}
	depth, isPublished := t.publishedDepth(e.beginning().full())
	if isPublished && (depth > 0 || depth < 0 && isLink) {
		return e.notOwn(t)
	}
	return nil
}

// HasShare reports whether the share of a UNC path is the driver's; true, if the policy isn't a driver's.
func (p *Policy) HasShare(path string) bool { return p.territory == nil || p.territory.share(path) }

// CheckShare returns csiproxy.ErrPermissionDenied for a share, given by a UNC path, that isn't the driver's.
func (p *Policy) CheckShare(path string) error {
	if p.HasShare(path) {
		return nil
	}
	return csiproxy.Errorf(csiproxy.ErrPermissionDenied, "the server isn't one of driver %s's",
		quote.Text(p.territory.driver))
}

// checkLinkTarget returns csiproxy.ErrPermissionDenied for a link that is to be made to what isn't in a driver's own
// directories or shares. No driver needs one; where all publish, it could lead a pod to what is another's.
func (e Entry) checkLinkTarget(target string) error {
	t := e.walk.policy.territory
	if t == nil || isUNC(target) && t.share(target) {
		return nil
	}
	if l, err := split(target, ""); err == nil && slices.ContainsFunc(t.dirs, l.inside) {
		return nil
	}
	return e.refused(csiproxy.ErrPermissionDenied, "the link would lead out of the own directories of driver "+
		quote.Text(t.driver))
}

// Own returns those of all links that were found which are the driver's, as far as their texts tell; all, if the
// policy isn't a driver's. Whether a volume is the driver's is known to who asks the volume.
func (p *Policy) Own(all []FoundLink) (own []FoundLink) {
	if p.territory == nil {
		return all
	}
	for _, l := range all {
		if p.territory.mayOwn(l.Path, l.Link) {
			own = append(own, l)
		}
	}
	return own
}

// DriverOf returns the driver in whose own directories a path lies; "" if it lies in none of them.
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

// checkDeletion returns csiproxy.ErrPermissionDenied for an entry that isn't the driver's to delete. In its own directories
// and volumes everything is, also a mount point of whatever volume: that the mount point goes is nothing to the volume. Where
// kubelet has the driver publish a volume, it is what is at that path, but nothing below it.
func (e Entry) checkDeletion() error {
	t := e.walk.policy.territory
	if t == nil || e.start.volume != "" {
		return nil
	}
	if depth, isPublished := t.publishedDepth(e.beginning().full()); isPublished && depth != 0 {
		return e.notOwn(t)
	}
	return nil
}

func (e Entry) notOwn(t *territory) error {
	return e.refused(csiproxy.ErrPermissionDenied, "what is there isn't driver "+quote.Text(t.driver)+"'s")
}

// directories names the driver's directories.
func (t *territory) directories() string {
	var names []string
	for _, dir := range t.dirs {
		names = append(names, quote.Text(dir.String()))
	}
	return "the directories of driver " + quote.Text(t.driver) + ": " + strings.Join(names, ", ") + ", and " +
		quote.Text(t.pods.below("*", "volumes", "kubernetes.io~csi", "*", "mount").String())
}
