// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build windows && simulated

package pipe

import (
	"net"
	"time"

	"github.com/Microsoft/go-winio"
	"golang.org/x/sys/windows"
)

// Wine never serves the first connection to a new pipe. A driver with this connection would wait
// for 20 seconds before connecting again. Therefore the daemon makes the first connection. If a
// driver was faster, the pipe is made anew.
func init() {
	if windows.NewLazySystemDLL("ntdll.dll").NewProc("wine_get_version").Find() != nil {
		return
	}
	listenPipe = func(path string, config *winio.PipeConfig) (net.Listener, error) {
		for {
			l, err := winio.ListenPipe(path, config)
			if err != nil {
				return nil, err
			}
			timeout := 100 * time.Millisecond // enough for Wine to say that the pipe is busy
			first, err := winio.DialPipe(path, &timeout)
			if err == nil {
				return l, first.Close()
			}
			if err := l.Close(); err != nil {
				return nil, err
			}
		}
	}
}
