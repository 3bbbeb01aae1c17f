// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"archive/zip"
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/serve/admin"
	"github.com/csi-proxy/csi-proxy/internal/text/mask"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// Bundle says what goes into a support bundle beside what the node answers.
type Bundle struct {
	// Program describes the program that makes the bundle: its version.
	Program string
	// Time is when it is made.
	Time time.Time
	// Logs are the paths of log files. Of each, the last LogBytes are taken. One that
	// doesn't exist is listed as missing.
	Logs     []string
	LogBytes int64
	// Page asks the daemon for a page: one of those of package admin.
	Page func(ctx context.Context, page string) (string, error)
}

// WriteBundle writes a zip with all that support needs to know of the node: the findings, also as a
// first page for people, the endpoints, the services with their flags, disks, volumes, mounts,
// the daemon's metrics and goroutines, the logs, and the errors and warnings in them. What can't be found out is listed in missing.txt,
// and keeps nothing else from the zip. Passwords are in none of the sources; where a text
// looks as if it gave one, it is masked all the same, since the text may be another
// program's.
func WriteBundle(ctx context.Context, w io.Writer, n *Node, b Bundle) error {
	z := &bundle{Writer: zip.NewWriter(w), time: b.Time}
	findings := Examine(ctx, n)
	z.text("about.txt", fmt.Sprintf("Support bundle of CSI Proxy, made at %s by %s.\n\n%s\n%s",
		b.Time.UTC().Format(time.RFC3339), b.Program, mask.Text(firstPage(findings)), about))
	z.json("findings.json", findings, nil)

	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	n = n.asked(ctx)
	for _, part := range []struct {
		name string
		get  func(ctx context.Context, n *Node) (any, error)
	}{
		{"windows.json", windowsVersion},
		{"endpoints.json", endpointStates},
		{"services.json", servicesWithFlags},
		{"programs.json", programBuilds},
		{"disks.json", func(ctx context.Context, n *Node) (any, error) { return n.disks(ctx) }},
		{"volumes.json", volumesAndPaths},
		{"mounts.json", mountedVolumes},
	} {
		got, err := inTime(ctx, func() (any, error) { return part.get(ctx, n) })
		z.json(part.name, got, err)
	}
	for _, page := range []struct{ name, path string }{{"metrics.txt", admin.Metrics}, {"daemon.txt", admin.Debug}} {
		got, err := inTime(ctx, func() (string, error) { return b.Page(ctx, page.path) })
		z.found(page.name, got, err)
	}
	z.logs(b.Logs, b.LogBytes)
	z.text("errors.txt", strings.Join(z.failures, "\n")+"\n")
	z.text("missing.txt", mask.Text(strings.Join(z.missing, "\n"))+"\n")
	return errors.Join(z.err, z.Close())
}

// firstPage says in words what was found, problems first.
func firstPage(findings []Finding) string {
	var b strings.Builder
	for _, verdict := range []Verdict{Problem, Warning, Unknown} {
		for _, f := range findings {
			if f.Verdict != verdict {
				continue
			}
			fmt.Fprintf(&b, "%s: %s: %s\n", strings.ToUpper(string(verdict)), f.Check, quote.Terminal(f.Text))
			if f.Advice != "" {
				fmt.Fprintf(&b, "    to do: %s\n", quote.Terminal(f.Advice))
			}
		}
	}
	if b.Len() == 0 {
		return "csi-proxyctl doctor found nothing wrong.\n"
	}
	return "What csi-proxyctl doctor found wrong, or couldn't find out; docs/troubleshooting.md has more on each:\n\n" + b.String()
}

const about = `findings.json   what csi-proxyctl doctor found
windows.json    the version of Windows
endpoints.json  which versions of the API are served
services.json   the services that run the daemon, with the daemon's flags
programs.json   what the programs were built of that serve, or that a service runs
disks.json      the disks, with their partitions, volumes, and where these are mounted
volumes.json    the volumes that Windows knows, with their file systems
mounts.json     what is mounted where: volumes, links, shares, and what is left over
metrics.txt     the daemon's metrics
daemon.txt      the daemon's flags, and what each of its goroutines does
log/            the end of the daemon's logs
errors.txt      the last errors and warnings in them
missing.txt     what is not here, and why

Passwords are in none of these, nor are the names of their users.

The Windows event log isn't here. These commands save what it has of disks:

    wevtutil epl System system.evtx
    wevtutil epl Microsoft-Windows-Partition/Diagnostic disks.evtx
`

// bundle is a zip that is being written.
type bundle struct {
	*zip.Writer
	time     time.Time
	missing  []string
	failures []string // of the logs
	err      error    // the first of writing
}

// create begins a file.
func (z *bundle) create(name string) io.Writer {
	w, err := z.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate, Modified: z.time})
	if err != nil {
		z.err = errors.Join(z.err, err)
		return io.Discard
	}
	return w
}

func (z *bundle) text(name, text string) {
	_, err := io.WriteString(z.create(name), text)
	z.err = errors.Join(z.err, err)
}

// found adds a text, or says why it is missing.
func (z *bundle) found(name, text string, err error) {
	if err != nil {
		z.missing = append(z.missing, fmt.Sprintf("%s: %v", name, err))
	}
	if text != "" || err == nil {
		z.text(name, mask.Text(text))
	}
}

func (z *bundle) json(name string, v any, err error) {
	if err != nil {
		z.missing = append(z.missing, fmt.Sprintf("%s: %v", name, err))
	}
	text, jsonErr := json.MarshalIndent(v, "", "  ")
	if jsonErr != nil { // plain data can always be encoded
		z.err = errors.Join(z.err, jsonErr)
		return
	}
	if err != nil && string(text) == "null" {
		return
	}
	z.text(name, string(quote.JSON([]byte(mask.Text(string(text)))))+"\n")
}

// mostFailures is how many lines errors.txt has at most.
const mostFailures = 500

// logs adds the ends of log files.
func (z *bundle) logs(paths []string, most int64) {
	taken := map[string]bool{}
	for _, path := range paths {
		name := base(path)
		for taken[strings.ToLower(name)] {
			name = "other-" + name
		}
		taken[strings.ToLower(name)] = true
		if err := z.log("log/"+name, path, most); err != nil {
			z.missing = append(z.missing, fmt.Sprintf("log/%s: %v", name, err))
		}
	}
	if len(paths) == 0 {
		z.missing = append(z.missing, "log: the daemon's flags name no log file; with -logtostderr the log is where its "+
			"starter puts it")
	}
}

func (z *bundle) log(name, path string, most int64) error {
	f, err := os.Open(filepath.Clean(path))
	if err != nil {
		return err
	}
	defer f.Close() // only read
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if skip := info.Size() - most; skip > 0 {
		if _, err := f.Seek(skip, io.SeekStart); err != nil {
			return err
		}
	}
	// What is written while this runs isn't read: it could go on forever.
	lines := bufio.NewReader(io.LimitReader(f, most))
	out := bufio.NewWriter(z.create(name))
	for {
		line, err := lines.ReadString('\n')
		line = mask.Text(line)
		if isFailure(line) {
			z.failures = append(z.failures, strings.TrimRight(line, "\r\n"))
			z.failures = z.failures[max(0, len(z.failures)-mostFailures):]
		}
		if _, err := out.WriteString(line); err != nil {
			z.err = errors.Join(z.err, err)
			return nil
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return errors.Join(err, out.Flush())
		}
	}
	z.err = errors.Join(z.err, out.Flush())
	return nil
}

// isFailure reports whether a line of a log is an error or a warning: in klog's format by
// its first letter, in JSON by its severity.
func isFailure(line string) bool {
	if len(line) > 5 && strings.ContainsRune("EWF", rune(line[0])) && strings.Trim(line[1:5], "0123456789") == "" {
		return true
	}
	return strings.HasPrefix(line, "{") &&
		(strings.Contains(line, `"severity":"ERROR"`) || strings.Contains(line, `"severity":"WARNING"`))
}

// windowsVersion reads which Windows this is.
func windowsVersion(ctx context.Context, n *Node) (any, error) {
	w, err := n.windows(ctx)
	if err != nil {
		return nil, err
	}
	const key = `SOFTWARE\Microsoft\Windows NT\CurrentVersion`
	version := map[string]string{}
	var errs []error
	for _, value := range []string{"ProductName", "EditionID", "DisplayVersion", "CurrentBuildNumber",
		"InstallationType"} {
		texts, err := w.RegistryStrings(ctx, key, value)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", value, err))
			continue
		}
		version[value] = strings.Join(texts, " ")
	}
	revision, err := w.RegistryNumber(ctx, key, "UBR")
	if err != nil {
		errs = append(errs, fmt.Errorf("UBR: %w", err))
	} else {
		version["UBR"] = fmt.Sprint(revision)
	}
	return version, errors.Join(errs...)
}

// endpointState is an endpoint in a bundle.
type endpointState struct {
	Group, Version, Address string
	Served                  bool
	Error                   string `json:",omitempty"`
	Process                 uint32 `json:",omitempty"`
	Program                 string `json:",omitempty"`
}

func endpointStates(ctx context.Context, n *Node) (any, error) {
	if n.Endpoints == nil {
		return nil, n.needsWindows()
	}
	var states []endpointState
	for _, e := range n.Endpoints(ctx) {
		s := endpointState{Group: e.Group, Version: e.Version, Address: e.Address, Served: e.Served}
		if e.Err != nil {
			s.Error = e.Err.Error()
		}
		if e.Served && n.Server != nil {
			var err error
			if s.Process, s.Program, err = n.Server(ctx, e.Address); err != nil {
				s.Error = err.Error()
			}
		}
		states = append(states, s)
	}
	return states, nil
}

func servicesWithFlags(ctx context.Context, n *Node) (any, error) {
	services, err := n.services(ctx)
	if err != nil {
		return nil, err
	}
	for i, s := range services {
		services[i].Args = mask.Flags(s.Args)
	}
	return services, nil
}

// programBuild is what a program was built of.
type programBuild struct {
	Program         string
	Go              string
	Module, Version string
	Settings        map[string]string
}

// programBuilds describes each program that listens at an endpoint or that a service runs.
func programBuilds(ctx context.Context, n *Node) (any, error) {
	if n.Build == nil {
		return nil, n.needsWindows()
	}
	var errs []error
	programs := map[string]bool{}
	if n.Endpoints != nil && n.Server != nil {
		for _, e := range n.Endpoints(ctx) {
			if _, program, err := n.Server(ctx, e.Address); e.Served && err == nil && program != "" {
				programs[program] = true
			}
		}
	}
	if n.Services != nil {
		services, err := n.Services(ctx)
		errs = append(errs, err)
		for _, s := range services {
			programs[s.Program] = true
		}
	}
	builds := []programBuild{}
	for _, program := range slices.Sorted(maps.Keys(programs)) {
		info, err := n.Build(program)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		b := programBuild{Program: program, Go: info.GoVersion, Module: info.Main.Path, Version: info.Main.Version,
			Settings: map[string]string{}}
		for _, s := range info.Settings {
			b.Settings[s.Key] = s.Value
		}
		builds = append(builds, b)
	}
	return builds, errors.Join(errs...)
}

// volumeState is a volume of Windows in a bundle.
type volumeState struct {
	Name       string
	Paths      []string
	FileSystem string `json:",omitempty"`
	Label      string `json:",omitempty"`
	ReadOnly   bool
	TotalBytes uint64
	FreeBytes  uint64
	Errors     []string `json:",omitempty"`
}

func volumesAndPaths(ctx context.Context, n *Node) (any, error) {
	w, err := n.windows(ctx)
	if err != nil {
		return nil, err
	}
	names, err := w.FindVolumes(ctx)
	if err != nil {
		return nil, err
	}
	var volumes []volumeState
	for _, name := range names {
		v := volumeState{Name: name}
		noted := func(err error) {
			if err != nil {
				v.Errors = append(v.Errors, err.Error())
			}
		}
		info, err := w.VolumeInformation(ctx, name)
		noted(err)
		v.FileSystem, v.Label, v.ReadOnly = info.FileSystem, info.Label, info.Flags&win.FileReadOnlyVolume != 0
		if err == nil {
			space, err := w.DiskFreeSpace(ctx, name)
			noted(err)
			v.TotalBytes, v.FreeBytes = space.Total, space.Free
		}
		v.Paths, err = w.VolumePathNames(ctx, name)
		noted(err)
		volumes = append(volumes, v)
	}
	return volumes, nil
}

func mountedVolumes(_ context.Context, n *Node) (any, error) {
	list, err := n.mounted()
	if err != nil {
		return nil, err
	}
	return list, nil
}
