// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"flag"
	"io"
	"log/slog"
	"math"
	"path/filepath"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/host/winservice"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/serve/pipe"
	"github.com/csi-proxy/csi-proxy/internal/serve/rpc"
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

// check is -check: it prints what the daemon serves and needs with these flags. It
// changes nothing on the node.
func check(o options, stdout io.Writer) error {
	// Of a program with a fault in what it serves, this is where it shows. No operation is called.
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
		LogDirectory: logDirectory(o.logging),
	}
	report.Taken = taken(o, report.Endpoints)
	if o.node == nodeWindows {
		report.Privileges = windowsPrivileges()
		for _, err := range tryProviders(o) {
			report.Problems = append(report.Problems, "Windows doesn't answer: "+err.Error())
		}
	}
	return json.NewEncoder(stdout).Encode(report)
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
func logDirectory(flags *flag.FlagSet) string {
	if isSet(flags, "logtostderr") || flags.Lookup("log_file").Value.String() == "" &&
		flags.Lookup("log_dir").Value.String() == "" {
		return ""
	}
	return filepath.Dir(logFile(flags))
}
