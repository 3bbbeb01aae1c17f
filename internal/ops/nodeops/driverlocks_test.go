// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"strings"
	"testing"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// during calls f once, in the middle of the first Windows call of a name on an object with a text. That is answered
// when f returns. Whatever f calls has a minute: it must not wait for who makes the Windows call.
func (w *tenants) during(call, object string, f func(ctx context.Context)) (happened func() bool) {
	happens := false
	w.sim.OnCall(func(c winsim.Call) {
		if c.Name != call || !strings.Contains(c.Object, object) {
			return
		}
		w.sim.OnCall(nil)
		happens = true
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
		defer cancel()
		f(ctx)
	})
	return func() bool { return happens }
}

// While a driver maps its share, another one that names the share gets the answer that it may not, and doesn't
// wait for the locks. So it doesn't take them, either.
func TestAnothersShareIsntLocked(t *testing.T) {
	w := newTenants(t)
	d, other := w.own[blue], w.own[red]
	w.begin(d)
	planted := d.shareStaging + "-planted"
	w.must(w.sim.Symlink(planted, other.share, true))
	happened := w.during(win.CallCreateSMBGlobalMapping, other.share, func(ctx context.Context) {
		for what, err := range map[string]error{
			"RemoveSMBGlobalMapping": d.SMB.RemoveSMBGlobalMapping(ctx, other.share),
			"NewSMBGlobalMapping":    d.SMB.NewSMBGlobalMapping(ctx, other.share, d.shareStaging+"-new", user),
			"StageShare": d.Storage.StageShare(ctx, csiproxy.StageShareRequest{RemotePath: other.share,
				StagingPath: d.shareStaging + "-new", Credentials: user}),
			"UnstageShare": second(d.Storage.UnstageShare(ctx, csiproxy.UnstageShareRequest{RemotePath: other.share,
				StagingPath: d.shareStaging + "-new"})),
			"UnstageShare of a link": second(d.Storage.UnstageShare(ctx,
				csiproxy.UnstageShareRequest{StagingPath: planted})),
			"UnstageVolume of a link": second(d.Storage.UnstageVolume(ctx,
				csiproxy.UnstageVolumeRequest{StagingPath: planted})),
		} {
			simtest.WantErrorOf(t, what, err, csiproxy.ErrPermissionDenied, "the server isn't one of driver "+blue+"'s")
		}
	})
	w.must(other.Storage.StageShare(t.Context(), csiproxy.StageShareRequest{RemotePath: other.share,
		StagingPath: other.shareStaging, Credentials: user}))
	simtest.Want(t, "the share was mapped", happened(), true)
}
