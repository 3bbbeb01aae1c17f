// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/windows/svc/mgr"

	"github.com/csi-proxy/csi-proxy/internal/host/winservice"
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

// cleanUpServices removes the tests' services, with their processes, as it is done with the product's.
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
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var errs []error
	for _, name := range names {
		if strings.HasPrefix(name, prefix) {
			services := winservice.Services{}
			errs = append(errs, winservice.Stop(ctx, services, slog.Default(), name, true), services.DeleteService(name))
		}
	}
	return errors.Join(errs...)
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
