// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package operation ends each operation on the node in the same way: its error
// says what was done to what, and an observer hears how it went.
package operation

import (
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// Observer is told of every operation that has ended: its name, such as
// "PartitionDisk", how long it took and its error. The nil Observer is silent.
type Observer func(name string, took time.Duration, err error)

// End is deferred as the first statement of an operation. It wraps *err, if
// there is one, in a csiproxy.Error for the operation name on object.
func (o Observer) End(name, object string, start time.Time, err *error) {
	if *err != nil {
		*err = &csiproxy.Error{Op: name, Object: object, Err: *err}
	}
	if o != nil {
		o(name, time.Since(start), *err)
	}
}
