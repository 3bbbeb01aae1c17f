// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy_test

import (
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// Windows lists where volumes are mounted by paths without links.
func TestInside(t *testing.T) {
	sys := newNode(t)
	lettered, _ := newVolume(t, sys)
	must(t, sys.SetVolumeMountPoint(t.Context(), `D:\`, lettered))
	must(t, sys.MkdirAll(`D:\kubelet`))
	must(t, sys.Rename(kubelet, kubelet+`-old`, false))
	must(t, sys.Junction(kubelet, `D:\kubelet`))
	bare, _ := newVolume(t, sys)
	simtest.Mount(t, sys, `C:\work`, bare)
	p, err := pathpolicy.New(pathpolicy.Options{KubeletPath: kubelet, WorkingDirs: []string{`C:\work`, `C:\none`}})
	must(t, err)

	inside, err := p.Inside(t.Context(), nil, []string{`\VAR\lib\kubelet\x\`, kubelet, `C:\none\y`, `C:\`, `D:\`, `x`})
	must(t, err)
	simtest.Want(t, "by the text", inside, []string{kubelet + `\x`, `C:\none\y`})
	listed := []string{`D:\Kubelet\a\b\`, `D:\kubelet`, `D:\kubelets\a`, `E:\kubelet\a`, `C:\other\a`, bare + `a`, bare, lettered + `a`}
	inside, err = p.Inside(t.Context(), sys, listed)
	must(t, err)
	simtest.Want(t, "behind links", inside, []string{kubelet + `\a\b`, `C:\work\a`})
	must(t, sys.Fail(winsim.Match{Call: win.CallOpen, Object: kubelet, Count: 1}, winerr.ErrorAccessDenied))
	_, err = p.Inside(t.Context(), sys, listed)
	simtest.WantError(t, err, csiproxy.ErrPermissionDenied, kubelet)
}
