// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controlplane starts Kubernetes' API server with its etcd for tests, and programs beside it.
package controlplane

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
)

// Program is a program that runs until it is killed.
type Program struct {
	Name, Log string

	cmd    *exec.Cmd
	exited chan struct{} // closed when it has ended
}

// Start starts a program that logs to a file of that name in dir, after what is in there.
func Start(dir, name string, cmd *exec.Cmd) (*Program, error) {
	p := &Program{Name: name, Log: filepath.Join(dir, name+".log"), cmd: cmd, exited: make(chan struct{})}
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL // it must not outlive tests that are killed
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = cmd.Wait() // Ended tells
		close(p.exited)
	}()
	return p, nil
}

// Ended returns an error if the program has ended, with the end of its log.
func (p *Program) Ended() error {
	if p == nil {
		return nil
	}
	select {
	case <-p.exited:
		return fmt.Errorf("%s ended: %v; %s", p.Name, p.cmd.ProcessState, p.LastLog())
	default:
		return nil
	}
}

// Exited is closed when the program has ended.
func (p *Program) Exited() <-chan struct{} { return p.exited }

// Kill ends it without warning, and returns when it has ended.
func (p *Program) Kill() { p.End(syscall.SIGKILL) }

// End sends it a signal, and returns when it has ended.
func (p *Program) End(s os.Signal) {
	if p == nil {
		return
	}
	_ = p.cmd.Process.Signal(s) // it may have ended by itself
	<-p.exited
}

// LastLog says where its log is, and how that ends.
func (p *Program) LastLog() string {
	content, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s ends with\n%s", p.Log, content[max(0, len(content)-2000):])
}

// FreePorts returns ports of 127.0.0.1 that nobody used a moment ago.
func FreePorts(n int) (ports []string, err error) {
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
