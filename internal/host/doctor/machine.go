// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/csi-proxy/csi-proxy/internal/serve/admin"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// checkKubeletDirectory looks whether the kubelet directory is there, is no link and lies
// on NTFS.
func checkKubeletDirectory(ctx context.Context, n *asked) (string, []Finding, error) {
	w := n.Windows
	if w == nil {
		return "", nil, n.needsWindows()
	}
	path := strings.TrimRight(n.KubeletPath, `\`)
	var faults []Finding
	for i := range len(path) + 1 {
		if i <= len(`C:`) || i < len(path) && path[i] != '\\' {
			continue
		}
		a, err := w.FileAttributes(ctx, path[:i])
		switch {
		case errors.Is(err, winerr.ErrorFileNotFound), errors.Is(err, winerr.ErrorPathNotFound):
			return "", append(faults, problem("start kubelet, which makes it. If kubelet's --root-dir is another one, name "+
				"that one to the daemon "+
				"with -kubelet-path, and to csi-proxyctl doctor with --kubelet-path",
				"the kubelet directory doesn't exist: there is no %s", path[:i])), nil
		case err != nil:
			return "", faults, fmt.Errorf("query %s: %w", path[:i], err)
		case a&win.AttributeReparsePoint != 0:
			faults = append(faults, warning("give the daemon, by -kubelet-path, and kubelet, by --root-dir, the path of the "+
				"directory itself",
				"%s is a link or a mount point, and part of the kubelet directory's path: paths that name its target "+
					"count as outside of the kubelet directory", path[:i]))
		case a&win.AttributeDirectory == 0:
			return "", append(faults, problem("remove the file", "%s, on the way to the kubelet directory, is a file",
				path[:i])), nil
		}
	}
	for _, name := range []string{"pods", "plugins", `plugins\kubernetes.io`, `plugins\kubernetes.io\csi`} {
		dir := path + `\` + name
		a, err := w.FileAttributes(ctx, dir)
		switch {
		case errors.Is(err, winerr.ErrorFileNotFound), errors.Is(err, winerr.ErrorPathNotFound):
		case err != nil:
			return "", faults, fmt.Errorf("query %s: %w", dir, err)
		case a&win.AttributeReparsePoint != 0:
			faults = append(faults, warning("mount such a disk at the kubelet directory or above it",
				"%s is a link or a mount point: volumes and links behind it don't count as in use", dir))
		}
	}
	volume, err := w.VolumeOf(ctx, path)
	if err != nil {
		return "", faults, fmt.Errorf("find the volume of %s: %w", path, err)
	}
	info, err := w.VolumeInformation(ctx, volume)
	if err != nil {
		return "", faults, fmt.Errorf("find the file system of %s: %w", path, err)
	}
	if !strings.EqualFold(info.FileSystem, "NTFS") {
		faults = append(faults, problem("move kubelet's --root-dir to a volume with NTFS, and give the daemon its path "+
			"with -kubelet-path",
			"%s lies on %s; volumes can be mounted at directories of NTFS only", path, info.FileSystem))
	}
	return fmt.Sprintf("%s is a directory on %s", path, info.FileSystem), faults, nil
}

// number returns a value of the registry; 0 if it isn't set.
func number(ctx context.Context, n *asked, key, value string) (uint32, error) {
	if n.Windows == nil {
		return 0, n.needsWindows()
	}
	number, err := n.Windows.RegistryNumber(ctx, key, value)
	if err != nil && !errors.Is(err, winerr.ErrorFileNotFound) {
		return 0, fmt.Errorf(`read HKLM\%s\%s: %w`, key, value, err)
	}
	return number, nil
}

// checkSANPolicy looks which disks come online when they arrive.
func checkSANPolicy(ctx context.Context, n *asked) (string, []Finding, error) {
	policy, err := number(ctx, n, win.RegistryPartitionManager, win.RegistrySANPolicy)
	if err != nil {
		return "", nil, err
	}
	offline := map[win.SANPolicy]string{win.SANOfflineAll: "OfflineAll: all disks",
		win.SANOfflineInternal: "OfflineInternal: disks on a bus that isn't shared"}[win.SANPolicy(policy)]
	if offline == "" {
		return "the SAN policy is OnlineAll, OfflineShared or the default", nil, nil
	}
	return "", []Finding{warning(`if a driver doesn't bring its disks online itself: diskpart, then "san policy=OnlineAll" on a `+
		`node whose disks no other node uses, else "san policy=OfflineShared"`, "the SAN policy is %s arrive offline", offline)}, nil
}

// checkBitLocker looks for volumes that BitLocker keeps from being used.
func checkBitLocker(ctx context.Context, n *asked) (string, []Finding, error) {
	var faults []Finding
	deny, err := number(ctx, n, win.RegistryBitLockerPolicy, win.RegistryDenyWriteAccess)
	if err != nil {
		return "", nil, err
	}
	if deny != 0 {
		faults = append(faults, problem(`exempt this node from the group policy "Deny write access to fixed drives not protected by BitLocker"`,
			"a group policy makes volumes read-only if BitLocker doesn't protect them, so those that CSI Proxy formats, too"))
	}
	names, err := n.Windows.FindVolumes(ctx)
	if err != nil {
		return "", faults, fmt.Errorf("list volumes: %w", err)
	}
	for _, name := range names {
		if _, err := n.Windows.VolumeInformation(ctx, name); errors.Is(err, winerr.FVELockedVolume) {
			faults = append(faults, problem("manage-bde -unlock, and -autounlock -enable so that it stays so after a restart",
				"BitLocker has locked the volume %s", name))
		}
	}
	return fmt.Sprintf("BitLocker has locked no volume (volumes: %d)", len(names)), faults, nil
}

// checkSilentDisks looks for disks that don't answer, or answer with errors.
func checkSilentDisks(_ context.Context, n *asked) (string, []Finding, error) {
	disks, err := n.disks()
	if err != nil {
		return "", nil, err
	}
	var faults []Finding
	for _, disk := range disks {
		if disk.Error != "" {
			faults = append(faults, problem("look in the System event log for errors of its driver, and at the storage that "+
				"provides it; detach the disk if it is gone there. For a report, \"wevtutil epl Microsoft-Windows-Partition/Diagnostic "+
				"disks.evtx\" saves what Windows recorded of each disk",
				"%s: %s", disk, disk.Error))
		}
	}
	return fmt.Sprintf("all disks with a known number answer (disks: %d)", len(disks)), faults, nil
}

// missingVolume is a line of the daemon's metrics, with the volume and 1 if it is missing.
var missingVolume = regexp.MustCompile(`(?m)^` + admin.MissingVolume + `\{volume=("(?:[^"\\]|\\.)*")\} ([01])`)

// checkProtectedVolumes looks for a -protected-volume that isn't there. The daemon is asked,
// by its metrics: a container's flags stand in no service.
func checkProtectedVolumes(ctx context.Context, n *asked) (string, []Finding, error) {
	if n.Metrics == nil {
		return "", nil, n.needsWindows()
	}
	metrics, err := n.Metrics(ctx)
	if err != nil {
		return "", nil, fmt.Errorf("read the daemon's metrics: %w", err)
	}
	var faults []Finding
	lines := missingVolume.FindAllStringSubmatch(metrics, -1)
	for _, line := range lines {
		volume, err := strconv.Unquote(line[1])
		if err != nil {
			return "", faults, fmt.Errorf("read the daemon's metrics: %s: %w", line[1], err)
		}
		if line[2] == "1" {
			faults = append(faults, warning("look up the drive letter or the id with mountvol, and start the daemon with that, in "+
				"the Helm chart protectedVolumes. If the volume's disk isn't attached yet, or this kind of machine has "+
				"none, do nothing; docs/drivers.md#lun-0 has more",
				"-protected-volume names %s, and no disk has that: until it comes, only data disks of Azure are partitioned and "+
					"formatted", quote.Text(volume)))
		}
	}
	return fmt.Sprintf("all volumes of -protected-volume are there: %d", len(lines)), faults, nil
}
