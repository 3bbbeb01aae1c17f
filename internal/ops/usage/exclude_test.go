// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"fmt"
	"testing"
)

// An object of an earlier kind has an earlier byte, so who waits for a byte never waits for one who
// waits for an earlier one; and different objects have different bytes.
func TestByteOf(t *testing.T) {
	seen := make(map[int64]string)
	for k := diskLock; k <= shareLock; k++ {
		for i := range 1000 {
			name := fmt.Sprint(i)
			at := byteOf(k, name)
			if at < byteOf(k, "")&^(1<<59-1) || at >= byteOf(k+1, "")&^(1<<59-1) || seen[at] != "" {
				t.Fatalf("%s %s has the byte %x, as %s", kinds[k], name, at, seen[at])
			}
			seen[at] = kinds[k] + " " + name
		}
	}
}
