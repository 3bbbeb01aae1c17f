// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package storagewire turns structs of the storage API into messages of the API and back, for both
// ends of a call.
//
// Texts of requests come from the caller, and are kept. Texts of responses are made valid UTF-8. A
// number in a message that is meaningless or too large for the struct's field fails with
// csiproxy.ErrInvalidArgument.
//
// Tests fill each field of each struct and of each message: a forgotten or confused field fails
// them.
package storagewire

import (
	"math"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	storagev1alpha1 "github.com/csi-proxy/csi-proxy/api/storage/v1alpha1"
)

// decoder keeps the first error while decoding the parts of a message.
type decoder struct{ err error }

// decode returns the result of f for a message, and the decoder's first error.
func decode[M, T any](m M, f func(*decoder, M) T) (T, error) {
	var d decoder
	v := f(&d, m)
	if d.err != nil {
		var none T
		return none, d.err
	}
	return v, nil
}

func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
}

// fit returns the number in a field, converted to fewer bits.
func fit[T uint8 | uint16](d *decoder, field string, number uint32) T {
	if uint32(T(number)) != number {
		d.fail(csiproxy.Errorf(csiproxy.ErrInvalidArgument, "%s: %d is too large", field, number))
	}
	return T(number)
}

// duration returns the time in a field in milliseconds.
func (d *decoder) duration(field string, milliseconds int64) time.Duration {
	if milliseconds > math.MaxInt64/int64(time.Millisecond) {
		d.fail(csiproxy.Errorf(csiproxy.ErrInvalidArgument, "%s: %d milliseconds are too many", field, milliseconds))
	}
	return time.Duration(max(milliseconds, -1)) * time.Millisecond
}

// milliseconds returns a time in milliseconds. A positive time below one millisecond becomes one
// millisecond, because 0 stands for the default. A negative time becomes -1.
func milliseconds(d time.Duration) int64 {
	if d > 0 {
		return max(d.Milliseconds(), 1)
	}
	return max(int64(d), -1)
}

// isKnown reports whether the API has an authentication type: an unknown type mustn't become a
// login without CHAP.
func isKnown(t storagev1alpha1.AuthenticationType) bool {
	_, known := storagev1alpha1.AuthenticationType_name[int32(t)]
	return known
}

func unknownAuthentication(t csiproxy.ISCSIAuthType) error {
	return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "unknown AuthenticationType %d", t)
}

// each returns the results of f for each entry of a list.
func each[A, B any](list []A, f func(A) B) (all []B) {
	for _, entry := range list {
		all = append(all, f(entry))
	}
	return all
}
