// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package device

import (
	"context"
	"errors"
	"fmt"

	"github.com/csi-proxy/csi-proxy/internal/win"
)

// Enumerator lists devices and looks for new ones.
type Enumerator interface {
	// DeviceInterfaces returns the paths of the devices present in a class
	// (CM_Get_Device_Interface_ListW).
	DeviceInterfaces(ctx context.Context, class win.GUID) ([]string, error)
	// ReenumerateDevice makes Windows ask a device for its children again
	// (CM_Reenumerate_DevNode); "" is the root of the device tree.
	ReenumerateDevice(ctx context.Context, interfacePath string) error
}

// ReenumerateAdapters has each storage adapter ask its bus again, which finds logical
// units that came and went without a notice. One that doesn't is an error, but keeps
// no other from it; one that has left the node meanwhile, or isn't ready yet, isn't.
func ReenumerateAdapters(ctx context.Context, sys Enumerator) error {
	adapters, err := sys.DeviceInterfaces(ctx, win.InterfaceClassStoragePort)
	if err != nil {
		return err
	}
	var errs []error
	for _, adapter := range adapters {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		err := sys.ReenumerateDevice(ctx, adapter)
		errno, ok := errors.AsType[win.Errno](err)
		if err != nil && !(ok && (errno.Gone() || errno == win.ErrorNotReady)) {
			errs = append(errs, fmt.Errorf("adapter %s: %w", adapter, err))
		}
	}
	return errors.Join(errs...)
}
