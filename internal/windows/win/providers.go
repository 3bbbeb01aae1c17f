// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package win

import (
	"context"
	"fmt"
	"time"
)

// providerLimit bounds the answer of a WMI provider, including the provider's start.
const providerLimit = 15 * time.Second

// Queries are read-only calls of both WMI providers, implemented by [System].
type Queries interface {
	TryStorageProvider(ctx context.Context) error
	SMBGlobalMappings(ctx context.Context) ([]SMBMapping, error)
}

// TryProviders sends a read-only query to both WMI providers needed by a node, and returns the
// errors of failed queries.
func TryProviders(ctx context.Context, w Queries) (failed []error) {
	ctx, cancel := context.WithTimeout(ctx, providerLimit)
	defer cancel()
	tries := []struct {
		what string
		try  func() error
	}{
		{`the storage provider, root\Microsoft\Windows\Storage, which formats and repairs volumes`,
			func() error { return w.TryStorageProvider(ctx) }},
		{`the SMB provider, root\Microsoft\Windows\SMB, which maps shares`,
			func() error { _, err := w.SMBGlobalMappings(ctx); return err }},
	}
	answers := make([]chan error, len(tries))
	for i, t := range tries {
		answers[i] = make(chan error, 1)
		go func() { answers[i] <- t.try() }()
	}
	for i, t := range tries {
		var err error
		select {
		case err = <-answers[i]:
		case <-ctx.Done():
			select {
			case err = <-answers[i]: // it was waited for after another
			default:
				err = context.Cause(ctx)
			}
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", t.what, err))
		}
	}
	return failed
}
