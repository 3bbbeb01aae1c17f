// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestBootSector: what is written can be read, for all cluster sizes.
func TestBootSector(t *testing.T) {
	for _, kind := range []fsKind{kindNTFS, kindReFS} {
		for _, sector := range []uint32{512, 4096} {
			for cluster := sector; cluster <= maxClusterSize; cluster *= 2 {
				want := bootSector{kind, sector, cluster / sector, 1 << 33, 0x1122334455667788}
				if got, ok := decodeBootSector(want.encode(2048)); !ok || got != want {
					t.Errorf("got %+v, %v, want %+v", got, ok, want)
				}
			}
		}
	}
	for name, change := range map[string]func([]byte){
		"no signature":        func(b []byte) { b[510] = 0 },
		"no name":             func(b []byte) { b[3] = 0 },
		"sectors of 0 bytes":  func(b []byte) { b[11], b[12] = 0, 0 },
		"clusters of 0 bytes": func(b []byte) { b[13] = 0 },
		"huge clusters":       func(b []byte) { b[13] = 0x81 },
		"no sectors":          func(b []byte) { clear(b[40:48]) },
	} {
		b := bootSector{kindNTFS, 512, 8, 1000, 1}.encode(0)
		change(b)
		if got, ok := decodeBootSector(b); ok {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestForeignReader has file(1) read an NTFS boot sector.
func TestForeignReader(t *testing.T) {
	path, err := exec.LookPath("file")
	if err != nil {
		t.Skip("file is not installed")
	}
	image := filepath.Join(t.TempDir(), "boot")
	if err := os.WriteFile(image, bootSector{kindNTFS, 512, 8, 8388607, 0x1122334455667788}.encode(32768),
		0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), path, image).CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"NTFS", "sectors/cluster 8,", "hidden sectors 32768,", "sectors 8388607,",
		"1122334455667788"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in %s", want, out)
		}
	}
}

func TestDefaultCluster(t *testing.T) {
	const tib = 1 << 40
	for size, want := range map[int64]uint32{
		1 << 30: 4096, 16 * tib: 4096, 16*tib + 1: 8192, 32 * tib: 8192, 64 * tib: 16384, 128 * tib: 32768, 256 * tib: 65536,
	} {
		if got := defaultCluster(kindNTFS, size); got != want {
			t.Errorf("%d bytes: clusters of %d, want %d", size, got, want)
		}
	}
}
