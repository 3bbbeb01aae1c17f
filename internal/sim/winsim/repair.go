// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"context"
	"fmt"

	"github.com/csi-proxy/csi-proxy/internal/win"
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

// RepairVolume is MSFT_Volume.Repair of \\?\Volume{guid}\.
//
// Guess: ReFS isn't scanned, with result 43001; a volume that is in use isn't repaired,
// with result 43013; and a scan of a disk that is read-only gives result 43006, since it
// notes on the volume what it finds.
func (s *System) RepairVolume(ctx context.Context, volume string, mode win.RepairMode) (result win.RepairResult, err error) {
	err = s.call(ctx, Call{win.CallRepairVolume, volume}, func() error {
		id, rest, _ := parseVolumeName(volume)
		v, ok := s.volumes.withID(id)
		if !ok || rest != `\` {
			return win.ErrorRetry
		}
		t, b, err := v.tree()
		switch {
		case err != nil:
			return err
		case b.kind != kindNTFS:
			return win.ErrorNotSupported
		case !v.writable():
			return win.ErrorWriteProtect
		case mode != win.RepairScan && (v.disk.System || s.inUse(v)):
			return win.ErrorAccessDenied
		}
		result = t.repair(mode)
		v.disk.mark()
		return nil
	})
	return result, err
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

// SetVolumeDirty lets Windows want to check the file system of a volume, or not.
func (s *System) SetVolumeDirty(volume string, dirty bool) error {
	return s.controlTree(volume, func(t *tree) { t.Dirty = dirty })
}

// SetVolumeDamage damages the file system of a volume, or heals it.
func (s *System) SetVolumeDamage(volume string, d Damage) error {
	if d != NoDamage && d != SpotDamage && d != OfflineDamage {
		return fmt.Errorf("damage %q: %w", d, win.ErrorInvalidParameter)
	}
	return s.controlTree(volume, func(t *tree) { t.Damage, t.Noted = d, false })
}

// SetVolumeReadOnly makes a volume read-only or writable, by the attribute of its GPT
// partition, as diskpart does. A partition of an MBR disk gives ErrorNotSupported.
func (s *System) SetVolumeReadOnly(path string, readOnly bool) error {
	return s.controlVolumeAt(path, func(v *volume) error {
		l := v.disk.layout()
		if l.Style != win.StyleGPT {
			return win.ErrorNotSupported
		}
		for i := range l.Partitions {
			if p := &l.Partitions[i]; p.StartingOffset == v.offset {
				p.Attributes &^= win.GPTAttributeReadOnly
				if readOnly {
					p.Attributes |= win.GPTAttributeReadOnly
				}
			}
		}
		if err := v.disk.setLayout(l); err != nil {
			return err
		}
		s.scanVolumes(v.disk)
		return nil
	})
}
