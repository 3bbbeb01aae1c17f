// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !simulated

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/csi-proxy/csi-proxy/internal/lab/conformance"
)

// planter plants links and data on the machine that this program runs on.
type planter struct{}

func newPlanter(string) conformance.Node { return planter{} }

func (planter) Mkdir(_ context.Context, path string) error { return os.Mkdir(path, 0o700) }

func (planter) Symlink(_ context.Context, link, target string) error { return os.Symlink(target, link) }

func (planter) Names(_ context.Context, path string) (names []string, err error) {
	entries, err := os.ReadDir(path)
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names, err
}

func (planter) Remove(_ context.Context, path string) error { return os.Remove(path) }

func (planter) Overwrite(_ context.Context, disk uint32, before, after []byte) (err error) {
	f, err := os.OpenFile(fmt.Sprintf(`\\.\PhysicalDrive%d`, disk), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	there := make([]byte, len(before))
	if _, err := io.ReadFull(f, there); err != nil {
		return err
	}
	if !bytes.Equal(there, before) {
		return errors.New("the disk begins with other data")
	}
	if _, err := f.WriteAt(after, 0); err != nil {
		return err
	}
	return f.Sync()
}
