// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/lab/virtdisk"
	"github.com/csi-proxy/csi-proxy/internal/lab/winrecord"
	"github.com/csi-proxy/csi-proxy/internal/winsys"
)

// recordedDisk is a virtual disk.
type recordedDisk struct{ *virtdisk.Disk }

func (d recordedDisk) Number() disk.Number { return disk.Number(d.Disk.Number) }

func (d recordedDisk) Grow(sizeBytes int64) error {
	_, err := d.Disk.Grow(uint64(sizeBytes))
	return err
}

// recordCalls plays the scenario on this Windows and writes the recording to a file. Under
// Wine, which has no virtual disks, the scenario has no disk.
func recordCalls(ctx context.Context, name, dir string, wine bool) (err error) {
	sys, err := winsys.Open(winsys.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sys.Close()) }()
	if err := errors.Join(os.RemoveAll(winrecord.Kubelet), os.MkdirAll(winrecord.Kubelet, 0o700)); err != nil {
		return err
	}
	var d winrecord.Disk
	if !wine {
		file, newErr := virtdisk.New(filepath.Join(dir, "recorded.vhdx"), 1<<30, 512)
		if newErr != nil {
			return fmt.Errorf("a disk for the recording: %w", newErr)
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		d = recordedDisk{file}
	}
	var b bytes.Buffer
	played := winrecord.Play(ctx, winrecord.New(sys, &b), d)
	if name == "-" {
		_, err = os.Stdout.Write(b.Bytes())
	} else {
		err = os.WriteFile(name, b.Bytes(), 0o600)
	}
	// A recording that ended early is written too.
	return errors.Join(played, err)
}
