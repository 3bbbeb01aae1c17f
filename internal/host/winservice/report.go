// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winservice

import "time"

// Report is what a daemon says about itself when it is run with -check: that it runs and
// takes the flags, what it serves, and what it needs as a service. The daemon prints it
// as JSON with -o json. Tools read the reports of older and newer daemons, so a name keeps its meaning.
type Report struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	// Endpoints are the names of all endpoints that it serves: csi-proxy-disk-v1.
	Endpoints []string `json:"endpoints"`
	// Privileges are those that it uses, by Windows' names. Empty if it needs none.
	Privileges []string `json:"privileges"`
	// StopSeconds is how long it may take to stop.
	StopSeconds int `json:"stop_seconds"`
	// LogDirectory is where its log files are; empty if it writes none.
	LogDirectory string `json:"log_directory"`
	// Taken are the endpoints that a process has now, each with the process.
	Taken []string `json:"taken,omitempty"`
	// Problems are faults of the node. The daemon starts in spite of them, but calls of drivers fail.
	Problems []string `json:"problems,omitempty"`
	// Warnings are what is odd about the flags and the file of drivers.
	Warnings []string `json:"warnings,omitempty"`
	// Drivers are what each driver of the file of drivers gets.
	Drivers []DriverReport `json:"drivers,omitempty"`
}

// DriverReport is what a driver with endpoints of its own gets.
type DriverReport struct {
	Name        string   `json:"name"`
	Groups      []string `json:"groups"`
	Endpoints   []string `json:"endpoints"`
	Disks       []string `json:"disks,omitempty"` // patterns, as the file has them
	Directories []string `json:"directories"`
	Servers     []string `json:"smb_servers,omitempty"`
	Portals     []string `json:"iscsi_portals,omitempty"`
	Services    []string `json:"services,omitempty"`
	// ReformatDirs are those in which FormatVolume may empty the driver's volumes.
	ReformatDirs []string `json:"reformat_directories,omitempty"`
	MaxCalls     int      `json:"max_calls"`
}

// StopTimeout is how long Windows must wait for the daemon at a shutdown.
func (r Report) StopTimeout() time.Duration { return time.Duration(r.StopSeconds) * time.Second }
