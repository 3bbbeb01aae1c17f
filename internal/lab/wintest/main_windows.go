// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/zip"
	"bufio"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/svc/mgr"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winread"
	"github.com/csi-proxy/csi-proxy/node"
)

var version = "unknown" // set by the linker

// plan is what the user is asked about.
const plan = `csi-proxy-wintest %s will, on this machine (%s):

  - write to new directories C:\csi-proxy-wintest-*
  - install, start, stop, kill and remove services csi-proxy-wintest-*, which run as
    LocalSystem and open the named pipes csi-proxy-*
  - make VHDX files of up to 16 GiB (they take up some MB), attach them as disks, and
    partition, format, mount, grow, copy and detach these; one gets a free drive letter
    for a moment; it writes to no other disk
  - ask all disks for their size and identity, and rescan the storage adapters
  - make local users csi-wintest-* and shares csi-proxy-wintest-* of directories of its
    own, map these for the whole machine, and remove them
  - stop and start the service msiserver (Windows Installer)
  - with -iscsi: stop and start the services MSiSCSI and WinTarget, make targets
    csi-proxy-wintest-* of the iSCSI target server, which other machines can see, log in
    to them, set the CHAP secret of this machine's initiator, and remove the targets

It takes some minutes and cleans up in the end, also what an earlier run left behind.
Don't run it on a node that has pods: a daemon that serves already is in the way.
`

// quickPlan is plan with -quick.
const quickPlan = `csi-proxy-wintest %s -quick will, on this machine (%s):

  - write to a new directory C:\csi-proxy-wintest-*
  - make one VHDX file there, which grows to 2 GiB (it takes up some MB), attach it as a
    disk, and partition, format, mount, grow and detach that; it writes to no other disk
  - ask all disks for their size and identity
  - install, start and remove a service csi-proxy-wintest-*, which runs as LocalSystem and
    opens the named pipes csi-proxy-*
  - make a local user csi-wintest-* and a share csi-proxy-wintest-* of a directory of its
    own, map it for the whole machine, and remove both

It gives up what isn't done after two minutes, and cleans up in the end, also what an
earlier run left behind. Don't run it on a node that has pods: a daemon that serves
already is in the way.
`

// quickTime limits the tests of -quick.
const quickTime = 2 * time.Minute

// options are the flags of the program.
type options struct {
	yes, quick, iscsi bool
	report            string
}

func main() {
	var o options
	flag.BoolVar(&o.yes, "yes", false, "go on without asking")
	flag.BoolVar(&o.quick, "quick", false, "test what decides most, within two minutes; the report is a table in Markdown, for an issue")
	flag.StringVar(&o.report, "report", "", "the `file` for the report; - is standard output "+
		"(default csi-proxy-wintest.jsonl, or with -quick csi-proxy-wintest.md)")
	flag.BoolVar(&o.iscsi, "iscsi", false,
		"also test iSCSI: needs Install-WindowsFeature FS-iSCSITarget-Server, and changes the CHAP secret of this "+
			"machine's initiator")
	flag.Parse()
	if flag.NArg() > 0 || o.quick && o.iscsi {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "csi-proxy-wintest:", err)
		os.Exit(1)
	}
}

// run returns an error also if a test fails.
func run(o options) error {
	head := describe()
	what := plan
	if o.quick {
		what = quickPlan
	}
	fmt.Printf(what, version, head.system())
	if err := check(); err != nil {
		return err
	}
	if !o.yes {
		fmt.Print("\nGo on? [y/N] ")
		answer, _ := bufio.NewReader(os.Stdin).ReadString('\n')
		if !slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(answer))) {
			return errors.New("nothing was done")
		}
	}
	// SIGTERM is the end of the terminal's window, which leaves some seconds.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	dir, err := os.MkdirTemp(`C:\`, prefix)
	if err != nil {
		return err
	}
	rows, outcomes, err := prove(ctx, dir, o)
	left := cleanUp(head.Wine != "")
	if left != nil {
		left = fmt.Errorf("something is left behind; run csi-proxy-wintest again, which tries to remove it: %w", left)
	}
	if err != nil {
		return errors.Join(err, left)
	}
	evaluated := evaluate
	if o.quick {
		evaluated = evaluateQuick
	}
	return errors.Join(judge(outcomes, Report{head, evaluated(rows, outcomes)}, o), left)
}

// describe says which Windows this is.
func describe() Head {
	v := windows.RtlGetVersion()
	head := Head{
		Windows: fmt.Sprintf("%d.%d.%d", v.MajorVersion, v.MinorVersion, v.BuildNumber),
		Arch:    runtime.GOARCH,
		Version: version,
		Time:    time.Now().UTC().Format(time.RFC3339),
	}
	if wine := windows.NewLazySystemDLL("ntdll.dll").NewProc("wine_get_version"); wine.Find() == nil {
		r, _, _ := wine.Call()
		head.Wine = windows.BytePtrToString(*(**byte)(unsafe.Pointer(&r)))
	}
	// Neither exists on every Windows, or under Wine.
	const key = `SOFTWARE\Microsoft\Windows NT\CurrentVersion`
	registry, ctx := winread.Windows{}, context.Background()
	if revision, err := registry.RegistryNumber(ctx, key, "UBR"); err == nil {
		head.Windows += fmt.Sprintf(".%d", revision)
	}
	if name, err := registry.RegistryStrings(ctx, key, "ProductName"); err == nil {
		head.Edition = strings.Join(name, " ")
	}
	return head
}

// check says why the tests can't run here.
func check() error {
	m, err := mgr.Connect()
	if err != nil {
		return fmt.Errorf("this program must run as an administrator; start it from a terminal that was opened as "+
			"administrator: %w", err)
	}
	defer m.Disconnect()
	off, err := winread.Windows{}.RegistryNumber(context.Background(), win.RegistryMountManager, win.RegistryNoAutoMount)
	if err == nil && off != 0 {
		return errors.New("new volumes stay offline on this machine, which the tests don't expect: run mountvol /E first, " +
			"and mountvol /N afterwards")
	}
	pipes, err := os.ReadDir(`\\.\pipe\`)
	if err != nil {
		return nil // Wine can't list pipes; then the first test finds out
	}
	for _, p := range pipes {
		if strings.HasPrefix(p.Name(), "csi-proxy-") && strings.Contains(p.Name(), "-v") {
			return fmt.Errorf("the pipe %s is served already: stop the service of CSI Proxy first", p.Name())
		}
	}
	return nil
}

// prove runs the test programs, and returns the rows that they are about and the outcome of each test.
func prove(ctx context.Context, dir string, o options) ([]Row, Outcomes, error) {
	if err := endWithChildren(); err != nil {
		return nil, nil, err
	}
	rows, packages, err := unpack(dir)
	if err != nil {
		return nil, nil, err
	}
	// A package's guesses about Windows run apart, so that one that hangs doesn't stop the other tests.
	runs := []testRun{{"-test.skip=^TestGuess", "TestMain", false}, {"-test.run=^TestGuess", "TestGuessMain", true}}
	if o.quick {
		rows = quickRows(rows)
		runs = []testRun{{"-test.run=" + runFlag(rows), "TestMain", true}}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, quickTime)
		defer cancel()
	}
	env := append(os.Environ(), "CSI_PROXY_PROGRAMS="+dir, "TMP="+dir, "TEMP="+dir)
	if o.iscsi {
		env = append(env, "CSI_PROXY_TEST_ISCSI=1")
	}
	outcomes := Outcomes{}
	for _, pkg := range packages {
		fmt.Printf("\n%s\n", pkg)
		for _, r := range runs {
			if err := cleanUpServices(); err != nil { // those of a test that was cut off would keep the pipes
				return nil, nil, err
			}
			err := outcomes.run(ctx, dir, env, pkg, r)
			switch {
			case errors.Is(ctx.Err(), context.DeadlineExceeded):
				fmt.Println(timeIsOver)
				outcomes.skipRest(rows, timeIsOver)
				return rows, outcomes, nil
			case ctx.Err() != nil:
				return nil, nil, errors.New("interrupted")
			case err != nil:
				return nil, nil, err
			}
		}
	}
	return rows, outcomes, nil
}

// unpack unpacks the archive at the end of this program, and returns all rows and the packages
// whose tests are in it.
func unpack(dir string) (rows []Row, packages []string, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	archive, err := zip.OpenReader(self)
	if err != nil {
		return nil, nil, fmt.Errorf("this program contains no tests; build it with make wintest: %w", err)
	}
	defer archive.Close()
	for _, f := range archive.File {
		if program, ok := strings.CutPrefix(f.Name, "tests/"); ok {
			packages = append(packages, path.Dir(program))
		}
	}
	if rows, err = parseAssumptions(assumptions); err != nil {
		return nil, nil, err
	}
	return rows, packages, os.CopyFS(dir, archive)
}

// testProgram is the name of each test program, in a directory with the path of its package. A test of WMI looks
// for its end; only a service whose program has the name of the product in its own is removed.
const testProgram = "csi-proxy.test.exe"

// testTimeout limits a run of a test program.
const testTimeout = 25 * time.Minute

// testRun is a run of a test program.
type testRun struct {
	which      string // the flag that chooses tests
	whole      string // the name of the test that has failed if the program has
	mayBeEmpty bool   // not every package has such tests
}

// timeIsOver is why tests weren't run, or not to their end.
const timeIsOver = "the time for the tests was over"

// run runs tests of a package.
func (o Outcomes) run(ctx context.Context, dir string, env []string, pkg string, r testRun) error {
	// The directory where the tests find the files of their package.
	source := filepath.Join(dir, "source", filepath.FromSlash(pkg))
	if err := os.MkdirAll(source, 0o700); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "tests", filepath.FromSlash(pkg), testProgram),
		"-test.v=test2json", "-test.timeout="+testTimeout.String(), r.which)
	cmd.Dir, cmd.Env = source, env
	output, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return err
	}
	ran := Outcomes{}
	outside := ran.Add(pkg, output, os.Stdout)
	err = cmd.Wait()
	switch {
	case ctx.Err() != nil:
		ran.cutOff(timeIsOver)
	case len(ran) == 0 && !r.mayBeEmpty, err != nil && len(ran.Failed()) == 0:
		text := fmt.Sprintf("the program ended with %v after %d tests\n%s", cmd.ProcessState, len(ran), outside)
		ran[pkg+"."+r.whole] = &Outcome{Result: "fail", Output: text}
	}
	maps.Copy(o, ran)
	return nil
}

// judge prints the tests that have failed, and writes the report.
func judge(outcomes Outcomes, report Report, o options) error {
	var failed error // unless only guesses have
	fmt.Println()
	for _, test := range outcomes.Failed() {
		what := "wrong guess"
		if !strings.Contains(test, ".TestGuess") {
			what, failed = "failed", errors.New("tests have failed")
		}
		fmt.Printf("%s: %s\n", what, test)
		for line := range strings.Lines(outcomes[test].Output) {
			fmt.Print("    ", line)
		}
	}
	counts := map[string]int{}
	for _, line := range report.Lines {
		counts[line.Result]++
	}
	fmt.Printf("\n%d rows proven, %d refuted, %d not run; %d are checked by hand\n",
		counts[Proven], counts[Refuted], counts[NotRun], counts[ByHand])

	host, err := os.Hostname()
	if err != nil {
		return err
	}
	withoutNames(report.Lines, []string{host, os.Getenv("USERNAME"), os.Getenv("USERDOMAIN")}, serialNumbers())
	file, write := cmp.Or(o.report, "csi-proxy-wintest.jsonl"), report.write
	if o.quick {
		file, write = cmp.Or(o.report, "csi-proxy-wintest.md"), report.writeTable
	}
	out := os.Stdout
	if file != "-" {
		fmt.Println("report:", file)
		if out, err = os.Create(file); err != nil {
			return err
		}
	}
	err = write(out)
	if o.quick && file != "-" { // for whoever sees the terminal only
		fmt.Println()
		err = errors.Join(err, write(os.Stdout))
	}
	return errors.Join(err, out.Close(), failed)
}

// serialNumbers returns those of the machine, of its disks, and their identifiers, as far as
// Windows tells them: where it doesn't, the tests haven't seen them either.
func serialNumbers() (all []string) {
	operations, err := node.Open(node.Options{})
	if err != nil {
		return nil
	}
	ctx := context.Background()
	if bios, err := operations.System.GetBIOSSerialNumber(ctx); err == nil {
		all = append(all, bios)
	}
	disks, _ := operations.Storage.ListDisks(ctx, csiproxy.Selector{})
	for _, d := range disks {
		all = append(all, d.SerialNumber, d.DiskID)
		for _, id := range d.Identifiers {
			all = append(all, id.Text)
		}
	}
	return all
}

// endWithChildren makes the system end the programs that this process starts from now on
// when it ends for any reason: one that stays would go on changing the node. The
// job is closed when its last handle is, which is at the end of this process.
//
// https://learn.microsoft.com/en-us/windows/win32/procthread/job-objects
var endWithChildren = sync.OnceValue(func() error {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return fmt.Errorf("make a job: %w", err)
	}
	var limits windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION
	limits.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	if _, err := windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits))); err != nil {
		return fmt.Errorf("limit the job: %w", err)
	}
	if err := windows.AssignProcessToJobObject(job, windows.CurrentProcess()); err != nil {
		return fmt.Errorf("enter the job: %w", err)
	}
	return nil
})
