// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"errors"
	"fmt"
	"time"

	"github.com/kubernetes-csi/csi-proxy/v2/pkg/wmi"
)

// Names of the published package that nothing here uses.

type (
	stateCheckFunc      func(*wmi.Scope, wmi.ServiceInterface, string) (bool, string, error)
	stateTransitionFunc func(*wmi.Scope, wmi.ServiceInterface) error
)

// ServiceFactory finds services.
type ServiceFactory interface {
	GetService(scope *wmi.Scope, name string) (wmi.ServiceInterface, error)
}

// ServiceManager leads services from one state to another.
type ServiceManager interface {
	WaitUntilServiceState(scope *wmi.Scope, service wmi.ServiceInterface, transition stateTransitionFunc,
		check stateCheckFunc, interval, timeout time.Duration) (string, error)
	GetDependentsForService(scope *wmi.Scope, name string) ([]string, error)
}

// ServiceManagerImpl is a ServiceManager.
type ServiceManagerImpl struct{}

var _ ServiceManager = ServiceManagerImpl{}

// WaitUntilServiceState makes a transition unless check says that it is done, and then checks at each
// interval until it is. It returns the last state that check has told, also with an error.
func (ServiceManagerImpl) WaitUntilServiceState(scope *wmi.Scope, service wmi.ServiceInterface,
	transition stateTransitionFunc, check stateCheckFunc, interval, timeout time.Duration,
) (state string, _ error) {
	done, state, err := check(scope, service, "")
	if err != nil || done {
		return state, err
	}
	if err := transition(scope, service); err != nil {
		return state, err
	}
	for end := time.Now().Add(timeout); time.Now().Before(end); {
		time.Sleep(min(interval, time.Until(end)))
		if done, state, err = check(scope, service, state); err != nil || done {
			return state, err
		}
	}
	return state, fmt.Errorf("the service is still %q after %v", state, timeout)
}

// GetDependentsForService is an error: the factory that it would ask can't be given from outside this
// package, in the published one either. StopService with force also stops the services that depend on one.
func (ServiceManagerImpl) GetDependentsForService(_ *wmi.Scope, name string) ([]string, error) {
	return nil, fmt.Errorf("the services that depend on %s: %w", name, errors.ErrUnsupported)
}
