// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/serve/admin"
	"github.com/csi-proxy/csi-proxy/internal/serve/rpc"
)

// driversFile is the file of -drivers, in JSON. docs/drivers.md explains it.
type driversFile struct {
	// SharedEndpoints keeps the endpoints with the published names, at which every driver has the whole node.
	SharedEndpoints bool          `json:"sharedEndpoints"`
	Drivers         []driverEntry `json:"drivers"`

	// Sum is that of what was read.
	Sum [sha256.Size]byte `json:"-"`
	// Warnings are what is odd about it.
	Warnings []driversProblem `json:"-"`
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
	// Reformat lets FormatVolume empty the driver's volumes that are mounted right in one of Directories.
	Reformat bool `json:"reformat"`
	// PipeSecurity and MaxCalls are those of the driver's endpoints. Defaults: -pipe-security, if it isn't the default, and
	// pipe.DriverSecurityDescriptor; -max-calls.
	PipeSecurity string `json:"pipeSecurity"`
	MaxCalls     int    `json:"maxCalls"`

	directories []string // all that are the driver's
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

// changedDrivers compares the file of -drivers with what the daemon has read when it started. If they differ,
// difference says so; wrong is why the daemon couldn't start again.
func (o options) changedDrivers() (difference string, wrong error) {
	if o.driversPath == "" {
		return "", nil
	}
	next := o
	switch err := next.loadDrivers(); {
	case err != nil:
		return "the daemon can't start again with its file of drivers: " + err.Error(), err
	case next.drivers.Sum != o.drivers.Sum:
		return fmt.Sprintf("-drivers=%s has changed since the daemon read it; restart the daemon to use it",
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
		Help:        "1 if the file of -drivers has changed since the daemon read it, 2 if the daemon couldn't start with it, else 0.",
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
