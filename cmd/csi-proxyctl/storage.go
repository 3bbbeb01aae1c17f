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
	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/secret"
	"github.com/csi-proxy/csi-proxy/storage"
	"github.com/csi-proxy/csi-proxy/volume"
)

// storage has a command for each call of the storage group, but WatchDisks: see watchDisks.
func (p *program) storage() *cobra.Command {
	leaf := func(use, short string, do func(context.Context, *client.Storage, []string) (reply, error)) *cobra.Command {
		return p.leaf(use, short, on(p, func(c *client.Client) *client.Storage { return c.Storage }, do))
	}

	var wanted selectorFlags
	disks := p.leaf("disks", "List the disks that match, with all that is known of them", on(p, whole, func(ctx context.Context, c *client.Client, _ []string) (reply, error) {
		selector, err := wanted.selector()
		if err != nil {
			return reply{}, err
		}
		return describeDisks(ctx, c, selector)
	}))
	wanted.add(disks)

	return p.group("storage", "Do whole tasks of a CSI node in one call each",
		disks,
		p.stage(leaf),
		p.unstage(leaf),
		leaf("publish STAGING TARGET", "Make a link to a staged path for a pod", func(ctx context.Context, s *client.Storage, args []string) (reply, error) {
			return done, s.PublishVolume(ctx, args[0], args[1])
		}),
		leaf("unpublish TARGET", "Remove the link for a pod", func(ctx context.Context, s *client.Storage, args []string) (reply, error) {
			return done, s.UnpublishVolume(ctx, args[0])
		}),
		p.expand(leaf),
		leaf("volume PATH", "Show what is mounted at a path, and what is wrong with it", func(ctx context.Context, s *client.Storage, args []string) (reply, error) {
			v, err := s.GetVolume(ctx, args[0])
			if err != nil {
				return reply{}, err
			}
			return reply{
				json: newVolumeJSON(v), header: []string{"VOLUME", "DISK", "FILE SYSTEM", "LABEL", "SIZE", "USED", "FREE", "STATE"},
				rows: [][]string{{volumeName(v), diskText(v), v.FileSystem, v.Label, size(v.SizeBytes), size(v.UsedBytes), size(v.FreeBytes), volumeState(v)}},
			}, nil
		}),
		leaf("volumes", "List what is mounted where", func(ctx context.Context, s *client.Storage, _ []string) (reply, error) {
			return listMounts(ctx, s)
		}),
		p.stageShare(leaf),
		p.unstageShare(leaf),
		p.cleanUp(leaf),
		p.check(leaf),
	)
}

// whole is for commands that need more than one group.
func whole(c *client.Client) *client.Client { return c }

// storageIsServed reports whether the daemon has the storage group: the published one
// doesn't.
func storageIsServed(ctx context.Context, c *client.Client) (bool, error) {
	_, err := c.Storage.Version(ctx)
	if csiproxy.KindOf(err) == csiproxy.ErrUnavailable {
		return false, nil
	}
	return err == nil, err
}

func (p *program) stageShare(leaf storageLeaf) *cobra.Command {
	var password func() (secret.Text, error)
	var r storage.StageShareRequest
	cmd := leaf("stage-share REMOTE PATH", "Map a share, and make a link to it at a path", func(ctx context.Context, s *client.Storage, args []string) (_ reply, err error) {
		if r.Credentials.Password, err = password(); err != nil {
			return reply{}, err
		}
		r.RemotePath, r.StagingPath = args[0], args[1]
		return done, s.StageShare(ctx, r)
	})
	cmd.Long = `Map a share for the whole node if it isn't, and make a link to it at a path. REMOTE is
\\server\share or a directory on the share.

` + secretHelp
	cmd.Flags().StringVar(&r.Credentials.Username, "username", "", "`name` of the user on the server; may be DOMAIN\\name or name@domain")
	password = secretFlag(cmd, "password-file", "the user's password")
	require(cmd, "username")
	require(cmd, "password-file")
	completeFiles(cmd, "password-file")
	return cmd
}

func (p *program) cleanUp(leaf storageLeaf) *cobra.Command {
	var remove bool
	cmd := leaf("clean-up", "List what nobody needs any more, and remove it if asked", func(ctx context.Context, s *client.Storage, _ []string) (reply, error) {
		leftovers, err := s.CleanUp(ctx, remove)
		if err != nil {
			return reply{}, err
		}
		type leftoverJSON struct {
			Kind           storage.MountKind `json:"kind"`
			Path           string            `json:"path,omitempty"`
			Target         string            `json:"target"`
			LeftoverReason string            `json:"leftover_reason"`
			Removed        bool              `json:"removed"`
			Error          string            `json:"error,omitempty"`
		}
		r := reply{header: []string{"KIND", "PATH", "TARGET", "WHY", "STATE"}}
		all := []leftoverJSON{}
		for _, l := range leftovers.Mounts {
			all = append(all, leftoverJSON{l.Kind, l.Path, l.Target, l.LeftoverReason, l.Removed, l.Error})
			state := "still there"
			if l.Removed {
				state = "removed"
			} else if l.Error != "" {
				state = "error: " + l.Error
			}
			r.rows = append(r.rows, []string{string(l.Kind), l.Path, l.Target, l.LeftoverReason, state})
		}
		r.json = all
		if leftovers.IncompleteReason != "" {
			r.warnings = append(r.warnings, "there may be further leftovers: "+leftovers.IncompleteReason)
		}
		return r, nil
	})
	cmd.Flags().BoolVar(&remove, "remove", false, "remove the leftovers; otherwise they are only listed")
	return cmd
}

func (p *program) check(leaf storageLeaf) *cobra.Command {
	var r storage.CheckVolumeRequest
	cmd := leaf("check PATH", "Look for errors of the file system at a path", func(ctx context.Context, s *client.Storage, args []string) (reply, error) {
		r.Path = args[0]
		begun := time.Now()
		stop := p.everyMinute(func() {
			fmt.Fprintf(p.stderr, "csi-proxyctl: Windows has checked the volume for %v\n", time.Since(begun).Round(time.Second))
		})
		did, err := s.CheckVolume(ctx, r)
		stop()
		if err != nil {
			return reply{}, err
		}
		text := "no errors"
		switch {
		case did.Fixed:
			text = "errors were found and repaired"
		case did.ErrorsFound:
			text = "errors were found"
		}
		type checkedJSON struct {
			ErrorsFound bool  `json:"errors_found"`
			Fixed       bool  `json:"fixed"`
			TookMS      int64 `json:"duration_milliseconds"`
		}
		return line(checkedJSON{did.ErrorsFound, did.Fixed, did.Duration.Milliseconds()}, text), nil
	})
	cmd.Long = `Have Windows scan the file system at a path for errors while it is in use. That may take hours:
set --timeout 0. Windows tells no progress, so the time is told every minute.`
	cmd.Flags().BoolVar(&r.SpotFix, "spot-fix", false, "repair the errors; the volume is offline for a moment, and must not be published")
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

// shares is for what is mapped and staged of SMB shares.
func (p *program) shares() *cobra.Command {
	return p.group("share", "Show the node's SMB shares",
		p.leaf("list", "List the shares that are mapped or staged", on(p, whole, func(ctx context.Context, c *client.Client, _ []string) (reply, error) {
			list, err := c.Storage.ListVolumes(ctx)
			if err != nil {
				return reply{}, err
			}
			list.Mounts = slices.DeleteFunc(list.Mounts, func(m storage.Mount) bool { return m.Kind != storage.ShareLink && m.Kind != storage.Mapping })
			return mountsReply(list), nil
		})),
	)
}

type stagedVolumeJSON struct {
	VolumeID            volume.ID    `json:"volume_id,omitempty"`
	Share               string       `json:"share,omitempty"`
	DiskNumber          *disk.Number `json:"disk_number"`
	SerialNumber        string       `json:"serial_number,omitempty"`
	DiskID              string       `json:"disk_id,omitempty"`
	FileSystem          string       `json:"file_system,omitempty"`
	Label               string       `json:"label,omitempty"`
	SizeBytes           int64        `json:"size_bytes"`
	UsedBytes           int64        `json:"used_bytes"`
	FreeBytes           int64        `json:"free_bytes"`
	AllocationUnitBytes uint32       `json:"allocation_unit_bytes,omitempty"`
	ReadOnly            bool         `json:"read_only"`
	// Conditions are what is wrong with it; none if nothing is.
	Conditions []conditionJSON `json:"conditions"`
}

type conditionJSON struct {
	Reason       storage.Reason `json:"reason"`
	Inaccessible bool           `json:"inaccessible"`
	Message      string         `json:"message"`
}

func newVolumeJSON(v storage.Volume) stagedVolumeJSON {
	conditions := []conditionJSON{}
	for _, c := range v.Conditions {
		conditions = append(conditions, conditionJSON(c))
	}
	return stagedVolumeJSON{
		v.VolumeID, v.Share, v.Disk, v.SerialNumber, v.DiskID, v.FileSystem, v.Label,
		v.SizeBytes, v.UsedBytes, v.FreeBytes, v.AllocationUnitBytes, v.ReadOnly, conditions,
	}
}

// volumeName names what is mounted.
func volumeName(v storage.Volume) string { return cmp.Or(string(v.VolumeID), v.Share) }

func diskText(v storage.Volume) string {
	if v.Disk == nil {
		return ""
	}
	return v.Disk.String()
}

// volumeState is the state of a volume in a few words.
func volumeState(v storage.Volume) string {
	state := "ok"
	if v.ReadOnly {
		state = "read-only"
	}
	if v.Abnormal() {
		state = v.Conditions.String()
	}
	return state
}

func listMounts(ctx context.Context, s *client.Storage) (reply, error) {
	list, err := s.ListVolumes(ctx)
	if err != nil {
		return reply{}, err
	}
	return mountsReply(list), nil
}

func mountsReply(list storage.VolumeList) reply {
	type mountJSON struct {
		Kind           storage.MountKind `json:"kind"`
		Path           string            `json:"path,omitempty"`
		Target         string            `json:"target"`
		Volume         *stagedVolumeJSON `json:"volume,omitempty"`
		LeftoverReason string            `json:"leftover_reason,omitempty"`
	}
	r := reply{header: []string{"KIND", "PATH", "VOLUME", "DISK", "SIZE", "FREE", "STATE"}}
	if !list.Complete() {
		r.warnings = append(r.warnings, "the list may lack something: "+list.IncompleteReason)
	}
	all := []mountJSON{}
	for _, m := range list.Mounts {
		j := mountJSON{Kind: m.Kind, Path: m.Path, Target: m.Target, LeftoverReason: m.LeftoverReason}
		row := []string{string(m.Kind), m.Path, m.Target, "", "", "", "ok"}
		if name := volumeName(m.Volume); name != "" {
			j.Volume = new(newVolumeJSON(m.Volume))
			row = []string{string(m.Kind), m.Path, name, diskText(m.Volume), "", "", volumeState(m.Volume)}
			if m.Volume.SizeBytes > 0 {
				row[4], row[5] = size(m.Volume.SizeBytes), size(m.Volume.FreeBytes)
			}
		}
		if m.LeftoverReason != "" {
			row[6] = "leftover: " + m.LeftoverReason
		}
		all = append(all, j)
		r.rows = append(r.rows, row)
	}
	r.json = all
	return r
}

// storageLeaf makes a command of the storage group.
type storageLeaf func(use, short string, do func(context.Context, *client.Storage, []string) (reply, error)) *cobra.Command

func (p *program) stage(leaf storageLeaf) *cobra.Command {
	var wanted selectorFlags
	var login *loginFlags
	var mutualSecret func() (secret.Text, error)
	var r storage.StageVolumeRequest
	var unit sizeFlag
	var fileSystem string
	cmd := leaf("stage PATH", "Make a disk's volume usable at a path", func(ctx context.Context, s *client.Storage, args []string) (_ reply, err error) {
		if r.Disk, err = wanted.selector(); err != nil {
			return reply{}, err
		}
		if r.Login.Authentication, err = login.authentication(); err != nil {
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
		r.StagingPath, r.Format.AllocationUnitBytes, r.Format.FileSystem = args[0], uint32(unit), storage.FileSystem(fileSystem)
		staged, err := s.StageVolume(ctx, r)
		if err != nil {
			return reply{}, err
		}
		return reply{
			json: stagedJSON(staged), header: []string{"DISK", "VOLUME", "FILE SYSTEM", "SIZE", "DONE"},
			rows: [][]string{{staged.Disk.String(), string(staged.VolumeID), staged.FileSystem, size(staged.SizeBytes), stagedText(staged)}},
		}, nil
	})
	cmd.Long = `Find a disk, bring it online, partition and format it if it is raw, and mount its volume at a
path. What is done already isn't done again.

` + secretHelp
	wanted.add(cmd)
	login = newLoginFlags(cmd)
	mutualSecret = secretFlag(cmd, mutualSecretFile, "the secret of the target, of 12 to 16 bytes, which becomes the node's for all targets")
	completeFiles(cmd, mutualSecretFile)
	flags := cmd.Flags()
	flags.Uint32Var(&r.Partition, "partition", 0, "`number` of the partition; 0 for the only data partition")
	flags.BoolVar(&r.ReadOnly, "read-only", false, "let nothing be written to the disk")
	flags.BoolVar(&r.Grow, "grow", false, "grow the volume to the size of the disk")
	flags.BoolVar(&r.NewIDsForClones, "new-ids-for-clones", false, "give a clone new ids")
	flags.DurationVar(&r.Wait, "wait", storage.DefaultWait, "how long to wait for the disk")
	flags.StringVar(&fileSystem, "file-system", "", "NTFS or ReFS; a volume with another one is refused")
	flags.StringVar(&r.Format.Label, "label", "", "`name` of a volume that is formatted")
	flags.Var(&unit, "allocation-unit", "`size` of a cluster of a volume that is formatted; 0 for Windows' choice")
	flags.BoolVar(&r.Format.NoShortNames, "no-short-names", false, "format NTFS without 8.3 names")
	flags.BoolVar(&r.Format.IntegrityStreams, "integrity-streams", false, "format ReFS with checksums of files")
	return cmd
}

const mutualSecretFile = "mutual-chap-secret-file"

type stagedJSON struct {
	Disk        disk.Number `json:"disk_number"`
	VolumeID    volume.ID   `json:"volume_id"`
	FileSystem  string      `json:"file_system"`
	SizeBytes   int64       `json:"size_bytes"`
	Partitioned bool        `json:"partitioned"`
	Formatted   bool        `json:"formatted"`
	Grown       bool        `json:"grown"`
}

// stagedText says what was done.
func stagedText(v storage.StagedVolume) string {
	return doneText("mounted", map[string]bool{"partitioned": v.Partitioned, "formatted": v.Formatted, "grown": v.Grown})
}

// doneText joins what was done; otherwise is what to say if nothing was.
func doneText(otherwise string, did map[string]bool) string {
	var all []string
	for _, what := range slices.Sorted(maps.Keys(did)) {
		if did[what] {
			all = append(all, what)
		}
	}
	if len(all) == 0 {
		return otherwise
	}
	return strings.Join(all, ", ")
}

func (p *program) unstage(leaf storageLeaf) *cobra.Command {
	var wanted selectorFlags
	var r storage.UnstageVolumeRequest
	cmd := leaf("unstage PATH", "Unmount a staged volume, and take its disk offline", func(ctx context.Context, s *client.Storage, args []string) (_ reply, err error) {
		if r.Disk, err = wanted.selector(); err != nil {
			return reply{}, err
		}
		r.StagingPath = args[0]
		did, err := s.UnstageVolume(ctx, r)
		if err != nil {
			return reply{}, err
		}
		type unstagedJSON struct {
			Unmounted   bool `json:"unmounted"`
			DiskOffline bool `json:"disk_offline"`
			LoggedOut   bool `json:"logged_out"`
			Unmapped    bool `json:"unmapped"`
		}
		return line(unstagedJSON(did), doneText("nothing was staged there", map[string]bool{
			"unmounted": did.Unmounted, "disk offline": did.DiskOffline, "logged out of the target": did.LoggedOut, "mapping removed": did.Unmapped,
		})), nil
	})
	cmd.Long = `Unmount the volume at a path, take its disk offline, and log out of its iSCSI target. If the disk is
named, anything else at the path stays. If it isn't, a share that is staged at the path is unstaged
as by unstage-share.`
	cmd.Flags().BoolVar(&r.Force, "force", false, "unmount a volume that somebody uses")
	wanted.add(cmd)
	return cmd
}

func (p *program) unstageShare(leaf storageLeaf) *cobra.Command {
	var r storage.UnstageShareRequest
	cmd := leaf("unstage-share PATH", "Remove the link to a share, and its mapping with the last link", func(ctx context.Context, s *client.Storage, args []string) (reply, error) {
		r.StagingPath = args[0]
		did, err := s.UnstageShare(ctx, r)
		if err != nil {
			return reply{}, err
		}
		type unstagedJSON struct {
			Unlinked bool `json:"unlinked"`
			Unmapped bool `json:"unmapped"`
		}
		return line(unstagedJSON(did), doneText("nothing was staged there", map[string]bool{"link removed": did.Unlinked, "mapping removed": did.Unmapped})), nil
	})
	cmd.Long = `Remove the link to a share at PATH. If no other link leads to the share, its mapping is removed too.

With --remote-path, only a link to that share is removed. Anything else at PATH stays, and that is
no error. If there is no link at PATH, since stage-share died before it made one, the mapping is
removed.`
	cmd.Flags().StringVar(&r.RemotePath, "remote-path", "", "`name` of the share that was staged: \\\\server\\share or a directory on it")
	return cmd
}

func (p *program) expand(leaf storageLeaf) *cobra.Command {
	var r storage.ExpandVolumeRequest
	var bytes sizeFlag
	cmd := leaf("expand PATH", "Grow the volume at a path to the size of its disk", func(ctx context.Context, s *client.Storage, args []string) (reply, error) {
		r.Path, r.DiskSizeBytes = args[0], int64(bytes)
		did, err := s.ExpandVolume(ctx, r)
		if err != nil {
			return reply{}, err
		}
		type expandedJSON struct {
			SizeBytes     int64 `json:"size_bytes"`
			DiskSizeBytes int64 `json:"disk_size_bytes"`
			Grown         bool  `json:"grown"`
		}
		return line(expandedJSON(did), exactSize(did.SizeBytes)), nil
	})
	cmd.Flags().Var(&bytes, "disk-size", "`size` that the disk is to have first; 0 for the one that it has")
	cmd.Flags().DurationVar(&r.Wait, "wait", storage.DefaultWait, "how long to wait for that")
	return cmd
}
