// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package drivers

import "context"

// VSphere is the vSphere driver 3.4.0, the last one on the pipes. It unstages as GCE PD's does, once it
// knows that the path is there.
//
// Source: https://github.com/kubernetes-sigs/vsphere-csi-driver/blob/v3.4.0/pkg/csi/service/mounter/mounter_windows.go
type VSphere struct {
	GCEPD
	container Container
}

// NewVSphere returns the driver of the disk that isDisk recognises. VMware's compares page 83 with the
// disk's UUID.
func NewVSphere(n Node, isDisk func(DiskIDs) bool, c Container) VSphere {
	return VSphere{NewGCEPD(n, isDisk), c}
}

func (d VSphere) Stage(staging string) error {
	s := d.Step(context.Background())
	disk := s.diskWith(d.isDisk)
	if _, err := d.container.ReadLink(staging); err == nil {
		if d.container.Sees(staging) == nil {
			return s.Err
		}
		if err := d.GCEPD.Unstage(staging); err != nil { // a mount that doesn't work is made anew
			return err
		}
	}
	s.prepare(disk, true, staging)
	return s.Err
}

func (d VSphere) Publish(staging, target string) error {
	s := d.Step(context.Background())
	s.clear(target)
	s.Mkdir(parent(target))
	s.CreateSymlink(staging, target)
	return s.Err
}

func (d VSphere) Unstage(staging string) error {
	s := d.Step(context.Background())
	if !s.PathExists(staging) {
		return s.Err
	}
	return d.GCEPD.Unstage(staging)
}
