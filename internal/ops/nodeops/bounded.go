// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops

//go:generate go run ./boundgen bounded_gen.go

import (
	"context"

	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
)

// Bounded returns the operations for callers in process: each returns shortly before the deadline of
// the caller's context, even while Windows hangs. See [operation.AnswerInTime] and [operation.Run].
// The daemon bounds its own calls.
func (o Operations) Bounded() Operations {
	return Operations{
		Disk:       boundedDisk{o.Disk},
		Volume:     boundedVolume{o.Volume},
		Filesystem: boundedFilesystem{o.Filesystem},
		SMB:        boundedSMB{o.SMB},
		ISCSI:      boundedISCSI{o.ISCSI},
		System:     boundedSystem{o.System},
		Storage:    boundedStorage{o.Storage},
	}
}

func run[T any](ctx context.Context, name string, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := operation.AnswerInTime(ctx)
	defer cancel()
	return operation.Run(ctx, name, f)
}

func runOnly(ctx context.Context, name string, f func(context.Context) error) error {
	_, err := run(ctx, name, func(ctx context.Context) (struct{}, error) { return struct{}{}, f(ctx) })
	return err
}
