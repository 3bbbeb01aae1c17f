// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy

import (
	"context"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// Reach calls f with the entry that Walk.Reach reaches.
func (p *Policy) Reach(ctx context.Context, sys System, path Path, f func(Entry) error) error {
	return p.atEntry(ctx, sys, path, (*Walk).Reach, f)
}

// ReachOrMake calls f with the entry that Walk.ReachOrMake reaches.
func (p *Policy) ReachOrMake(ctx context.Context, sys System, path Path, f func(Entry) error) error {
	return p.atEntry(ctx, sys, path, (*Walk).ReachOrMake, f)
}

// Hold calls f with the entry that Walk.Hold reaches.
func (p *Policy) Hold(ctx context.Context, sys System, path Path, f func(Entry) error) error {
	return p.atEntry(ctx, sys, path, (*Walk).Hold, f)
}

// HoldOrMake calls f with the entry that Walk.HoldOrMake reaches.
func (p *Policy) HoldOrMake(ctx context.Context, sys System, path Path, f func(Entry) error) error {
	return p.atEntry(ctx, sys, path, (*Walk).HoldOrMake, f)
}

func (p *Policy) atEntry(ctx context.Context, sys System, path Path,
	reach func(*Walk, context.Context, Path) (Entry, error), f func(Entry) error) (err error) {
	w := p.Walk(sys)
	defer w.CloseInto(&err)
	e, err := reach(w, ctx, path)
	if err != nil {
		return err
	}
	return f(e)
}

// Examine calls f with the file that Walk.Examine opens.
func (p *Policy) Examine(ctx context.Context, sys System, path Path, o win.OpenOptions, f func(*File) error) (err error) {
	w := p.Walk(sys)
	defer w.CloseInto(&err)
	file, err := w.Examine(ctx, path, o)
	if err != nil {
		return err
	}
	return f(file)
}
