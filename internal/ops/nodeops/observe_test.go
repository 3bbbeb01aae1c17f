// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/disks"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/volumes"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// observation is all of a node's state that anybody can see, as text that is the same for
// two nodes with the same history, though Windows chooses other GUIDs.
type observation struct {
	state string
	// broken is what must never be so, whatever has happened.
	broken []string
}

// observer looks at a node. It uses the node up: it writes files, and brings all disks back.
type observer struct {
	*rig
	names  map[csiproxy.DiskNumber]string // of the disks: their serial numbers
	lines  []string
	broken []string
}

func (r *rig) observe() observation {
	r.t.Helper()
	r.sim.OnCall(nil)
	o := observer{rig: r, names: make(map[csiproxy.DiskNumber]string)}
	for _, info := range r.sim.Disks() {
		if strings.HasPrefix(info.Spec.Serial, "vol-") {
			o.names[info.Number] = info.Spec.Serial
			o.say("%s is %s, with the attributes %v", info.Spec.Serial, info.State, info.Attributes)
		}
	}
	o.lookAtVolumes()
	o.lookAtShares()
	o.lookAtFiles(simtest.Kubelet)
	if locked := r.sim.LockedBytes(lockFile); len(locked) > 0 {
		o.broken = append(o.broken, fmt.Sprintf("the bytes %d of the lock file are left locked", locked))
	}
	ids := o.lookAtDisks()
	state := strings.NewReplacer(ids...).Replace(strings.Join(o.lines, "\n"))
	return observation{state, o.broken}
}

func (o *observer) say(format string, a ...any) { o.lines = append(o.lines, fmt.Sprintf(format, a...)) }

// volumeNamed returns a volume that is present.
func (o *observer) volumeNamed(name string) (volumes.Info, bool) {
	all := o.sim.Volumes()
	i := slices.IndexFunc(all, func(v volumes.Info) bool { return strings.EqualFold(v.Name, name) })
	if i < 0 {
		return volumes.Info{}, false
	}
	return all[i], true
}

// lookAtVolumes says where volumes are mounted.
func (o *observer) lookAtVolumes() {
	for _, m := range o.sim.MountPoints() {
		if !strings.HasPrefix(m.Path, simtest.Kubelet) {
			continue
		}
		v, here := o.volumeNamed(m.Volume)
		switch {
		case !here:
			o.say("%s, which isn't there, is mounted at %s", m.Volume, m.Path)
		case v.ReadOnly:
			o.say("%s is mounted at %s read-only", m.Volume, m.Path)
		default:
			o.say("%s is mounted at %s", m.Volume, m.Path)
		}
	}
}

func (o *observer) lookAtShares() {
	mappings, err := o.sim.SMBGlobalMappings(context.Background())
	o.must(err)
	for _, m := range mappings {
		o.say("%s is mapped", m.RemotePath)
	}
}

// lookAtFiles says what is below a directory of the node, without what is mounted there. A
// pod's write through a link gets to a volume or share, or fails.
func (o *observer) lookAtFiles(path string) {
	entries, err := o.sim.ReadDir(path)
	o.must(err)
	for _, e := range entries {
		at := path + `\` + e.Name
		to, err := o.sim.ReadLink(at)
		switch {
		case err == nil && strings.HasPrefix(to, `\\?\Volume`): // said already
		case err == nil:
			o.say("%s leads to %s: %s", at, to, o.write(at, to))
		case e.Attributes&win.AttributeDirectory != 0:
			o.say("%s is a directory", at)
			o.lookAtFiles(at)
		default:
			data, err := o.sim.ReadFile(at)
			o.say("%s is a file: %q, %v", at, data, err)
		}
	}
}

// write is a pod's, through a link.
func (o *observer) write(link, to string) string {
	if err := o.sim.WriteFile(link+`\pod.txt`, []byte("a pod's")); err != nil {
		return "writing fails"
	}
	if strings.HasPrefix(to, `\\`) {
		return "writing gets to a share"
	}
	if mounted, err := o.sim.ReadLink(to); err == nil && strings.HasPrefix(mounted, `\\?\Volume`) {
		return "writing gets to a volume"
	}
	return "writing lands on drive C:"
}

// lookAtDisks brings all disks back, says what is on them, and returns the names of their
// volumes with what tells them apart.
func (o *observer) lookAtDisks() (ids []string) {
	for _, info := range o.sim.Disks() {
		if !strings.HasPrefix(info.Spec.Serial, "vol-") {
			continue
		}
		number := info.Number
		if info.State == disks.Detached {
			number = o.attach(winsim.DiskSpec{Serial: info.Spec.Serial})
			o.names[number] = info.Spec.Serial
		}
		o.must(o.sim.SetDiskAttributes(number, win.SetDiskAttributes{Mask: win.DiskOffline}))
	}
	o.sim.Settle()
	for _, v := range o.sim.Volumes() {
		serial := o.names[v.DiskNumber]
		if serial == "" {
			continue
		}
		name := fmt.Sprintf("%s/%d", serial, v.Partition)
		ids = append(ids, v.Name, name, strings.TrimSuffix(v.Name, `\`), name)
		o.say("%s has %s with %d MiB, damage %q", name, v.FileSystem, v.Space.Total>>20, v.Damage)
		if v.FileSystem == "" {
			continue
		}
		if data, err := o.sim.ReadFile(v.Name + file[1:]); err == nil {
			o.say("%s has a file with %q", name, data)
		}
	}
	return ids
}

// chosen are the ids that Windows or chance chooses.
var chosen = regexp.MustCompile(`\\\\\?\\Volume\{[^}]*\}\\|[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}`)

const errorPrefix = "error: "

// answerOf is an operation's answer as text that is the same for two nodes with the same
// history.
func answerOf(value any, err error) string {
	if err != nil {
		return errorPrefix + csiproxy.KindOf(err).Error()
	}
	return chosen.ReplaceAllString(fmt.Sprintf("%+v", value), "<id>")
}
