// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/api"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/ops/scope"
	"github.com/csi-proxy/csi-proxy/internal/serve/admin"
	"github.com/csi-proxy/csi-proxy/internal/serve/pipe"
	"github.com/csi-proxy/csi-proxy/internal/serve/rpc"
	"github.com/csi-proxy/csi-proxy/internal/serve/server"
	"github.com/csi-proxy/csi-proxy/internal/text/didyoumean"
)

// driversFile is the file of -drivers, in JSON. docs/drivers.md explains it.
type driversFile struct {
	// SharedEndpoints keeps the endpoints with the published names, at which every driver has the whole node.
	SharedEndpoints bool          `json:"sharedEndpoints"`
	Drivers         []driverEntry `json:"drivers"`

	// Sum is that of what was read.
	Sum [sha256.Size]byte `json:"-"`
}

// driverEntry is a driver with endpoints of its own.
type driverEntry struct {
	Name string `json:"name"`
	// Groups are those of the API. Default: disk, volume, filesystem and storage; with servers smb, with portals
	// iscsi.
	Groups []string `json:"groups"`
	Disks  []struct {
		Bus          csiproxy.Bus `json:"bus"`
		Vendor       string       `json:"vendor"`
		Product      string       `json:"product"`
		SerialNumber string       `json:"serialNumber"`
		Adapter      *uint32      `json:"adapter"`
		ISCSITarget  string       `json:"iscsiTarget"`
	} `json:"disks"`
	Directories  []string `json:"directories"`
	SMBServers   []string `json:"smbServers"`
	ISCSIPortals []string `json:"iscsiPortals"`
	Services     []string `json:"services"`
	// PipeSecurity and MaxCalls are those of the driver's endpoints. Defaults: -pipe-security, -max-calls.
	PipeSecurity string `json:"pipeSecurity"`
	MaxCalls     int    `json:"maxCalls"`
}

// maxDriversFile bounds the file, in bytes.
const maxDriversFile = 1 << 20

// readDrivers reads the file of -drivers.
func readDrivers(path string) (file driversFile, _ error) {
	f, err := os.Open(path)
	if err != nil {
		return file, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxDriversFile+1))
	if err != nil {
		return file, err
	}
	if len(data) > maxDriversFile {
		return file, fmt.Errorf("it is longer than %d bytes", maxDriversFile)
	}
	file.Sum = sha256.Sum256(data)
	decoder := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(data, utf8BOM)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&file); err != nil {
		return file, explainJSON(data, err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return file, fmt.Errorf("there is more than one JSON object in it")
	}
	if err := checkKeys(json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(data, utf8BOM)))); err != nil {
		return file, err
	}
	if len(file.Drivers) == 0 {
		return file, fmt.Errorf("it names no driver")
	}
	for i := range file.Drivers {
		if err := file.Drivers[i].complete(); err != nil {
			return file, fmt.Errorf("driver %q: %w", file.Drivers[i].Name, err)
		}
	}
	return file, nil
}

// utf8BOM is what PowerShell writes before a text.
var utf8BOM = []byte("\xef\xbb\xbf")

// checkKeys returns an error for valid JSON in which an object has a key twice, in whatever case: encoding/json mixes
// the two values, so that one driver would get what is another's.
func checkKeys(decoder *json.Decoder) error {
	token, err := decoder.Token()
	if err != nil || token != json.Delim('{') && token != json.Delim('[') {
		return err
	}
	keys := map[string]bool{}
	for decoder.More() {
		if token == json.Delim('{') {
			key, err := decoder.Token()
			if err != nil {
				return err
			}
			name := strings.ToLower(fmt.Sprint(key))
			if keys[name] {
				return fmt.Errorf("an object has the key %q twice", key)
			}
			keys[name] = true
		}
		if err := checkKeys(decoder); err != nil {
			return err
		}
	}
	_, err = decoder.Token() // the end
	return err
}

// explainJSON says what is wrong with JSON, and where, without Go's types.
func explainJSON(data []byte, err error) error {
	line := func(offset int64) int { return 1 + bytes.Count(data[:min(int(offset), len(data))], []byte("\n")) }
	kinds := map[reflect.Kind]string{reflect.Slice: "a list", reflect.Struct: "an object", reflect.String: "a text",
		reflect.Bool: "true or false"}
	var syntax *json.SyntaxError
	var other *json.UnmarshalTypeError
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("it is empty; it must be a JSON object")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("it isn't JSON: it ends too soon")
	case errors.As(err, &syntax):
		return fmt.Errorf("line %d: it isn't JSON: %w", line(syntax.Offset), err)
	case errors.As(err, &other):
		return fmt.Errorf("line %d: %s must be %s, not a JSON %s", line(other.Offset), cmp.Or(other.Field, "the file"),
			cmp.Or(kinds[other.Type.Kind()], "a whole number, 0 or more"), other.Value)
	}
	return err
}

// maxPipeName is how long Windows lets the name of a pipe be, without \\.\pipe\.
//
// Source: https://learn.microsoft.com/windows/win32/api/namedpipeapi/nf-namedpipeapi-createnamedpipew (256
// characters in all)
const maxPipeName = 256 - len(`\\.\pipe\`)

// complete checks a driver as far as the file alone tells, and fills in its defaults.
func (d *driverEntry) complete() error {
	isNamePart := func(r rune) bool {
		return 'a' <= r|0x20 && r|0x20 <= 'z' || '0' <= r && r <= '9' || strings.ContainsRune("-.", r)
	}
	switch {
	case d.Name == "" || strings.ContainsFunc(d.Name, func(r rune) bool { return !isNamePart(r) }):
		return fmt.Errorf("the name must be that of the CSIDriver, of letters, digits, dots and hyphens")
	case strings.EqualFold(d.Name, admin.Driver): // as Windows compares the names of pipes
		return fmt.Errorf("the name is taken")
	case len(api.DriverEndpointName(d.Name, "filesystem", "v1alpha1")) > maxPipeName:
		return fmt.Errorf("the name is too long for the name of a pipe")
	case d.MaxCalls < 0:
		return fmt.Errorf("maxCalls is negative")
	}
	if d.Groups == nil {
		d.Groups = []string{"disk", "volume", "filesystem", "storage"}
		if len(d.SMBServers) > 0 {
			d.Groups = append(d.Groups, "smb")
		}
		if len(d.ISCSIPortals) > 0 {
			d.Groups = append(d.Groups, "iscsi")
		}
	}
	if len(d.Groups) == 0 {
		return fmt.Errorf("groups is empty, and would leave it no endpoint")
	}
	for _, group := range d.Groups {
		if !slices.Contains(api.Groups(), group) {
			return fmt.Errorf("there is no group %q%s", group, didyoumean.Hint("", group, api.Groups()))
		}
	}
	if d.PipeSecurity != "" {
		return pipe.CheckSecurityDescriptor(d.PipeSecurity)
	}
	return nil
}

// scope returns what of the node is the driver's.
func (d driverEntry) scope() (own nodeops.Driver, _ error) {
	own.Driver = scope.Driver{Name: d.Name, Servers: d.SMBServers, Services: d.Services}
	own.Dirs = d.Directories
	for _, p := range d.Disks {
		own.Disks = append(own.Disks, scope.DiskPattern{Bus: p.Bus, Vendor: p.Vendor, Product: p.Product,
			SerialNumber: p.SerialNumber, Adapter: p.Adapter, Target: p.ISCSITarget})
	}
	for _, text := range d.ISCSIPortals {
		portal, err := parsePortal(text)
		if err != nil {
			return own, fmt.Errorf("driver %q: portal %q: %w", d.Name, text, err)
		}
		own.Portals = append(own.Portals, portal)
	}
	return own, nil
}

// parsePortal reads the address of a portal, with or without a port.
func parsePortal(text string) (p csiproxy.ISCSIPortal, _ error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return csiproxy.ISCSIPortal{Address: strings.Trim(text, "[]"), Port: csiproxy.DefaultISCSIPort}, nil
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return p, fmt.Errorf("the port is no number from 1 to 65535")
	}
	return csiproxy.ISCSIPortal{Address: host, Port: uint16(n)}, nil
}

// operations returns those of all groups that the driver may use.
func (d driverEntry) operations(all nodeops.Operations) (own rpc.Operations) {
	for _, group := range d.Groups {
		switch group {
		case "disk":
			own.Disk = all.Disk
		case "volume":
			own.Volume = all.Volume
		case "filesystem":
			own.Filesystem = all.Filesystem
		case "smb":
			own.SMB = all.SMB
		case "iscsi":
			own.ISCSI = all.ISCSI
		case "system":
			own.System = all.System
		case "storage":
			own.Storage = all.Storage
		}
	}
	return own
}

// servesAll reports whether the published endpoints are served, at which every driver has the whole node.
func (o *options) servesAll() bool { return len(o.drivers.Drivers) == 0 || o.drivers.SharedEndpoints }

// loadDrivers reads the file of -drivers, if there is one, into the options, and checks it.
func (o *options) loadDrivers() (err error) {
	if o.driversPath == "" {
		return nil
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("-drivers=%s: %w", o.driversPath, err)
		}
	}()
	if o.drivers, err = readDrivers(o.driversPath); err != nil {
		return err
	}
	for i, driver := range o.drivers.Drivers {
		own, err := driver.scope()
		if err != nil {
			return err
		}
		o.ofDrivers = append(o.ofDrivers, own)
		o.drivers.Drivers[i].PipeSecurity = cmp.Or(driver.PipeSecurity, o.pipeSecurity)
		o.drivers.Drivers[i].MaxCalls = cmp.Or(driver.MaxCalls, o.maxCalls, server.DefaultMaxCalls)
	}
	_, err = nodeops.New(nil, o.Options, o.ofDrivers...) // which asks the node nothing yet
	return err
}

// changedDrivers compares the file of -drivers with what the daemon has read when it started. If they differ,
// difference says so; wrong is why the daemon couldn't start again.
func (o options) changedDrivers() (difference string, wrong error) {
	if o.driversPath == "" {
		return "", nil
	}
	next := o
	next.ofDrivers = nil
	switch err := next.loadDrivers(); {
	case err != nil:
		return "the daemon can't start again with its file of drivers: " + err.Error(), err
	case next.drivers.Sum != o.drivers.Sum:
		return fmt.Sprintf("-drivers=%s has changed since the daemon has read it, and counts from the next start on",
			o.driversPath), nil
	}
	return "", nil
}

// driversMetric tells whether the file of -drivers, if there is one, is as the daemon has read it.
func (o options) driversMetric() []prometheus.Collector {
	if o.driversPath == "" {
		return nil
	}
	return []prometheus.Collector{prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        admin.DriversFile,
		Help:        "1 if the file of -drivers has changed since the daemon has read it, 2 if the daemon couldn't start with it, else 0.",
		ConstLabels: prometheus.Labels{"file": strings.ToValidUTF8(o.driversPath, "?")},
	}, func() float64 {
		switch difference, wrong := o.changedDrivers(); {
		case wrong != nil:
			return admin.DriversFileWrong
		case difference != "":
			return admin.DriversFileChanged
		}
		return admin.DriversFileAsRead
	})}
}
