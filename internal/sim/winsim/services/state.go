// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package services

import (
	"encoding/json"
	"fmt"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/statefile"
	"github.com/csi-proxy/csi-proxy/internal/winname"
)

const bucketServices = "services" // folded name -> record

// Save implements [statefile.Part].
func (m *Manager) Save(f *statefile.File) {
	for key := range m.changed {
		if v, ok := m.byName[key]; ok {
			f.PutJSON(bucketServices, []byte(key), v.record)
		} else {
			f.Delete(bucketServices, []byte(key))
		}
	}
	clear(m.changed)
}

// Restore implements [statefile.Part].
func (m *Manager) Restore(r *statefile.Reader) error {
	return r.Each(bucketServices, func(k, value []byte) error {
		v := &service{}
		if err := json.Unmarshal(value, &v.record); err != nil {
			return err
		}
		if winname.Upper(v.Spec.Name) != string(k) {
			return fmt.Errorf("it is of the service %q", v.Spec.Name)
		}
		m.byName[string(k)] = v
		return nil
	})
}
