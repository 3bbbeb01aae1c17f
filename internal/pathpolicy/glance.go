// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy

import (
	"context"
	"errors"
	"strings"

	"github.com/csi-proxy/csi-proxy/internal/win"
)

// Glance is a first look at what a path leads to: a MountedVolume or a SharedDirectory, or
// Nothing if it is anything else. It opens the path in one go, however deep that is, and holds
// nothing on the way, which takes three calls instead of two for each directory.
//
// What it tells may have changed already, and it doesn't look whether the volume is protected.
// So it says which right to take, or that nothing needs to be done. Whoever changes something
// looks again by Reach or Resolve, with the right.
func (p *Policy) Glance(ctx context.Context, sys System, path Path) (r Resolved, err error) {
	if len(path.names) == 0 {
		return r, nil
	}
	err = p.walk(sys, func(w *walk) error {
		dir, err := w.enter(ctx, path, win.FileOpen)
		if err != nil {
			return err
		}
		f, err := dir.Entry(strings.Join(path.names, `\`)).Open(ctx, Look)
		if err != nil {
			return err
		}
		link, err := f.Link(ctx)
		if errors.Is(err, win.ErrorNotAReparsePoint) {
			return nil
		}
		switch {
		case err != nil:
			return err
		case link.IsMountPoint():
			r = Resolved{Kind: MountedVolume, Volume: link.Volume, Target: link.Target()}
		case link.Kind == LinkToShare:
			r = Resolved{Kind: SharedDirectory, Target: link.Target()}
		}
		return nil
	})
	switch {
	case errors.Is(err, win.ErrorReparsePointEncountered): // there is a link on the way, or a filter
		return p.Resolve(ctx, sys, path)
	case Missing(err), errors.Is(err, win.ErrorDirectory):
		return Resolved{}, nil
	}
	return r, err
}
