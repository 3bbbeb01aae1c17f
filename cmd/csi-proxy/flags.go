// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/serve/pipe"
	"github.com/csi-proxy/csi-proxy/internal/serve/server"
	"github.com/csi-proxy/csi-proxy/internal/text/didyoumean"
	"github.com/csi-proxy/csi-proxy/node"
)

// Values of -o.
const (
	outputText = "text"
	outputJSON = "json"
)

// Values of -node.
const (
	nodeWindows   = "windows"
	nodeSimulated = "simulated"
)

// defaultGracePeriod leaves Kubernetes some of the 30 seconds after which it
// kills a container that was to stop.
const defaultGracePeriod = 25 * time.Second

// options are what the command line says.
type options struct {
	version        bool
	checkOnly      bool
	output         string // of checkOnly: outputText or outputJSON
	windowsService bool

	node     string // nodeWindows or nodeSimulated
	simState string // file; empty to forget

	nodeops.Options
	requirePrivacy bool

	driversPath string
	drivers     driversFile // of driversPath
	ofDrivers   []nodeops.Driver

	endpointDir    string
	pipeSecurity   string // an SDDL; empty but on Windows
	maxCalls       int
	metricsAddress string // empty for none
	gracePeriod    time.Duration
	warnings       []string // what check has found odd

	logFormat string        // formatText or formatJSON
	logging   *flag.FlagSet // klog's own flags
}

// parseFlags reads the command line; check says whether it makes sense. With -help
// it prints the flags to usage and returns flag.ErrHelp. klog's flags take effect
// as they are read.
func parseFlags(args []string, usage io.Writer) (options, error) {
	o, flags, err := parseOwnFlags(args, usage)
	if err != nil || flags.NArg() == 0 {
		return o, err
	}
	if line := serviceLine(flags.Args()); o.checkOnly && line != nil {
		rest := flags.Args()
		own := args[:len(args)-len(rest)]
		if len(own) > 0 && own[len(own)-1] == "--" {
			own = own[:len(own)-1]
		}
		// The last one of a flag counts.
		args = slices.Concat([]string{"-node=" + nodeWindows}, line[1:], own)
		if o, flags, err = parseOwnFlags(args, usage); err != nil || flags.NArg() == 0 {
			return o, err
		}
	}
	return options{}, fmt.Errorf("unknown argument %q: %s", flags.Arg(0), insteadOf(flags, args))
}

// serviceLine returns the words of the command line of a service, which begins with a program; nil for what is none.
func serviceLine(words []string) []string {
	if len(words) == 1 {
		words = splitCommandLine(words[0])
	}
	program := strings.ToLower(words[0][strings.LastIndexAny(words[0], `\/`)+1:])
	if program != "csi-proxy" && !strings.HasSuffix(program, ".exe") {
		return nil
	}
	return words
}

// parseOwnFlags reads flags up to the first argument that is none.
func parseOwnFlags(args []string, usage io.Writer) (o options, flags *flag.FlagSet, _ error) {
	flags = flag.NewFlagSet("csi-proxy", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // the caller prints the error
	flags.Usage = func() {}

	flags.BoolVar(&o.version, "version", false, "print the version and exit")
	flags.BoolVar(&o.checkOnly, "check", false,
		"check the other flags and the file of -drivers, print what the daemon serves and needs with them and what\n"+
			"each driver gets, and exit; it touches nothing on the node. On any system it also takes the command\n"+
			"line of a node's service, as one text or as its words: csi-proxy -check 'C:\\k\\csi-proxy.exe -v=2'.\n"+
			"Flags before that line replace its own, such as the path of a copy of the file of -drivers")
	flags.StringVar(&o.output, "o", outputText, "how -check prints: text or json, which is for programs")
	flags.BoolVar(&o.windowsService, "windows-service", false, "run as a Windows service")
	flags.StringVar(&o.node, "node", defaultNode(),
		"the `kind` of node: windows is this machine; simulated is one in memory, on any system, which on\n"+
			"Windows only csi-proxy-sim.exe has")
	flags.StringVar(&o.simState, "sim-state", "",
		"the `file` that keeps the simulated node when the daemon ends; without one the node is lost")
	flags.StringVar(&o.KubeletPath, "kubelet-path", node.DefaultKubeletPath,
		"the `directory` of kubelet on the node; drivers' paths are accepted below it")
	flags.Func("working-dir", "another `directory` below which drivers' paths are accepted; may be repeated. Files of Windows,\n"+
		"of kubelet itself and of the daemon are refused even there",
		func(dir string) error {
			if dir == "" {
				return errors.New("it must not be empty")
			}
			o.WorkingDirs = append(o.WorkingDirs, dir)
			return nil
		})
	flags.Func("protected-volume",
		"a `volume`, as a drive letter like D: or an id like \\\\?\\Volume{guid}\\, that is never mounted,\n"+
			"nor entered by way of a mount point; may be repeated. The volumes of C:, -kubelet-path\n"+
			"and -working-dir are protected anyhow. While a volume isn't there, only data disks of Azure\n"+
			"are partitioned, formatted and listed by LUN, since another disk may be the one that gets it;\n"+
			"so D: may stand also for machines of Azure without a temporary disk", func(volume string) error {
			o.ProtectedVolumes = append(o.ProtectedVolumes, volume)
			return nil
		})
	flags.BoolVar(&o.AllowRecognizedData, "overwrite-recognized-data", false,
		"partition disks and format volumes also if they hold data of another system that is\n"+
			"recognised; a volume with a file system that Windows knows is refused in any case")
	flags.BoolVar(&o.RefuseClones, "refuse-clones", false,
		"refuse to bring a disk online that has the ids of one that is online, as the disk of a snapshot\n"+
			"next to its original does; without this flag Windows gives it new ids")
	flags.DurationVar(&o.SilentDiskTimeout, "silent-disk-timeout", node.DefaultSilentDiskTimeout,
		"how long the calls on all disks wait for one that does not answer before they pass it over")
	flags.BoolVar(&o.WritableMountPoints, "writable-mount-points", false,
		"leave the directory that a volume was unmounted from as it is; without this flag an entry in\n"+
			"its access list denies everybody new files there, so that no pod writes to the node's disk")
	flags.Func("reformat-dir", "a `directory`: FormatVolume also formats a volume that has a file system, and so deletes all its files,\n"+
		"if it is mounted right in this directory and is nowhere in use; may be repeated. It doesn't count\n"+
		"for drivers with endpoints of their own, for which the file of -drivers has reformat", func(dir string) error {
		o.ReformatDirs = append(o.ReformatDirs, dir)
		return nil
	})
	flags.Func("volume-writer",
		"`who` may write at the root of a volume, beside SYSTEM and the Administrators: "+
			strings.Join(csiproxy.WellKnownWriters(), ",\n")+
			" or a SID; may be repeated. It counts for a volume that FormatVolume formats, and for one\n"+
			"that is empty with the access list of a format. StageVolume may name others", func(writer string) error {
			if _, err := csiproxy.ParseWriter(writer); err != nil {
				return err
			}
			o.VolumeWriters = append(o.VolumeWriters, writer)
			return nil
		})
	flags.Func("drivers", "the `file` that names the node's drivers: each gets endpoints of its own, at which it sees and touches\n"+
		"only what is its; the published endpoints, at which every driver has the whole node, are off\n"+
		"then, unless the file says otherwise", func(path string) error {
		if path == "" {
			return errors.New("it must not be empty")
		}
		o.driversPath = path
		return nil
	})
	flags.BoolVar(&o.requirePrivacy, "require-privacy", true,
		"encrypt the connections of new SMB mappings, and map no share of a server that can't. Without\n"+
			"encryption, containers may lose access to a share after about 15 minutes (moby#37863)")
	flags.BoolVar(&o.RefuseNodeAccount, "refuse-node-account", false,
		"refuse SMB mappings without a user name; without this flag they are made with the node's own\n"+
			"account (Kerberos), so that all pods with the share act as the node")
	flags.StringVar(&o.endpointDir, "endpoint-dir", pipe.DefaultDir(),
		"the `directory` of the endpoints' sockets; Windows has named pipes instead")
	flags.StringVar(&o.pipeSecurity, "pipe-security", pipe.DefaultSecurityDescriptor,
		"the security descriptor, in `SDDL`, of the named pipes; the default lets SYSTEM and the\n"+
			"Administrators connect. Who may connect owns the node. The daemon's own account needs all\n"+
			"rights (GA); give other clients 0x12019b, since more would let them pose as the daemon")
	flags.IntVar(&o.maxCalls, "max-calls", server.DefaultMaxCalls,
		"how many calls may be under way, at all endpoints together; more are refused with\nResourceExhausted")
	flags.StringVar(&o.metricsAddress, "metrics-bind-address", "",
		"the `address`, like 127.0.0.1:14810, that serves Prometheus metrics at /metrics, and\n/healthz and /readyz; "+
			"empty for none")
	flags.DurationVar(&o.gracePeriod, "grace-period", defaultGracePeriod,
		"how long running calls may take to finish when the daemon is to end")

	flags.StringVar(&o.logFormat, "logging-format", formatText,
		"how the lines of the log look: text is klog's own `format`, json that of Kubernetes' components")
	o.logging = addLoggingFlags(flags)

	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprint(usage, "Usage: csi-proxy [flag]...\n\nFlags, with one dash or two:\n")
			flags.SetOutput(usage)
			flags.PrintDefaults()
			return options{}, nil, err
		}
		return options{}, nil, explain(flags, err)
	}
	isNodeGiven := false
	flags.Visit(func(f *flag.Flag) { isNodeGiven = isNodeGiven || f.Name == "node" })
	// Elsewhere than on Windows, where the program itself may be the one with a simulated node, a service's flags are
	// those of a Windows node.
	if o.checkOnly && o.windowsService && !isNodeGiven && runtime.GOOS != "windows" {
		o.node = nodeWindows
	}
	return o, flags, nil
}

// insteadOf says what to write in place of the first argument that belongs to no flag.
func insteadOf(flags *flag.FlagSet, args []string) string {
	value := flags.Arg(0)
	if before := len(args) - flags.NArg() - 1; before >= 0 && (value == "true" || value == "false") {
		name := strings.TrimLeft(args[before], "-")
		if name != args[before] && flags.Lookup(name) != nil {
			return "write -" + name + "=" + value
		}
	}
	return "csi-proxy takes flags only; csi-proxyctl has the commands"
}

var (
	undefinedFlag = regexp.MustCompile(`^flag provided but not defined: -(.*)$`)
	invalidValue  = regexp.MustCompile(`(?s)^invalid (?:boolean )?value (".*") for (?:flag )?-(\S+): (.*)$`)
)

// explain says of an error of package flag what was given and what is possible.
func explain(flags *flag.FlagSet, err error) error {
	if m := undefinedFlag.FindStringSubmatch(err.Error()); m != nil {
		var names []string
		flags.VisitAll(func(f *flag.Flag) { names = append(names, f.Name) })
		return fmt.Errorf("unknown flag -%s%s", m[1], didyoumean.Hint("-", m[1], names))
	}
	m := invalidValue.FindStringSubmatch(err.Error())
	if m == nil {
		return err
	}
	reason := m[3]
	if getter, ok := flags.Lookup(m[2]).Value.(flag.Getter); ok {
		switch getter.Get().(type) {
		case time.Duration:
			reason = "it must be a time with a unit, such as 5s or 1m30s"
		case bool:
			reason = "it must be true or false"
		case int:
			reason = "it must be a whole number"
		case uint64:
			reason = "it must be a whole number, 0 or more"
		}
	}
	if strings.HasPrefix(reason, "strconv.") { // klog's flags
		reason = "it must be a whole number"
	}
	return fmt.Errorf("-%s=%s: %s", m[2], m[1], reason)
}

// asksForService reports whether a command line that may be wrong has
// -windows-service.
func asksForService(args []string) bool { return asks(args, "windows-service") }

// asks reports whether a command line that may be wrong has the flag.
func asks(args []string, flag string) bool {
	return slices.ContainsFunc(args, func(arg string) bool {
		name, value, given := strings.Cut(arg, "=")
		enabled, err := strconv.ParseBool(value)
		return (name == "-"+flag || name == "--"+flag) && (!given || err == nil && enabled)
	})
}

// defaultNode is the simulated node in the programs that have one.
func defaultNode() string {
	if openSimulated == nil {
		return nodeWindows
	}
	return nodeSimulated
}

// check returns an error for flags that are wrong whatever the state of the node.
func (o *options) check() error {
	mayServe := !o.checkOnly // -check is also about another machine
	switch {
	case !slices.Contains([]string{outputText, outputJSON}, o.output):
		return fmt.Errorf("-o=%s: it is %s or %s", o.output, outputText, outputJSON)
	case o.output != outputText && !o.checkOnly:
		return errors.New("-o: it goes with -check only")
	case !slices.Contains([]string{nodeWindows, nodeSimulated}, o.node):
		return fmt.Errorf("-node=%s: it is %s or %s", o.node, nodeWindows, nodeSimulated)
	case mayServe && o.node == nodeWindows && runtime.GOOS != "windows":
		return fmt.Errorf("-node=%s: this system is %s; use -node=%s", nodeWindows, runtime.GOOS, nodeSimulated)
	case o.node == nodeSimulated && openSimulated == nil:
		return fmt.Errorf("-node=%s: this program has no simulated node; use csi-proxy-sim.exe", nodeSimulated)
	case o.node != nodeSimulated && o.simState != "":
		return fmt.Errorf("-sim-state: it goes with -node=%s only", nodeSimulated)
	case mayServe && o.windowsService && runtime.GOOS != "windows":
		return fmt.Errorf("-windows-service: this system is %s; start csi-proxy without it", runtime.GOOS)
	case o.KubeletPath == "":
		return errors.New("-kubelet-path: it must not be empty")
	case o.maxCalls < 1:
		return fmt.Errorf("-max-calls=%d: it must be 1 or more", o.maxCalls)
	case o.gracePeriod < 0:
		return fmt.Errorf("-grace-period=%v: it must not be negative", o.gracePeriod)
	case o.SilentDiskTimeout <= 0:
		return fmt.Errorf("-silent-disk-timeout=%v: it must be more than 0", o.SilentDiskTimeout)
	}
	if o.metricsAddress != "" {
		_, port, err := net.SplitHostPort(o.metricsAddress)
		if err == nil {
			_, err = strconv.ParseUint(port, 10, 16)
		}
		if err != nil {
			return fmt.Errorf("-metrics-bind-address=%s: it must be an address and a port, such as 127.0.0.1:14810",
				o.metricsAddress)
		}
	}
	if o.node == nodeWindows && runtime.GOOS == "windows" {
		if err := o.addOwnFiles(); err != nil {
			return err
		}
	}
	if _, err := nodeops.New(nil, o.Options); err != nil { // which asks the node nothing yet
		return err
	}
	if err := o.warnOfWorkingDirs(); err != nil {
		return err
	}
	if err := o.loadDrivers(); err != nil {
		return err
	}
	warning, err := checkSecurityDescriptor(o.pipeSecurity, o.checkOnly)
	if err != nil {
		return fmt.Errorf("-pipe-security: %w", err)
	}
	if warning != "" {
		o.warnings = append(o.warnings, "-pipe-security: "+warning)
	}
	for _, p := range o.drivers.Warnings {
		p.isWarning = false // no need to say so twice
		o.warnings = append(o.warnings, fmt.Sprintf("-drivers=%s:%v", o.driversPath, p))
	}
	return checkLogging(o.logFormat, o.logging)
}
