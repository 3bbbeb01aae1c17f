// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc/grpclog"
	"k8s.io/klog/v2"

	"github.com/csi-proxy/csi-proxy/internal/host/jsonlog"
	"github.com/csi-proxy/csi-proxy/internal/host/logfile"
	"github.com/csi-proxy/csi-proxy/internal/host/winservice"
)

// defaultLogMegabytes lets the log and its previous file take 200 MB of the node's system disk. klog's
// own default is 1800 MB for each file.
const defaultLogMegabytes = 100

// Values of -logging-format.
const (
	formatText = "text"
	formatJSON = "json"
)

// logFileName is the name of the log file in a -log_dir.
const logFileName = "csi-proxy.log"

// addLoggingFlags adds klog's flags.
func addLoggingFlags(flags *flag.FlagSet) *flag.FlagSet {
	logging := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(logging)
	own := map[string]struct{ value, usage string }{
		"log_file_max_size": {strconv.Itoa(defaultLogMegabytes),
			"the size in `megabytes` at which the log file is renamed NAME.1, in place of the previous one,\n" +
				"and a new one begun; 0 for no limit"},
		"log_dir": {"", "the `directory` of the log file, which is named " + logFileName +
			"; no effect with -logtostderr=true\nor -log_file"},
	}
	logging.VisitAll(func(f *flag.Flag) {
		if mine, ok := own[f.Name]; ok {
			f.DefValue, f.Usage = mine.value, mine.usage
			if err := f.Value.Set(f.DefValue); err != nil {
				panic(err) // a fault of the table above
			}
		}
		flags.Var(f.Value, f.Name, f.Usage)
	})
	return logging
}

// startLogging returns the logger of the daemon, and its log file, nil for none. A file that
// can't be written is no reason to serve no storage: package logfile tries again at each
// line, where klog's own files would end the process. Meanwhile the lines go to standard error.
func startLogging(format string, flags *flag.FlagSet) (*slog.Logger, *logfile.File, error) {
	verbosity, err := strconv.Atoi(flags.Lookup("v").Value.String())
	if err != nil {
		return nil, nil, err
	}

	output := io.Writer(os.Stderr)
	var file *logfile.File
	var writable string
	if !isSet(flags, "logtostderr") {
		config := logfile.Config{
			Name:        logFile(flags),
			MaxBytes:    maxLogBytes(flags),
			CrashOutput: true,
		}
		if format == formatText && !isSet(flags, "skip_log_headers") {
			config.Header = logHeader
		}
		writable = winservice.PrepareLogDirectory(filepath.Dir(config.Name))
		if file, err = logfile.Open(config); err != nil {
			return nil, nil, err
		}
		// klog writes the lines of all severities there, since it has a -log_file. The last
		// of them is written just before the process ends: nobody closes file.
		if err := flags.Set("log_file", config.Name); err != nil {
			return nil, nil, err
		}
		if isSet(flags, "alsologtostderr") {
			output = both{file, os.Stderr}
			klog.SetOutputBySeverity("INFO", file) // klog writes to standard error itself
		} else {
			output = orElse{file, os.Stderr}
			klog.SetOutputBySeverity("INFO", output)
		}
	}

	handler := logr.ToSlogHandler(klog.Background())
	if format == formatJSON {
		handler = jsonlog.New(output, verbosity)
	}
	// gRPC's own errors would go to stderr, which a service doesn't have. What it
	// calls information and warnings is about its inside.
	grpcErrors := slog.NewLogLogger(handler, slog.LevelError).Writer()
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, grpcErrors))
	log := slog.New(handler)
	if problem := logProblem(file); problem != "" {
		log.Warn(problem)
	}
	if writable != "" {
		log.Warn("accounts other than administrators can write to the directory of the log", "problem", writable)
	}
	return log, file, nil
}

// logProblem says what is wrong with the log file; empty for nothing.
func logProblem(file *logfile.File) string {
	if file == nil || file.Err() == nil {
		return ""
	}
	return fmt.Sprintf("the log file can't be written: its lines go to standard error until it can: %v", file.Err())
}

// logHeader returns what klog's own files begin with, as far as others look for it: tests
// of OpenShift take a log without "Log file created at:" for none. The version is ours, for
// those who get only one file of a log.
func logHeader() []byte {
	return fmt.Appendf(nil, "Log file created at: %s\n%s\nLog line format: [IWE]mmdd hh:mm:ss.uuuuuu process "+
		"file:line] message\n",
		time.Now().Format("2006/01/02 15:04:05"), describeBuild(currentBuild()))
}

// both writes to two outputs, to one also if the other fails.
type both struct{ a, b io.Writer }

func (w both) Write(p []byte) (int, error) {
	_, _ = w.a.Write(p)
	_, _ = w.b.Write(p)
	return len(p), nil
}

// orElse writes to one output, and to the other what the first doesn't take.
type orElse struct{ first, second io.Writer }

func (w orElse) Write(p []byte) (int, error) {
	if _, err := w.first.Write(p); err != nil {
		_, _ = w.second.Write(p)
	}
	return len(p), nil
}

func isSet(flags *flag.FlagSet, name string) bool { return flags.Lookup(name).Value.String() == "true" }

// logFile returns the path of the log file.
func logFile(flags *flag.FlagSet) string {
	if file := flags.Lookup("log_file").Value.String(); file != "" {
		return winservice.OnSystemDrive(file)
	}
	dir := winservice.OnSystemDrive(flags.Lookup("log_dir").Value.String())
	if dir == "" {
		dir = os.TempDir() // as klog does
	}
	return filepath.Join(dir, logFileName)
}

// checkLogging returns an error for flags of the log that are wrong.
func checkLogging(format string, flags *flag.FlagSet) error {
	switch {
	case format != formatText && format != formatJSON:
		return fmt.Errorf("-logging-format=%s: it is %s or %s", format, formatText, formatJSON)
	case format == formatJSON && flags.Lookup("vmodule").Value.String() != "":
		return fmt.Errorf("-vmodule: it goes with -logging-format=%s only", formatText)
	}
	return nil
}

// maxLogBytes returns -log_file_max_size, which is in megabytes, in bytes. 0 is no
// bound.
func maxLogBytes(flags *flag.FlagSet) int64 {
	const megabyte = 1 << 20
	megabytes := flags.Lookup("log_file_max_size").Value.(flag.Getter).Get().(uint64)
	return int64(min(megabytes, math.MaxInt64/megabyte)) * megabyte
}
