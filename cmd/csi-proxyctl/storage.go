// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/client"
)

// storage has a command for each call of the storage group, but WatchDisks: see watchDisks.
func (p *program) storage() *cobra.Command {
	var wanted selectorFlags
	disks := p.call("disks", "List the disks that match, with all that is known of them",
		func(ctx context.Context, c *client.Client, _ []string) (reply, error) {
			selector, err := wanted.selector()
			if err != nil {
				return reply{}, err
			}
			return describeDisks(ctx, c.Storage, selector)
		})
	wanted.add(disks)

	return p.group("storage", "Do whole tasks of a CSI node in one call each",
		disks,
		p.stage(),
		p.unstage(),
		p.method("publish STAGING TARGET", "Make a link to a staged path for a pod", (*client.Storage).PublishVolume, nil),
		p.method("unpublish TARGET", "Remove the link for a pod", (*client.Storage).UnpublishVolume, nil),
		p.expand(),
		p.method("volume PATH", `Show what is mounted at a path, or a share by \\server\share, and what is wrong with it`,
			(*client.Storage).GetVolume, showVolume),
		p.method("volumes", "List what is mounted where", (*client.Storage).ListVolumes, showMounts),
		p.stageShare(),
		p.unstageShare(),
		p.cleanUp(),
		p.check(),
	)
}

// storageIsServed reports whether the daemon has the storage group: the published one
// doesn't.
func storageIsServed(ctx context.Context, c *client.Client) (bool, error) {
	_, err := c.Storage.Version(ctx)
	if csiproxy.KindOf(err) == csiproxy.ErrUnavailable {
		return false, nil
	}
	return err == nil, err
}

func (p *program) stageShare() *cobra.Command {
	var credentials func() (csiproxy.SMBCredentials, error)
	var r csiproxy.StageShareRequest
	cmd := p.call("stage-share REMOTE PATH", "Map a share, and make a link to it at a path",
		func(ctx context.Context, c *client.Client, args []string) (_ reply, err error) {
			if r.Credentials, err = credentials(); err != nil {
				return reply{}, err
			}
			r.RemotePath, r.StagingPath = args[0], args[1]
			return done, c.Storage.StageShare(ctx, r)
		})
	cmd.Long = `Map a share for the whole node if it isn't, and make a link to it at a path. REMOTE is
\\server\share or a directory on the share.

` + secretHelp
	credentials = credentialFlags(cmd)
	cmd.Flags().StringVar((*string)(&r.Privacy), "privacy", "",
		"whether the connection must be encrypted: `required` or not-required; default: the daemon's -require-privacy")
	cmd.Flags().BoolVar(&r.ReadOnly, "read-only", false, "refuse a share that the user may write")
	return cmd
}

func (p *program) cleanUp() *cobra.Command {
	var remove bool
	cmd := p.call("clean-up", "List what nobody needs any more, and remove it if asked",
		func(ctx context.Context, c *client.Client, _ []string) (reply, error) {
			leftovers, err := c.Storage.CleanUp(ctx, remove)
			r := reply{json: leftovers, header: []string{"KIND", "PATH", "TARGET", "WHY", "STATE"}}
			for _, l := range leftovers.Mounts {
				reason, state := l.LeftoverReason, "still there"
				switch {
				case l.Removed:
					state = "removed"
				case l.Error != "":
					state = "error: " + l.Error
				case reason == "":
					reason = "kubelet has no record (vol_data.json, beside the link) of this mount of pod " + l.ForgottenPod
					state = "stays; if neither kubelet nor the API server has that pod, run " + unpublishCommand(l.Mount)
				}
				r.rows = append(r.rows, []string{string(l.Kind), l.Path, l.Target, reason, state})
			}
			if leftovers.IncompleteReason != "" {
				r.warnings = append(r.warnings,
					"there may be further leftovers, since this couldn't be read: "+leftovers.IncompleteReason)
			}
			return r, err
		})
	cmd.Long = `List what nobody needs any more, and remove it if asked.

A link of a pod whose volume kubelet has lost track of is listed, too: with it there, the volume
can't be unstaged. Its pod may still run, so it is never removed by this command. The list has the
pod's UID, and the command that removes the link once the pod is gone.`
	cmd.Flags().BoolVar(&remove, "remove", false, "remove the leftovers; otherwise they are only listed")
	return cmd
}

func (p *program) check() *cobra.Command {
	var r csiproxy.CheckVolumeRequest
	cmd := p.call("check PATH", "Look for errors of the file system at a path",
		func(ctx context.Context, c *client.Client, args []string) (reply, error) {
			r.StagingPath = args[0]
			begun := time.Now()
			stop := p.everyMinute(func() {
				fmt.Fprintf(p.stderr, "csi-proxyctl: Windows has checked the volume for %v\n", time.Since(begun).Round(time.Second))
			})
			result, err := c.Storage.CheckVolume(ctx, r)
			stop()
			text := "no errors"
			switch {
			case result.Fixed:
				text = "errors were found and repaired"
			case result.ErrorsFound:
				text = "errors were found"
			}
			text = fmt.Sprintf("%s; it took %v", text, result.Duration.Round(time.Millisecond))
			if len(result.Conditions) > 0 {
				text += "; " + result.Conditions.String()
			}
			return line(result, text), err
		})
	cmd.Long = `Have Windows scan the file system at a path for errors while it is in use. That may take hours:
set --timeout 0. Windows reports no progress, so the time is printed every minute.`
	cmd.Flags().BoolVar(&r.SpotFix, "spot-fix", false,
		"repair the errors; the volume is offline for a moment, and must not be published")
	return cmd
}

// everyMinute calls f each minute until stop is called, unless the output is for programs.
func (p *program) everyMinute(f func()) (stop func()) {
	if p.format == formatJSON {
		return func() {}
	}
	ticker, ended := time.NewTicker(time.Minute), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-ticker.C:
				f()
			case <-ended:
				return
			}
		}
	})
	return func() {
		ticker.Stop()
		close(ended)
		wg.Wait()
	}
}

// volumeName names what is mounted.
func volumeName(v csiproxy.Volume) string { return cmp.Or(string(v.VolumeID), v.Share) }

// unknown stands in tables for what isn't known, apart from what there isn't.
const unknown = "unknown"

func diskText(v csiproxy.Volume) string {
	switch {
	case v.Disk != nil:
		return v.Disk.String()
	case v.Share != "":
		return ""
	}
	return unknown
}

func fileSystemText(v csiproxy.Volume) string {
	if v.Share != "" {
		return ""
	}
	return cmp.Or(v.FileSystem, unknown)
}

// volumeSizes returns the sizes of a volume, which are known together or not at all.
func volumeSizes(v csiproxy.Volume) (total, used, free string) {
	if v.SizeBytes == 0 {
		return unknown, unknown, unknown
	}
	return size(v.SizeBytes), size(v.UsedBytes), size(v.FreeBytes)
}

// volumeState is the state of a volume in a few words.
func volumeState(v csiproxy.Volume) string {
	var states []string
	if v.ReadOnly {
		states = append(states, "read-only")
	}
	if v.Unencrypted {
		states = append(states, "not encrypted")
	}
	for _, c := range v.Conditions {
		text := c.String()
		if c.Inaccessible {
			text += " (it can't be used)"
		}
		states = append(states, text)
	}
	state := cmp.Or(strings.Join(states, "; "), "ok")
	if v.Driver != "" {
		state += ", of driver " + v.Driver
	}
	return state
}

func showVolume(v csiproxy.Volume) reply {
	total, used, free := volumeSizes(v)
	return reply{
		json:   v,
		header: []string{"VOLUME", "DISK", "SERIAL NUMBER", "FILE SYSTEM", "LABEL", "SIZE", "USED", "FREE", "STATE"},
		rows: [][]string{{volumeName(v), diskText(v), v.SerialNumber, fileSystemText(v), v.Label, total, used, free,
			volumeState(v)}},
	}
}

func showMounts(list csiproxy.VolumeList) reply {
	r := reply{json: list, header: []string{"KIND", "PATH", "VOLUME", "DISK", "SIZE", "FREE", "STATE"}}
	if !list.Complete() {
		r.warnings = append(r.warnings,
			"the list may be incomplete, since this couldn't be read: "+list.IncompleteReason)
	}
	states := map[string]string{} // of volumes and shares, by the folded paths where they are mounted
	for _, m := range list.Mounts {
		if m.Volume.Abnormal() {
			states[strings.ToLower(m.Path)] = volumeState(m.Volume)
		}
	}
	for _, m := range list.Mounts {
		row := []string{string(m.Kind), m.Path, m.Target, "", "", "", cmp.Or(states[strings.ToLower(m.Target)], "ok")}
		if name := volumeName(m.Volume); name != "" {
			total, _, free := volumeSizes(m.Volume)
			row = []string{string(m.Kind), m.Path, name, diskText(m.Volume), total, free, volumeState(m.Volume)}
		}
		if m.LeftoverReason != "" {
			row[6] = "leftover: " + m.LeftoverReason
		} else if m.ForgottenPod != "" {
			row[6] += "; kubelet has no record (vol_data.json) of this mount of pod " + m.ForgottenPod + ": see csi-proxyctl storage clean-up"
			row[6] = strings.TrimPrefix(row[6], "ok; ")
		}
		r.rows = append(r.rows, row)
	}
	return r
}

func (p *program) stage() *cobra.Command {
	var wanted selectorFlags
	var login *loginFlags
	var mutualSecret func() (csiproxy.Secret, error)
	var r csiproxy.StageVolumeRequest
	var unit sizeFlag
	var fileSystem string
	cmd := p.call("stage PATH", "Make a disk's volume usable at a path",
		func(ctx context.Context, c *client.Client, args []string) (_ reply, err error) {
			if r.Disk, err = wanted.selector(); err != nil {
				return reply{}, err
			}
			if r.Login.ISCSIAuthentication, err = login.authentication(); err != nil {
				return reply{}, err
			}
			if login.cmd.Flags().Changed(mutualSecretFile) {
				if !login.mutualCHAP {
					return reply{}, usageError{errors.New("--" + mutualSecretFile + " needs --mutual-chap")}
				}
				if r.Login.MutualSecret, err = mutualSecret(); err != nil {
					return reply{}, err
				}
			}
			if unit > math.MaxUint32 {
				return reply{}, usageError{errors.New("--allocation-unit is too large")}
			}
			r.StagingPath, r.Format.AllocationUnitBytes, r.Format.FileSystem = args[0], uint32(unit),
				csiproxy.FileSystem(fileSystem)
			staged, err := c.Storage.StageVolume(ctx, r)
			return reply{
				json: staged, header: []string{"DISK", "FILE SYSTEM", "SIZE", "DONE", "VOLUME"},
				rows: [][]string{{staged.Disk.String(), staged.FileSystem, size(staged.SizeBytes), stagedText(staged),
					string(staged.VolumeID)}},
			}, err
		})
	cmd.Long = `Find a disk, bring it online, partition and format it if it is raw, and mount its volume at a
path. What is done already isn't done again.

` + secretHelp
	wanted.add(cmd)
	login = newLoginFlags(cmd)
	mutualSecret = secretFlag(cmd, mutualSecretFile,
		"the secret of the target, of 12 to 16 bytes, which becomes the node's for all targets")
	flags := cmd.Flags()
	flags.Uint32Var(&r.Partition, "partition", 0, "`number` of the partition; 0 for the only data partition")
	flags.BoolVar(&r.ReadOnly, "read-only", false, "let nothing be written to the disk")
	flags.BoolVar(&r.Grow, "grow", false, "grow the volume to the size of the disk")
	flags.DurationVar(&r.Wait, "wait", csiproxy.DefaultWait, "how long to wait for the disk to arrive; each later step may take 30 seconds more")
	flags.StringVar(&fileSystem, "file-system", "", "NTFS or ReFS; a volume with another one is refused")
	flags.StringVar(&r.Format.Label, "label", "", "`name` of a volume that is formatted")
	flags.Var(&unit, "allocation-unit", "`size` of a cluster of a volume that is formatted; 0 for Windows' choice")
	flags.BoolVar(&r.Format.NoShortNames, "no-short-names", false, "format NTFS without 8.3 names")
	flags.StringSliceVar(&r.Format.Writers, "writer", nil,
		"`who` may write at the root of a volume that is formatted, or that is empty with the access list of a "+
			"format: "+strings.Join(csiproxy.WellKnownWriters(), ", ")+" or a SID; may be repeated")
	flags.BoolVar(&r.Format.IntegrityStreams, "integrity-streams", false, "format ReFS with checksums of files")
	return cmd
}

const mutualSecretFile = "mutual-chap-secret-file"

// stagedText says what was done.
func stagedText(v csiproxy.StagedVolume) string {
	return doneText("is mounted", map[string]bool{"partitioned": v.Partitioned, "formatted": v.Formatted, "grown": v.Grown})
}

// doneText joins what was done; otherwise is what to say if nothing was.
func doneText(otherwise string, result map[string]bool) string {
	var all []string
	for _, what := range slices.Sorted(maps.Keys(result)) {
		if result[what] {
			all = append(all, what)
		}
	}
	if len(all) == 0 {
		return otherwise
	}
	return strings.Join(all, ", ")
}

func (p *program) unstage() *cobra.Command {
	var wanted selectorFlags
	var r csiproxy.UnstageVolumeRequest
	cmd := p.call("unstage PATH", "Unmount a staged volume, and take its disk offline",
		func(ctx context.Context, c *client.Client, args []string) (_ reply, err error) {
			if r.Disk, err = wanted.selector(); err != nil {
				return reply{}, err
			}
			r.StagingPath = args[0]
			result, err := c.Storage.UnstageVolume(ctx, r)
			return line(result, doneText("nothing was staged there", map[string]bool{
				"unmounted": result.Unmounted, "disk offline": result.DiskOffline, "logged out of the target": result.LoggedOut,
				"mapping removed": result.Unmapped,
			})), err
		})
	cmd.Long = `Unmount the volume at a path, take its disk offline, and log out of its iSCSI target. If the disk is
named, anything else at the path stays. If it isn't, a share that is staged at the path is unstaged
as by unstage-share.`
	cmd.Flags().BoolVar(&r.Force, "force", false, "unmount a volume that somebody uses")
	wanted.add(cmd)
	return cmd
}

func (p *program) unstageShare() *cobra.Command {
	var r csiproxy.UnstageShareRequest
	cmd := p.call("unstage-share PATH", "Remove the link to a share, and its mapping with the last link",
		func(ctx context.Context, c *client.Client, args []string) (reply, error) {
			r.StagingPath = args[0]
			result, err := c.Storage.UnstageShare(ctx, r)
			otherwise := "nothing was staged there"
			if r.RemotePath != "" {
				otherwise = "that share wasn't staged there; if another is, it stays"
			}
			return line(result, doneText(otherwise,
				map[string]bool{"link removed": result.Unlinked, "mapping removed": result.Unmapped})), err
		})
	cmd.Long = `Remove the link to a share at PATH. If no other link leads to the share, its mapping is removed too.

With --remote-path, only a link to that share is removed. Anything else at PATH stays, and that is
no error. If there is no link at PATH, since stage-share died before it made one, the mapping is
removed.`
	cmd.Flags().StringVar(&r.RemotePath, "remote-path", "",
		"`name` of the share that was staged: \\\\server\\share or a directory on it")
	return cmd
}

// expandedText says what ExpandVolume has found and done.
func expandedText(v csiproxy.ExpandedVolume) string {
	text := fmt.Sprintf("%s on a disk of %s", exactSize(v.SizeBytes), size(v.DiskSizeBytes))
	if v.Grown {
		return text + "; grown"
	}
	return text + "; not grown, since it is as large as the disk allows"
}

func (p *program) expand() *cobra.Command {
	var r csiproxy.ExpandVolumeRequest
	var bytes sizeFlag
	cmd := p.call("expand PATH", "Grow the volume at a path to the size of its disk",
		func(ctx context.Context, c *client.Client, args []string) (reply, error) {
			r.StagingPath, r.DiskSizeBytes = args[0], int64(bytes)
			result, err := c.Storage.ExpandVolume(ctx, r)
			return line(result, expandedText(result)), err
		})
	cmd.Flags().Var(&bytes, "disk-size", "`size` that the disk is to have first; 0 for the one that it has")
	cmd.Flags().DurationVar(&r.Wait, "wait", csiproxy.DefaultWait, "how long to wait until the disk has --disk-size")
	return cmd
}
