// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !windows || simulated

package main

import (
	"context"
	"fmt"
	"net"
	"strings"

	"github.com/spf13/cobra"

	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
	"github.com/csi-proxy/csi-proxy/secret"
)

func (p *program) simISCSI() *cobra.Command {
	return p.group("iscsi", "Control the iSCSI targets on the node's network",
		p.group("target", "Add, remove and list targets",
			p.simISCSITargetAdd(),
			p.simLeaf("remove IQN", "Remove a target; its disks become detached disks", func(ctx context.Context, sim simv1.SimClient, args []string) (reply, error) {
				_, err := sim.RemoveIscsiTarget(ctx, &simv1.RemoveIscsiTargetRequest{Iqn: args[0]})
				return done, err
			}),
			p.simLeaf("list", "List the targets", listSimTargets),
		),
		p.group("lun", "Add disks to targets", p.simISCSILUNAdd()),
		p.group("portal", "Make portals unreachable and reachable again",
			p.simISCSIPortalSet(),
			p.simLeaf("list", "List the portals, including those without a target", listSimPortals),
		),
	)
}

// simPortal reads a portal from the command line.
func simPortal(text string) (*simv1.IscsiPortal, error) {
	portal, err := parsePortal(text)
	return &simv1.IscsiPortal{Address: portal.Address, Port: uint32(portal.Port)}, err
}

func (p *program) simISCSITargetAdd() *cobra.Command {
	var portals []string
	var chapUser string
	var chapSecret, mutualSecret func() (secret.Text, error)
	var cmd *cobra.Command
	cmd = p.simLeaf("add IQN", "Add a target without disks to the network", func(ctx context.Context, sim simv1.SimClient, args []string) (reply, error) {
		target := &simv1.IscsiTarget{Iqn: args[0], ChapUser: chapUser}
		for _, text := range portals {
			portal, err := simPortal(text)
			if err != nil {
				return reply{}, err
			}
			target.Portals = append(target.Portals, portal)
		}
		request := &simv1.AddIscsiTargetRequest{Target: target}
		for _, s := range []struct {
			flag string
			read func() (secret.Text, error)
			into *string
		}{
			{"chap-secret-file", chapSecret, &request.ChapSecret},
			{"mutual-chap-secret-file", mutualSecret, &request.MutualChapSecret},
		} {
			if cmd.Flags().Changed(s.flag) {
				text, err := s.read()
				if err != nil {
					return reply{}, err
				}
				*s.into = text.Reveal()
			}
		}
		_, err := sim.AddIscsiTarget(ctx, request)
		return done, err
	})
	cmd.Long = `Add a target without disks to the network; sim iscsi lun add adds disks to it. With
--chap-user, the target requires CHAP with that name and secret. With
--mutual-chap-secret-file, the target can also prove its identity to the node.

` + secretHelp
	cmd.Flags().StringSliceVar(&portals, "portal", nil, "`portal` that offers the target: ADDRESS or ADDRESS:PORT; may be given several times")
	cmd.Flags().StringVar(&chapUser, "chap-user", "", "`name` of the CHAP user")
	chapSecret = secretFlag(cmd, "chap-secret-file", "the secret of the CHAP user, of 12 to 16 bytes")
	mutualSecret = secretFlag(cmd, "mutual-chap-secret-file", "the secret with which the target proves its identity, of 12 to 16 bytes")
	require(cmd, "portal")
	cmd.MarkFlagsRequiredTogether("chap-user", "chap-secret-file")
	completeFiles(cmd, "chap-secret-file")
	completeFiles(cmd, "mutual-chap-secret-file")
	return cmd
}

func (p *program) simISCSILUNAdd() *cobra.Command {
	lun := &simv1.IscsiLun{}
	var diskSize sizeFlag
	cmd := p.simLeaf("add IQN", "Add a new disk to a target, or a detached one by its serial number", func(ctx context.Context, sim simv1.SimClient, args []string) (reply, error) {
		lun.SizeBytes = int64(diskSize)
		_, err := sim.AddIscsiLun(ctx, &simv1.AddIscsiLunRequest{Iqn: args[0], Lun: lun})
		return done, err
	})
	flags := cmd.Flags()
	flags.Var(&diskSize, "size", "`size` of the disk; not needed for a detached disk")
	flags.Uint32Var(&lun.SectorSize, "sector-size", 512, "size of a logical sector in `bytes`: 512 or 4096")
	flags.StringVar(&lun.SerialNumber, "serial", "", "serial number; generated if empty")
	flags.StringVar(&lun.Page83, "page83", "", "identifier of vital product data page 0x83; generated if empty")
	flags.BoolVar(&lun.Offline, "offline", false, "the disk arrives offline, as shared disks do")
	flags.BoolVar(&lun.ReadOnly, "read-only", false, "the disk arrives read-only")
	flags.BoolVar(&lun.NeedsRescan, "needs-rescan", false, "Windows sees the disk only after a rescan")
	cmd.MarkFlagsOneRequired("size", "serial")
	return cmd
}

func (p *program) simISCSIPortalSet() *cobra.Command {
	var unreachable bool
	cmd := p.simLeaf("set PORTAL", "Set the state of a portal; without flags, it works", func(ctx context.Context, sim simv1.SimClient, args []string) (reply, error) {
		portal, err := simPortal(args[0])
		if err != nil {
			return reply{}, err
		}
		_, err = sim.SetIscsiPortal(ctx, &simv1.SetIscsiPortalRequest{Portal: portal, Reachable: !unreachable})
		return done, err
	})
	cmd.Flags().BoolVar(&unreachable, "unreachable", false, "the portal doesn't answer, and sessions over it have no disks")
	return cmd
}

type simPortalJSON struct {
	Address string `json:"address"`
	Port    uint32 `json:"port"`
}

func simPortalText(p *simv1.IscsiPortal) string {
	return net.JoinHostPort(p.GetAddress(), decimal(p.GetPort()))
}

func listSimTargets(ctx context.Context, sim simv1.SimClient, _ []string) (reply, error) {
	type lunJSON struct {
		SizeBytes    int64  `json:"size_bytes"`
		SerialNumber string `json:"serial_number"`
	}
	type targetJSON struct {
		IQN      string          `json:"iqn"`
		Portals  []simPortalJSON `json:"portals"`
		CHAPUser string          `json:"chap_user"`
		LUNs     []lunJSON       `json:"luns"`
	}
	response, err := sim.ListIscsiTargets(ctx, &simv1.ListIscsiTargetsRequest{})
	r := reply{header: []string{"TARGET", "PORTALS", "CHAP USER", "LUNS"}}
	list := []targetJSON{}
	for _, t := range response.GetTargets() {
		target := targetJSON{t.Iqn, []simPortalJSON{}, t.ChapUser, []lunJSON{}}
		var portals, luns []string
		for _, portal := range t.Portals {
			target.Portals = append(target.Portals, simPortalJSON{portal.Address, portal.Port})
			portals = append(portals, simPortalText(portal))
		}
		for _, lun := range t.Luns {
			target.LUNs = append(target.LUNs, lunJSON{lun.SizeBytes, lun.SerialNumber})
			luns = append(luns, fmt.Sprintf("%s (%s)", lun.SerialNumber, size(lun.SizeBytes)))
		}
		list = append(list, target)
		r.rows = append(r.rows, []string{t.Iqn, strings.Join(portals, ", "), t.ChapUser, strings.Join(luns, ", ")})
	}
	r.json = list
	return r, err
}

func listSimPortals(ctx context.Context, sim simv1.SimClient, _ []string) (reply, error) {
	type stateJSON struct {
		simPortalJSON
		Reachable bool `json:"reachable"`
	}
	response, err := sim.ListIscsiTargets(ctx, &simv1.ListIscsiTargetsRequest{})
	r := reply{header: []string{"PORTAL", "REACHABLE"}}
	list := []stateJSON{}
	for _, state := range response.GetPortals() {
		list = append(list, stateJSON{simPortalJSON{state.GetPortal().GetAddress(), state.GetPortal().GetPort()}, state.Reachable})
		r.rows = append(r.rows, []string{simPortalText(state.Portal), yesNo(state.Reachable)})
	}
	r.json = list
	return r, err
}
