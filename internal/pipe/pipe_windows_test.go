// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pipe

import (
	"errors"
	"io"
	"io/fs"
	"testing"
)

func TestListenAndDial(t *testing.T) {
	const name = "csi-proxy-test-of-pipe-v1"
	c, err := Claim(DefaultDir())
	if err != nil {
		t.Fatal(err)
	}
	l, err := c.Listen(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := c.Listen(t.Context(), name); !errors.Is(err, ErrInUse) {
		t.Errorf("listening twice gives %v, want ErrInUse", err)
	}

	go func() { // echo the first bytes of each connection
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go io.Copy(conn, conn)
		}
	}()
	for range 2 { // Wine loses the first connection to a new pipe
		conn, err := Dial(t.Context(), Address("", name))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	conn, err := Dial(t.Context(), Address("", name))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	got := make([]byte, 5)
	if _, err := io.WriteString(conn, "hello"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != "hello" {
		t.Errorf("the echo is %q, %v", got, err)
	}
}

func TestDialNoPipe(t *testing.T) {
	if _, err := Dial(t.Context(), Address("", "csi-proxy-none-v1")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("dialling no pipe gives %v, want not exist", err)
	}
}

func TestDirectoryIsRefused(t *testing.T) {
	if _, err := Claim(`C:\run`); err == nil {
		t.Error("claim of a directory succeeds")
	}
}
