// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Command csi-proxy-conformance checks that a daemon keeps what CSI drivers rely on: this project's,
// the published one, or another.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/api"
	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/internal/lab/conformance"
	"github.com/csi-proxy/csi-proxy/internal/serve/pipe"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
)

const help = `csi-proxy-conformance checks that a daemon keeps what CSI drivers rely on: each published version, as
drivers call it. The daemon may be this project's or another one, also the published one (see
--published).

Checks that need a disk, a share, a target or a service aren't applicable unless you name one
that they may use up. The disks, and the disk of the iSCSI target, lose all data. Nothing else
is changed but a directory of the run's own below the kubelet directory, which is removed at
the end. Passwords and secrets are read from files, to the end of the first line.

Exit codes: 0 if nothing failed; 1 if something did; 2 if the command line or an input is wrong; 6 if
no endpoint is served. docs/kubelet-lab.md says more.

  csi-proxy-conformance
  csi-proxy-conformance --published --disk SERIAL --erase-disks -o junit
  csi-proxy-conformance --list --group volume --version v1

`

// Exit codes other than 0.
const (
	exitFailed    = 1
	exitUsage     = 2
	exitNotServed = 6
)

// Values of --output.
const (
	formatText  = "text"
	formatJSON  = "json"
	formatJUnit = "junit"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run runs the program, and returns its exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	s, err := parseFlags(args, stdout)
	if errors.Is(err, pflag.ErrHelp) {
		return 0
	}
	code := exitUsage
	if err == nil {
		code, err = s.run(ctx, stdout, stderr)
	}
	if err != nil {
		fmt.Fprintf(stderr, "csi-proxy-conformance: %s\n", quote.Terminal(err.Error()))
	}
	return code
}

// settings are what the command line says.
type settings struct {
	conformance.Options
	endpointDir, format string
	list                bool
}

func parseFlags(args []string, stdout io.Writer) (s settings, err error) {
	flags := pflag.NewFlagSet("csi-proxy-conformance", pflag.ContinueOnError)
	flags.SortFlags = false
	flags.Usage = func() { fmt.Fprint(stdout, help, flags.FlagUsages()) }
	flags.StringVarP(&s.format, "output", "o", formatText, "`format` of the output: text, json or junit")
	flags.StringVar(&s.endpointDir, "endpoint-dir", client.DefaultEndpointDir(),
		"`directory` of the daemon's sockets; not used on Windows, which has named pipes")
	flags.BoolVar(&s.list, "list", false, "list the checks and run none")
	pattern := flags.String("run", "", "run only checks whose name, such as volume.mount/v1, this `regexp` matches")
	flags.StringSliceVar(&s.Groups, "group", nil, "run only checks of this `group`: "+
		strings.Join(api.PublishedGroups(), ", ")+" or drivers; may be given several times")
	flags.StringSliceVar(&s.Versions, "version", nil,
		"run only checks of this `version`, such as v1beta1; may be given several times")
	flags.BoolVar(&s.Published, "published", false,
		"the daemon is the published one: what it is known not to do is a known difference, and codes of errors aren't compared")
	flags.BoolVar(&s.CrashChecks, "crash-checks", false,
		"run also the checks that could end or harm a daemon that fails them")
	known := flags.String("known-failures", "",
		"`file` with a line for each failure that is expected: a regexp as for --run, blanks, and the reason")
	flags.DurationVar(&s.CallTimeout, "call-timeout", 2*time.Minute, "how long one call may take")
	flags.StringVar(&s.KubeletPath, "kubelet-path", `C:\var\lib\kubelet`, "`directory` that the daemon allows paths in")
	flags.StringArrayVar(&s.Disks, "disk", nil,
		"serial number or page 83 `identifier` of a disk to erase; may be given several times")
	flags.BoolVar(&s.Erase, "erase-disks", false, "confirm that the disks of --disk and --iscsi-target are erased")
	flags.StringVar(&s.Share, "share", "", "SMB share, `\\\\server\\share`, that nobody on the node uses")
	flags.StringVar(&s.ShareUsername, "share-username", "", "`name` of the user at its server")
	password := flags.String("share-password-file", "", "`file` that holds the user's password")
	flags.StringVar(&s.Portal, "iscsi-portal", "", "`address` of an iSCSI portal, or address:port")
	flags.StringVar(&s.Target, "iscsi-target", "", "`name` of a target there that the node isn't connected to")
	flags.StringVar(&s.CHAPUsername, "iscsi-chap-username", "", "`name` of the CHAP user, if the target wants one")
	chap := flags.String("iscsi-chap-secret-file", "", "`file` that holds the CHAP secret")
	mutual := flags.String("iscsi-mutual-secret-file", "",
		"`file` that holds the secret of the target, which becomes the node's")
	plant := flags.Bool("plant", false,
		"make links as a pod could, and put data of another system on the disks of --disk; run it on the node, as administrator")
	flags.StringVar(&s.Service, "service", "", "`name` of a Windows service that may be stopped and started")
	if err := flags.Parse(args); err != nil {
		return s, err
	}

	switch {
	case flags.NArg() > 0:
		return s, fmt.Errorf("unknown argument %q; see --help", flags.Arg(0))
	case !slices.Contains([]string{formatText, formatJSON, formatJUnit}, s.format):
		return s, fmt.Errorf("--output=%s: must be %s, %s or %s", s.format, formatText, formatJSON, formatJUnit)
	}
	if *pattern != "" {
		if s.Run, err = regexp.Compile(*pattern); err != nil {
			return s, fmt.Errorf("--run: %w", err)
		}
	}
	for _, group := range s.Groups {
		if !slices.ContainsFunc(conformance.Checks(), func(c conformance.Check) bool { return c.Group == group }) {
			return s, fmt.Errorf("--group: there are no checks of a group %q", group)
		}
	}
	if *known != "" {
		text, err := os.ReadFile(*known)
		if err != nil {
			return s, fmt.Errorf("--known-failures: %w", err)
		}
		if s.Known, err = conformance.ParseKnownFailures(string(text)); err != nil {
			return s, fmt.Errorf("%s: %w", *known, err)
		}
	}
	for file, value := range map[*string]*csiproxy.Secret{password: &s.SharePassword, chap: &s.CHAPSecret,
		mutual: &s.MutualCHAPSecret} {
		if *file == "" {
			continue
		}
		text, err := os.ReadFile(*file)
		if err != nil {
			return s, err
		}
		line, _, _ := strings.Cut(string(text), "\n")
		*value = csiproxy.NewSecret(strings.TrimSuffix(line, "\r"))
	}
	switch {
	case len(s.Chosen()) == 0:
		return s, errors.New("--run, --group, --version: no check matches all of them")
	case s.Share != "" && s.ShareUsername == "":
		return s, errors.New("--share: it needs --share-username and --share-password-file")
	}
	if *plant {
		s.Node = newPlanter(s.endpointDir)
	}
	return s, nil
}

// run runs the checks, or lists them, and returns the exit code.
func (s settings) run(ctx context.Context, stdout, stderr io.Writer) (int, error) {
	if s.list {
		return s.printChecks(stdout)
	}
	s.Dial = func(ctx context.Context, group, version string) (net.Conn, error) {
		return pipe.Dial(ctx, pipe.Address(s.endpointDir, api.EndpointName(group, version)))
	}
	s.Progress = func(r conformance.Result, n, total int) {
		fmt.Fprintf(stderr, "%d/%d %s: %s\n", n, total, r.ID(), r.Outcome)
	}
	results, err := conformance.Run(ctx, s.Options)
	switch {
	case errors.Is(err, conformance.ErrNotServed):
		return exitNotServed, err
	case err != nil && len(results) == 0:
		return exitUsage, err
	}
	if printErr := s.printResults(stdout, results); printErr != nil {
		return exitFailed, errors.Join(err, printErr)
	}
	for _, k := range conformance.Unused(s.Known, results) {
		fmt.Fprintf(stderr, "csi-proxy-conformance: expected to fail, and nothing does: %s\n", k.Trials)
	}
	if failed := countOf(results, conformance.Failed); err == nil && failed > 0 {
		err = fmt.Errorf("%d of %d checks failed", failed, len(results))
	}
	if err != nil {
		return exitFailed, err
	}
	return 0, nil
}

func countOf(results []conformance.Result, outcome conformance.Outcome) (n int) {
	for _, r := range results {
		if r.Outcome == outcome {
			n++
		}
	}
	return n
}

func (s settings) printResults(stdout io.Writer, results []conformance.Result) error {
	switch s.format {
	case formatJUnit:
		return conformance.WriteJUnit(stdout, results)
	case formatJSON:
		return printJSON(stdout, append([]conformance.Result{}, results...))
	}
	rows := [][]string{{"CHECK", "OUTCOME", "WHY"}}
	for _, r := range results {
		rows = append(rows, []string{r.ID(), string(r.Outcome), r.Why})
	}
	if err := printTable(stdout, rows); err != nil {
		return err
	}
	var parts []string
	for _, outcome := range []conformance.Outcome{conformance.Passed, conformance.Failed, conformance.KnownDifference,
		conformance.NotApplicable} {
		parts = append(parts, fmt.Sprintf("%d %s", countOf(results, outcome), outcome))
	}
	_, err := fmt.Fprintln(stdout, strings.Join(parts, ", "))
	return err
}

// checkJSON is a check as programs get it.
type checkJSON struct {
	Check    string   `json:"check"`
	Group    string   `json:"group"`
	Versions []string `json:"versions"`
	Promise  string   `json:"promise"`
	Better   bool     `json:"better"` // than the published daemon
}

// printChecks prints the chosen checks.
func (s settings) printChecks(stdout io.Writer) (int, error) {
	rows, checks := [][]string{{"CHECK", "VERSIONS", "PROMISE"}}, []checkJSON{}
	for _, c := range s.Chosen() {
		promise := c.Promise
		if c.Better {
			promise += " (The published daemon doesn't.)"
		}
		rows = append(rows, []string{c.Name, strings.Join(c.Versions, " "), promise})
		checks = append(checks, checkJSON{c.Name, c.Group, c.Versions, c.Promise, c.Better})
	}
	switch s.format {
	case formatJUnit:
		return exitUsage, errors.New("--list has no output in the format junit")
	case formatJSON:
		return 0, printJSON(stdout, checks)
	}
	return 0, printTable(stdout, rows)
}

func printJSON(stdout io.Writer, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = stdout.Write(append(quote.JSON(text), '\n'))
	return err
}

func printTable(stdout io.Writer, rows [][]string) error {
	table := tabwriter.NewWriter(stdout, 0, 8, 2, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			if row[i] = quote.Terminal(cell); cell == "" {
				row[i] = "-"
			}
		}
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	return table.Flush()
}
