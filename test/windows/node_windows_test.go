// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package windows

import (
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// A port that somebody else has stops no storage: the daemon serves the pipes, and HTTP once the port
// is free.
func TestTakenPort(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer taken.Close()
	address := taken.Addr().String()
	s := installProgram(t, simProgram, "-sim-state="+filepath.Join(t.TempDir(), "state"), "-metrics-bind-address="+address)
	s.start()
	disks := newest(t, "disk")
	disks.call("ListDiskIDs", nil)
	if !strings.Contains(s.written(), address) {
		t.Errorf("the log doesn't name the port:\n%s", s.written())
	}
	must(t, taken.Close())
	client := &http.Client{Timeout: patience}
	if !eventually(func() bool {
		answer, err := client.Get("http://" + address + "/metrics")
		if err != nil {
			return false
		}
		answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	}) {
		t.Errorf("the port is free, and the metrics aren't served:\n%s", s.written())
	}
	disks.call("ListDiskIDs", nil)
}

// Nobody has promised that WMI's providers do with the five privileges, as whom they work: a volume is
// formatted, and a share mapped.
func TestGuessRestrictedPrivileges(t *testing.T) {
	notOnWine(t, "it has no storage management, no SMB and no such limit")
	kubelet := kubeletDirectory(t)
	s := install(t, "-kubelet-path="+kubelet)
	must(t, limit(s.Service))
	s.start()
	t.Run("volume", func(t *testing.T) { nativeVolume(t, filepath.Join(kubelet, "512"), 512) })
	t.Run("share", func(t *testing.T) { nativeMapping(t, kubelet) })
}
