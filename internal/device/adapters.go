// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package device

import (
	"context"
	"errors"
	"fmt"

	"github.com/csi-proxy/csi-proxy/internal/win"
)

// ReenumerateAdapters has each storage adapter ask its bus again, which finds logical
// units that came and went without a notice. One that doesn't is an error, but keeps
// no other from it; one that has left the node meanwhile, or isn't ready yet, isn't.
func ReenumerateAdapters(ctx context.Context, sys win.Devices) error {
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
