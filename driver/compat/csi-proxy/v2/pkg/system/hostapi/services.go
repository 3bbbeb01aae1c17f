// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"errors"
	"fmt"
	"time"

	"github.com/kubernetes-csi/csi-proxy/v2/pkg/cim"
)

// The names that v2.0.0-alpha.2 has beside those of alpha.1. Nothing here uses them.

type (
	stateCheckFunc      func(cim.ServiceInterface, string) (bool, string, error)
	stateTransitionFunc func(cim.ServiceInterface) error
)

// ServiceFactory finds services.
type ServiceFactory interface {
	GetService(name string) (cim.ServiceInterface, error)
}

// ServiceManager leads services from one state to another.
type ServiceManager interface {
	WaitUntilServiceState(cim.ServiceInterface, stateTransitionFunc, stateCheckFunc, time.Duration, time.Duration) (string, error)
	GetDependentsForService(string) ([]string, error)
}

// ServiceManagerImpl is a ServiceManager.
type ServiceManagerImpl struct{}

var _ ServiceManager = ServiceManagerImpl{}

// WaitUntilServiceState makes a transition unless check says that it is done, and then checks at each
// interval until it is. It returns the last state that check has told, also with an error.
func (ServiceManagerImpl) WaitUntilServiceState(service cim.ServiceInterface, transition stateTransitionFunc,
	check stateCheckFunc, interval, timeout time.Duration,
) (state string, _ error) {
	done, state, err := check(service, "")
	if err != nil || done {
		return state, err
	}
	if err := transition(service); err != nil {
		return state, err
	}
	for end := time.Now().Add(timeout); time.Now().Before(end); {
		time.Sleep(min(interval, time.Until(end)))
		if done, state, err = check(service, state); err != nil || done {
			return state, err
		}
	}
	return state, fmt.Errorf("the service is still %q after %v", state, timeout)
}

// GetDependentsForService is an error: the factory that it would ask can't be given from outside this
// package, in alpha.2 either. StopService with force also stops the services that depend on one.
func (ServiceManagerImpl) GetDependentsForService(name string) ([]string, error) {
	return nil, fmt.Errorf("the services that depend on %s: %w", name, errors.ErrUnsupported)
}
