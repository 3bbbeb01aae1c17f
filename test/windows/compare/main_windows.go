// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Command compare measures two daemons of CSI Proxy on Windows or Wine, as drivers see
// them: each runs as a service and is called with the published client.
//
//	compare ours.exe [other.exe]
//
// They take turns within one run, since machines are noisy and only the ratios are
// comparable. It prints the median of all turns; the calls of all turns are taken
// together.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"
	"unsafe"

	"github.com/Microsoft/go-winio"
	"github.com/kubernetes-csi/csi-proxy/client/api/filesystem/v1"
	filesystem "github.com/kubernetes-csi/csi-proxy/client/groups/filesystem/v1"
	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/svc"
	"golang.org/x/sys/windows/svc/mgr"
)

const (
	serviceName = "csi-proxy-compare"
	pipePath    = `\\.\\pipe\\csi-proxy-filesystem-v1`
	// path is allowed by both daemons without further flags.
	path = `C:\var\lib\kubelet\compare`
	// patience limits steps that should take milliseconds.
	patience = 10 * time.Second
)

var (
	turns = flag.Int("turns", 5, "how often each daemon is measured")
	warm  = flag.Int("warm", 200, "calls before those that are measured")
	timed = flag.Int("calls", 1000, "calls that are measured, in each turn")
	total = flag.Int("total", 10_000, "calls before memory is measured again")
)

func main() {
	flag.Parse()
	if err := run(flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

func run(programs []string) error {
	if len(programs) == 0 || len(programs) > 2 {
		return errors.New("usage: compare ours.exe [other.exe]")
	}
	if *turns < 1 || *timed < 1 {
		return errors.New("the number of turns and of calls must be at least 1")
	}
	// An administrator needs this to open a process of LocalSystem.
	if err := winio.EnableProcessPrivileges([]string{"SeDebugPrivilege"}); err != nil {
		return fmt.Errorf("SeDebugPrivilege: %w", err)
	}
	measured := make([]figures, len(programs))
	for i, program := range programs {
		info, err := os.Stat(program)
		if err != nil {
			return err
		}
		measured[i].size = info.Size()
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	for turn := range *turns {
		for i := range programs {
			i = (i + turn) % len(programs) // each turn begins with another program
			if err := measured[i].measure(programs[i]); err != nil {
				return fmt.Errorf("%s: %w", programs[i], err)
			}
		}
	}
	report(os.Stdout, programs, measured)
	return nil
}

// figures are of one daemon.
type figures struct {
	size        int64 // of the program, in bytes
	calls       []time.Duration
	start       []time.Duration // to the first answer
	idle, after []int64         // resident memory in bytes, before and after all calls
	free, ended []time.Duration // from stop to free pipes, and to the end of the process
	forced      int             // how often the process had to be killed
}

// measure measures a life of the daemon.
func (f *figures) measure(program string) (err error) {
	s, err := create(program)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Delete(), s.Close()) }()

	began := time.Now()
	if err := s.Start(); err != nil {
		return err
	}
	process, err := processOf(s)
	if err != nil {
		return err
	}
	defer windows.CloseHandle(process)
	defer windows.TerminateProcess(process, 1) // after an error; otherwise it has ended

	client, err := connect()
	if err != nil {
		return err
	}
	defer client.Close()
	f.start = append(f.start, time.Since(began))
	time.Sleep(time.Second) // for work that goes on after the start
	idle, err := residentBytes(process)
	if err != nil {
		return err
	}
	f.idle = append(f.idle, idle)

	for i := range max(*total, *warm+*timed) {
		began := time.Now()
		if err := call(client); err != nil {
			return err
		}
		if i >= *warm && i < *warm+*timed {
			f.calls = append(f.calls, time.Since(began))
		}
	}
	after, err := residentBytes(process)
	if err != nil {
		return err
	}
	f.after = append(f.after, after)
	return f.stop(s, process)
}

// stop stops the service while a client is connected, as drivers are.
func (f *figures) stop(s *mgr.Service, process windows.Handle) error {
	began := time.Now()
	if _, err := s.Control(svc.Stop); err != nil {
		return err
	}
	var free time.Duration
	for ; free == 0 && time.Since(began) < patience; time.Sleep(time.Millisecond) {
		conn, err := winio.DialPipe(pipePath, nil)
		switch {
		case errors.Is(err, os.ErrNotExist):
			free = time.Since(began)
		case err == nil:
			conn.Close()
		}
	}
	event, err := windows.WaitForSingleObject(process, uint32(max(0, patience-time.Since(began)).Milliseconds()))
	if err != nil {
		return err
	}
	if event == windows.WAIT_OBJECT_0 && free != 0 {
		f.free, f.ended = append(f.free, free), append(f.ended, time.Since(began))
		return nil
	}
	f.forced++
	if err := windows.TerminateProcess(process, 1); err != nil {
		return err
	}
	_, err = windows.WaitForSingleObject(process, windows.INFINITE)
	return err
}

// create installs the daemon as a service that isn't started.
func create(program string) (*mgr.Service, error) {
	program, err := filepath.Abs(program)
	if err != nil {
		return nil, err
	}
	m, err := mgr.Connect()
	if err != nil {
		return nil, err
	}
	defer m.Disconnect()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		s, err := m.CreateService(serviceName, program, mgr.Config{StartType: mgr.StartManual}, "-windows-service")
		// The previous one exists until its last handle is closed.
		if !errors.Is(err, windows.ERROR_SERVICE_MARKED_FOR_DELETE) || time.Since(began) > patience {
			return s, err
		}
	}
}

// processOf opens the service's process.
func processOf(s *mgr.Service) (windows.Handle, error) {
	status, err := s.Query()
	if err != nil {
		return 0, err
	}
	if status.ProcessId == 0 {
		return 0, fmt.Errorf("the service has ended with exit code %d (%d)", status.Win32ExitCode,
			status.ServiceSpecificExitCode)
	}
	return windows.OpenProcess(
		windows.SYNCHRONIZE|windows.PROCESS_TERMINATE|windows.PROCESS_QUERY_INFORMATION|windows.PROCESS_VM_READ,
		false, status.ProcessId)
}

// connect returns a client after the first answer.
func connect() (*filesystem.Client, error) {
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		client, err := filesystem.NewClient()
		if err == nil {
			if err = call(client); err == nil {
				return client, nil
			}
			client.Close()
		}
		if time.Since(began) > patience {
			return nil, err
		}
	}
}

func call(client *filesystem.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	resp, err := client.PathExists(ctx, &v1.PathExistsRequest{Path: path})
	if err == nil && !resp.Exists {
		err = fmt.Errorf("PathExists returned that %s doesn't exist", path)
	}
	return err
}

// processMemoryCounters is PROCESS_MEMORY_COUNTERS.
//
// https://learn.microsoft.com/windows/win32/api/psapi/ns-psapi-process_memory_counters
type processMemoryCounters struct {
	cb, pageFaultCount                        uint32
	peakWorkingSetSize, workingSetSize        uintptr
	quotaPeakPagedPoolUsage, quotaPagedPool   uintptr
	quotaPeakNonPagedPoolUsage, quotaNonPaged uintptr
	pagefileUsage, peakPagefileUsage          uintptr
}

var getProcessMemoryInfo = windows.NewLazySystemDLL("kernel32.dll").NewProc("K32GetProcessMemoryInfo")

// residentBytes is the resident memory of a process.
func residentBytes(process windows.Handle) (int64, error) {
	counters := processMemoryCounters{cb: uint32(unsafe.Sizeof(processMemoryCounters{}))}
	ok, _, err := getProcessMemoryInfo.Call(uintptr(process), uintptr(unsafe.Pointer(&counters)), uintptr(counters.cb))
	if ok == 0 {
		return 0, fmt.Errorf("GetProcessMemoryInfo: %w", err)
	}
	return int64(counters.workingSetSize), nil
}

// report prints a table with a column for each program, and the ratio of the first
// to the second.
func report(w io.Writer, programs []string, measured []figures) {
	fmt.Fprintf(w, "%-44s", "")
	for _, program := range programs {
		fmt.Fprintf(w, " %14s", filepath.Base(program))
	}
	if len(programs) == 2 {
		fmt.Fprintf(w, " %8s", "ratio")
	}
	fmt.Fprintln(w)

	// row prints a figure; a negative one is none.
	row := func(name, format string, figure func(*figures) float64) {
		fmt.Fprintf(w, "%-44s", name)
		var all []float64
		for i := range measured {
			v := figure(&measured[i])
			all = append(all, v)
			if v < 0 {
				fmt.Fprintf(w, " %14s", "never")
			} else {
				fmt.Fprintf(w, " %14s", fmt.Sprintf(format, v))
			}
		}
		if len(all) == 2 && all[0] >= 0 && all[1] > 0 {
			fmt.Fprintf(w, " %8.2f", all[0]/all[1])
		}
		fmt.Fprintln(w)
	}
	for i := range measured {
		slices.Sort(measured[i].calls)
	}
	row(fmt.Sprintf("PathExists, mean of %d calls", len(measured[0].calls)), "%.3f ms",
		func(f *figures) float64 { return mean(f.calls) })
	row("PathExists, p50", "%.3f ms", func(f *figures) float64 { return percentile(f.calls, 50) })
	row("PathExists, p99", "%.3f ms", func(f *figures) float64 { return percentile(f.calls, 99) })
	row("resident memory, idle", "%.1f MiB", func(f *figures) float64 { return mebibytes(f.idle) })
	row(fmt.Sprintf("resident memory, after %d calls", *total), "%.1f MiB",
		func(f *figures) float64 { return mebibytes(f.after) })
	row("start to first answer", "%.0f ms", func(f *figures) float64 { return median(f.start) })
	row("program size", "%.1f MiB", func(f *figures) float64 { return mebibytes([]int64{f.size}) })
	row("stop to free pipes", "%.0f ms", func(f *figures) float64 { return median(f.free) })
	row("stop to the end of the process", "%.0f ms", func(f *figures) float64 { return median(f.ended) })
	row(fmt.Sprintf("not ended within %v of the stop, of %d", patience, *turns), "%.0f",
		func(f *figures) float64 { return float64(f.forced) })
}

// The functions below return milliseconds, or -1 of nothing.

func mean(all []time.Duration) float64 {
	var sum time.Duration
	for _, d := range all {
		sum += d
	}
	return milliseconds(sum) / float64(len(all))
}

// percentile is of a sorted list.
func percentile(sorted []time.Duration, p int) float64 {
	return milliseconds(sorted[(len(sorted)-1)*p/100])
}

func median(all []time.Duration) float64 {
	if len(all) == 0 {
		return -1
	}
	return percentile(slices.Sorted(slices.Values(all)), 50)
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// mebibytes is the median.
func mebibytes(all []int64) float64 {
	return float64(slices.Sorted(slices.Values(all))[(len(all)-1)/2]) / (1 << 20)
}
