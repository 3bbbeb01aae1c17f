// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
)

func (p *program) watchDisks() *cobra.Command {
	var wanted selectorFlags
	cmd := p.call("watch", "List the disks that match, and then what changes",
		func(ctx context.Context, c *client.Client, _ []string) (reply, error) {
			selector, err := wanted.selector()
			if err != nil {
				return reply{}, err
			}
			isFirst := true
			for changes, err := range c.Storage.WatchDisks(ctx, selector) {
				switch {
				case errors.Is(err, context.Canceled) && errors.Is(ctx.Err(), context.Canceled): // Ctrl-C
					return printed, nil
				case err != nil:
					return reply{}, err
				}
				if err := p.printChanges(changes, isFirst); err != nil {
					return reply{}, err
				}
				isFirst = false
			}
			return printed, nil
		})
	cmd.Long = fmt.Sprintf(`List the disks that match, or all, and then each that comes, leaves or changes, until Ctrl-C
or --timeout, which has no default here. Disks that come or leave are seen at once, everything
else within about %v, or half a minute on a node with many disks. A line is about one disk;
"listed" are those that were there from the start. With -o json, a line is an object with the
disks removed, added and changed at one time; the first has all disks as added.

It needs a daemon that serves the storage API. When that stops, the command ends with exit
code 6.`, csiproxy.WatchInterval)
	cmd.PreRun = p.withoutDefaultTimeout
	wanted.add(cmd)
	return cmd
}

// printChanges prints what has changed. The first changes of a watch are the list.
func (p *program) printChanges(c csiproxy.DiskChanges, isFirst bool) error {
	if p.format == formatJSON {
		return p.printJSON(c)
	}
	added := "added"
	if isFirst {
		added = "listed"
	}
	if isFirst && len(c.Added) == 0 {
		_, err := io.WriteString(p.stdout, "listed   no disks\n")
		return err
	}
	for _, part := range []struct {
		what  string
		disks []csiproxy.Disk
	}{{"removed", c.Removed}, {added, c.Added}, {"changed", c.Changed}} {
		for _, disk := range part.disks {
			if _, err := fmt.Fprintf(p.stdout, "%-8s disk %d: %s\n", part.what, disk.Number,
				quote.Terminal(diskLine(disk))); err != nil {
				return err
			}
		}
	}
	return nil
}

// diskLine is a disk in one line.
func diskLine(disk csiproxy.Disk) string {
	var parts []string
	add := func(before, text string) {
		if text != "" {
			parts = append(parts, before+text)
		}
	}
	if disk.SizeBytes != 0 {
		add("", size(disk.SizeBytes))
	}
	add("", diskState(disk))
	add("", string(disk.Bus))
	if disk.Location.NVMeNamespace != 0 {
		add("", lunText(disk))
	} else {
		add("LUN ", lunText(disk))
	}
	add("serial number ", disk.SerialNumber)
	add("identifier ", identifierText(disk))
	if text := volumesText(disk); text != unknown { // what isn't known is left out of the line
		add("", text)
	}
	return strings.Join(parts, ", ")
}
