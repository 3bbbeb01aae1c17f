// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package windows

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"
	"unsafe"

	"github.com/Microsoft/go-winio"
	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/svc"

	filesystemapi "github.com/kubernetes-csi/csi-proxy/client/api/filesystem/v1"
	filesystemclient "github.com/kubernetes-csi/csi-proxy/client/groups/filesystem/v1"
)

const (
	// comparedPath is allowed by all daemons without further flags.
	comparedPath = kubeletPath + `\compare`

	turns = 5     // how often each daemon is measured
	warm  = 200   // calls before those that are timed, in each turn
	timed = 1000  // calls that are timed
	total = 2_000 // calls before memory is measured again

	stopLimit = 10 * time.Second // for a daemon that is stopped
)

// TestCompareDaemons measures daemons as drivers see them: each runs as a service and is called with
// the published client. CSI_PROXY_COMPARE names the programs, with semicolons between.
//
// They take turns within one run, since machines are noisy and only the ratios are comparable. It
// prints the median of all turns; the calls of all turns are taken together.
func TestCompareDaemons(t *testing.T) {
	programs := filepath.SplitList(os.Getenv("CSI_PROXY_COMPARE"))
	if len(programs) == 0 {
		t.Skip("CSI_PROXY_COMPARE names no daemons: test/wine/compare-windows does")
	}
	must(t, os.MkdirAll(comparedPath, 0o700))
	measured := make([]figures, len(programs))
	for turn := range turns {
		for i := range programs {
			i = (i + turn) % len(programs) // each turn begins with another program
			t.Run(fmt.Sprint(filepath.Base(programs[i]), turn), func(t *testing.T) { measured[i].measure(t, programs[i]) })
		}
	}
	if !t.Failed() {
		fmt.Print(table(programs, measured))
	}
}

// figures are of one daemon. Times are in milliseconds, sizes in MiB.
type figures struct {
	size        float64 // of the program
	calls       []float64
	start       []float64 // to the first answer
	idle, after []float64 // resident memory, before and after all calls
	free, ended []float64 // from stop to free pipes, and to the end of the process
	forced      int       // how often the process had to be killed
}

// measure measures a life of the daemon.
func (f *figures) measure(t *testing.T, program string) {
	program, err := filepath.Abs(program)
	must(t, err)
	info, err := os.Stat(program)
	must(t, err)
	f.size = float64(info.Size()) / (1 << 20)
	s := installProgram(t, program)
	began := time.Now()
	must(t, s.Start())
	process := s.process()
	defer windows.CloseHandle(process)
	defer windows.TerminateProcess(process, 1) // after an error; otherwise it has ended
	client := firstAnswer(t)
	defer client.Close()
	f.start = append(f.start, since(began))
	time.Sleep(time.Second) // for work that goes on after the start
	f.idle = append(f.idle, resident(t, process))
	for i := range total {
		began := time.Now()
		must(t, comparedExists(client))
		if i >= warm && i < warm+timed {
			f.calls = append(f.calls, since(began))
		}
	}
	f.after = append(f.after, resident(t, process))
	f.stop(t, s, process)
}

// stop stops the service while a client is connected, as drivers are.
func (f *figures) stop(t *testing.T, s *service, process windows.Handle) {
	began := time.Now()
	if _, err := s.Control(svc.Stop); err != nil {
		t.Fatal(err)
	}
	var free float64
	for ; free == 0 && time.Since(began) < stopLimit; time.Sleep(time.Millisecond) {
		conn, err := winio.DialPipe(pipePath("filesystem", "v1"), nil)
		switch {
		case errors.Is(err, os.ErrNotExist):
			free = since(began)
		case err == nil:
			conn.Close()
		}
	}
	event, err := windows.WaitForSingleObject(process, uint32(max(0, stopLimit-time.Since(began)).Milliseconds()))
	must(t, err)
	if event == windows.WAIT_OBJECT_0 && free != 0 {
		f.free, f.ended = append(f.free, free), append(f.ended, since(began))
		return
	}
	f.forced++
	must(t, windows.TerminateProcess(process, 1))
	must(t, processEnds(process))
}

func since(began time.Time) float64 { return float64(time.Since(began)) / float64(time.Millisecond) }

// firstAnswer returns a client that has got an answer.
func firstAnswer(t *testing.T) (client *filesystemclient.Client) {
	t.Helper()
	var err error
	for began := time.Now(); time.Since(began) < patience; time.Sleep(time.Millisecond) {
		if client, err = filesystemclient.NewClient(); err != nil {
			continue
		}
		if err = comparedExists(client); err == nil {
			return client
		}
		client.Close()
	}
	t.Fatal(err)
	return nil
}

func comparedExists(client *filesystemclient.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	response, err := client.PathExists(ctx, &filesystemapi.PathExistsRequest{Path: comparedPath})
	if err == nil && !response.Exists {
		err = fmt.Errorf("PathExists says that %s doesn't exist", comparedPath)
	}
	return err
}

// processMemoryCounters is PROCESS_MEMORY_COUNTERS.
//
// https://learn.microsoft.com/windows/win32/api/psapi/ns-psapi-process_memory_counters
type processMemoryCounters struct {
	cb, pageFaultCount                 uint32
	peakWorkingSetSize, workingSetSize uintptr
	_                                  [6]uintptr // of the page file and the pools
}

var getProcessMemoryInfo = windows.NewLazySystemDLL("kernel32.dll").NewProc("K32GetProcessMemoryInfo")

// resident is the resident memory of a process.
func resident(t *testing.T, process windows.Handle) float64 {
	t.Helper()
	counters := processMemoryCounters{cb: uint32(unsafe.Sizeof(processMemoryCounters{}))}
	ok, _, err := getProcessMemoryInfo.Call(uintptr(process), uintptr(unsafe.Pointer(&counters)), uintptr(counters.cb))
	if ok == 0 {
		t.Fatalf("GetProcessMemoryInfo: %v", err)
	}
	return float64(counters.workingSetSize) / (1 << 20)
}

// table has a column for each program, and behind each but the first the ratio of the first to it.
func table(programs []string, measured []figures) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	for i, program := range programs {
		fmt.Fprintf(w, "\t%s", filepath.Base(program))
		if i > 0 {
			fmt.Fprint(w, "\tratio")
		}
	}
	fmt.Fprintln(w, "\t")
	percentile := func(p int) func(f figures) []float64 {
		return func(f figures) []float64 {
			slices.Sort(f.calls)
			return []float64{f.calls[(len(f.calls)-1)*p/100]}
		}
	}
	for _, row := range []struct {
		name, format string
		of           func(f figures) []float64 // of which the median counts
	}{
		{"PathExists, p50", "%.3f ms", percentile(50)},
		{"PathExists, p99", "%.3f ms", percentile(99)},
		{"resident memory, idle", "%.1f MiB", func(f figures) []float64 { return f.idle }},
		{fmt.Sprintf("resident memory, after %d calls", total), "%.1f MiB", func(f figures) []float64 { return f.after }},
		{"start to first answer", "%.0f ms", func(f figures) []float64 { return f.start }},
		{"program size", "%.1f MiB", func(f figures) []float64 { return []float64{f.size} }},
		{"stop to free pipes", "%.0f ms", func(f figures) []float64 { return f.free }},
		{"stop to the end of the process", "%.0f ms", func(f figures) []float64 { return f.ended }},
		{fmt.Sprintf("not ended within %v of the stop, of %d", stopLimit, turns), "%.0f",
			func(f figures) []float64 { return []float64{float64(f.forced)} }},
	} {
		fmt.Fprint(w, row.name)
		var first float64
		for i, f := range measured {
			values, cell, ratio := slices.Sorted(slices.Values(row.of(f))), "never", ""
			if len(values) > 0 {
				median := values[(len(values)-1)/2]
				cell = fmt.Sprintf(row.format, median)
				if i == 0 {
					first = median
				} else if first > 0 && median > 0 {
					ratio = fmt.Sprintf("%.2f", first/median)
				}
			}
			fmt.Fprintf(w, "\t%s", cell)
			if i > 0 {
				fmt.Fprintf(w, "\t%s", ratio)
			}
		}
		fmt.Fprintln(w, "\t")
	}
	w.Flush() // into a text, which takes everything
	return b.String()
}
