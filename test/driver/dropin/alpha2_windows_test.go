// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package dropin

import (
	"regexp"

	"github.com/kubernetes-csi/csi-proxy/v2/pkg/cim"
	"github.com/kubernetes-csi/csi-proxy/v2/pkg/system"
	systemapi "github.com/kubernetes-csi/csi-proxy/v2/pkg/system/hostapi"
	volumeapi "github.com/kubernetes-csi/csi-proxy/v2/pkg/volume/hostapi"
)

// What v2.0.0-alpha.2 has beside the names of alpha.1 in the packages that drivers use. The only
// names of both with two types are the fields StartType and Status of system/hostapi.ServiceInfo.
var (
	_ interface {
		GetService(name string) (cim.ServiceInterface, error)
	} = systemapi.ServiceFactory(nil)
	_ interface {
		GetPropertyName() (string, error)
		GetPropertyDisplayName() (string, error)
		GetPropertyState() (string, error)
		GetPropertyStartMode() (string, error)
		GetDependents() ([]cim.ServiceInterface, error)
		StartService() (result uint32, err error)
		StopService() (result uint32, err error)
		Refresh() error
	} = cim.ServiceInterface(nil)
	_ systemapi.ServiceManager                                     = systemapi.ServiceManagerImpl{}
	_ func(systemapi.ServiceManagerImpl, string) ([]string, error) = systemapi.ServiceManagerImpl.GetDependentsForService
	_                                                              = systemapi.ServiceManagerImpl.WaitUntilServiceState
	_ system.StartType                                             = system.START_TYPE_MANUAL
	_ *regexp.Regexp                                               = volumeapi.VolumeRegexp
)
