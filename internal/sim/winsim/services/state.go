// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/statefile"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

const bucketServices = "services" // folded name -> record

// Save implements [statefile.Part].
func (m *Manager) Save(f *statefile.File) {
	statefile.PutChanged(f, bucketServices, m.changed, m.byName)
}

// Restore implements [statefile.Part].
func (m *Manager) Restore(r *statefile.Reader) error {
	return statefile.EachJSON(r, bucketServices, func(k []byte, v *service) error {
		if win.UpperName(v.Spec.Name) != string(k) {
			return fmt.Errorf("it is of the service %q", v.Spec.Name)
		}
		m.byName[string(k)] = v
		return nil
	})
}
