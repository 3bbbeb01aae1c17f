// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !windows || simulated

package main

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	csiproxy "github.com/csi-proxy/csi-proxy"
	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
)

func (p *program) simVolume() *cobra.Command {
	return p.group("volume", "Damage volumes, make them dirty or read-only, and list them",
		p.simVolumeSet(),
		p.simLeaf("list", "List the volumes that are present", listSimVolumes),
	)
}

func (p *program) simVolumeSet() *cobra.Command {
	var dirty, readOnly, bitLocker bool
	var damage damageFlag
	var cmd *cobra.Command
	cmd = p.simLeaf("set VOLUME", "Change the state of a volume", func(ctx context.Context, sim simv1.SimClient, args []string) (reply, error) {
		request := &simv1.SetVolumeRequest{Volume: args[0], Damage: simv1.Damage(damage)}
		for name, to := range map[string]struct {
			field **bool
			value *bool
		}{
			"dirty": {&request.Dirty, &dirty}, "read-only": {&request.ReadOnly, &readOnly}, "bitlocker": {&request.BitlockerLocked, &bitLocker},
		} {
			if cmd.Flags().Changed(name) {
				*to.field = to.value
			}
		}
		_, err := sim.SetVolume(ctx, request)
		return done, err
	})
	cmd.Long = `Change the state of a volume. VOLUME is its id, or where it is mounted: a drive such as D:\, or a
directory. What isn't given stays as it is.`
	flags := cmd.Flags()
	flags.BoolVar(&dirty, "dirty", false, "Windows wants to check the file system; =false takes that back")
	flags.BoolVar(&readOnly, "read-only", false, "the volume is read-only, by an attribute of its GPT partition; =false makes it writable")
	flags.BoolVar(&bitLocker, "bitlocker", false, "BitLocker has locked the volume; =false unlocks it")
	flags.Var(&damage, "damage", "what is wrong with the file system: none; spot, which a scan finds and a spot fix repairs; or offline, which only an offline repair does")
	cmd.MarkFlagsOneRequired("dirty", "read-only", "bitlocker", "damage")
	complete(cmd, "damage", cobra.FixedCompletions([]cobra.Completion{"none", "spot", "offline"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// damageFlag is a kind of damage as a flag.
type damageFlag simv1.Damage

// String, Set and Type are pflag.Value.
func (f *damageFlag) String() string {
	return strings.ToLower(strings.TrimPrefix(simv1.Damage(*f).String(), "DAMAGE_"))
}

func (f *damageFlag) Type() string { return "kind" }

func (f *damageFlag) Set(s string) error {
	for number := range simv1.Damage_name {
		if d := damageFlag(number); number != 0 && s == d.String() {
			*f = d
			return nil
		}
	}
	return errors.New("must be none, spot or offline")
}

func listSimVolumes(ctx context.Context, sim simv1.SimClient, _ []string) (reply, error) {
	type volumeJSON struct {
		ID               string   `json:"id"`
		Disk             uint32   `json:"disk_number"`
		Partition        uint32   `json:"partition_number"`
		Paths            []string `json:"paths"`
		FileSystem       string   `json:"file_system"`
		Label            string   `json:"label"`
		ClusterBytes     uint32   `json:"cluster_bytes"`
		TotalBytes       uint64   `json:"total_bytes"`
		FreeBytes        uint64   `json:"free_bytes"`
		Offline          bool     `json:"offline"`
		ReadOnly         bool     `json:"read_only"`
		BitLockerLocked  bool     `json:"bitlocker_locked"`
		NoShortNames     bool     `json:"no_short_names"`
		IntegrityStreams bool     `json:"integrity_streams"`
		Dirty            bool     `json:"dirty"`
		Damage           string   `json:"damage"`
	}
	response, err := sim.ListVolumes(ctx, &simv1.ListVolumesRequest{})
	r := reply{header: []string{"VOLUME", "DISK", "FILE SYSTEM", "SIZE", "FREE", "STATE", "MOUNTED AT"}}
	list := []volumeJSON{}
	for _, v := range response.GetVolumes() {
		damage := damageFlag(v.Damage)
		damaged := v.Damage != simv1.Damage_DAMAGE_NONE && v.Damage != simv1.Damage_DAMAGE_UNSPECIFIED
		kind := damage.String()
		if v.Damage == simv1.Damage_DAMAGE_UNSPECIFIED {
			kind = ""
		}
		list = append(list, volumeJSON{
			v.VolumeId, v.DiskNumber, v.PartitionNumber, append([]string{}, v.Paths...), v.FileSystem, v.Label, v.ClusterBytes, v.TotalBytes, v.FreeBytes,
			v.Offline, v.ReadOnly, v.BitlockerLocked, v.NoShortNames, v.IntegrityStreams, v.Dirty, kind,
		})
		var states []string
		for _, state := range []struct {
			text string
			is   bool
		}{
			{"offline", v.Offline}, {"read-only", v.ReadOnly}, {"locked by BitLocker", v.BitlockerLocked}, {"dirty", v.Dirty},
			{"damage: " + kind, damaged},
		} {
			if state.is {
				states = append(states, state.text)
			}
		}
		total, free := "", ""
		if v.FileSystem != "" {
			total, free = size(int64(v.TotalBytes)), size(int64(v.FreeBytes))
		}
		r.rows = append(r.rows, []string{
			v.VolumeId, decimal(v.DiskNumber), v.FileSystem, total, free, strings.Join(states, ", "), strings.Join(v.Paths, ", "),
		})
	}
	r.json = list
	return r, err
}

func (p *program) simProcess() *cobra.Command {
	var program string
	start := p.simLeaf("start PATH...", "Start a process that keeps files, directories or volumes open", func(ctx context.Context, sim simv1.SimClient, args []string) (reply, error) {
		response, err := sim.StartProcess(ctx, &simv1.StartProcessRequest{Program: program, Paths: args})
		return line(map[string]uint32{"process_id": response.GetProcessId()}, decimal(response.GetProcessId())), err
	})
	start.Long = `Start a process that keeps files, directories or volumes open for reading, until it is ended or the
node restarts. PATH is a file or directory, or the id of a volume without the backslash at its end.
The process survives a restart of the daemon. Its id is printed.`
	start.Flags().StringVar(&program, "program", `C:\app\app.exe`, "`path` of the program, which needn't exist")
	return p.group("process", "Start and end processes that keep files and volumes open",
		start,
		p.simLeaf("end ID", "End a process", func(ctx context.Context, sim simv1.SimClient, args []string) (reply, error) {
			id, err := strconv.ParseUint(args[0], 10, 32)
			if err != nil {
				return reply{}, csiproxy.Errorf(csiproxy.ErrInvalidArgument, "%q isn't the id of a process", args[0])
			}
			_, err = sim.EndProcess(ctx, &simv1.EndProcessRequest{ProcessId: uint32(id)})
			return done, err
		}),
		p.simLeaf("list", "List the processes that were started", listSimProcesses),
	)
}

func listSimProcesses(ctx context.Context, sim simv1.SimClient, _ []string) (reply, error) {
	type processJSON struct {
		ID      uint32   `json:"process_id"`
		Program string   `json:"program"`
		Paths   []string `json:"paths"`
	}
	response, err := sim.ListProcesses(ctx, &simv1.ListProcessesRequest{})
	r := reply{header: []string{"PROCESS", "PROGRAM", "KEEPS OPEN"}}
	list := []processJSON{}
	for _, process := range response.GetProcesses() {
		list = append(list, processJSON{process.ProcessId, process.Program, append([]string{}, process.Paths...)})
		r.rows = append(r.rows, []string{decimal(process.ProcessId), process.Program, strings.Join(process.Paths, ", ")})
	}
	r.json = list
	return r, err
}
