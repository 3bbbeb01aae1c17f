// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build reference

package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
)

// What Windows has as default where the help on this system has another one.
var windowsDefaults = map[string]string{
	"endpoint-dir":  "",
	"node":          "windows",
	"pipe-security": "D:P(A;;GA;;;SY)(A;;GA;;;BA)",
}

// notOnNodes are the flags that are for tests and people, and for what the chart says itself.
var notOnNodes = []string{"check", "endpoint-dir", "node", "o", "sim-state", "version", "windows-service"}

var (
	helpFlag    = regexp.MustCompile(`(?m)^  -(\S+)(?: (\S+))?\n((?:    \t.*\n)+)`)
	defaultOf   = regexp.MustCompile(`\s*\(default (.*)\)$`)
	tableEscape = strings.NewReplacer("|", `\|`, `\`, `\\`, "<", "&lt;")
)

// With the build tag reference, this isn't the daemon. It reads what -help prints, and writes
// docs/flags.md and files/flags.txt of the chart, by which that refuses wrong flags: a line for each
// flag, with = if it takes a value.
func init() {
	if err := writeReference(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func writeReference() error {
	help, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	logging := addLoggingFlags(flag.NewFlagSet("", flag.ContinueOnError))
	var own, log, names strings.Builder
	found := helpFlag.FindAllStringSubmatch(string(help), -1)
	for _, match := range found {
		name, value, usage := match[1], match[2], strings.Join(strings.Fields(match[3]), " ")
		switch {
		case slices.Contains(notOnNodes, name):
		case value == "":
			fmt.Fprintln(&names, name)
		default:
			fmt.Fprintln(&names, name+"=")
		}
		standard := ""
		if d := defaultOf.FindStringSubmatch(usage); d != nil {
			standard = strings.ReplaceAll(strings.Trim(d[1], `"`), `\\`, `\`)
			usage = strings.TrimSuffix(usage, d[0])
		}
		if d, ok := windowsDefaults[name]; ok {
			standard = d
		}
		if standard != "" {
			standard = "`" + standard + "`"
		}
		table := &own
		if logging.Lookup(name) != nil || strings.HasPrefix(name, "logging-") {
			table = &log
		}
		fmt.Fprintf(table, "| `%s` | %s | %s |\n", strings.TrimSpace("-"+name+" "+value), standard,
			tableEscape.Replace(usage))
	}
	if len(found) < 30 {
		return fmt.Errorf("only %d flags found in the help", len(found))
	}
	const head = "| flag | default | meaning |\n|---|---|---|\n"
	page := `# The flags of csi-proxy

` + "`csi-proxy -help`" + ` prints them, and ` + "`make generate`" + ` writes this page from it. The defaults are
those of ` + "`csi-proxy.exe`" + ` on Windows. A flag has one dash or two, and its value comes after ` + "`=`" + ` or a
blank; one that is true or false takes ` + "`=`" + ` only. ` + "`csi-proxy -check FLAGS`" + ` says whether flags are
right, and what each driver of ` + "`-drivers`" + ` gets, without doing anything; on any system it also takes the
command line of a node's service.

All flags that the published CSI Proxy has are among them, with the same meaning.

## The daemon

` + head + own.String() + `
## The log

[monitoring.md](monitoring.md#the-log) says what is written where.

` + head + log.String()
	if err := os.WriteFile("docs/flags.md", []byte(page), 0o644); err != nil {
		return err
	}
	return os.WriteFile("deploy/charts/csi-proxy/files/flags.txt", []byte(names.String()), 0o644)
}
