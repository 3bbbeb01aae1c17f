// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package mappings

import (
	"fmt"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/unc"
)

// What is known of drivers that share a mapping, after what they have done: whether the only link
// that is left may be the caller's own, and whether the mapping is to go with the last one.
func TestDrivers(t *testing.T) {
	remote, err := unc.Parse(`\\server\data`)
	simtest.Must(t, err)
	unlinks := func(path string) func(*drivers) { return func(d *drivers) { d.unlinkedAt(remote, path) } }
	asks := func(links int, stays bool) func(*drivers) { return func(d *drivers) { d.asked(remote, links, stays) } }
	maps := func(path string) func(*drivers) { return func(d *drivers) { d.mapped(remote, path) } }
	for name, test := range map[string]struct {
		did           []func(*drivers)
		own, toGo     bool
		nothingIsKept bool
	}{
		"nothing":                         {nil, true, false, true},
		"a link has gone":                 {[]func(*drivers){unlinks("a")}, false, false, false},
		"it was made again":               {[]func(*drivers){unlinks("a"), maps("A")}, true, false, true},
		"another one was made":            {[]func(*drivers){unlinks("a"), maps("b")}, false, false, false},
		"asked after a link has gone":     {[]func(*drivers){unlinks("a"), asks(1, true)}, false, true, false},
		"asked, and the mapping has gone": {[]func(*drivers){unlinks("a"), asks(0, false)}, true, false, true},
		"asked before":                    {[]func(*drivers){asks(2, true)}, false, true, false},
		"asked before, and unlinked":      {[]func(*drivers){asks(2, true), unlinks("a")}, true, true, false},
		"asked before, another has gone":  {[]func(*drivers){asks(2, true), unlinks("a"), unlinks("b")}, false, true, false},
		"asked twice before": {[]func(*drivers){asks(3, true), asks(3, true), unlinks("a"), unlinks("b")}, false,
			true, false},
		"asked by two before": {[]func(*drivers){asks(3, true), unlinks("a"),
			asks(2, true), unlinks("b")}, true, true, false},
		"asked while links aren't known": {[]func(*drivers){asks(0, true), unlinks("a")}, false,
			true, false},
		"asked with one's own link": {[]func(*drivers){asks(1, false)}, true, false, false},
		"asked with one's own link, gone": {[]func(*drivers){asks(1, false), unlinks("a")}, true,
			false, true},
		"to go, and asked for since": {[]func(*drivers){asks(2, true), maps("c")}, true, false,
			true},
		"the same link twice, asked once": {[]func(*drivers){unlinks("a"), unlinks("A"),
			asks(1, true), unlinks("c"), asks(0, false)}, true, false, true},
		"two links have gone, asked once, and the mapping has gone": {[]func(*drivers){unlinks("a"), unlinks("b"),
			asks(0, false)}, true, false, true},
		"asked after a link has gone, and mapped again": {[]func(*drivers){unlinks("a"), asks(2, true), maps("c")}, true,
			false, true},
		"went with the last link": {[]func(*drivers){func(d *drivers) { d.wentAhead(remote) }}, true, false, false},
		"went with the last link and told": {[]func(*drivers){func(d *drivers) { d.wentAhead(remote); d.takeAhead(remote) }},
			true, false, true},
	} {
		var d drivers
		for _, do := range test.did {
			do(&d)
		}
		if own, toGo := d.mayBeOwn(remote), d.isToGo(remote); own != test.own || toGo != test.toGo {
			t.Errorf("%s: the caller's own %v, to go %v", name, own, toGo)
		}
		if (len(d.byRoot) == 0) != test.nothingIsKept {
			t.Errorf("%s: kept is %+v", name, d.byRoot)
		}
	}

	var d drivers
	for i := range maxUnlinked + 3 {
		d.unlinkedAt(remote, fmt.Sprint(i))
	}
	if kept := d.byRoot[remote.Root()].unlinked; len(kept) != maxUnlinked || kept[0] != "3" {
		t.Errorf("kept are %q", kept)
	}
	if d.takeAhead(remote) {
		t.Error("the mapping hasn't gone ahead")
	}
	d.wentAhead(remote)
	if !d.takeAhead(remote) || d.takeAhead(remote) {
		t.Error("that the mapping has gone ahead is told once")
	}
}
