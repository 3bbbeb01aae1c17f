// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/volumes"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// Each operation of a driver is shown against each thing that may happen to another driver's volume, or to the path that
// leads there, at each of its calls to Windows.

// planted is what the driver's container has made in the driver's own directory, to reach the other's volume.
func planted(d *tenant) string { return simtest.Kubelet + `\plugins\` + d.name + `\planted` }

// happening is something that happens to another driver's volume, or to the way to it, in the middle of a call.
type happening struct {
	name string
	// prepare is done before the call.
	prepare func(w *tenants, d, other *tenant) error
	// happen may fail: what the operation holds can't be changed.
	happen func(w *tenants, d, other *tenant) error
	// owns says that the driver's own disk has a volume of the same name until then.
	owns bool
}

func (w *tenants) setOffline(n csiproxy.DiskNumber, offline bool) error {
	a := win.SetDiskAttributes{Mask: win.DiskOffline}
	if offline {
		a.Attributes = win.DiskOffline
	}
	err := w.sim.SetDiskAttributes(n, a)
	w.sim.Settle()
	return err
}

// reattach attaches a driver's disk if it is detached.
func (w *tenants) reattach(_, d *tenant) error {
	number, err := w.sim.AttachDisk(winsim.DiskSpec{Serial: d.serial})
	w.sim.Settle()
	if err == nil {
		d.number = number
	}
	return err
}

// plant makes the planted directory a link.
func (w *tenants) plant(d *tenant, link win.ReparsePoint) error {
	if err := w.sim.MkdirAll(planted(d)); err != nil {
		return err
	}
	return w.sim.SetReparsePoint(planted(d), link)
}

// plantDirectory makes the planted directory one with something in it.
func (w *tenants) plantDirectory(d, _ *tenant) error {
	return errors.Join(w.sim.MkdirAll(planted(d)+`\directory`), w.sim.WriteFile(planted(d)+file, []byte("its own")))
}

// becomesLink empties the planted directory, and makes it a link.
func (w *tenants) becomesLink(d *tenant, link win.ReparsePoint) error {
	_, _ = w.sim.Remove(planted(d)+file), w.sim.Remove(planted(d)+`\directory`)
	return w.sim.SetReparsePoint(planted(d), link)
}

func happenings() []happening {
	toVolume := func(w *tenants, d, other *tenant) error {
		return w.plant(d, win.NewMountPoint(string(other.volume)))
	}
	toMissing := func(w *tenants, d, other *tenant) error {
		return errors.Join(toVolume(w, d, other), w.setOffline(other.number, true))
	}
	return []happening{
		{name: "it arrives", prepare: toMissing,
			happen: func(w *tenants, _, other *tenant) error { return w.setOffline(other.number, false) }},
		{name: "it is attached", prepare: func(w *tenants, d, other *tenant) error {
			return errors.Join(toVolume(w, d, other), w.sim.FlushFile(other.staging+file), w.sim.DetachDisk(other.number))
		}, happen: (*tenants).reattach},
		{name: "it leaves", prepare: func(w *tenants, d, other *tenant) error {
			return errors.Join(toVolume(w, d, other), w.sim.FlushFile(other.staging+file))
		}, happen: func(w *tenants, _, other *tenant) error { return w.sim.DetachDisk(other.number) }},
		{name: "it goes offline", prepare: toVolume,
			happen: func(w *tenants, _, other *tenant) error { return w.setOffline(other.number, true) }},
		{name: "it hangs", prepare: toVolume, happen: func(w *tenants, _, other *tenant) (err error) {
			for _, object := range []string{fmt.Sprintf("PhysicalDrive%d ", other.number), strings.TrimSuffix(string(other.volume), `\`)} {
				err = errors.Join(err, w.sim.Delay(winsim.Match{Call: winsim.EachCall, Object: object, Fires: winsim.MayFire}, time.Hour))
			}
			return err
		}},
		{name: "it takes the place of the driver's clone", owns: true, prepare: func(w *tenants, d, other *tenant) error {
			if err := errors.Join(w.sim.FlushFile(other.staging+file), w.setOffline(other.number, true)); err != nil {
				return err
			}
			clone, err := w.sim.CloneDisk(other.number, winsim.DiskSpec{VendorID: d.vendor, ProductID: "Disk 1", Serial: "clone"})
			w.clone = clone
			w.sim.Settle()
			return errors.Join(err, toVolume(w, d, other))
		}, happen: func(w *tenants, _, other *tenant) error {
			return errors.Join(w.sim.DetachDisk(w.clone), w.setOffline(other.number, false))
		}},
		{name: "a directory becomes a mount point of it", prepare: (*tenants).plantDirectory,
			happen: func(w *tenants, d, other *tenant) error {
				return w.becomesLink(d, win.NewMountPoint(string(other.volume)))
			}},
		{name: "a directory becomes a link to where it is staged", prepare: (*tenants).plantDirectory,
			happen: func(w *tenants, d, other *tenant) error { return w.becomesLink(d, win.NewSymlink(other.staging)) }},
		{name: "a directory becomes a mount point of it while it is missing, and it arrives",
			prepare: func(w *tenants, d, other *tenant) error {
				return errors.Join(w.plantDirectory(d, other), w.setOffline(other.number, true))
			}, happen: func(w *tenants, d, other *tenant) error {
				return errors.Join(w.becomesLink(d, win.NewMountPoint(string(other.volume))), w.setOffline(other.number, false))
			}},
	}
}

// driverCalls are the operations of a driver by which it could reach the other's volume.
func driverCalls() []attempt {
	var calls []attempt
	below := map[string]string{"the planted path": "", "a file below it": file, "a directory below it": `\directory`}
	for _, what := range slices.Sorted(maps.Keys(below)) {
		below := below[what]
		for _, a := range attemptsAt(func(*tenant) string { return simtest.Kubelet + `\plugins\` + blue + `\planted` + below }) {
			if simtest.Sampled() && below != "" && !strings.HasPrefix(a.name, "Rmdir") {
				continue
			}
			a.name += " by " + what
			calls = append(calls, a)
		}
	}
	for _, a := range attempts() {
		if strings.HasSuffix(a.name, " of a share") || strings.HasSuffix(a.name, " of a target") {
			continue // these name a server or a portal, so they end before any call to Windows
		}
		if !strings.Contains(a.name, " by ") && (a.named != nil && strings.Contains(a.name, "Volume") || strings.Contains(a.name, "Disk")) {
			calls = append(calls, a)
		}
	}
	return calls
}

// contents are what another driver's volume has, and the links and mount points that lead to it.
func (w *tenants) contents(other *tenant) (all []string) {
	var below func(path string)
	below = func(path string) {
		entries, err := w.sim.ReadDir(path)
		w.must(err)
		for _, e := range entries {
			link, _ := w.sim.ReadLink(path + `\` + e.Name)
			data, _ := w.sim.ReadFile(path + `\` + e.Name)
			all = append(all, fmt.Sprintf(`%s\%s %q -> %s`, path, e.Name, data, link))
			if e.IsDir() && link == "" {
				below(path + `\` + e.Name)
			}
		}
	}
	below(other.staging)
	for _, mount := range w.sim.MountPoints() {
		if strings.EqualFold(mount.Volume, string(other.volume)) && !strings.Contains(mount.Path, `\planted`) {
			all = append(all, "mounted at "+mount.Path)
		}
	}
	return all
}

// during runs a call of blue's, at one of whose calls to Windows something happens. It returns whether so many calls were
// made, and whether it has happened.
func (h happening) during(t *testing.T, a attempt, at int64) (wasReached, hasHappened bool) {
	synctest.Test(t, func(t *testing.T) {
		w := newTenants(t)
		for _, d := range w.own {
			w.begin(d)
		}
		d, other := w.own[blue], w.own[red]
		w.must(w.sim.MkdirAll(other.staging + `\directory`))
		w.must(w.sim.SetVolumeDamage(other.staging, volumes.SpotDamage))
		before := w.contents(other)
		w.must(h.prepare(w, d, other))
		var made atomic.Int64
		w.sim.OnCall(func(winsim.Call) {
			if made.Add(1)-1 == at {
				wasReached = true
				hasHappened = h.happen(w, d, other) == nil
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		seen, err := a.call(ctx, d, other)
		cancel()
		w.sim.OnCall(nil)
		time.Sleep(2 * time.Hour) // for calls that hang
		synctest.Wait()
		w.sim.ResetRules()
		what := fmt.Sprintf("%s, %s at call %d of %d", a.name, h.name, at, made.Load())
		if handles := w.sim.OpenHandles(); len(handles) > 0 {
			t.Errorf("%s: open handles: %q", what, handles)
		}
		if seen != nil && !h.owns {
			t.Errorf("%s: it sees %v", what, seen)
		}
		named := a.named
		a.named = func(other *tenant) []string {
			own := []string{string(other.volume), strings.TrimSuffix(string(other.volume), `\`), other.staging}
			if named != nil {
				own = append(own, named(other)...)
			}
			return own
		}
		if secret := a.tells(err, other); secret != "" && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: tells %s: %v", what, secret, err)
		}
		if h.owns {
			_ = w.sim.DetachDisk(w.clone)
		}
		_ = w.reattach(d, other) // it may be attached
		w.must(w.setOffline(other.number, false))
		after := w.contents(other)
		if h.owns { // as long as the name was its own, it could mount that
			isMount := func(text string) bool { return strings.HasPrefix(text, "mounted at ") }
			before, after = without(before, isMount), without(after, isMount)
		}
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("%s: the other driver's volume has changed (-before +after), after %v:\n%s", what, err, diff)
		}
	})
	return wasReached, hasHappened
}

func without(texts []string, leaveOut func(string) bool) (rest []string) {
	for _, text := range texts {
		if !leaveOut(text) {
			rest = append(rest, text)
		}
	}
	return rest
}

// Whatever happens at whichever moment: nothing is made, changed, deleted or mounted in another driver's volume, and nothing
// of it is seen.
func TestAnothersVolumeAtEachCall(t *testing.T) {
	for i, h := range happenings() {
		t.Run(h.name, func(t *testing.T) {
			t.Parallel()
			happened := 0
			for j, a := range driverCalls() {
				isEach := !simtest.Sampled() || strings.HasPrefix(a.name, "Rmdir with force by a file")
				if !isEach && (i+j)%3 != 0 {
					continue
				}
				if !isEach {
					if _, hasHappened := h.during(t, a, int64(7*i+11*j)%30); hasHappened {
						happened++
					}
					continue
				}
				happened = 0
				for at := int64(0); !t.Failed(); at++ {
					wasReached, hasHappened := h.during(t, a, at)
					if hasHappened {
						happened++
					}
					if !wasReached {
						break
					}
				}
				if happened == 0 {
					t.Errorf("%s: it never happens", a.name)
				}
			}
			if happened == 0 {
				t.Error("it never happens")
			}
		})
	}
}
