// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// A name with half a surrogate pair, as Windows has it and as Go does, in WTF-8. The
// simulated node keeps only names that are valid UTF-8: there it is standIn.
const standIn = "half a pair"

var halfPair = win.StringFromUTF16([]uint16{'a', 0xD83D, 'b'})

// halfPairs is a system on which files named standIn are named halfPair.
type halfPairs struct{ *winsim.System }

func (s halfPairs) OpenFile(ctx context.Context, path string, o win.OpenOptions) (win.File, error) {
	f, err := s.System.OpenFile(ctx, path, o)
	if err != nil {
		return nil, err
	}
	return halfPairsFile{f}, nil
}

type halfPairsFile struct{ win.File }

func (f halfPairsFile) OpenAt(ctx context.Context, name string, o win.OpenOptions) (win.File, error) {
	file, err := f.File.OpenAt(ctx, strings.ReplaceAll(name, halfPair, standIn), o)
	if err != nil {
		return nil, err
	}
	return halfPairsFile{file}, nil
}

func (f halfPairsFile) ReadDir(ctx context.Context, restart bool) ([]win.DirEntry, error) {
	entries, err := f.File.ReadDir(ctx, restart)
	entries = slices.Clone(entries)
	for i := range entries {
		if entries[i].Name == standIn {
			entries[i].Name = halfPair
		}
	}
	return entries, err
}

// A pod can name a file with half a surrogate pair, and the directory is removed all
// the same. A caller's path with such a name isn't taken.
func TestRmdirHalfPair(t *testing.T) {
	sys := newFileNode(t)
	f := newFilesystem(t, halfPairs{sys})
	dir := kubelet + `\volume`
	must(t, sys.MkdirAll(dir+`\`+standIn+`\`+standIn))
	must(t, sys.WriteFile(dir+`\`+standIn+`\`+standIn+`\`+standIn, []byte("data")))
	must(t, sys.WriteFile(dir+`\`+standIn+`\file`, []byte("data")))
	if err := f.Rmdir(t.Context(), dir+`\`+halfPair, true); err == nil {
		t.Error("a path that isn't valid UTF-8 was taken")
	}
	must(t, f.Rmdir(t.Context(), dir, true))
	if found := tree(t, sys, dir); len(found) > 0 {
		t.Errorf("left: %v", found)
	}
}
