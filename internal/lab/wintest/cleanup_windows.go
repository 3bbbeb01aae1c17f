// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/svc"
	"golang.org/x/sys/windows/svc/mgr"
)

// prefix begins the names of everything that the tests make outside of their directory.
const prefix = "csi-proxy-wintest-"

// patience limits the wait for the service manager and the file system.
const patience = time.Minute

// cleanUp removes what the tests left behind. Each test cleans up after itself; this is
// for tests that were cut off, in this run or an earlier one.
func cleanUp(wine bool) error {
	err := cleanUpServices()
	if !wine {
		err = errors.Join(err, cleanUpByPowershell())
	}
	return errors.Join(err, cleanUpDirectories())
}

// cleanUpServices removes the tests' services, with their processes.
func cleanUpServices() error {
	m, err := mgr.Connect()
	if err != nil {
		return fmt.Errorf("the service manager: %w", err)
	}
	defer m.Disconnect()
	names, err := m.ListServices()
	if err != nil {
		return fmt.Errorf("list the services: %w", err)
	}
	var errs []error
	for _, name := range names {
		if strings.HasPrefix(name, prefix) {
			if err := removeService(m, name); err != nil && !errors.Is(err, windows.ERROR_SERVICE_DOES_NOT_EXIST) {
				errs = append(errs, fmt.Errorf("remove the service %s: %w", name, err))
			}
		}
	}
	return errors.Join(errs...)
}

func removeService(m *mgr.Mgr, name string) error {
	s, err := m.OpenService(name)
	if err != nil {
		return err
	}
	defer s.Close() // nothing depends on it
	// Otherwise the manager would restart the service. Wine has no such actions.
	if err := s.ResetRecoveryActions(); err != nil && !errors.Is(err, windows.ERROR_INVALID_LEVEL) {
		return err
	}
	if _, err := s.Control(svc.Stop); err != nil && !errors.Is(err, windows.ERROR_SERVICE_NOT_ACTIVE) {
		fmt.Printf("the service %s doesn't stop: %v\n", name, err)
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		status, err := s.Query()
		switch {
		case err != nil:
			return err
		case status.State == svc.Stopped:
			return s.Delete()
		case time.Now().After(deadline):
			return fmt.Errorf("the service is in state %d and doesn't stop: end process %d", status.State, status.ProcessId)
		}
	}
}

// leftovers removes mappings, shares, users and targets of the tests.
const leftovers = `
$ErrorActionPreference = 'Continue'
Get-SmbGlobalMapping | Where-Object RemotePath -like '*\csi-proxy-wintest-*' | Remove-SmbGlobalMapping -Force
Get-SmbShare | Where-Object Name -like 'csi-proxy-wintest-*' | Remove-SmbShare -Force
Get-LocalUser | Where-Object Name -like 'csi-wintest-*' | Remove-LocalUser
if (Get-Command Get-IscsiServerTarget -ErrorAction SilentlyContinue) {
  Get-IscsiSession | Where-Object TargetNodeAddress -like '*csi-proxy-wintest-*' | Disconnect-IscsiTarget -Confirm:$false
  Get-IscsiServerTarget | Where-Object TargetName -like 'csi-proxy-wintest-*' | Remove-IscsiServerTarget
  Get-IscsiVirtualDisk | Where-Object Path -like '*csi-proxy-wintest-*' | Remove-IscsiVirtualDisk
}
exit 0`

func cleanUpByPowershell() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "powershell.exe", "-NoProfile", "-NonInteractive", "-Command", leftovers)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("remove mappings, shares, users and targets: %w", err)
	}
	return nil
}

// cleanUpDirectories removes the tests' directories. The file of a virtual disk is closed
// when the program that attached it has ended.
func cleanUpDirectories() error {
	dirs, err := filepath.Glob(`C:\` + prefix + `*`)
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Second) {
		var errs []error
		for _, dir := range dirs {
			errs = append(errs, os.RemoveAll(dir))
		}
		if err := errors.Join(errs...); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}
