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
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/serve/admin"
	"github.com/csi-proxy/csi-proxy/internal/text/mask"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
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

// WriteBundle writes a zip with all that support needs to know of the node: the findings, the services
// with their flags, disks, mounts, the daemon's metrics and goroutines, and the logs. What can't be found out is listed in missing.txt, and keeps
// nothing else from the zip. Passwords are in none of the sources; where a text
// looks as if it gave one, it is masked all the same, since the text may be another
// program's.
func WriteBundle(ctx context.Context, w io.Writer, n *Node, b Bundle) error {
	z := &bundle{Writer: zip.NewWriter(w), time: b.Time}
	z.text("about.txt", fmt.Sprintf("Support bundle of CSI Proxy, made at %s by %s.\n\n%s",
		b.Time.UTC().Format(time.RFC3339), b.Program, about))
	z.json("findings.json", Examine(ctx, n), nil)

	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	questions := n.asked(ctx)
	for _, part := range []struct {
		name string
		get  func(ctx context.Context, n *asked) (any, error)
	}{
		{"services.json", servicesWithFlags},
		{"disks.json", func(_ context.Context, n *asked) (any, error) { return n.disks() }},
		{"mounts.json", mountedVolumes},
	} {
		got, err := inTime(ctx, func() (any, error) { return part.get(ctx, questions) })
		z.json(part.name, got, err)
	}
	for _, page := range []struct{ name, path string }{{"metrics.txt", admin.Metrics}, {"daemon.txt", admin.Debug}} {
		got, err := inTime(ctx, func() (string, error) { return b.Page(ctx, page.path) })
		z.found(page.name, got, err)
	}
	z.logs(b.Logs, b.LogBytes)
	z.text("missing.txt", mask.Text(strings.Join(z.missing, "\n"))+"\n")
	return errors.Join(z.err, z.Close())
}

const about = `findings.json   what csi-proxyctl doctor found, and what to do about it
services.json   the services that run the daemon, with the daemon's flags
disks.json      the disks, with their partitions, volumes, and where these are mounted
mounts.json     what is mounted where: volumes, links, shares, and what is left over
metrics.txt     the daemon's metrics
daemon.txt      the daemon's flags, and what each of its goroutines does
log/            the end of the daemon's logs
missing.txt     what is not here, and why

Passwords are in none of these, nor are the names of their users.

The Windows event log isn't here. These commands save what it has of disks:

    wevtutil epl System system.evtx
    wevtutil epl Microsoft-Windows-Partition/Diagnostic disks.evtx
`

// bundle is a zip that is being written.
type bundle struct {
	*zip.Writer
	time    time.Time
	missing []string
	err     error // the first of writing
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
	lines, out := bufio.NewReader(io.LimitReader(f, most)), z.create(name)
	for {
		line, err := lines.ReadString('\n')
		if _, writeErr := io.WriteString(out, mask.Text(line)); writeErr != nil {
			z.err = errors.Join(z.err, writeErr)
			return nil
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func servicesWithFlags(_ context.Context, n *asked) (any, error) {
	services, err := n.services()
	if err != nil {
		return nil, err
	}
	for i, s := range services {
		services[i].Args = mask.Flags(s.Args)
	}
	return services, nil
}

func mountedVolumes(_ context.Context, n *asked) (any, error) {
	list, err := n.mounts()
	if err != nil {
		return nil, err
	}
	return list, nil
}
