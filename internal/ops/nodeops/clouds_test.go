// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/ops/scope"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/csi-proxy/csi-proxy/simnode/hardware"
)

// cloudAnswers are what Windows has said of the disks of one machine, as published by its user. Each file of
// testdata/clouds has one. Of a disk that isn't the driver's, or that the source doesn't tell apart, Driver or Select
// is empty.
type cloudAnswers struct {
	Source, Date, Windows, Command string
	Disks                          []answeredDisk
}

type answeredDisk struct {
	Answer map[string]any // properties by their names in MSFT_Disk; page83 is what the published daemon said
	// Hardware is what the disk must be to get these answers.
	Hardware struct {
		Bus              win.BusType
		Vendor, Product  string
		Serial, Location string
		SCSI             []byte // port number, path, target, LUN
		Page83           []struct {
			CodeSet  win.CodeSet
			Type     win.IdentifierType
			ID, Text string // hexadecimal digits, or a text
		}
		Page83Error  bool
		Controller   string // of an NVMe namespace
		Namespace    uint32
		NGUID, EUI64 string
	}
	Driver string
	Hidden bool // no list shows it
	Select []cloudSelector
}

// cloudSelector is what a driver may know of its disk.
type cloudSelector struct {
	SerialNumber, Identifier string
	AzureLUN                 *uint32
}

// readClouds reads testdata/clouds, by the names of its files.
func readClouds(t *testing.T) map[string]cloudAnswers {
	t.Helper()
	paths, err := filepath.Glob("testdata/clouds/*.json")
	simtest.Must(t, err)
	if len(paths) == 0 {
		t.Fatal("testdata/clouds is empty")
	}
	all := make(map[string]cloudAnswers)
	for _, path := range paths {
		file, err := os.Open(path)
		simtest.Must(t, err)
		defer file.Close()
		decoder := json.NewDecoder(file)
		decoder.DisallowUnknownFields()
		var machine cloudAnswers
		if err := decoder.Decode(&machine); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if machine.Source == "" || machine.Date == "" || machine.Windows == "" || machine.Command == "" || len(machine.Disks) == 0 {
			t.Errorf("%s has no source, date, Windows, command or disks", path)
		}
		all[strings.TrimSuffix(filepath.Base(path), ".json")] = machine
	}
	return all
}

func digits(t *testing.T, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	simtest.Must(t, err)
	return b
}

// spec returns the hardware of a simulated disk. If isMute, it knows no queries for identifiers.
func (d answeredDisk) spec(t *testing.T, isMute bool) winsim.DiskSpec {
	t.Helper()
	h := d.Hardware
	spec := winsim.DiskSpec{SizeBytes: 1 << 30, BusType: h.Bus, VendorID: h.Vendor, ProductID: h.Product, Serial: h.Serial,
		Location: h.Location}
	if len(h.SCSI) == 4 {
		spec.SCSI = &win.SCSIAddress{PortNumber: h.SCSI[0], PathID: h.SCSI[1], TargetID: h.SCSI[2], LUN: h.SCSI[3]}
	}
	for _, id := range h.Page83 {
		bytes := []byte(id.Text)
		if id.ID != "" {
			bytes = digits(t, id.ID)
		}
		spec.Page83 = append(spec.Page83, win.Identifier{CodeSet: id.CodeSet, Type: id.Type, ID: bytes})
	}
	if h.Controller != "" {
		spec.NVMe = &hardware.NVMe{Controller: h.Controller, Namespace: h.Namespace}
		copy(spec.NVMe.NGUID[:], digits(t, h.NGUID))
		copy(spec.NVMe.EUI64[:], digits(t, h.EUI64))
	}
	if h.Page83Error || isMute {
		spec.Page83Error, spec.NVMeError = winerr.ErrorInvalidFunction, winerr.ErrorInvalidFunction
	}
	return spec
}

// check compares what a simulated disk says with the answers of the real one.
func (d answeredDisk) check(t *testing.T, got csiproxy.Disk, page83 string) {
	t.Helper()
	name := strings.TrimSpace(got.Vendor + " " + got.Product)
	for property, answer := range d.Answer {
		want, isText := answer.(string)
		if !isText {
			continue
		}
		isSame := func(has string) bool {
			beginning, isCut := strings.CutSuffix(want, "...")
			return strings.EqualFold(has, strings.TrimSpace(want)) || isCut && strings.HasPrefix(has, beginning)
		}
		switch property {
		case "FriendlyName":
			if !isSame(name) && !isSame(got.Product) {
				t.Errorf("the name is %q, want %q", name, want)
			}
		case "Manufacturer":
			simtest.Want(t, property, isSame(got.Vendor), true)
		case "Model":
			simtest.Want(t, property, isSame(got.Product) || strings.HasPrefix(want, name), true)
		case "Location":
			simtest.Want(t, property, got.Location.Text, want)
		case "SerialNumber":
			if want != "" && !isSame(got.SerialNumber) {
				t.Errorf("the serial number is %q, want %q", got.SerialNumber, want)
			}
		case "page83":
			simtest.Want(t, property, page83, want)
		case "UniqueId":
			isID := func(id csiproxy.Identifier) bool { return isSame(id.Text) }
			if len(want) == 32 && !slices.ContainsFunc(got.Identifiers, isID) {
				t.Errorf("the identifiers are %v, want %s", got.Identifiers, want)
			}
		}
	}
}

// Each selector finds its disk, among all those of its machine, as Windows has described them.
func TestSelectorsOfClouds(t *testing.T) {
	for name, machine := range readClouds(t) {
		t.Run(name, func(t *testing.T) {
			sim := simtest.Open(t, winsim.Delays{})
			node, err := nodeops.New(sim, nodeops.Options{})
			simtest.Must(t, err)
			numbers := make([]csiproxy.DiskNumber, len(machine.Disks))
			for i, d := range machine.Disks {
				numbers[i] = simtest.Attach(t, sim, d.spec(t, false))
			}
			ids, err := node.Disk.ListDiskIDs(t.Context())
			simtest.Must(t, err)
			for i, d := range machine.Disks {
				described, err := node.Storage.ListDisks(t.Context(), csiproxy.Selector{Number: &numbers[i]})
				simtest.Must(t, err)
				if (len(described) == 0) != d.Hidden {
					t.Fatalf("disk %d is listed %d times", numbers[i], len(described))
				}
				if !d.Hidden {
					d.check(t, described[0], ids[numbers[i]].Page83)
				}
				for _, s := range d.Select {
					selector := csiproxy.Selector{SerialNumber: s.SerialNumber, Identifier: s.Identifier, AzureLUN: s.AzureLUN}
					found, err := node.Storage.ListDisks(t.Context(), selector)
					if err != nil || len(found) != 1 || found[0].Number != numbers[i] {
						t.Errorf("by %s: %+v, %v, want disk %d", selector, found, err, numbers[i])
					}
				}
			}
			for lun := range uint32(64) { // no other disk has a LUN of Azure
				found, err := node.Storage.ListDisks(t.Context(), csiproxy.Selector{AzureLUN: &lun})
				simtest.Must(t, err)
				isMeant := func(s cloudSelector) bool { return s.AzureLUN != nil && *s.AzureLUN == lun }
				has := func(d answeredDisk) bool { return slices.ContainsFunc(d.Select, isMeant) }
				simtest.Want(t, "a disk with LUN", len(found) > 0, slices.ContainsFunc(machine.Disks, has))
			}
		})
	}
}

// The EUI of an NVMe disk finds it by its serial number if its driver knows no query for identifiers.
func TestEUIInSerialNumber(t *testing.T) {
	tried := 0
	for name, machine := range readClouds(t) {
		for _, d := range machine.Disks {
			if d.Hardware.NGUID == "" && d.Hardware.EUI64 == "" {
				continue
			}
			sim := simtest.Open(t, winsim.Delays{})
			node, err := nodeops.New(sim, nodeops.Options{})
			simtest.Must(t, err)
			number := simtest.Attach(t, sim, d.spec(t, true))
			for _, s := range d.Select {
				if s.Identifier == "" {
					continue
				}
				tried++
				found, err := node.Storage.ListDisks(t.Context(), csiproxy.Selector{Identifier: s.Identifier})
				if err != nil || len(found) != 1 || found[0].Number != number {
					t.Errorf("%s: by %s: %+v, %v", name, s.Identifier, found, err)
				}
			}
		}
	}
	if tried == 0 {
		t.Error("no disk has an EUI")
	}
}

// The patterns of the page for users give each driver the disks of its cloud, of whatever machine, and no others.
func TestPatternsOfClouds(t *testing.T) {
	page, err := os.ReadFile("../../../docs/drivers.md")
	simtest.Must(t, err)
	block := regexp.MustCompile("(?ms)^```json\n(.*?)^```$").FindSubmatch(page)
	if block == nil {
		t.Fatal("docs/drivers.md has no patterns")
	}
	var file struct {
		Drivers []struct {
			Name  string
			Disks []scope.DiskPattern // in JSON, the fields have the same names
		}
	}
	simtest.Must(t, json.Unmarshal(block[1], &file))
	var drivers []nodeops.Driver
	for _, d := range file.Drivers {
		if len(d.Disks) > 0 {
			drivers = append(drivers, nodeops.Driver{Driver: scope.Driver{Name: d.Name, Disks: d.Disks}})
		}
	}
	sim := simtest.Open(t, winsim.Delays{})
	node, err := nodeops.New(sim, nodeops.Options{}, drivers...)
	simtest.Must(t, err)
	owners, names := make(map[csiproxy.DiskNumber]string), make(map[csiproxy.DiskNumber]string)
	for name, machine := range readClouds(t) {
		for _, d := range machine.Disks {
			spec := d.spec(t, false)
			spec.SCSI = nil // addresses and serial numbers are those of several machines
			if strings.TrimSpace(spec.Serial) != "" {
				spec.Serial = ""
			}
			if spec.NVMe != nil {
				spec.NVMe.Controller = strconv.Itoa(len(owners))
			}
			number := simtest.Attach(t, sim, spec)
			owners[number], names[number] = d.Driver, name
		}
	}
	for _, driver := range drivers {
		ids, err := node.Driver(driver.Name).Disk.ListDiskIDs(t.Context())
		simtest.Must(t, err)
		for number, owner := range owners {
			if _, has := ids[number]; has != (owner == driver.Name) {
				t.Errorf("%s has a disk of %s: %v, want %v", driver.Name, names[number], has, owner == driver.Name)
			}
		}
	}
}
