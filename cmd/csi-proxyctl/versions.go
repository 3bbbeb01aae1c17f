// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/spf13/cobra"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/client"
)

type endpointJSON struct {
	Group   string `json:"group"`
	Version string `json:"version"`
	Served  bool   `json:"served"`
	Address string `json:"address"`
	Error   string `json:"error,omitempty"`
}

func (p *program) versions() *cobra.Command {
	var all bool
	cmd := p.call("versions", "List the API versions that are served",
		func(ctx context.Context, c *client.Client, _ []string) (reply, error) {
			r := reply{header: []string{"GROUP", "VERSION", "STATE", "ADDRESS"}}
			endpoints := []endpointJSON{}
			served := false
			for _, e := range c.Endpoints(ctx) {
				served = served || e.Served
				if !e.Served && e.Err == nil && !all {
					continue
				}
				entry := endpointJSON{Group: e.Group, Version: e.Version, Served: e.Served, Address: e.Address}
				state := "served"
				switch {
				case e.Err != nil:
					entry.Error = e.Err.Error()
					state = "broken: " + entry.Error
				case !e.Served:
					state = "absent"
				}
				endpoints = append(endpoints, entry)
				r.rows = append(r.rows, []string{e.Group, e.Version, state, e.Address})
			}
			if len(endpoints) == 0 || !served && !all {
				return reply{}, &csiproxy.Error{
					Op: "connect", Object: "to CSI Proxy", Kind: csiproxy.ErrUnavailable, Detail: "no endpoint is served" + p.where(),
				}
			}
			r.json = endpoints
			return r, nil
		})
	cmd.Flags().BoolVar(&all, "all", false, "also list versions that aren't served")
	return cmd
}

// where returns the end of a sentence, which says where the endpoints are.
func (p *program) where() string {
	if p.endpointDir == "" {
		return ""
	}
	return " in " + p.endpointDir
}
