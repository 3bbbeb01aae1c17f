// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

// Command demo starts the daemon on a fresh simulated Windows node and walks one
// volume through its life, as the cloud, a CSI driver and a pod would, showing each
// step. With -keep the daemon then goes on until it is interrupted.
//
// It is run by `make run` and `make demo`, in the directory above bin/.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/csi-proxy/csi-proxy/client"
)

func main() {
	keep := flag.Bool("keep", false, "keep serving after the walk, until interrupted")
	flag.Parse()
	// The daemon must also end if the terminal or the reader of the output is gone.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	defer stop()
	if err := run(ctx, os.Stdout, *keep); err != nil {
		fmt.Fprintf(os.Stderr, "\ndemo: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, keep bool) (err error) {
	scratch, err := os.MkdirTemp("", "csi-proxy-demo")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	dir := filepath.Join(scratch, "endpoints")
	if keep {
		dir = client.DefaultEndpointDir() // the default of csi-proxyctl too
	}

	d, err := startDaemon(ctx, dir, scratch)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.stop()) }()

	w := newWalk(ctx, out, dir)
	if err := w.volumesLife(); err != nil {
		return fmt.Errorf("%w\nthe daemon's log:\n%s", err, d.log())
	}
	if !keep {
		return nil
	}
	fmt.Fprint(out, `
The daemon is still running, on a node that you can do anything with. In another shell:

  bin/csi-proxyctl versions                              what it serves
  bin/csi-proxyctl disk list                             the node's disks
  bin/csi-proxyctl sim disk attach --size 5GiB           plug in another one
  bin/csi-proxyctl disk partition 2                      what a driver would do next
  bin/csi-proxyctl sim fail --call SetVolumeMountPointW --error 5 --count 1
  bin/csi-proxyctl --help

Its sockets are in `+dir+` and its log is `+d.logPath+`.
Ctrl-C ends it.
`)
	select {
	case <-ctx.Done():
		return nil
	case <-d.ended:
		return fmt.Errorf("the daemon has ended: %w\n%s", d.err, d.log())
	}
}

// daemon is the running bin/csi-proxy.
type daemon struct {
	cmd     *exec.Cmd
	logPath string
	ended   chan struct{} // closed when it has ended; err is set before
	err     error
}

// startDaemon starts the daemon and returns when it answers.
func startDaemon(ctx context.Context, dir, scratch string) (*daemon, error) {
	d := &daemon{logPath: filepath.Join(scratch, "csi-proxy.log"), ended: make(chan struct{})}
	log, err := os.Create(d.logPath)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	d.cmd = exec.Command(filepath.Join("bin", "csi-proxy"),
		"-node=simulated", "-endpoint-dir="+dir, "-sim-state="+filepath.Join(scratch, "node.db"), "-v=4")
	d.cmd.Stdout, d.cmd.Stderr = log, log
	// An interrupt at the terminal is for this program, which then stops the daemon.
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := d.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%w; `make build` makes it", err)
	}
	go func() {
		d.err = d.cmd.Wait()
		close(d.ended)
	}()

	ready, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		err := answers(ready, dir)
		if err == nil {
			return d, nil
		}
		select {
		case <-d.ended:
			return nil, fmt.Errorf("the daemon doesn't start: %s", d.log())
		case <-ready.Done():
			return nil, errors.Join(err, d.stop())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// answers returns nil if the daemon is ready.
func answers(ctx context.Context, dir string) error {
	c := client.New(client.WithEndpointDir(dir))
	return errors.Join(c.Ready(ctx), c.Close())
}

func (d *daemon) log() string {
	text, err := os.ReadFile(d.logPath)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// stop ends the daemon as an administrator does, and checks that it went well.
func (d *daemon) stop() error {
	select {
	case <-d.ended:
		return d.err
	default:
	}
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-d.ended:
		return d.err
	case <-time.After(30 * time.Second):
		return errors.Join(errors.New("the daemon doesn't end"), d.cmd.Process.Kill())
	}
}
