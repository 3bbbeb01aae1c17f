// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"fmt"
	"runtime/debug"
)

// Outcome is how a function ended: with a value, an error, or a panic. It carries that from the
// function's goroutine to the one that waits for it: a panic that isn't recovered on its own goroutine
// ends the process.
type Outcome[T any] struct {
	value    T
	err      error
	panicked any
}

// Catch calls f and returns how it ended.
func Catch[T any](f func() (T, error)) (o Outcome[T]) {
	defer func() {
		if p := recover(); p != nil {
			o.panicked = fmt.Sprintf("%v\n%s", p, debug.Stack())
		}
	}()
	o.value, o.err = f()
	return o
}

// Get returns what the function returned, or panics with its panic and stack.
func (o Outcome[T]) Get() (T, error) {
	if o.panicked != nil {
		panic(o.panicked)
	}
	return o.value, o.err
}
