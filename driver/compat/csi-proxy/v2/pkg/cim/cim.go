// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cim has what v2.0.0-alpha.2's package of that name shows of services to package
// system/hostapi. All else there is about objects of a WMI binding, which panics at import on some
// hosts (https://github.com/kubernetes-csi/csi-proxy/issues/411) and isn't linked here.
package cim

// ServiceInterface is a service of Windows.
type ServiceInterface interface {
	GetPropertyName() (string, error)
	GetPropertyDisplayName() (string, error)
	GetPropertyState() (string, error)
	GetPropertyStartMode() (string, error)
	GetDependents() ([]ServiceInterface, error)
	StartService() (result uint32, err error)
	StopService() (result uint32, err error)
	Refresh() error
}
