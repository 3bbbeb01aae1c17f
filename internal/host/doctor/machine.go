// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/host/winservice"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/csi-proxy/csi-proxy/published"
)

// checkKubeletDirectory looks whether the kubelet directory is there, is no link and lies
// on NTFS.
func checkKubeletDirectory(ctx context.Context, n *Node, w Windows) (string, []Finding, error) {
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

// checkDirectories looks whether others than administrators can exchange a service's program or its file
// of drivers, or lead its log elsewhere.
func checkDirectories(_ context.Context, n *Node, services []Service) (string, []Finding, error) {
	if n.Writers == nil {
		return "", nil, n.needsWindows()
	}
	var faults []Finding
	check := func(contents, dir string) error {
		if dir == "" {
			return nil
		}
		names, err := n.Writers(dir)
		if len(names) > 0 {
			faults = append(faults, warning(winservice.WritableAdvice(dir), "%s",
				winservice.WritableText(contents, dir, names)))
		}
		return err
	}
	var errs []error
	for _, s := range services {
		errs = append(errs, check("the program of the service "+s.Name, directoryOf(s.Program)),
			check("the log of the service "+s.Name, directoryOf(s.Log)))
		if directoryOf(s.Drivers) != directoryOf(s.Program) {
			errs = append(errs, check("the file of drivers of the service "+s.Name, directoryOf(s.Drivers)))
		}
		if s.Drivers == "" {
			continue
		}
		names, err := n.Writers(s.Drivers)
		if len(names) > 0 {
			faults = append(faults, warning(fmt.Sprintf(`icacls "%s" /setowner *S-1-5-32-544, then icacls "%[1]s" /reset`, s.Drivers),
				"others than administrators can write to the file of drivers of the service %s, %s: %s", s.Name, s.Drivers,
				strings.Join(names, ", ")))
		}
		errs = append(errs, err)
	}
	return "only administrators can write to the service's program, log and file of drivers", faults,
		errors.Join(errs...)
}

// checkLogFile looks whether a daemon that runs has its log file. It starts without it.
func checkLogFile(_ context.Context, n *Node, services []Service) (string, []Finding, error) {
	if n.LogFile == nil {
		return "", nil, n.needsWindows()
	}
	fine := "no service that runs has a log file"
	var faults []Finding
	for _, s := range services {
		if !s.Running || s.Log == "" {
			continue
		}
		fine = "the log is in " + s.Log
		if err := n.LogFile(s.Log); err != nil {
			faults = append(faults, problem("make the place of the log file one that LocalSystem can write to, or give the "+
				"service another -log_file; the daemon makes the file as soon as it can",
				"the service %s has no log file, and its lines are lost: %v", s.Name, err))
		}
	}
	return fine, faults, nil
}

// iscsiService is the service of the iSCSI initiator.
const iscsiService = "MSiSCSI"

// checkISCSIService looks whether the iSCSI initiator can be used.
func checkISCSIService(ctx context.Context, n *Node) (string, []Finding, error) {
	s, err := n.service(ctx, iscsiService)
	switch {
	case errors.Is(err, csiproxy.ErrNotFound):
		return "", []Finding{warning("install the iSCSI initiator, if a driver on this node uses iSCSI",
			"there is no service %s", iscsiService)}, nil
	case err != nil:
		return "", nil, err
	case s.StartType == published.StartTypeDisabled:
		return "", []Finding{warning("if a driver on this node uses iSCSI: sc.exe config MSiSCSI start= auto, then "+
			"csi-proxyctl system service start MSiSCSI",
			"the service %s is disabled: no iSCSI target can be used", iscsiService)}, nil
	case s.Status != published.ServiceRunning:
		return fmt.Sprintf("the service %s is stopped, and can be started", iscsiService), nil, nil
	}
	return fmt.Sprintf("the service %s is running", iscsiService), nil, nil
}

// number returns a value of the registry; set is false if there is none.
func number(ctx context.Context, w Windows, key, value string) (number uint32, set bool, err error) {
	number, err = w.RegistryNumber(ctx, key, value)
	if errors.Is(err, winerr.ErrorFileNotFound) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf(`read HKLM\%s\%s: %w`, key, value, err)
	}
	return number, true, nil
}

// checkAutomaticMounting looks whether Windows mounts volumes that it sees for the first
// time.
func checkAutomaticMounting(ctx context.Context, _ *Node, w Windows) (string, []Finding, error) {
	off, _, err := number(ctx, w, win.RegistryMountManager, win.RegistryNoAutoMount)
	if err != nil {
		return "", nil, err
	}
	if off != 0 {
		return "", []Finding{warning("mountvol /E",
			"automatic mounting is off, so a new volume stays offline until somebody brings it online. "+
				"CSI Proxy does; other tools may not")}, nil
	}
	return "automatic mounting is on", nil, nil
}

// checkSANPolicy looks which disks come online when they arrive.
func checkSANPolicy(ctx context.Context, _ *Node, w Windows) (string, []Finding, error) {
	policy, set, err := number(ctx, w, win.RegistryPartitionManager, win.RegistrySANPolicy)
	if err != nil {
		return "", nil, err
	}
	const advice = `if a driver doesn't bring its disks online itself: diskpart, then "san policy=OnlineAll" on a node whose disks no other node uses, else "san policy=OfflineShared"`
	switch p := win.SANPolicy(policy); {
	case !set:
		return "the SAN policy isn't set: it is that of this edition of Windows", nil, nil
	case p == win.SANOnlineAll:
		return "the SAN policy is OnlineAll: all disks come online when they arrive", nil, nil
	case p == win.SANOfflineShared:
		return "the SAN policy is OfflineShared, as on a new Windows Server: disks on a shared bus, such as iSCSI, " +
			"arrive offline, and the driver brings them online", nil, nil
	case p == win.SANOfflineAll:
		return "", []Finding{warning(advice, "the SAN policy is OfflineAll: all disks arrive offline")}, nil
	case p == win.SANOfflineInternal:
		return "", []Finding{warning(advice,
			"the SAN policy is OfflineInternal: disks on a bus that isn't shared arrive offline")}, nil
	}
	return "", nil, fmt.Errorf("the SAN policy is %d, which isn't known", policy)
}

// checkBitLocker looks for volumes that BitLocker keeps from being used.
func checkBitLocker(ctx context.Context, _ *Node, w Windows) (string, []Finding, error) {
	var faults []Finding
	deny, _, err := number(ctx, w, win.RegistryBitLockerPolicy, win.RegistryDenyWriteAccess)
	if err != nil {
		return "", nil, err
	}
	if deny != 0 {
		faults = append(faults, problem(`exempt this node from the group policy "Deny write access to fixed drives not protected by BitLocker"`,
			"a group policy makes volumes read-only if BitLocker doesn't protect them, so those that CSI Proxy formats, too"))
	}
	names, err := w.FindVolumes(ctx)
	if err != nil {
		return "", faults, fmt.Errorf("list volumes: %w", err)
	}
	for _, name := range names {
		if _, err := w.VolumeInformation(ctx, name); errors.Is(err, winerr.FVELockedVolume) {
			faults = append(faults, problem("manage-bde -unlock, and -autounlock -enable so that it stays so after a restart",
				"BitLocker has locked the volume %s", name))
		}
	}
	return fmt.Sprintf("BitLocker has locked no volume (volumes: %d)", len(names)), faults, nil
}

// checkClones looks for disks with the ids of another one, of which Windows keeps one
// offline.
func checkClones(ctx context.Context, n *Node, disks []csiproxy.Disk) (string, []Finding, error) {
	var faults []Finding
	const advice = "Windows gives a clone new ids when it goes online and is writable; if it stays offline, detach " +
		"one of them"
	seen := map[string]csiproxy.Disk{}
	var unread error
	for _, disk := range disks {
		if disk.Error != "" && disk.Style == "" {
			unread = csiproxy.Errorf(csiproxy.ErrUnavailable, "the id of %s can't be read: %s", disk, disk.Error)
		}
		if disk.DiskID == "" || disk.Style == csiproxy.PartitionStyleRAW {
			continue
		}
		id := strings.ToLower(disk.DiskID)
		first, ok := seen[id]
		if !ok {
			seen[id] = disk
			continue
		}
		faults = append(faults, problem(advice,
			"%s and %s have the same id, %s: one is a copy of the other, and Windows can't have both online", first, disk,
			disk.DiskID))
	}
	return fmt.Sprintf("no two disks have the same id (disks: %d)", len(disks)), faults, unread
}

// checkSilentDisks looks for disks that don't answer, or answer with errors.
func checkSilentDisks(_ context.Context, _ *Node, disks []csiproxy.Disk) (string, []Finding, error) {
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
