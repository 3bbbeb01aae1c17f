// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
)

// A client all of whose calls hang, each on a path of its own, keeps no other client from
// calls to Windows of the same kind.
func TestClientsShareWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTarget(t)
		hangs := func(i int) string { return fmt.Sprintf(`%s\pods\%d\hangs`, kubelet, i) }
		const calls = 256
		for i := range calls {
			simtest.Must(t, g.sys.MkdirAll(fmt.Sprintf(`%s\pods\%d`, kubelet, i)))
		}
		simtest.Must(t, g.sys.DelayUncancellable(winsim.Match{Call: "NtQueryAttributesFile", Object: "hangs"}, time.Hour))
		invoke := func(version, path string) error {
			return g.conn("filesystem", version).Invoke(t.Context(), "/"+version+".Filesystem/PathExists", fieldOf(1, path),
				new([]byte), grpc.ForceCodec(rawBytes{}))
		}
		g.conn("filesystem", "v1")
		for i := range calls {
			go invoke("v1", hangs(i)) // each connection is a client, since tests have no processes
		}
		synctest.Wait()
		for second := range 8 {
			begun := time.Now()
			if err := invoke("v2alpha1", kubelet+`\pods\file`); err != nil || time.Since(begun) != 0 {
				t.Errorf("%d s after the first hung call, another client waits for %v and gets %v", second, time.Since(begun), err)
			}
			time.Sleep(time.Until(begun.Add(time.Second)))
		}
		time.Sleep(2 * time.Hour)
	})
}
