// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"cmp"
	"fmt"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/ntfs"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// Damage is what is wrong with a file system. Its files can be used all the same.
type Damage string

// Kinds of damage.
const (
	NoDamage      Damage = ""
	SpotDamage    Damage = "spot"    // a spot fix repairs it, after a scan has found it
	OfflineDamage Damage = "offline" // only an offline repair does
)

// repairErrorsFound is the result of a scan that has found errors, and of a repair that
// couldn't repair all. The documentation doesn't tell the values.
//
// Guess: a scan that finds errors gives the result 1.
const repairErrorsFound win.RepairResult = 1

// Repair is MSFT_Volume.Repair of \\?\Volume{guid}\.
//
// Guess: ReFS isn't scanned, with result 43001; a volume that is in use isn't repaired,
// with result 43013; and a scan of a disk that is read-only gives result 43006, since it
// notes on the volume what it finds.
func (m *Manager) Repair(volume string, mode win.RepairMode) (win.RepairResult, error) {
	v, ok := m.withName(volume)
	if !ok || v.unmanaged {
		return 0, winerr.ErrorRetry
	}
	t, b, err := v.tree()
	switch {
	case err != nil && err != winerr.ErrorUnrecognizedVolume:
		return 0, err
	case err != nil, b.kind != kindNTFS:
		return 0, winerr.ErrorNotSupported
	case !v.Writable():
		return 0, winerr.ErrorWriteProtect
	case mode != win.RepairScan && (v.Disk.System || m.node.InUse(v, nil)):
		return 0, winerr.ErrorAccessDenied
	}
	v.stored.mark()
	return t.repair(mode), nil
}

// withName finds the volume \\?\Volume{guid}\.
func (m *Manager) withName(name string) (*Volume, bool) {
	id, rest, _ := ParseName(name)
	v, ok := m.WithID(id)
	return v, ok && rest == `\`
}

// Format is a quick format of \\?\Volume{guid}\ as NTFS or ReFS. A volume of
// which anything is open gives ErrorGenFailure: results 2 and 4 of MSFT_Volume.Format.
func (m *Manager) Format(volume string, o win.FormatOptions) error {
	v, ok := m.withName(volume)
	switch {
	case !ok, v.unmanaged:
		return winerr.ErrorRetry
	case v.Disk.System:
		return winerr.ErrorAccessDenied
	case m.config.Settings.Refused(v.JustCame) != nil:
		return m.config.Settings.Refused(v.JustCame)
	case !v.hasWritableDisk():
		return winerr.ErrorWriteProtect
	case v.Offline || v.comesOnline:
		return winerr.ErrorNotReady
	case v.Locked:
		return winerr.FVELockedVolume
	case m.node.InUse(v, nil):
		return cmp.Or(m.config.Settings.FormatInUse, winerr.ErrorGenFailure)
	}
	if err := v.format(o); err != nil {
		return err
	}
	if m.config.Settings.SplitAccessList {
		fs, err := v.Mount()
		if err != nil {
			return err
		}
		fs.SetRootAccess(ntfs.SplitAccess)
	}
	return nil
}

// repair checks or repairs the file system.
func (t *tree) repair(mode win.RepairMode) win.RepairResult {
	t.changed = true
	switch {
	case mode == win.RepairScan:
		t.Noted = t.Damage != NoDamage
	case mode == win.RepairOffline || t.Damage == SpotDamage && t.Noted:
		t.Damage, t.Noted, t.Dirty = NoDamage, false, false
	case t.Damage == SpotDamage: // no scan has noted it: there is nothing that it knows of
		return win.RepairNoErrors
	}
	if t.Damage != NoDamage {
		return repairErrorsFound
	}
	return win.RepairNoErrors
}

// SetDirty lets Windows want to check the file system of a volume, or not.
func (v *Volume) SetDirty(dirty bool) error {
	return v.change(func(t *tree) { t.Dirty = dirty })
}

// SetDamage damages the file system of a volume, or heals it.
func (v *Volume) SetDamage(d Damage) error {
	if d != NoDamage && d != SpotDamage && d != OfflineDamage {
		return fmt.Errorf("damage %q: %w", d, winerr.ErrorInvalidParameter)
	}
	return v.change(func(t *tree) { t.Damage, t.Noted = d, false })
}

// change changes the record of the file system of a volume.
func (v *Volume) change(f func(*tree)) error {
	t, _, err := v.content()
	if err != nil {
		return err
	}
	f(t)
	t.changed = true
	v.stored.mark()
	return nil
}

// SetReadOnly makes a volume read-only or writable, by the attribute of its GPT partition,
// as diskpart does. A partition of an MBR disk gives ErrorNotSupported.
func (m *Manager) SetReadOnly(v *Volume, readOnly bool) error {
	l := v.Disk.Layout()
	if l.Style != win.StyleGPT {
		return winerr.ErrorNotSupported
	}
	for i := range l.Partitions {
		if p := &l.Partitions[i]; p.StartingOffset == v.Offset {
			p.Attributes &^= win.GPTAttributeReadOnly
			if readOnly {
				p.Attributes |= win.GPTAttributeReadOnly
			}
		}
	}
	if err := v.Disk.SetLayout(l); err != nil {
		return err
	}
	m.Scan(v.Disk)
	return nil
}

// SetLocked locks a volume with BitLocker or unlocks it.
//
// Guess: files that are open while BitLocker locks their volume answer error 1006.
func (m *Manager) SetLocked(v *Volume, locked bool) {
	if locked {
		m.node.Kill(v, true, winerr.ErrorFileInvalid)
	}
	v.Locked = locked
	m.touch(v.Unique)
}
