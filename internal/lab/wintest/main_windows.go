// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/zip"
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/registry"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/host/winservice"
	"github.com/csi-proxy/csi-proxy/node"
)

var version = "unknown" // set by the linker

// Exit codes.
const (
	exitFailed  = 1 // a test failed, or the program could not do its work
	exitUsage   = 2
	exitRefused = 3 // the user didn't let it go on
)

// plan is what the user is asked about.
const plan = `csi-proxy-wintest %s will, on this machine (%s):

  - write to new directories C:\csi-proxy-wintest-*
  - install, start, stop, kill and remove services csi-proxy-wintest-* and
    csi-proxy-winsys-test*, which run as LocalSystem and open the named pipes csi-proxy-*
  - make VHDX files of up to 16 GiB (they take up some MB), attach them as disks, and
    partition, format, mount, grow, copy and detach these; one gets a free drive letter
    for a moment; it writes to no other disk
  - ask all disks for their size and identity, and rescan the storage adapters
  - make local users csi-wintest-* and shares csi-proxy-wintest-* of directories of its
    own, map these for the whole machine, and remove them
  - stop and start the service msiserver (Windows Installer)
%s
It takes some minutes and cleans up in the end, also what an earlier run left behind.
Don't run it on a node that has pods: a daemon that serves already is in the way.
`

const planISCSI = `  - stop and start the services MSiSCSI and WinTarget, make targets csi-proxy-wintest-*
    of the iSCSI target server, which other machines can see, log in to them, set the
    CHAP secret of this machine's initiator, and remove the targets
`

func main() {
	yes := flag.Bool("yes", false, "go on without asking")
	report := flag.String("report", "csi-proxy-wintest.jsonl", "the `file` for the report; - is standard output")
	iscsi := flag.Bool("iscsi", false,
		"also test iSCSI: needs Install-WindowsFeature FS-iSCSITarget-Server, and changes the CHAP secret of this "+
			"machine's initiator")
	flag.Parse()
	if flag.NArg() > 0 {
		flag.Usage()
		os.Exit(exitUsage)
	}
	os.Exit(run(*yes, *iscsi, *report))
}

func run(yes, iscsi bool, report string) int {
	head, err := describe()
	if err != nil {
		return failed(err)
	}
	touched := ""
	if iscsi {
		touched = planISCSI
	}
	fmt.Printf(plan, version, strings.TrimSpace(head.Edition+" "+head.Windows), touched)
	if err := check(); err != nil {
		return failed(err)
	}
	if !yes && !confirmed() {
		return exitRefused
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	dir, err := os.MkdirTemp(`C:\`, prefix)
	if err != nil {
		return failed(err)
	}
	outcomes, err := prove(ctx, dir, iscsi)
	// In any case nothing is left behind.
	if err := errors.Join(err, cleanUp(head.Wine != "")); err != nil {
		return failed(err)
	}
	return judge(outcomes, head, report)
}

func failed(err error) int {
	fmt.Fprintln(os.Stderr, "csi-proxy-wintest:", err)
	return exitFailed
}

// confirmed asks the user.
func confirmed() bool {
	fmt.Print("\nGo on? [y/N] ")
	answer, err := bufio.NewReader(os.Stdin).ReadString('\n')
	return err == nil && slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(answer)))
}

// describe says which Windows this is.
func describe() (head Head, err error) {
	v := windows.RtlGetVersion()
	head = Head{
		Windows: fmt.Sprintf("%d.%d.%d", v.MajorVersion, v.MinorVersion, v.BuildNumber),
		Arch:    runtime.GOARCH,
		Version: version,
		Time:    time.Now().UTC().Format(time.RFC3339),
	}
	if wine := windows.NewLazySystemDLL("ntdll.dll").NewProc("wine_get_version"); wine.Find() == nil {
		r, _, _ := wine.Call()
		head.Wine = windows.BytePtrToString(*(**byte)(unsafe.Pointer(&r)))
	}
	key, err := registry.OpenKey(registry.LOCAL_MACHINE, `SOFTWARE\Microsoft\Windows NT\CurrentVersion`, registry.QUERY_VALUE)
	if err != nil {
		return head, fmt.Errorf("the version of Windows: %w", err)
	}
	defer key.Close()
	// Neither exists on every Windows, or under Wine.
	if revision, _, err := key.GetIntegerValue("UBR"); err == nil {
		head.Windows += fmt.Sprintf(".%d", revision)
	}
	if name, _, err := key.GetStringValue("ProductName"); err == nil {
		head.Edition = name
	}
	return head, nil
}

// check says why the tests can't run here.
func check() error {
	m, err := windows.OpenSCManager(nil, nil, windows.SC_MANAGER_CREATE_SERVICE)
	if err != nil {
		return fmt.Errorf("this program must run as an administrator; start it from a terminal that was opened as "+
			"administrator: %w", err)
	}
	if err := windows.CloseServiceHandle(m); err != nil {
		return err
	}
	if number, err := numberOf(`SYSTEM\CurrentControlSet\Services\MountMgr`, "NoAutoMount"); err == nil && number != 0 {
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

// numberOf returns a number of the registry, below HKEY_LOCAL_MACHINE.
func numberOf(path, value string) (uint64, error) {
	key, err := registry.OpenKey(registry.LOCAL_MACHINE, path, registry.QUERY_VALUE)
	if err != nil {
		return 0, err
	}
	defer key.Close()
	number, _, err := key.GetIntegerValue(value)
	return number, err
}

// testTimeout limits the test program of one package.
const testTimeout = 25 * time.Minute

// prove runs the test programs and returns the outcome of each test.
func prove(ctx context.Context, dir string, iscsi bool) (Outcomes, error) {
	if err := winservice.EndWithChildren(); err != nil {
		return nil, err
	}
	if err := cleanUpServices(); err != nil { // services of an earlier run would keep the pipes
		return nil, err
	}
	tests, err := unpack(dir)
	if err != nil {
		return nil, err
	}
	env := append(os.Environ(),
		"CSI_PROXY_BIN="+filepath.Join(dir, "csi-proxy.exe"), "CSI_PROXY_SIM_BIN="+filepath.Join(dir, "csi-proxy-sim.exe"),
		"CSI_PROXYCTL_BIN="+filepath.Join(dir, "csi-proxyctl.exe"),
		"CSI_PROXYCTL_SIM_BIN="+filepath.Join(dir, "csi-proxyctl-sim.exe"),
		"TMP="+dir, "TEMP="+dir)
	if iscsi {
		env = append(env, "CSI_PROXY_TEST_ISCSI=1")
	}
	outcomes := Outcomes{}
	for _, pkg := range tests {
		fmt.Printf("\n%s\n", pkg)
		runs := []testRun{{pkg, "TestMain", nil}}
		if pkg == guessing {
			runs = []testRun{{pkg, "TestMain", []string{"-test.skip=^TestGuess"}},
				{pkg, "TestGuessMain", []string{"-test.run=^TestGuess"}}}
		}
		for _, run := range runs {
			if err := run.run(ctx, dir, env, outcomes); err != nil {
				return nil, err
			}
			if ctx.Err() != nil {
				return nil, errors.New("interrupted")
			}
			if err := cleanUpServices(); err != nil { // services of a test that was cut off
				return nil, err
			}
		}
	}
	return outcomes, nil
}

// guessing is the package some of whose tests are guesses about Windows. Those run
// separately, so that one that hangs doesn't stop the others.
const guessing = "test/windows"

// testRun is a run of the test program of a package.
type testRun struct {
	pkg   string
	whole string // the name of the test that is reported as failed if the program fails
	flags []string
}

func (r testRun) run(ctx context.Context, dir string, env []string, outcomes Outcomes) error {
	// The directory where the tests find the files of their package.
	source := filepath.Join(dir, "source", filepath.FromSlash(r.pkg))
	if err := os.MkdirAll(source, 0o700); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, programOf(dir, r.pkg),
		append([]string{"-test.v=test2json", "-test.timeout=" + testTimeout.String()}, r.flags...)...)
	cmd.Dir, cmd.Env = source, env
	var log bytes.Buffer
	output := io.MultiWriter(&log, &progress{out: os.Stdout})
	cmd.Stdout, cmd.Stderr = output, output // one writer, or they would overwrite each other
	err := cmd.Run()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		return err
	}
	ran := Outcomes{}
	if err := ran.Add(r.pkg, bytes.NewReader(log.Bytes())); err != nil {
		return fmt.Errorf("the output of the tests of %s: %w", r.pkg, err)
	}
	if len(ran) == 0 || err != nil && len(ran.Failed()) == 0 {
		ran[Test{Package: r.pkg, Name: r.whole}] = &Outcome{Result: "fail", Output: []string{
			fmt.Sprintf("the program ended with %v after %d tests", err, len(ran)),
			log.String(),
		}}
	}
	maps.Copy(outcomes, ran)
	return nil
}

// progress prints the lines that say how a test ended.
type progress struct {
	out  io.Writer
	rest []byte
}

func (p *progress) Write(b []byte) (int, error) {
	p.rest = append(p.rest, b...)
	for {
		line, rest, ok := bytes.Cut(p.rest, []byte("\n"))
		if !ok {
			return len(b), nil
		}
		p.rest = rest
		if _, text, ok := bytes.Cut(line, []byte("\x16")); ok && bytes.HasPrefix(bytes.TrimSpace(text), []byte("--- ")) {
			fmt.Fprintf(p.out, "  %s\n", bytes.TrimSpace(text)[len("--- "):])
		}
	}
}

// programOf is the path to which the test program of a package is unpacked.
func programOf(dir, pkg string) string {
	return filepath.Join(dir, strings.ReplaceAll(pkg, "/", "-")+".test.exe")
}

// page is the packed docs/windows-proof.md.
var page string

// unpack unpacks the archive at the end of this program and returns the packages whose
// tests are in it.
func unpack(dir string) (tests []string, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	archive, err := zip.OpenReader(self)
	if err != nil {
		return nil, fmt.Errorf("this program contains no tests; build it with make wintest: %w", err)
	}
	defer func() { err = errors.Join(err, archive.Close()) }()
	for _, f := range archive.File {
		if !filepath.IsLocal(f.Name) {
			return nil, fmt.Errorf("the archive has a file with an unexpected name, %s", f.Name)
		}
		content, err := archive.Open(f.Name)
		if err != nil {
			return nil, err
		}
		b, err := io.ReadAll(content)
		if err := errors.Join(err, content.Close()); err != nil {
			return nil, fmt.Errorf("unpack %s: %w", f.Name, err)
		}
		file := filepath.Join(dir, filepath.FromSlash(f.Name))
		if pkg, ok := strings.CutPrefix(f.Name, "tests/"); ok {
			tests = append(tests, pkg)
			file = programOf(dir, pkg)
		}
		if f.Name == "windows-proof.md" {
			page = string(b)
			continue
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, b, 0o700)); err != nil {
			return nil, err
		}
	}
	return tests, nil
}

// judge writes the report, prints the tests that have failed, and returns the exit code.
func judge(outcomes Outcomes, head Head, report string) int {
	rows, err := parsePage(page)
	if err != nil {
		return failed(err)
	}
	lines := evaluate(rows, outcomes)
	host, err := os.Hostname()
	if err != nil {
		return failed(err)
	}
	withoutNames(lines, []string{host, os.Getenv("USERNAME"), os.Getenv("USERDOMAIN")}, serialNumbers())
	var b bytes.Buffer
	if err := writeReport(&b, head, lines); err != nil {
		return failed(err)
	}
	counts := map[string]int{}
	for _, line := range lines {
		counts[line.Result]++
	}
	code := 0
	fmt.Println()
	for _, test := range outcomes.Failed() {
		guess := strings.HasPrefix(test.Name, "TestGuess")
		if !guess {
			code = exitFailed
		}
		fmt.Printf("%s %s\n", map[bool]string{true: "wrong guess:", false: "failed:"}[guess], test.Package+"."+test.Name)
		for _, line := range outcomes[test].Output {
			fmt.Println("   ", line)
		}
	}
	fmt.Printf("\n%d rows proven, %d refuted, %d not run; %d are checked by hand, %d need no Windows\n",
		counts[Proven], counts[Refuted], counts[NotRun], counts[ByHand], counts[NoNeed])
	if report == "-" {
		fmt.Print(b.String())
		return code
	}
	if err := os.WriteFile(report, b.Bytes(), 0o600); err != nil {
		return failed(err)
	}
	fmt.Println("report:", report)
	return code
}

// serialNumbers returns those of the machine, of its disks, and their identifiers, as far as
// Windows tells them: where it doesn't, the tests haven't seen them either.
func serialNumbers() []string {
	var all []string
	operations, err := node.Open(node.Options{})
	if err != nil {
		return nil
	}
	if bios, err := operations.System.GetBIOSSerialNumber(context.Background()); err == nil {
		all = append(all, bios)
	}
	disks, err := operations.Storage.ListDisks(context.Background(), csiproxy.Selector{})
	if err != nil {
		return all
	}
	for _, d := range disks {
		all = append(all, d.SerialNumber, d.DiskID)
		for _, id := range d.Identifiers {
			all = append(all, id.Text)
		}
	}
	return all
}
