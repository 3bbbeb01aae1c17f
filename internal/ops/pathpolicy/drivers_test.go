// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// twoDrivers returns the policy of a node with the drivers red and blue, and their policies. red also has C:\work.
func twoDrivers(t *testing.T) (node, red, blue *Policy) {
	t.Helper()
	node, err := New(Options{KubeletPath: kubelet, WorkingDirs: []string{`C:\work`},
		Drivers: []Driver{{"red", []string{`C:\work`}}, {Name: "blue"}}})
	simtest.Must(t, err)
	node.linkEntries = 10
	return node, node.Within(Territory{Driver: "red"}), node.Within(Territory{Driver: "blue"})
}

// Where a driver has too many entries in its own directories, all links elsewhere are found. That some may be missing
// is known to it and to administrators. Entries elsewhere are everybody's.
func TestLinkEntriesOfDrivers(t *testing.T) {
	places := map[string]string{ // with the drivers whose they are
		kubelet + `\plugins\red`: "red", kubelet + `\plugins\RED\below`: "red",
		kubelet + `\plugins\kubernetes.io\csi\blue`: "blue", kubelet + `\plugins\blue`: "blue", `C:\work`: "red",
		kubelet + `\plugins`: "", kubelet + `\plugins\redder`: "", kubelet + `\else`: "",
	}
	for crowded, owner := range places {
		sys := simtest.Open(t, winsim.Delays{})
		node, red, blue := twoDrivers(t)
		simtest.Must(t, sys.MkdirAll(kubelet+`\target`))
		for place := range places {
			simtest.Must(t, sys.MkdirAll(place))
		}
		for _, place := range []string{kubelet + `\plugins\red`, kubelet + `\plugins\blue`, `C:\work`} {
			simtest.Must(t, sys.Symlink(place+`\a-link`, kubelet+`\target`, true))
		}
		for i := range node.linkEntries + 1 {
			simtest.Must(t, sys.MkdirAll(fmt.Sprint(crowded, `\d`, i)))
		}
		found, incomplete, err := node.Links(t.Context(), sys)
		simtest.Must(t, err)
		for name, p := range map[string]*Policy{"red": red, "blue": blue, "": node} {
			want := csiproxy.ErrResourceExhausted
			if name != "" && owner != "" && name != owner {
				want = nil
			}
			if err := p.OwnIncomplete(incomplete); !errors.Is(err, want) || want == nil && err != nil {
				t.Errorf("%s is crowded: to %q it is incomplete by %v", crowded, name, err)
			}
		}
		if owner != "" && len(found) != 3 {
			t.Errorf("%s is crowded: found %v", crowded, found)
		}
	}
}

// Who keeps a driver's own directory open doesn't use up the time for which the search waits elsewhere.
func TestLinksWaitOutsideOfDriversDirectories(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := simtest.Open(t, winsim.Delays{})
		node, red, blue := twoDrivers(t)
		for _, dir := range []string{kubelet + `\plugins\blue`, kubelet + `\plugins\red\busy`} {
			simtest.Must(t, sys.MkdirAll(dir))
		}
		simtest.Must(t, sys.Fail(winsim.Match{Call: win.CallOpenAt, Object: `plugins\blue`}, winerr.ErrorSharingViolation))
		simtest.Must(t, sys.Fail(winsim.Match{Call: win.CallOpenAt, Object: `busy`, Count: 3}, winerr.ErrorSharingViolation))
		begun := time.Now()
		_, incomplete, err := node.Links(t.Context(), sys)
		simtest.Must(t, err)
		if took := time.Since(begun); took > 2*waitLimit {
			t.Errorf("the search took %v", took)
		}
		simtest.Must(t, red.OwnIncomplete(incomplete))
		simtest.WantError(t, blue.OwnIncomplete(incomplete), winerr.ErrorSharingViolation)
	})
}

// FirstVolume follows links as far as to a volume, and asks nothing of that.
func TestFirstVolume(t *testing.T) {
	sys, p := simtest.Open(t, winsim.Delays{}), mustPolicy(t, kubelet)
	id, _ := simtest.Volume(t, sys)
	for _, dir := range []string{`\plain`, `\mount`} {
		simtest.Must(t, sys.MkdirAll(kubelet+dir))
	}
	simtest.Mount(t, sys, kubelet+`\mount`, id)
	simtest.Must(t, sys.Symlink(kubelet+`\link`, kubelet+`\mount\x`, true))
	simtest.Must(t, sys.Symlink(kubelet+`\share`, `\\server\share\`, true))
	simtest.Must(t, sys.Symlink(kubelet+`\outside`, `C:\Windows`, true))
	simtest.Must(t, sys.Symlink(kubelet+`\circle`, kubelet+`\circle`, true))
	sys.OnCall(func(c winsim.Call) {
		if strings.Contains(strings.ToLower(c.Object), strings.ToLower(strings.TrimSuffix(id, `\`))) {
			t.Errorf("%v", c)
		}
	})
	for path, want := range map[string]string{
		`\mount`: id, `\mount\x\y`: id, `\link`: id, `\link\y`: id, `\plain`: "", `\plain\none\x`: "", `\share`: "",
		`\outside`: "error", `\circle`: "error",
	} {
		parsed, err := p.Parse(kubelet+path, MaxPath)
		simtest.Must(t, err)
		got, err := p.FirstVolume(t.Context(), sys, parsed)
		if err != nil {
			got = "error"
		}
		simtest.Want(t, path, got, want)
	}
}
