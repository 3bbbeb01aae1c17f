// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/api"
	"github.com/csi-proxy/csi-proxy/internal/host/winservice"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/serve/admin"
	"github.com/csi-proxy/csi-proxy/internal/serve/pipe"
	"github.com/csi-proxy/csi-proxy/internal/serve/rpc"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/published"
)

// uncalled are operations that nobody calls.
var uncalled = nodeops.Operations{
	Disk:       struct{ published.DiskOperations }{},
	Volume:     struct{ published.VolumeOperations }{},
	Filesystem: struct{ published.FilesystemOperations }{},
	SMB:        struct{ published.SMBOperations }{},
	ISCSI:      struct{ published.ISCSIOperations }{},
	System:     struct{ published.SystemOperations }{},
	Storage:    struct{ csiproxy.StorageOperations }{},
}

// check is -check: it prints what the daemon serves and needs with these flags, and what each driver gets. It
// changes nothing on the node.
func check(o options, stdout io.Writer) error {
	// A fault in the tables of services shows here. No operation is called.
	services, err := rpc.Services(rpc.Operations(uncalled))
	if err == nil {
		err = rpc.Prove(services)
	}
	if err != nil {
		return err
	}
	endpoints, err := o.endpoints()
	if err != nil {
		return err
	}
	build := currentBuild()
	report := winservice.Report{
		Version:      build.Version,
		Commit:       build.Commit,
		Endpoints:    endpoints,
		Privileges:   []string{},
		StopSeconds:  int(math.Ceil((o.gracePeriod + stopReserve).Seconds())),
		LogDirectory: logDirectory(o.logging, o.node == nodeWindows),
		Warnings:     o.warnings,
	}
	if report.Drivers, err = reportDrivers(o); err != nil {
		return err
	}
	if o.node == nodeWindows {
		report.Privileges = win.Privileges()
	}
	if o.node != nodeWindows || runtime.GOOS == "windows" { // else it is about another machine
		report.Taken = taken(o, report.Endpoints)
	}
	if o.node == nodeWindows && runtime.GOOS == "windows" {
		for _, err := range tryProviders(o) {
			report.Problems = append(report.Problems, "Windows doesn't answer: "+err.Error())
		}
	}
	if o.output == outputJSON {
		return json.NewEncoder(stdout).Encode(report)
	}
	return printReport(stdout, report, o)
}

// reportDrivers returns what each driver of the file of drivers gets.
func reportDrivers(o options) (reports []winservice.DriverReport, _ error) {
	for i, driver := range o.drivers.Drivers {
		endpoints, err := endpointsOf(driver.Name, driver.operations(uncalled))
		if err != nil {
			return nil, err
		}
		own := o.ofDrivers[i]
		report := winservice.DriverReport{Name: driver.Name, Groups: driver.Groups, Endpoints: endpoints, Directories: driver.directories,
			Servers: own.Servers, Services: own.Services, MaxCalls: driver.MaxCalls}
		if own.Reformat {
			report.ReformatDirs = own.Dirs
		}
		for _, pattern := range own.Disks {
			report.Disks = append(report.Disks, pattern.String())
		}
		for _, portal := range own.Portals {
			report.Portals = append(report.Portals, portal.String())
		}
		reports = append(reports, report)
	}
	return reports, nil
}

// printReport prints a report for people.
func printReport(stdout io.Writer, report winservice.Report, o options) error {
	var b strings.Builder
	line := func(indent, name string, values ...string) {
		if len(values) == 0 {
			values = []string{"none"}
		}
		for i, value := range values {
			if i > 0 {
				name = ""
			}
			fmt.Fprintf(&b, "%s%-16s%s\n", indent, name, quote.Terminal(value))
		}
	}
	fmt.Fprintf(&b, "csi-proxy %s starts with these flags.\n\n", quote.Terminal(report.Version))
	line("", "paths", append([]string{o.KubeletPath}, o.WorkingDirs...)...)
	if len(o.ReformatDirs) > 0 {
		line("", "may empty", prefixed("volumes in ", o.ReformatDirs)...)
	}
	line("", "log", cmp.Or(report.LogDirectory, "standard error"))
	line("", "stop", fmt.Sprintf("within %d seconds", report.StopSeconds))
	if o.servesAll() {
		line("", "endpoints", "csi-proxy-GROUP-VERSION, at which every driver has the whole node")
	} else {
		line("", "endpoints", "csi-proxy-"+admin.Driver+"-GROUP-VERSION, for administrators; those with the published names are off")
	}
	for _, d := range report.Drivers {
		fmt.Fprintf(&b, "\ndriver %s\n", quote.Terminal(d.Name))
		line("  ", "endpoints", "csi-proxy-"+d.Name+"-GROUP-VERSION")
		var groups []string
		for _, group := range d.Groups {
			groups = append(groups, group+": "+strings.Join(api.Versions(group), ", "))
		}
		line("  ", "groups", groups...)
		line("  ", "disks", d.Disks...)
		line("  ", "directories", d.Directories...)
		line("  ", "SMB servers", d.Servers...)
		line("  ", "iSCSI portals", d.Portals...)
		line("  ", "services", d.Services...)
		if len(d.ReformatDirs) > 0 {
			line("  ", "may empty", prefixed("its volumes in ", d.ReformatDirs)...)
		}
		line("  ", "calls", fmt.Sprintf("at most %d at once", d.MaxCalls))
	}
	if notes := slices.Concat(prefixed("warning: ", report.Warnings), prefixed("taken: ", report.Taken),
		prefixed("problem: ", report.Problems)); len(notes) > 0 {
		fmt.Fprintln(&b)
		for _, note := range notes {
			fmt.Fprintln(&b, quote.Terminal(note))
		}
	}
	_, err := io.WriteString(stdout, b.String())
	return err
}

func prefixed(prefix string, texts []string) (lines []string) {
	for _, text := range texts {
		lines = append(lines, prefix+text)
	}
	return lines
}

// takenTimeout bounds the question who has the endpoints. One that doesn't answer is taken.
const takenTimeout = 5 * time.Second

// taken says who has the endpoints now. Each process that is asked sees a connection that sends nothing.
func taken(o options, endpoints []string) (taken []string) {
	ctx, cancel := context.WithTimeout(context.Background(), takenTimeout)
	defer cancel()
	for _, name := range endpoints {
		if err := pipe.Held(ctx, pipe.Address(o.endpointDir, name)); err != nil {
			taken = append(taken, err.Error())
		}
	}
	return taken
}

// tryProviders returns why a provider of WMI doesn't answer.
func tryProviders(o options) []error {
	sys, err := openWindows(o, slog.New(slog.DiscardHandler))
	if err != nil {
		return []error{err}
	}
	failed := win.TryProviders(context.Background(), sys)
	if err := sys.Close(); err != nil {
		failed = append(failed, err)
	}
	return failed
}

// logDirectory returns the directory of the log files; empty if there are none.
func logDirectory(flags *flag.FlagSet, isOfWindows bool) string {
	if isSet(flags, "logtostderr") || flags.Lookup("log_file").Value.String() == "" &&
		flags.Lookup("log_dir").Value.String() == "" {
		return ""
	}
	file := logFile(flags)
	if isOfWindows && runtime.GOOS != "windows" { // whose path package filepath doesn't know here
		return file[:max(0, strings.LastIndexAny(file, `\/`))]
	}
	return filepath.Dir(file)
}
