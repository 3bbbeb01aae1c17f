// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Command evidence turns an event log of Windows' partition manager into rows of
// testdata/disks.json, with which the tests of this package compare what our code makes of such
// disks. It reads the XML of a support bundle, of wevtutil qe /f:xml, or of libevtx' evtxexport -f xml:
//
//	go run ./internal/lab/evidence [-unmasked] FILE…
//
// The tests also compare the calls of our operations with those of other programs that run on
// Windows: testdata/traces.txt.
package main

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/csi-proxy/csi-proxy/internal/host/diskevent"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// Row is what Windows said of one disk.
type Row struct {
	Name    string     `json:"name"`
	Source  string     `json:"source"`  // where it was published
	Windows string     `json:"windows"` // its version
	Size    int64      `json:"size,omitempty"`
	Bus     uint32     `json:"bus"`
	Vendor  string     `json:"vendor,omitempty"`
	Product string     `json:"product,omitempty"`
	Serial  string     `json:"serial,omitempty"`
	Place   string     `json:"location,omitempty"`
	Path    string     `json:"path,omitempty"` // the device interface's
	IDs     []RowID    `json:"ids,omitempty"`
	Layout  string     `json:"layout,omitempty"` // hex
	MBR     string     `json:"mbr,omitempty"`    // hex, without zeros at its beginning
	Want    RowMeaning `json:"want"`
}

// RowID is a designator of page 83.
type RowID struct {
	CodeSet     uint32 `json:"codeSet"`
	Type        uint32 `json:"type"`
	Association uint32 `json:"association"`
	ID          string `json:"id"` // hex
}

// RowMeaning is what a row means, as far as the source says it.
type RowMeaning struct {
	NoTable    bool   `json:"noTable,omitempty"` // nobody has partitioned it
	Partitions []int  `json:"partitions,omitempty"`
	LUN        string `json:"lun,omitempty"`
	Page83     string `json:"page83,omitempty"`
	Scratch    bool   `json:"scratch,omitempty"` // of a container
}

func main() {
	unmasked := flag.Bool("unmasked", false, "keep the serial numbers and ids")
	flag.Parse()
	key := make([]byte, 16)
	rand.Read(key)
	for _, name := range flag.Args() {
		text, err := os.ReadFile(name)
		if err == nil {
			err = rows(os.Stdout, string(text), diskevent.Masker{Key: key}, *unmasked)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
			os.Exit(1)
		}
	}
}

// rows prints a row for each disk in the events of a file that differs from those before it.
func rows(to io.Writer, text string, m diskevent.Masker, unmasked bool) error {
	seen := map[string]bool{}
	for _, event := range anEvent.FindAllString(text, -1) {
		if !unmasked {
			event = m.Event(event)
		}
		d, ok, err := diskevent.Parse(event)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		row, err := json.Marshal(rowOf(d))
		if err != nil {
			return err
		}
		if !seen[string(row)] {
			fmt.Fprintf(to, "%s,\n", row)
		}
		seen[string(row)] = true
	}
	return nil
}

// anEvent is one event in a file, whatever stands between them.
var anEvent = regexp.MustCompile(`(?s)<Event[ >].*?</Event>`)

func rowOf(d diskevent.Disk) Row {
	row := Row{Size: d.Capacity, Bus: uint32(d.Descriptor.BusType), Vendor: d.Descriptor.VendorID,
		Product: d.Descriptor.ProductID, Serial: d.Descriptor.SerialNumber, Place: d.Location,
		Layout: hex.EncodeToString(d.Layout), MBR: strings.TrimLeft(hex.EncodeToString(d.MBR), "0")}
	if len(row.MBR)%2 != 0 {
		row.MBR = "0" + row.MBR
	}
	for _, id := range d.Identifiers {
		row.IDs = append(row.IDs, RowID{uint32(id.CodeSet), uint32(id.Type), uint32(id.Association), hex.EncodeToString(id.ID)})
	}
	if l, err := win.DecodeDriveLayout(d.Layout); err == nil {
		for _, p := range l.Partitions {
			row.Want.Partitions = append(row.Want.Partitions, int(p.Number))
		}
	}
	return row
}
