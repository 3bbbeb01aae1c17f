// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package driver_test

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-proxy/csi-proxy/examples/csi-driver/driver"
	"github.com/csi-proxy/csi-proxy/simnode"
)

func TestProbe(t *testing.T) {
	node := simnode.New(t)
	d := driver.New(driver.Options{Proxy: driver.OverPipe(node.Client())})
	is := func(when string, ready bool) {
		t.Helper()
		probe, err := d.Probe(t.Context(), &csi.ProbeRequest{})
		if err != nil || probe.Ready.GetValue() != ready {
			t.Errorf("%s: %v, %v", when, probe, err)
		}
	}
	is("at first", true)
	node.StopDaemon()
	is("without CSI Proxy", false)
	node.StartDaemon()
	is("with CSI Proxy again", true)
}
