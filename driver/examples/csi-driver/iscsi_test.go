// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/simnode"
)

const iqn = "iqn.2001-04.com.example:disk"

// targetVolume is a volume as an administrator has made it for a target.
func targetVolume(password, mutual string) *volume {
	v := &volume{
		Volume: &csi.Volume{VolumeId: "target", VolumeContext: map[string]string{
			"type": "iscsi", "targetPortal": "192.0.2.1", "iqn": iqn,
		}},
		capability: mount(csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER),
	}
	if password != "" {
		v.secrets = map[string]string{"username": user, "password": password, "mutualPassword": mutual}
	}
	return v
}

func target(chap, mutual string) simnode.ISCSITarget {
	t := simnode.ISCSITarget{
		IQN:     iqn,
		Portals: []csiproxy.ISCSIPortal{{Address: "192.0.2.1", Port: csiproxy.DefaultISCSIPort}},
		LUNs:    []simnode.Disk{{SizeBytes: gib, Serial: "on-the-target"}},
	}
	if chap != "" {
		t.CHAPUser, t.CHAPSecret, t.MutualSecret = user, csiproxy.NewSecret(chap), csiproxy.NewSecret(mutual)
	}
	return t
}

func TestTarget(t *testing.T) {
	const chap, mutual = "twelve bytes", "other 12 byte"
	for name, test := range map[string]struct{ chap, mutual string }{
		"without CHAP": {},
		"CHAP":         {chap: chap},
		"mutual CHAP":  {chap, mutual},
	} {
		t.Run(name, func(t *testing.T) {
			eachWay(t, func(t *testing.T, r *rig) {
				r.AddISCSITarget(target(test.chap, test.mutual))
				v := targetVolume(test.chap, test.mutual)
				r.up(v, "pod-a")
				r.write(v, "pod-a", "written by a pod")
				r.usage(v, "pod-a", gib)

				r.Reboot() // ends the session
				r.restartDriver()
				r.up(v, "pod-a")
				r.read(v, "pod-a", "written by a pod")
				r.down(v, "pod-a")

				disks, err := r.Operations().Disk.ListDiskIDs(t.Context())
				r.must(err)
				if len(disks) != 1 {
					t.Errorf("disks %v, want Windows' own", disks)
				}
				r.up(v, "pod-b")
				r.read(v, "pod-b", "written by a pod")
				r.down(v, "pod-b")
			})
		})
	}
}

// With a mutual secret, the driver has the target prove itself.
func TestTargetThatCannotProveItself(t *testing.T) {
	r := newRig(t, viaInProcess)
	r.AddISCSITarget(target("twelve bytes", "other 12 byte"))
	r.refused("a target with another secret", r.stage(targetVolume("twelve bytes", "other  12 byte")),
		codes.Unauthenticated)
}
