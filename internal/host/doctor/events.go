// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"strings"

	"github.com/csi-proxy/csi-proxy/internal/host/diskevent"
)

// problemsOfDays selects the errors and warnings of the last seven days, and ofDays all events.
const (
	ofDays         = `*[System[TimeCreated[timediff(@SystemTime) <= 604800000]]]`
	problemsOfDays = `*[System[(Level=1 or Level=2 or Level=3) and TimeCreated[timediff(@SystemTime) <= 604800000]]]`
)

// mostEvents is how many events of a channel a bundle looks at.
const mostEvents = 2000

// eventChannel is a channel of the Windows event log, of which a bundle has the events of some
// sources, or of all if none is named.
type eventChannel struct {
	name, query string
	sources     []string
}

// eventChannels are what a bundle has: what Windows says of disks, volumes, SMB, iSCSI and services,
// and what the daemon's services say.
func eventChannels(ctx context.Context, n *Node) []eventChannel {
	channels := []eventChannel{
		{"System", problemsOfDays, []string{"disk", "partmgr", "volmgr", "volsnap", "Ntfs", "Microsoft-Windows-Ntfs", "ReFS",
			"Microsoft-Windows-ReFS", "storahci", "stornvme", "vhdmp", "mpio", "msdsm", "iScsiPrt", "MSiSCSI", "mrxsmb",
			"Microsoft-Windows-Kernel-PnP", "Service Control Manager"}},
		{"Microsoft-Windows-SMBClient/Connectivity", problemsOfDays, nil},
		{"Microsoft-Windows-SmbClient/Security", problemsOfDays, nil},
		{"Microsoft-Windows-Ntfs/Operational", problemsOfDays, nil},
		{diskevent.Channel, "*", nil},
	}
	services, err := n.services(ctx)
	if err != nil {
		return channels // services.json says so
	}
	for _, s := range services {
		channels = append(channels, eventChannel{"Application", ofDays, []string{s.Name}})
	}
	return channels
}

// read returns the channel's events, a line each, and whatever kept some from it.
func (c eventChannel) read(ctx context.Context, n *Node) (string, error) {
	if n.Events == nil {
		return "", n.needsWindows()
	}
	events, err := n.Events(ctx, c.name, c.query, mostEvents)
	errs := []error{err}
	var text strings.Builder
	for _, e := range events {
		var event struct {
			System struct {
				Provider struct {
					Name string `xml:"Name,attr"`
				}
			}
		}
		if err := xml.Unmarshal([]byte(e), &event); err != nil {
			errs = append(errs, fmt.Errorf("an event is no XML: %w", err))
		}
		of := len(c.sources) == 0
		for _, source := range c.sources {
			of = of || strings.EqualFold(source, event.System.Provider.Name)
		}
		if of {
			text.WriteString(strings.ReplaceAll(e, "\r\n", " ") + "\n")
		}
	}
	return text.String(), errors.Join(errs...)
}

// file is the channel's name in a bundle.
func (c eventChannel) file() string {
	name := strings.ReplaceAll(c.name, "/", "-")
	if c.name == "Application" {
		name += "-" + c.sources[0]
	}
	return "events/" + name + ".xml"
}
