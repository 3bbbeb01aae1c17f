// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy

import (
	"cmp"
	"context"
	"slices"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// VolumeCheck says why a volume, \\?\Volume{guid}\, is protected; "" if the volume is unprotected.
// volumeOf maps drives, such as C:, to their volumes, for each drive that the check has asked
// Windows about.
type VolumeCheck func(ctx context.Context, volume string) (reason string, volumeOf map[string]string, err error)

// protectedVolume parses an entry of Options.ProtectedVolumes into a drive or volume.
func protectedVolume(name string) (string, error) {
	if drive, ok := driveLetter(strings.TrimSuffix(name, `\`)); ok {
		return drive, nil
	}
	if root, ok := volumeRoot(name); ok {
		return root, nil
	}
	return "", &csiproxy.Error{
		Op: "protect volume", Object: quote.Text(name), Kind: csiproxy.ErrInvalidArgument,
		Detail: `it is neither a drive letter, such as D:, nor a volume id, \\?\Volume{guid}\`,
	}
}

// ProtectedByName returns the names of the volumes in Options.ProtectedVolumes: drive letters, such
// as D:, and volume ids.
func (p *Policy) ProtectedByName() []string { return p.protected[1:] } // the first is C:

// VolumeNamed returns the volume, \\?\Volume{guid}\, with a drive letter or volume id; "" if the
// letter is free.
func (p *Policy) VolumeNamed(ctx context.Context, sys System, name string) (string, error) {
	if !strings.HasSuffix(name, ":") {
		return name, nil
	}
	return volumeOfDrive(ctx, sys, name)
}

// Protects says why a volume, \\?\Volume{guid}\, is protected; "" if the volume is unprotected.
// Operations refuse to mount a protected volume, and to follow a mount point of it: anybody with
// the right to create a directory can make it a mount point of any volume. Protected are the volume
// of C:, the volumes in Options.ProtectedVolumes, and the volumes that hold an allowed directory.
func (p *Policy) Protects(ctx context.Context, sys System, volume string) (reason string, _ error) {
	var volumeOf map[string]string
	if p.ofTheNode != nil {
		var err error
		if reason, volumeOf, err = p.ofTheNode(ctx, volume); reason != "" || err != nil {
			return reason, err
		}
	}
	return p.protects(ctx, sys, volume, volumeOf)
}

// ProtectsOffSystemDisks is Protects for a volume outside the disks that Windows runs from.
func (p *Policy) ProtectsOffSystemDisks(ctx context.Context, sys System, volume string) (reason string, _ error) {
	return p.protects(ctx, sys, volume, nil)
}

// protects is ProtectsOffSystemDisks with the known volumes of some drives.
func (p *Policy) protects(ctx context.Context, sys System, volume string, volumeOf map[string]string) (reason string, _ error) {
	volumes := slices.Clone(p.protected)
	for _, root := range p.roots {
		// An allowed directory may be a link to another drive. Then both drives are protected: the
		// first drive holds the link.
		on, err := volumeAt(ctx, sys, root)
		if err != nil {
			return "", err
		}
		volumes = append(volumes, root.drive, on)
	}
	slices.Sort(volumes)
	for _, v := range slices.Compact(volumes) {
		name := volumeOf[v]
		if name == "" {
			var err error
			if name, err = p.VolumeNamed(ctx, sys, v); err != nil {
				return "", err
			}
		}
		if strings.EqualFold(name, volume) {
			return "it is protected: it is that of drive C:, holds an allowed directory, or is named by -protected-volume", nil
		}
	}
	return "", nil
}

// volumeOfDrive returns the volume with the drive letter; "" if the letter is free.
func volumeOfDrive(ctx context.Context, sys System, drive string) (string, error) {
	volume, err := sys.VolumeNameForMountPoint(ctx, drive+`\`)
	if winerr.IsGone(err) {
		return "", nil
	}
	if err != nil {
		return "", &csiproxy.Error{Object: drive + `\`, Err: err}
	}
	return volume, nil
}

// volumeAt returns the volume of an administrator's directory, with links resolved. For a missing
// directory it is the volume of the nearest directory above; for a missing drive, "".
func volumeAt(ctx context.Context, sys System, dir location) (volume string, err error) {
	l, err := withoutLinksAt(ctx, sys, dir)
	return l.drive, err
}

// finalPath returns the path of an administrator's directory or file without links.
func finalPath(ctx context.Context, sys System, path string) (final string, err error) {
	f, err := sys.OpenFile(ctx, path, win.OpenOptions{
		Access:      win.FileReadAttributes | win.Synchronize,
		Share:       win.ShareRead | win.ShareWrite | win.ShareDelete,
		Disposition: win.FileOpen,
		Options:     win.FileOpenForBackup,
	})
	if err != nil {
		return "", err
	}
	defer func() { // even after a panic: the daemon survives panics
		err = cmp.Or(err, f.Close())
	}()
	return f.FinalPath(ctx)
}
