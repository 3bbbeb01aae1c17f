// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package wmi has what drivers can use of the published package of that name without an object of
// WMI: the errors, and what package system/hostapi shows of services. In v2.0.0-alpha.2 the package
// was called cim.
package wmi

import (
	"errors"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// ErrorCodeDiskIsReadOnly is what MSFT_Disk returns of a disk that is read-only. CSI Proxy doesn't ask
// MSFT_Disk: see [IsDiskReadOnlyError].
const ErrorCodeDiskIsReadOnly = 41002

// ErrNotFound is the class of an error that says that something isn't there.
var ErrNotFound = csiproxy.ErrNotFound

// IsNotFound reports whether an error says that something isn't there.
func IsNotFound(err error) bool { return errors.Is(err, ErrNotFound) }

// IgnoreNotFound returns nil for an error that says that something isn't there, and others as they are.
func IgnoreNotFound(err error) error {
	if IsNotFound(err) {
		return nil
	}
	return err
}

// IsDiskReadOnlyError reports whether an error says that a disk is read-only.
func IsDiskReadOnlyError(err error) bool {
	const writeProtect = 19 // ERROR_WRITE_PROTECT, which Windows' own calls return
	number, ok := csiproxy.WindowsErrorOf(err)
	return ok && number == writeProtect
}

// Scope is empty: what the published one releases are objects of WMI.
type Scope struct{}

// ServiceInterface is a service of Windows.
type ServiceInterface interface {
	GetPropertyName() (string, error)
	GetPropertyDisplayName() (string, error)
	GetPropertyState() (string, error)
	GetPropertyStartMode() (string, error)
	GetDependents(scope *Scope) ([]ServiceInterface, error)
	StartService() (result uint32, err error)
	StopService() (result uint32, err error)
	Refresh(scope *Scope) error
}
