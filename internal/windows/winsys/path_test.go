// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"strings"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

func TestNTPath(t *testing.T) {
	const volume = `Volume{01234567-89ab-cdef-0123-456789abcdef}`
	tests := map[string]string{ // "" is an error
		`C:\`:                     `\??\C:\`,
		`C:\var\lib`:              `\??\C:\var\lib`,
		`c:\var\lib\`:             `\??\c:\var\lib`,
		`\\?\C:\var`:              `\??\C:\var`,
		`\\?\` + volume + `\`:     `\??\` + volume + `\`,
		`\\?\` + volume + `\a\`:   `\??\` + volume + `\a`,
		`\\server\share\a`:        `\??\UNC\server\share\a`,
		`\\?\UNC\server\share\a`:  `\??\UNC\server\share\a`,
		`C:\a `:                   `\??\C:\a `, // names are left to the file system
		`C:\a/b`:                  `\??\C:\a/b`,
		``:                        ``,
		`a`:                       ``,
		`C:`:                      ``,
		`C:a`:                     ``,
		`C:/a`:                    ``,
		`\a`:                      ``,
		`1:\a`:                    ``,
		`\\.\PhysicalDrive0`:      ``,
		`C:\a\..\b`:               ``,
		`C:\a\.`:                  ``,
		`\\?\C:\..`:               ``,
		`\\server\share\..\other`: ``,
	}
	for path, want := range tests {
		got, err := ntPath(path)
		if want == "" {
			if err != winerr.ErrorInvalidName {
				t.Errorf("ntPath(%q) = %q, %v; want ErrorInvalidName", path, got, err)
			}
		} else if got != want || err != nil {
			t.Errorf("ntPath(%q) = %q, %v; want %q", path, got, err, want)
		}
	}
}

func TestCheckBelow(t *testing.T) {
	for _, name := range []string{"a", "a b", "...", "a.", "日本", " ", `a\b`, `a\...\b`} {
		if err := checkBelow(name); err != nil {
			t.Errorf("checkBelow(%q) = %v", name, err)
		}
	}
	for _, name := range []string{"", ".", "..", `a\.`, `a\..\b`, `a\\b`, `\a`, `a\`, `\`, "a/b", "a:stream", "a\x00b"} {
		if err := checkBelow(name); err != winerr.ErrorInvalidName {
			t.Errorf("checkBelow(%q) = %v; want ErrorInvalidName", name, err)
		}
	}
}

func TestDirectoryPath(t *testing.T) {
	long := strings.Repeat(`\longer`, 40)
	tests := map[string]string{
		`C:\mnt`:              `C:\mnt\`,
		`C:\mnt\`:             `C:\mnt\`,
		`C:` + long:           `\\?\C:` + long + `\`,
		`\\?\Volume{}` + long: `\\?\Volume{}` + long + `\`,
		long:                  long + `\`, // not a full path: Windows refuses it
	}
	for path, want := range tests {
		if got := directoryPath(path); got != want {
			t.Errorf("directoryPath(%q) = %q; want %q", path, got, want)
		}
	}
}
