// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

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
	return p.group("iscsi", "Play iSCSI targets, which the node reaches over its network",
		p.group("target", "Add, remove and list targets",
			p.simISCSITargetAdd(),
			p.simLeaf("remove IQN", "Take a target away; its disks are detached ones then", func(ctx context.Context, sim simv1.SimClient, args []string) (reply, error) {
				_, err := sim.RemoveIscsiTarget(ctx, &simv1.RemoveIscsiTargetRequest{Iqn: args[0]})
				return done, err
			}),
			p.simLeaf("list", "List the targets", listSimTargets),
		),
		p.group("lun", "Add disks to targets", p.simISCSILUNAdd()),
		p.group("portal", "Take portals away and bring them back",
			p.simISCSIPortalSet(),
			p.simLeaf("list", "List the portals, also those that no target has any longer", listSimPortals),
		),
	)
}

// simPortal reads a portal of the command line.
func simPortal(text string) (*simv1.IscsiPortal, error) {
	portal, err := parsePortal(text)
	return &simv1.IscsiPortal{Address: portal.Address, Port: uint32(portal.Port)}, err
}

func (p *program) simISCSITargetAdd() *cobra.Command {
	var portals []string
	var chapUser string
	var chapSecret, mutualSecret func() (secret.Text, error)
	var cmd *cobra.Command
	cmd = p.simLeaf("add IQN", "Put a target without disks on the network", func(ctx context.Context, sim simv1.SimClient, args []string) (reply, error) {
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
	cmd.Long = `Put a target without disks on the network: see sim iscsi lun add. With --chap-user, it lets in
only who has the secret; with --mutual-chap-secret-file, it also proves itself to the node.

` + secretHelp
	cmd.Flags().StringSliceVar(&portals, "portal", nil, "`portal` that offers it: ADDRESS or ADDRESS:PORT; may be given several times")
	cmd.Flags().StringVar(&chapUser, "chap-user", "", "`name` of the CHAP user")
	chapSecret = secretFlag(cmd, "chap-secret-file", "the secret of the CHAP user, of 12 to 16 bytes")
	mutualSecret = secretFlag(cmd, "mutual-chap-secret-file", "the secret that it proves itself with, of 12 to 16 bytes")
	require(cmd, "portal")
	cmd.MarkFlagsRequiredTogether("chap-user", "chap-secret-file")
	completeFiles(cmd, "chap-secret-file")
	completeFiles(cmd, "mutual-chap-secret-file")
	return cmd
}

func (p *program) simISCSILUNAdd() *cobra.Command {
	lun := &simv1.IscsiLun{}
	var diskSize sizeFlag
	cmd := p.simLeaf("add IQN", "Give a target a new disk, or the detached one with a serial number", func(ctx context.Context, sim simv1.SimClient, args []string) (reply, error) {
		lun.SizeBytes = int64(diskSize)
		_, err := sim.AddIscsiLun(ctx, &simv1.AddIscsiLunRequest{Iqn: args[0], Lun: lun})
		return done, err
	})
	flags := cmd.Flags()
	flags.Var(&diskSize, "size", "`size` of the disk; may be left out for a detached one")
	flags.Uint32Var(&lun.SectorSize, "sector-size", 512, "size of a logical sector in `bytes`: 512 or 4096")
	flags.StringVar(&lun.SerialNumber, "serial", "", "serial number; made up if it is left out")
	flags.StringVar(&lun.Page83, "page83", "", "identifier of vital product data page 0x83; made up if it is left out")
	flags.BoolVar(&lun.Offline, "offline", false, "it arrives offline, as a shared disk does")
	flags.BoolVar(&lun.ReadOnly, "read-only", false, "it arrives read-only")
	flags.BoolVar(&lun.NeedsRescan, "needs-rescan", false, "Windows doesn't see it before a rescan")
	cmd.MarkFlagsOneRequired("size", "serial")
	return cmd
}

func (p *program) simISCSIPortalSet() *cobra.Command {
	var unreachable bool
	cmd := p.simLeaf("set PORTAL", "Set how a portal is: without flags, it works", func(ctx context.Context, sim simv1.SimClient, args []string) (reply, error) {
		portal, err := simPortal(args[0])
		if err != nil {
			return reply{}, err
		}
		_, err = sim.SetIscsiPortal(ctx, &simv1.SetIscsiPortalRequest{Portal: portal, Reachable: !unreachable})
		return done, err
	})
	cmd.Flags().BoolVar(&unreachable, "unreachable", false, "it doesn't answer: sessions over it have no disks")
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
