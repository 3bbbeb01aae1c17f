// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// program is a program that runs until it is killed.
type program struct {
	name, log string
	cmd       *exec.Cmd
	exited    chan struct{} // closed when it has ended
	err       error         // then
}

// start starts a program that logs to a file of that name in dir, after what is in there.
func start(dir, name string, command ...string) (*program, error) {
	p := &program{name: name, log: filepath.Join(dir, name+".log"), exited: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	workingDir := ""
	if strings.HasSuffix(command[0], ".exe") {
		if command[0], err = filepath.Abs(command[0]); err != nil {
			return nil, err
		}
		command, workingDir = append([]string{"wine"}, command...), driveC() // where kubelet takes paths without a drive to be
	}
	p.cmd = exec.Command(command[0], command[1:]...)
	p.cmd.Dir = workingDir
	p.cmd.Stdout, p.cmd.Stderr = log, log
	// They must not outlive a lab that is killed.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if name == "kubelet" {
		// It mounts its directory, which has to end with it.
		p.cmd.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// ended returns an error if the program has ended, with the end of its log.
func (p *program) ended() error {
	if p == nil {
		return nil
	}
	select {
	case <-p.exited:
		return fmt.Errorf("%s ended: %v; %s ends with\n%s", p.name, p.err, p.log, p.lastLog())
	default:
		return nil
	}
}

// kill ends it without warning, and returns when it has ended.
func (p *program) kill() { p.end(syscall.SIGKILL) }

// end sends it a signal, and returns when it has ended.
func (p *program) end(s os.Signal) {
	if p == nil {
		return
	}
	_ = p.cmd.Process.Signal(s) // it may have ended by itself
	<-p.exited
}

func (p *program) lastLog() string {
	content, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(content[max(0, len(content)-2000):])
}

// freePorts returns ports of 127.0.0.1 that nobody used a moment ago.
func freePorts(n int) (ports []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, l.Close()) }()
		ports = append(ports, strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
	}
	return ports, nil
}
