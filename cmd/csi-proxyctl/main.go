// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Command csi-proxyctl calls CSI Proxy on this node by hand, as a CSI driver does. On a
// simulated node it also plays the cloud, a pod and the power supply.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/api"
	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/internal/serve/admin"
	"github.com/csi-proxy/csi-proxy/internal/serve/pipe"
	"github.com/csi-proxy/csi-proxy/internal/text/didyoumean"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// defaultTimeout is longer than any successful command takes. The published daemon
// needs seconds for some calls.
const defaultTimeout = 2 * time.Minute

// program is one run of the program.
type program struct {
	stdout, stderr io.Writer

	endpointDir string
	driver      string        // whose endpoints are used; see client
	timeout     time.Duration // 0 for none
	format      format

	started bool // a command has started, so the command line was valid
	// noHelp is why there is no help: it was asked of a command that doesn't exist.
	noHelp error
}

// run runs the program and returns its exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	p := &program{stdout: stdout, stderr: stderr, format: formatText}
	root := p.root()
	root.SetArgs(args)
	root.SetIn(stdin)
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = p.noHelp
	}
	if err != nil && !p.started {
		err = usageError{err}
	}
	if err != nil {
		p.printError(ctx, err)
	}
	return exitCode(err)
}

// simulated is the command that controls a simulated node. The released program for Windows
// lacks it: there it is nil, unless the program is built with the tag "simulated".
var simulated func(p *program) *cobra.Command

func (p *program) root() *cobra.Command {
	root := p.group("csi-proxyctl", "Call CSI Proxy on this node",
		p.versions(),
		p.version(),
		p.disk(),
		p.volume(),
		p.filesystem(),
		p.smb(),
		p.iscsi(),
		p.system(),
		p.storage(),
		p.service(),
		p.status(),
		p.drain(),
		p.doctor(),
		p.supportBundle(),
	)
	if simulated != nil {
		root.AddCommand(simulated(p))
	}
	root.Long = `csi-proxyctl calls CSI Proxy on this node, as a CSI driver does. It uses the newest API
version that is served. "csi-proxyctl sim", which the released program for Windows
lacks, also plays the cloud, a pod and the power supply of a simulated node.

Sizes may have a unit: 20GiB, 512MiB, 10GB, or plain bytes. Paths are those of the Windows
node. A command that asks a question prints yes or no; its exit code is 0 for both. On a terminal
what isn't well has a colour, unless NO_COLOR is set.

For programs, -o json prints an array for a list, and an object for anything else: {} if there
is no result. A list that may be incomplete is in an object, beside its incomplete_reason. What
isn't known is null or missing. Names don't change, and sizes are in bytes. An error is an object
on standard error.

Exit codes:
` + exitCodeHelp()
	root.Version = currentBuild().String()
	root.SilenceErrors, root.SilenceUsage = true, true
	root.DisableSuggestions = true // they take several lines
	root.SetFlagErrorFunc(explainFlag)
	root.SetOut(p.stdout)
	root.SetErr(p.stderr)
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		// Cobra would show the help of the group.
		if rest := cmd.Flags().Args(); cmd.HasSubCommands() && len(rest) > 0 {
			p.noHelp = unknownCommand(cmd, rest)
			return
		}
		fmt.Fprint(p.stdout, helpOf(cmd))
	})
	root.SetHelpCommand(&cobra.Command{
		Use:   "help [COMMAND...]",
		Short: "Help about any command",
		// Not files, which are no commands.
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err == nil && len(rest) > 0 && cmd.HasSubCommands() {
				err = unknownCommand(cmd, rest)
			}
			if err != nil {
				return err
			}
			return cmd.Help()
		},
	})

	flags := root.PersistentFlags()
	flags.StringVar(&p.endpointDir, "endpoint-dir", client.DefaultEndpointDir(),
		"`directory` of the daemon's sockets; not used on Windows, which has named pipes")
	flags.StringVar(&p.driver, "driver", "",
		"`name` of the driver whose endpoints are used, on a node where the daemon's file of drivers names it: the "+
			"command sees what the driver sees. Default: the whole node")
	flags.DurationVar(&p.timeout, "timeout", defaultTimeout, "how long the command may take; 0 for as long as it needs")
	flags.VarP(&p.format, "output", "o", "`format` of the output: text or json")
	complete(root, "output", cobra.FixedCompletions([]cobra.Completion{string(formatText), string(formatJSON)},
		cobra.ShellCompDirectiveNoFileComp))
	return root
}

// unknownCommand is the error for arguments of a group that aren't a command of it.
func unknownCommand(group *cobra.Command, args []string) error {
	var names []string
	for _, c := range group.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return fmt.Errorf("unknown command %q for %q%s", args[0], group.CommandPath(),
		didyoumean.Hint(group.CommandPath()+" ", args[0], names))
}

// group is a command that only has commands below it.
func (p *program) group(use, short string, commands ...*cobra.Command) *cobra.Command {
	group := &cobra.Command{
		Use:   use,
		Short: short,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args)
			}
			return cmd.Help()
		},
		Args: cobra.ArbitraryArgs, // RunE has a better error for them than cobra
	}
	group.AddCommand(commands...)
	return group
}

// leaf is a command that does something. The first word of use is its name, the others
// name its arguments.
func (p *program) leaf(use, short string, do func(ctx context.Context, args []string) (reply, error)) *cobra.Command {
	return &cobra.Command{
		Use:   use,
		Short: short,
		Args:  checkArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			p.started = true
			ctx := cmd.Context()
			if p.timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, p.timeout)
				defer cancel()
			}
			r, err := do(ctx, args)
			if err != nil {
				return err
			}
			return p.print(r)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
}

// withoutDefaultTimeout is the PreRun of a command for which --timeout has no default.
func (p *program) withoutDefaultTimeout(cmd *cobra.Command, _ []string) {
	if !cmd.Flags().Changed("timeout") {
		p.timeout = 0
	}
}

// optional are arguments in a usage that may be left out.
var optional = regexp.MustCompile(`\[.*?\]`)

// checkArgs compares arguments with those that the usage of a command names: [OPTIONAL] and
// REPEATED... as well.
func checkArgs(cmd *cobra.Command, args []string) error {
	names := strings.Fields(cmd.Use)[1:]
	least, most := len(strings.Fields(optional.ReplaceAllString(cmd.Use, "")))-1, len(names)
	if strings.Contains(cmd.Use, "...") {
		most = math.MaxInt
	}
	if least <= len(args) && len(args) <= most {
		return nil
	}
	takes, given := "no arguments", "none was given"
	if len(names) > 0 {
		takes = strings.Join(names, " ")
	}
	switch len(args) {
	case 0:
	case 1:
		given = fmt.Sprintf("%q was given", args)
	default:
		given = fmt.Sprintf("%q were given", args)
	}
	return fmt.Errorf("%s takes %s, and %s", cmd.CommandPath(), takes, given)
}

// explainFlag says of a wrong flag what was given and what is possible.
func explainFlag(cmd *cobra.Command, err error) error {
	if missing := new(pflag.NotExistError); errors.As(err, &missing) {
		if letters := missing.GetSpecifiedShortnames(); letters != "" {
			if strings.Trim(letters, "0123456789") == "" {
				return fmt.Errorf("-%s: no number may be less than 0", letters)
			}
			return err
		}
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		return fmt.Errorf("%w%s", err, didyoumean.Hint("--", missing.GetSpecifiedName(), names))
	}
	if invalid := new(pflag.InvalidValueError); errors.As(err, &invalid) {
		f := invalid.GetFlag()
		reason := invalid.Unwrap().Error()
		switch f.Value.Type() {
		case "duration":
			reason = "must be a time with a unit, such as 30s or 1m30s"
		case "bool":
			reason = "must be true or false"
		case "uint32":
			reason = fmt.Sprintf("must be a whole number from 0 to %d", uint32(math.MaxUint32))
		}
		return fmt.Errorf("--%s=%s: %s", f.Name, quote.Text(invalid.GetValue()), reason)
	}
	return err
}

// client returns a client of the daemon: of the endpoints of -driver, or else of the published ones or, where
// only drivers have some, of the administrators'.
func (p *program) client(ctx context.Context) *client.Client {
	driver := p.driver
	if driver == "" && !p.serves(ctx, "") && p.serves(ctx, admin.Driver) {
		driver = admin.Driver
	}
	return p.clientOf(driver)
}

// serves reports whether a daemon has endpoints of a driver, "" for the published ones, that has the group disk.
func (p *program) serves(ctx context.Context, driver string) bool {
	return pipe.Held(ctx, pipe.Address(p.endpointDir, api.DriverEndpointName(driver, "disk", "v1"))) != nil
}

// clientOf returns a client of the endpoints of a driver, "" for the published ones.
func (p *program) clientOf(driver string) *client.Client {
	return client.New(client.WithEndpointDir(p.endpointDir), client.WithDriver(driver))
}

// call is a leaf that calls CSI Proxy. If its first argument is a DISK or a VOLUME, the shell
// completes it.
func (p *program) call(use, short string,
	do func(context.Context, *client.Client, []string) (reply, error)) *cobra.Command {
	cmd := p.leaf(use, short, func(ctx context.Context, args []string) (r reply, err error) {
		c := p.client(ctx)
		defer func() { err = errors.Join(err, c.Close()) }()
		return do(ctx, c, args)
	})
	switch arguments := strings.Fields(use)[1:]; {
	case len(arguments) == 0:
	case strings.Trim(arguments[0], "[]") == "DISK":
		cmd.ValidArgsFunction = p.completeDisks
	case arguments[0] == "VOLUME":
		cmd.ValidArgsFunction = p.completeVolumes
	}
	return cmd
}

// method is a call of one method of the client, given as (*client.Disk).PartitionDisk. The
// arguments of the command are those of the method. show makes the reply of its answer; nil
// prints nothing.
func (p *program) method(use, short string, method, show any) *cobra.Command {
	m := reflect.ValueOf(method)
	if m.Type().NumIn() != 1+len(strings.Fields(use)) || // its group and its context come before its arguments
		show != nil && reflect.TypeOf(show).In(0) != m.Type().Out(0) {
		panic(fmt.Sprintf("%s: %T, %T", use, method, show)) // a mistake of this program
	}
	return p.call(use, short, func(ctx context.Context, c *client.Client, args []string) (reply, error) {
		group := reflect.ValueOf(c).Elem().FieldByName(m.Type().In(0).Elem().Name())
		in := []reflect.Value{group, reflect.ValueOf(ctx)}
		for _, text := range args {
			arg, err := parseArgument(text, m.Type().In(len(in)))
			if err != nil {
				return reply{}, err
			}
			in = append(in, arg)
		}
		out := m.Call(in)
		if err, _ := out[len(out)-1].Interface().(error); err != nil || show == nil {
			return done, err
		}
		return reflect.ValueOf(show).Call(out[:1])[0].Interface().(reply), nil
	})
}

// parseArgument reads an argument of a command as what a method takes.
func parseArgument(text string, as reflect.Type) (reflect.Value, error) {
	var arg any = text
	var err error
	switch as {
	case reflect.TypeFor[csiproxy.DiskNumber]():
		arg, err = parseDisk(text)
	case reflect.TypeFor[csiproxy.ISCSIPortal]():
		arg, err = parsePortal(text)
	}
	return reflect.ValueOf(arg).Convert(as), err
}

// action is a call that prints nothing.
func (p *program) action(use, short string, do func(context.Context, *client.Client, []string) error) *cobra.Command {
	return p.call(use, short, func(ctx context.Context, c *client.Client, args []string) (reply, error) {
		return done, do(ctx, c, args)
	})
}
