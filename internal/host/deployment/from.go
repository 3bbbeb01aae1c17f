// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"context"
	"errors"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// ReplaceFrom is Replace for a program that is elsewhere, such as in a container's image or
// in a package. It brings in.Program to the bytes of from:
//
//   - If in.Program is the program of our service, that is an Upgrade. The new program must
//     take the flags that the service has. If in has other flags, they come after that.
//   - Otherwise from is copied there. A directory that is missing is made, for SYSTEM and the
//     Administrators only.
//
// If everything is as it should be and the service runs, nothing is stopped.
func (d *Deployer) ReplaceFrom(ctx context.Context, in Installation, from string) (Installed, error) {
	name, err := d.Find(in.Name)
	if err != nil {
		return Installed{}, err
	}
	in.Name = name
	_, replacing, err := d.Replaced(name)
	if err == nil && replacing {
		// The service is ours by its settings, but the daemon before may have the pipes.
		_, err = d.Replace(ctx, in)
	}
	if err != nil && !errors.Is(err, csiproxy.ErrNotFound) {
		return Installed{}, err
	}
	before, err := d.current(name)
	if err != nil && !errors.Is(err, csiproxy.ErrNotFound) {
		return Installed{}, err
	}
	if err == nil && before.origin == Ours && strings.EqualFold(before.program, in.Program) {
		if err = d.replaceMissingDrivers(ctx, before, in); err == nil {
			_, err = d.Upgrade(ctx, name, from, false)
		}
	} else {
		err = d.bring(ctx, from, in.Program)
	}
	if err != nil {
		return Installed{}, err
	}
	return d.Replace(ctx, in)
}

// bring copies a program to a place where no service of ours has it. A program that is
// there already stays if it is the same: it may run.
func (d *Deployer) bring(ctx context.Context, from, to string) error {
	exists, err := d.Files.Exists(to)
	if err != nil {
		return err
	}
	if exists {
		if same, err := d.Files.Same(from, to); err != nil || same {
			return err
		}
	} else if dir := directoryOf(to); dir != "" {
		// It makes a directory as this one must be: who can exchange the program owns the
		// node.
		if err := d.Services.MakeLogDirectory(dir); err != nil {
			return err
		}
	}
	if err := d.Files.Copy(ctx, from, to); err != nil {
		return &csiproxy.Error{Op: "copy program", Object: from, Kind: csiproxy.ErrInvalidArgument,
			Detail: "to " + to + "; no service was changed", Err: err}
	}
	return nil
}
