// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winerr

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Each error that has a text has a name, and golang.org/x/sys/windows, which is generated
// from Microsoft's headers, knows it by that name, unless its header isn't winerror.h.
func TestErrnoNames(t *testing.T) {
	dir, err := exec.Command("go", "list", "-f", "{{.Dir}}", "golang.org/x/sys/unix").Output()
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "..", "windows", "zerrors_windows.go"))
	if err != nil {
		t.Fatal(err)
	}
	known := make(map[Errno]string)
	for _, line := range regexp.MustCompile(`(?m)^\s*(ERROR_\w+)\s+syscall\.Errno = (\d+)$`).FindAllSubmatch(source, -1) {
		if n, err := strconv.ParseUint(string(line[2]), 10, 32); err == nil {
			known[Errno(n)] = string(line[1])
		}
	}
	for e, ours := range errnos {
		switch name := ours.name; {
		case ours.text == "":
			t.Errorf("%s has no text", name)
		case strings.HasPrefix(name, "NERR_"):
		case e <= 0xFFFF && name != known[e]:
			t.Errorf("%d is named %s, and by Microsoft %s", uint32(e), name, known[e])
		case e > 0xFFFF && !slices.ContainsFunc([]string{"ISDSC_", "FVE_E_", "WBEM_E_", "STATUS_"},
			func(prefix string) bool { return strings.HasPrefix(name, prefix) }):
			t.Errorf("%#x is named %s", uint32(e), name)
		}
	}
}

func TestNameOfUnknownErrno(t *testing.T) {
	for e, want := range map[Errno]string{ISDSCServiceNotRunning: "ISDSC_SERVICE_NOT_RUNNING", 64999: "64999",
		0x80041015: "0x80041015"} {
		if got := e.Name(); got != want {
			t.Errorf("%#x is named %s, want %s", uint32(e), got, want)
		}
	}
}
