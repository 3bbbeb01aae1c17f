// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"slices"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// faultsOfMounts returns the faults of mounts, or what is fine in words of how many there are. A mount
// without a fault has no verdict. A list that isn't complete is an error beside them.
func faultsOfMounts(n *asked, fine string, fault func(csiproxy.Mount) Finding) (string, []Finding, error) {
	list, err := n.mounts()
	if err != nil {
		return "", nil, err
	}
	if !list.Complete() {
		err = csiproxy.Errorf(csiproxy.ErrUnavailable, "%s", list.IncompleteReason)
	}
	var faults []Finding
	for _, m := range list.Mounts {
		if f := fault(m); f.Verdict != "" {
			faults = append(faults, f)
		}
	}
	return fmt.Sprintf(fine, len(list.Mounts)), faults, err
}

// checkMountedVolumes looks for volumes that are mounted, and can't be used or are nearly full.
func checkMountedVolumes(_ context.Context, n *asked) (string, []Finding, error) {
	return faultsOfMounts(n, "no mounted volume has a fault (mounts and links: %d)", faultOfVolume)
}

// faultOfVolume returns what is wrong with a mounted volume. Shares have a check of their own.
func faultOfVolume(m csiproxy.Mount) Finding {
	v := m.Volume
	switch {
	case m.LeftoverReason != "" || v.Share != "":
		return Finding{}
	case v.Abnormal():
		return problem(volumeAdvice(v.Conditions), "the volume at %s: %v", m.Path, v.Conditions)
	case v.SizeBytes > 0 && v.FreeBytes < v.SizeBytes/20:
		return warning("grow its claim, or remove files", "the volume at %s is nearly full: %d of %d bytes are free", m.Path,
			v.FreeBytes, v.SizeBytes)
	}
	return Finding{}
}

// volumeAdvice is what to do about a volume with one of these conditions.
func volumeAdvice(conditions []csiproxy.Condition) string {
	has := func(reason csiproxy.Reason) bool {
		return slices.ContainsFunc(conditions, func(c csiproxy.Condition) bool { return c.Reason == reason })
	}
	switch {
	case has(csiproxy.ReasonDiskMissing):
		return "if csi-proxyctl disk list has the disk, csi-proxyctl disk online takes it online. Otherwise attach it again, or " +
			"end the pods that use it: the volume can be unstaged without its disk"
	case has(csiproxy.ReasonReadOnly):
		return "look for what makes it read-only: docs/troubleshooting.md#read-only-disks"
	}
	return "look up the volume's disk in csi-proxyctl storage disks and in the System event log; docs/troubleshooting.md#by-number explains the number of an error"
}

// checkMappings looks for shares that are mapped and linked, and can't be used.
func checkMappings(_ context.Context, n *asked) (string, []Finding, error) {
	known := map[string]bool{}
	return faultsOfMounts(n, "no linked share has a fault (mounts and links: %d)", func(m csiproxy.Mount) Finding {
		if m.Volume.Share == "" || known[m.Volume.Share] || !m.Volume.Abnormal() && !m.Volume.Unencrypted {
			return Finding{}
		}
		known[m.Volume.Share] = true
		if !m.Volume.Abnormal() {
			return warning("map it with encryption: without -require-privacy=false, or with the privacy \"required\" of its "+
				"StorageClass. Containers may lose access to it after about 15 minutes",
				"the share %s is mapped without encryption", m.Volume.Share)
		}
		return problem(shareAdvice(m.Volume.Conditions), "the share %s, at %s: %v", m.Volume.Share, m.Path, m.Volume.Conditions)
	})
}

// shareAdvice is what to do about a share with one of these conditions.
func shareAdvice(conditions []csiproxy.Condition) string {
	for _, c := range conditions {
		switch c.Reason {
		case csiproxy.ReasonShareRefused:
			return "correct the user or password: docs/troubleshooting.md#stale-smb-credentials"
		case csiproxy.ReasonShareUnreachable:
			return "look whether the server runs and has the share: Test-NetConnection SERVER -Port 445"
		case csiproxy.ReasonShareNotMapped:
			return "end the pods of the node that use it, and let them start again: a driver maps a share when it stages it, for the first pod"
		}
	}
	return "look at the conditions in docs/storage-api.md#getvolume"
}

// checkLeftovers looks for what nobody needs any more.
func checkLeftovers(_ context.Context, n *asked) (string, []Finding, error) {
	return faultsOfMounts(n, "no mount or link is left over (mounts and links: %d)", func(m csiproxy.Mount) Finding {
		if m.LeftoverReason == "" && m.ForgottenPod != "" {
			return warning("if neither kubelet nor the API server has that pod any more, run csi-proxyctl storage unpublish "+m.Path,
				"kubelet has no record (vol_data.json, beside the link) of the mount %s of pod %s, so its volume can't be unstaged",
				m.Path, m.ForgottenPod)
		}
		if m.LeftoverReason == "" {
			return Finding{}
		}
		what := fmt.Sprintf("the %s %s, to %s", m.Kind, m.Path, m.Target)
		if m.Kind == csiproxy.MountKindMapping {
			what = "the mapping of " + m.Target
		}
		return warning("if no pod uses it, run csi-proxyctl storage clean-up --remove", "%s: %s", what, m.LeftoverReason)
	})
}
