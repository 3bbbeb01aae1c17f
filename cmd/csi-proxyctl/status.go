// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/internal/serve/admin"
	"github.com/csi-proxy/csi-proxy/internal/text/terminal"
)

func (p *program) status() *cobra.Command {
	var ready, alive bool
	cmd := p.call("status", "Show whether the daemon is ready, and which links keep volumes on the node",
		func(ctx context.Context, c *client.Client, _ []string) (reply, error) {
			if alive {
				_, err := admin.Get(ctx, p.endpointDir, admin.Healthz)
				return line(map[string]bool{"alive": true}, "alive"), err
			}
			page, err := admin.Get(ctx, p.endpointDir, admin.Readyz)
			r := line(map[string]bool{"ready": true}, "ready")
			if err == nil && !ready {
				r, err = forgottenLinks(ctx, c.Storage.ListVolumes)
			}
			if _, missing, ok := strings.Cut(strings.TrimSpace(page), "ok, but "); ok {
				r.warnings = append(r.warnings, missing)
			}
			return r, err
		})
	cmd.Long = `Say whether the daemon takes drivers' calls. If it doesn't, that is an error with the reason, and
exit code 6. The daemon is asked at an endpoint that only SYSTEM and the Administrators can open.

If it does, list the links of pods whose volumes kubelet has lost track of. With such a link there, its
volume can't be unstaged. Each comes with the pod's UID and the command that removes the link. Run it
only if neither kubelet nor the API server has the pod: it may still run. The exit code is 0 all the
same. If the node doesn't list its volumes within 10 seconds, a line on standard error says so.

--ready and --alive are for probes, which use no port that way and check no volume.`
	cmd.Flags().BoolVar(&ready, "ready", false, "only ask whether the daemon takes drivers' calls, as a readiness probe does")
	cmd.Flags().BoolVar(&alive, "alive", false, "only ask whether the daemon's process answers, as a liveness probe does")
	cmd.MarkFlagsMutuallyExclusive("ready", "alive")
	return cmd
}

const (
	// listTimeout is how long status waits for the list of volumes. One that hangs takes 5 seconds.
	listTimeout = 10 * time.Second
	// mostLinks is how many links status prints for people.
	mostLinks = 20
)

// forgottenLink is a link to a volume, of a pod whose volume kubelet has lost track of.
type forgottenLink struct {
	Path    string `json:"path"`
	Pod     string `json:"pod"`     // its UID
	Volume  string `json:"volume"`  // the PersistentVolume, or the volume in the pod's spec
	Command string `json:"command"` // removes the link
}

// forgottenLinks is the reply of a daemon that is ready. That the volumes can't be listed is a warning.
func forgottenLinks(ctx context.Context, listVolumes func(context.Context) (csiproxy.VolumeList, error)) (reply, error) {
	soon, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	list, err := listVolumes(soon)
	if err := interrupted(ctx); err != nil {
		return reply{}, err
	}
	unknown := list.IncompleteReason
	if err != nil {
		unknown = err.Error()
	}
	links := []forgottenLink{}
	for _, m := range list.Mounts {
		if m.ForgottenPod != "" && m.LeftoverReason == "" {
			// …\pods\UID\volumes\kubernetes.io~csi\VOLUME\mount
			volume := path.Base(path.Dir(strings.ReplaceAll(m.Path, `\`, "/")))
			links = append(links, forgottenLink{m.Path, m.ForgottenPod, volume, unpublishCommand(m)})
		}
	}
	r := reply{rows: [][]string{{"ready"}}, colours: map[int]terminal.Colour{0: terminal.Green, 1: terminal.Yellow}}
	r.json = struct {
		Ready            bool            `json:"ready"`
		ForgottenLinks   []forgottenLink `json:"forgotten_links"`
		IncompleteReason string          `json:"incomplete_reason"`
	}{true, links, unknown}
	if unknown != "" {
		r.warnings = []string{"further links may keep volumes on the node, since not all volumes could be listed: " + unknown +
			"; csi-proxyctl doctor says what doesn't answer"}
	}
	if len(links) == 0 {
		return r, nil
	}
	r.rows = append(r.rows,
		[]string{fmt.Sprintf("links that kubelet has lost track of, so that their volumes can't be unstaged: %d", len(links))},
		[]string{"to do: if neither kubelet nor the API server has the pod, run the command"},
		[]string{"POD UID", "VOLUME", "COMMAND"})
	for _, l := range links[:min(len(links), mostLinks)] {
		r.rows = append(r.rows, []string{l.Pod, l.Volume, l.Command})
	}
	if more := len(links) - mostLinks; more > 0 {
		r.rows = append(r.rows, []string{fmt.Sprintf("%d more: csi-proxyctl storage clean-up lists them all", more)})
	}
	return r, nil
}

// unpublishCommand is what removes a link.
func unpublishCommand(m csiproxy.Mount) string { return "csi-proxyctl storage unpublish " + m.Path }
