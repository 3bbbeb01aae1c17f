// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package hive

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Programs of others read the hives: libhivex and reglookup, from Debian.
func TestEmpty(t *testing.T) {
	for _, name := range []string{"DEFAULT", "SAM", "SECURITY", "SOFTWARE", "SYSTEM"} {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, Empty(name), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Run(name+"/hivexml", func(t *testing.T) {
			out := output(t, "hivexml", file)
			if !strings.Contains(out, `<node name="`+name+`" root="1">`) || strings.Count(out, "<node") != 1 || strings.Contains(out, "<value") {
				t.Errorf("it must have the root key only:\n%s", out)
			}
		})
		t.Run(name+"/reglookup", func(t *testing.T) {
			all := "QRY_VAL SET_VAL CREATE_KEY ENUM_KEYS NOTIFY CREATE_LNK DELETE R_CONT W_DAC W_OWNER:CI"
			want := "/,KEY,,1970-01-01 00:00:00,S-1-5-32-544,S-1-5-18,,S-1-5-32-544:ALLOW:" + all + "|S-1-5-18:ALLOW:" + all +
				","
			if out := strings.TrimSpace(output(t, "reglookup", "-H", "-s", file)); out != want {
				t.Errorf("it has\n%s\nwant\n%s", out, want)
			}
		})
	}
}

// output returns what a program prints, and fails if it complains.
func output(t *testing.T, program string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		if os.Getenv("SKIPPED") != "" {
			t.Fatal(err) // CI, which installs them
		}
		t.Skip("needs Debian's libhivex-bin and reglookup: ", err)
	}
	var stderr strings.Builder
	cmd := exec.Command(program, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || stderr.Len() > 0 {
		t.Fatalf("%s: %v\n%s", program, err, &stderr)
	}
	return string(out)
}
