// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/api"
	"github.com/csi-proxy/csi-proxy/internal/lab/conformance"
	"github.com/csi-proxy/csi-proxy/internal/serve/pipe"
	"github.com/csi-proxy/csi-proxy/secret"
)

const formatJUnit format = "junit"

// reportFormat is what --output of this command chooses.
type reportFormat struct{ *format }

func (f reportFormat) Set(s string) error {
	if format(s) == formatJUnit {
		*f.format = formatJUnit
		return nil
	}
	if f.format.Set(s) != nil {
		return fmt.Errorf("it is %s, %s or %s", formatText, formatJSON, formatJUnit)
	}
	return nil
}

// conformanceFlags are the flags that need more than a field of the options.
type conformanceFlags struct {
	conformance.Options
	list       bool
	run, known string
	plant      bool
	secrets    []func() error // read the secrets
}

func (p *program) conformance() *cobra.Command {
	var f conformanceFlags
	cmd := p.leaf("conformance", "Check that a daemon keeps what CSI drivers rely on",
		func(ctx context.Context, _ []string) (reply, error) { return printed, p.runConformance(ctx, &f) })
	cmd.PreRun = p.withoutDefaultTimeout
	cmd.Long = `Check that a daemon keeps what CSI drivers rely on: each published version, as drivers call it.
The daemon may be this project's or another one, also the published one (see --published).

Checks that need a disk, a share, a target or a service aren't applicable unless you name one
that they may use up. The disks, and the disk of the iSCSI target, lose all data. Nothing else
is changed but a directory of the run's own below the kubelet directory, which is removed at
the end.

The exit code is 0 only if nothing failed. docs/conformance.md says more.

` + secretHelp
	cmd.Example = `  csi-proxyctl conformance
  csi-proxyctl conformance --published --disk SERIAL --erase-disks -o junit
  csi-proxyctl conformance --list --group volume --version v1`
	f.addTo(cmd, p)
	return cmd
}

func (f *conformanceFlags) addTo(cmd *cobra.Command, p *program) {
	flags := cmd.Flags()
	// This one is in front of the global flag of the same name.
	flags.VarP(reportFormat{&p.format}, "output", "o", "`format` of the output: text, json or junit")
	complete(cmd, "output", cobra.FixedCompletions([]cobra.Completion{string(formatText), string(formatJSON),
		string(formatJUnit)}, cobra.ShellCompDirectiveNoFileComp))

	flags.BoolVar(&f.list, "list", false, "list the checks and run none")
	flags.StringVar(&f.run, "run", "", "run only checks whose name, such as volume.mount/v1, this `regexp` matches")
	flags.StringSliceVar(&f.Groups, "group", nil,
		"run only checks of this `group`: "+strings.Join(api.PublishedGroups(),
			", ")+" or drivers; may be given several times")
	flags.StringSliceVar(&f.Versions, "version", nil,
		"run only checks of this `version`, such as v1beta1; may be given several times")
	flags.BoolVar(&f.Published, "published", false,
		"the daemon is the published one: what it is known not to do is a known difference, and codes of errors aren't "+
			"compared")
	flags.BoolVar(&f.CrashChecks, "crash-checks", false,
		"run also the checks that could end or harm a daemon that fails them")
	flags.StringVar(&f.known, "known-failures", "",
		"`file` with a line for each failure that is expected: a regexp as for --run, blanks, and the reason")
	completeFiles(cmd, "known-failures")
	flags.DurationVar(&f.CallTimeout, "call-timeout", defaultTimeout, "how long one call may take")
	flags.StringVar(&f.KubeletPath, "kubelet-path", `C:\var\lib\kubelet`, "`directory` that the daemon allows paths in")

	flags.StringArrayVar(&f.Disks, "disk", nil,
		"serial number or page 83 `identifier` of a disk to erase; may be given several times")
	flags.BoolVar(&f.Erase, "erase-disks", false, "confirm that the disks of --disk and --iscsi-target are erased")
	flags.StringVar(&f.Share, "share", "", "SMB share, `\\\\server\\share`, that nobody on the node uses")
	flags.StringVar(&f.ShareUsername, "share-username", "", "`name` of the user at its server")
	f.secret(cmd, "share-password-file", "the user's password", &f.SharePassword)
	flags.StringVar(&f.Portal, "iscsi-portal", "", "`address` of an iSCSI portal, or address:port")
	flags.StringVar(&f.Target, "iscsi-target", "", "`name` of a target there that the node isn't connected to")
	flags.StringVar(&f.CHAPUsername, "iscsi-chap-username", "", "`name` of the CHAP user, if the target wants one")
	f.secret(cmd, "iscsi-chap-secret-file", "the CHAP secret", &f.CHAPSecret)
	f.secret(cmd, "iscsi-mutual-secret-file", "the secret of the target, which becomes the node's", &f.MutualCHAPSecret)
	flags.BoolVar(&f.plant, "plant", false,
		"make links as a pod could, and put data of another system on the disks of --disk; run it on the node, as "+
			"administrator")
	flags.StringVar(&f.Service, "service", "", "`name` of a Windows service that may be stopped and started")
}

// secret adds a flag for a secret that may be left out.
func (f *conformanceFlags) secret(cmd *cobra.Command, flag, what string, to *secret.Text) {
	read := secretFlag(cmd, flag, what)
	f.secrets = append(f.secrets, func() (err error) {
		if cmd.Flag(flag).Changed {
			*to, err = read()
		}
		return err
	})
}

// options completes the options from the flags.
func (f *conformanceFlags) options() error {
	var err error
	if f.run != "" {
		if f.Run, err = regexp.Compile(f.run); err != nil {
			return usageError{fmt.Errorf("--run: %w", err)}
		}
	}
	for _, group := range f.Groups {
		if !slices.ContainsFunc(conformance.Checks(), func(c conformance.Check) bool { return c.Group == group }) {
			return usageError{fmt.Errorf("--group: there are no checks of a group %q", group)}
		}
	}
	if f.known != "" {
		text, err := os.ReadFile(f.known)
		if err != nil {
			return usageError{err}
		}
		if f.Known, err = conformance.ParseKnownFailures(string(text)); err != nil {
			return usageError{fmt.Errorf("%s: %w", f.known, err)}
		}
	}
	for _, read := range f.secrets {
		if err := read(); err != nil {
			return err
		}
	}
	return nil
}

func (p *program) runConformance(ctx context.Context, f *conformanceFlags) error {
	if err := f.options(); err != nil {
		return err
	}
	if f.list {
		return p.listChecks(f.Options)
	}
	if f.plant {
		f.Node = p.planter()
	}
	f.Dial = func(ctx context.Context, group, version string) (net.Conn, error) {
		return pipe.Dial(ctx, pipe.Address(p.endpointDir, api.EndpointName(group, version)))
	}
	f.Progress = func(r conformance.Result, n, total int) {
		fmt.Fprintf(p.stderr, "%d/%d %s: %s\n", n, total, r.ID(), r.Outcome)
	}
	results, err := conformance.Run(ctx, f.Options)
	if err != nil && len(results) == 0 {
		return &csiproxy.Error{Op: "check", Object: "the daemon" + p.where(), Kind: kindOfRun(err), Err: err}
	}
	if printErr := p.printResults(results); printErr != nil {
		return errors.Join(err, printErr)
	}
	for _, k := range conformance.Unused(f.Known, results) {
		fmt.Fprintf(p.stderr, "csi-proxyctl: expected to fail, and nothing does: %s\n", k.Trials)
	}
	failed := 0
	for _, r := range results {
		if r.Outcome == conformance.Failed {
			failed++
		}
	}
	if err == nil && failed > 0 {
		err = fmt.Errorf("%d of %d checks failed", failed, len(results))
	}
	return err
}

// kindOfRun is the class of an error that kept all checks from running.
func kindOfRun(err error) error {
	if errors.Is(err, conformance.ErrNotServed) {
		return csiproxy.ErrUnavailable
	}
	return csiproxy.ErrInvalidArgument
}

func (p *program) printResults(results []conformance.Result) error {
	if p.format == formatJUnit {
		var report bytes.Buffer
		if err := conformance.WriteJUnit(&report, results); err != nil {
			return err
		}
		return p.print(reply{raw: report.Bytes()})
	}
	r := reply{json: append([]conformance.Result{}, results...), header: []string{"CHECK", "OUTCOME", "WHY"}}
	count := make(map[conformance.Outcome]int)
	for _, result := range results {
		count[result.Outcome]++
		r.rows = append(r.rows, []string{result.ID(), string(result.Outcome), result.Why})
	}
	if p.format == formatText {
		var parts []string
		for _, outcome := range []conformance.Outcome{conformance.Passed, conformance.Failed, conformance.KnownDifference,
			conformance.NotApplicable} {
			parts = append(parts, fmt.Sprintf("%d %s", count[outcome], outcome))
		}
		defer fmt.Fprintln(p.stdout, strings.Join(parts, ", "))
	}
	return p.print(r)
}

// checkJSON is a check as programs get it.
type checkJSON struct {
	Check    string   `json:"check"`
	Group    string   `json:"group"`
	Versions []string `json:"versions"`
	Promise  string   `json:"promise"`
	Better   bool     `json:"better"` // than the published daemon
}

// listChecks prints the chosen checks.
func (p *program) listChecks(o conformance.Options) error {
	r := reply{header: []string{"CHECK", "VERSIONS", "PROMISE"}}
	all := []checkJSON{}
	for _, c := range o.Chosen() {
		promise := c.Promise
		if c.Better {
			promise += " (The published daemon doesn't.)"
		}
		r.rows = append(r.rows, []string{c.Name, strings.Join(c.Versions, " "), promise})
		all = append(all, checkJSON{c.Name, c.Group, c.Versions, c.Promise, c.Better})
	}
	r.json = all
	return p.print(r)
}
