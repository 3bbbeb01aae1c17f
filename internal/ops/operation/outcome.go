// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"fmt"
	"runtime/debug"
)

// Outcome is the end of a function: a value, an error, or a panic. It carries the result from the
// function's goroutine to the waiting goroutine: a panic must be recovered on its own goroutine, or
// it ends the process.
type Outcome[T any] struct {
	value    T
	err      error
	panicked any
}

// Catch calls f and returns its outcome.
func Catch[T any](f func() (T, error)) (o Outcome[T]) {
	defer func() {
		if p := recover(); p != nil {
			o.panicked = fmt.Sprintf("%v\n%s", p, debug.Stack())
		}
	}()
	o.value, o.err = f()
	return o
}

// Get returns the function's value and error, or panics with its panic and stack.
func (o Outcome[T]) Get() (T, error) {
	if o.panicked != nil {
		panic(o.panicked)
	}
	return o.value, o.err
}
