// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package shares

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// server takes one password, and counts the log-ons.
type server struct {
	memory   *logOns
	mu       sync.Mutex
	password string
	refusal  error
	logOns   int
}

func ofNobody(string) string { return "" }

func newServer() *server {
	return &server{memory: newLogOns(slog.New(slog.DiscardHandler), ofNobody), password: "right", refusal: winerr.ErrorLogonFailure}
}

func (s *server) answer(password string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logOns++
	if password != s.password {
		return s.refusal
	}
	return nil
}

// logOn maps a share with a password.
func (s *server) logOn(t *testing.T, remote, user, password string) error {
	t.Helper()
	c := csiproxy.SMBCredentials{Username: user, Password: csiproxy.NewSecret(password)}
	return s.memory.logOn(path(t, remote), c, `C:\staging`, func() error { return s.answer(password) })
}

func (s *server) wantLogOns(t *testing.T, what string, want int) {
	t.Helper()
	simtest.Want(t, what+": log-ons", s.logOns, want)
	s.logOns = 0
}

func (s *server) wantRefused(t *testing.T, want int) {
	t.Helper()
	accounts, _ := s.memory.refused()
	simtest.Want(t, "refused accounts", accounts, want)
}

func path(t *testing.T, remote string) win.UNCPath {
	t.Helper()
	p, err := win.ParseUNC(remote)
	simtest.Must(t, err)
	return p
}

const (
	data = `\\filer\data`
	logs = `\\filer\logs`
	user = `CORP\app`
)

// Pods that try all the time make one log-on in a window, which grows to two minutes.
func TestWindow(t *testing.T) {
	for _, refusal := range []winerr.Errno{winerr.ErrorLogonFailure, winerr.ErrorAccountRestriction, winerr.ErrorAccountDisabled,
		winerr.ErrorAccountLockedOut} {
		t.Run(fmt.Sprint(uint32(refusal)), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				s.refusal = refusal
				begin, text := time.Now(), ""
				var at []time.Duration
				for time.Since(begin) < 12*time.Minute {
					before := s.logOns
					err := s.logOn(t, data, user, "wrong")
					if number, _ := csiproxy.WindowsErrorOf(err); winerr.Errno(number) != refusal ||
						!errors.Is(err, csiproxy.ErrUnauthenticated) {
						t.Fatal(err)
					}
					if text == "" {
						text = err.Error()
					}
					if err.Error() != text {
						t.Fatalf("the error changes from %q to %q", text, err)
					}
					if s.logOns > before {
						at = append(at, time.Since(begin))
					}
					time.Sleep(time.Second)
				}
				want := "[0s 15s 45s 1m45s 3m45s 5m45s 7m45s 9m45s 11m45s]"
				simtest.Want(t, "times of log-ons", fmt.Sprint(at), want)
				_, heldBack := s.memory.refused()
				simtest.Want(t, "log-ons held back", heldBack, 12*60-9)
			})
		})
	}
}

// Which credentials are held back, and what ends the window.
func TestHeldBack(t *testing.T) {
	for name, test := range map[string]struct {
		remote, user, password string
		logOns                 int
	}{
		"the same":                       {data, user, "wrong", 0},
		"another share":                  {logs, user, "wrong", 0},
		"another server of the domain":   {`\\other\data`, user, "wrong", 0},
		"in other letters":               {`\\FILER\Data`, `corp\APP`, "wrong", 0},
		"another password":               {data, user, "guess", 1},
		"another user":                   {data, `CORP\other`, "wrong", 1},
		"another domain":                 {data, `LAB\app`, "wrong", 1},
		"a user of the server, not of a": {data, `app`, "wrong", 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer()
			s.logOn(t, data, user, "wrong")
			s.logOns = 0
			s.logOn(t, test.remote, test.user, test.password)
			s.wantLogOns(t, name, test.logOns)
		})
	}
	for _, same := range []string{"app", `.\app`, `\app`, "APP", `filer\app`} {
		s := newServer()
		s.logOn(t, data, "app", "wrong")
		s.logOns = 0
		s.logOn(t, logs, same, "wrong")
		s.wantLogOns(t, "the server's own account "+same, 0)
		if same != `filer\app` {
			s.logOn(t, `\\other\data`, same, "wrong")
			s.wantLogOns(t, "another server's account "+same, 1)
		}
	}
	s := newServer()
	s.logOn(t, data, "app@corp.example", "wrong")
	s.logOn(t, `\\other\data`, "APP@corp.example", "wrong")
	s.wantLogOns(t, "an account by its principal name", 1)
}

func TestWindowEnds(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, s *server){
		"success":                func(t *testing.T, s *server) { s.logOn(t, logs, user, "right") },
		"nobody asks for longer": func(*testing.T, *server) { time.Sleep(30 * time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				s.logOn(t, data, user, "wrong")
				time.Sleep(15 * time.Second)
				s.logOn(t, data, user, "wrong")
				end(t, s)
				s.logOns = 0
				s.logOn(t, data, user, "wrong")
				s.wantLogOns(t, "the next", 1)
				time.Sleep(15 * time.Second) // the window is short again
				s.logOn(t, data, user, "wrong")
				s.wantLogOns(t, "the next but one", 1)
			})
		})
	}
}

// A server that can't be reached after the window hasn't refused anything.
func TestNoAnswerAfterTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.logOn(t, data, user, "wrong")
		time.Sleep(15 * time.Second)
		s.refusal = winerr.ErrorBadNetPath
		for range 3 {
			simtest.WantError(t, s.logOn(t, data, user, "wrong"), winerr.ErrorBadNetPath)
		}
		s.wantLogOns(t, "while it is away", 4)
	})
}

// After the window, one caller tries for all.
func TestOneTriesAfterTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.logOn(t, data, user, "wrong")
		time.Sleep(15 * time.Second)
		s.logOns = 0
		var callers sync.WaitGroup
		for range 8 {
			callers.Go(func() {
				c := csiproxy.SMBCredentials{Username: user, Password: csiproxy.NewSecret("wrong")}
				s.memory.logOn(path(t, data), c, "", func() error {
					time.Sleep(time.Minute)
					return s.answer("wrong")
				})
			})
		}
		callers.Wait()
		s.wantLogOns(t, "after the window", 1)
	})
}

// Probes of what is mapped are log-ons, too.
func TestProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		probe := func(remote, password string) error {
			return s.memory.probe(path(t, remote), func() error { return s.answer(password) })
		}
		s.logOn(t, data, user, "right")
		s.logOn(t, logs, user, "right")
		s.logOns = 0
		s.password = "changed"
		for range 10 {
			simtest.WantError(t, probe(data, "right"), winerr.ErrorLogonFailure)
		}
		s.wantLogOns(t, "a share that was refused", 1)
		s.logOn(t, `\\filer\new`, user, "right")
		s.wantLogOns(t, "a new mapping with the same credentials", 0)
		// Another share with the same credentials is asked: its session may still work.
		probe(logs, "changed")
		s.wantLogOns(t, "another share", 1)
		probe(data, "right")
		s.wantLogOns(t, "the share that was refused", 0)
		// The mapping is made again with the new password, and is another one then.
		s.memory.unmapped(path(t, data))
		simtest.WantError(t, s.logOn(t, data, user, "changed"), nil)
		simtest.WantError(t, probe(data, "changed"), nil)
		s.wantLogOns(t, "the mapping that was made again", 2)

		s.password = "right"
		for range 2 {
			probe(data, "changed")
		}
		s.wantLogOns(t, "refused again", 1)
		time.Sleep(15 * time.Second)
		s.password = "changed"
		for range 2 {
			simtest.WantError(t, probe(data, "changed"), nil)
		}
		s.wantLogOns(t, "taken again", 2)
		s.wantRefused(t, 0)
	})
}

// What a pod has put on a share can't have the share's account held back.
func TestProbeOfADirectory(t *testing.T) {
	s := newServer()
	s.logOn(t, data, user, "right")
	s.logOns = 0
	directory := path(t, data+`\link\to another server`)
	for range 2 {
		s.memory.probe(directory, func() error { return s.answer("unknown there") })
	}
	s.wantLogOns(t, "the directory", 2)
	simtest.WantError(t, s.memory.probe(path(t, data), func() error { return s.answer("right") }), nil)
	s.logOn(t, logs, user, "right")
	s.wantLogOns(t, "the share and another mapping", 2)
}

// A mapping of an earlier process is known by its share only.
func TestProbeOfAnUnknownMapping(t *testing.T) {
	s := newServer()
	for range 2 {
		s.memory.probe(path(t, data), func() error { return s.answer("wrong") })
	}
	s.wantLogOns(t, "the share", 1)
	s.memory.unmapped(path(t, data))
	s.wantRefused(t, 0)
}

// Servers of two drivers have windows of their own, also if both log on with one account of a domain. Nor does the one lose its
// windows by those of the other.
func TestWindowsOfDrivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.memory.ownerOf = func(path string) string { return strings.Split(path, `\`)[2] }
		const account, own, others = `DOMAIN\account`, `\\red\data`, `\\blue\data`
		for range 2 {
			simtest.WantErrorOf(t, "its server", s.logOn(t, own, account, "wrong"), winerr.ErrorLogonFailure)
		}
		s.wantLogOns(t, "held back", 1)
		simtest.WantErrorOf(t, "another's server", s.logOn(t, others, account, "wrong"), winerr.ErrorLogonFailure)
		s.wantLogOns(t, "another's server", 1)
		simtest.Must(t, s.logOn(t, others, account, "right"))
		s.logOns = 0
		for i := range 2 * maxWindows {
			_ = s.logOn(t, others, fmt.Sprint(account, i), "wrong")
		}
		s.logOns = 0
		_ = s.logOn(t, own, account, "wrong")
		s.wantLogOns(t, "still held back", 0)
		for i := range maxWindows {
			_ = s.logOn(t, own, fmt.Sprint(account, i), "wrong")
		}
		s.logOns = 0
		_ = s.logOn(t, own, account, "wrong")
		s.wantLogOns(t, "too many windows of its own", 1)
	})
}

// What is told of a refusal says which server and share, and never who.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := newServer()
		s.memory = newLogOns(slog.New(slog.NewTextHandler(&log, nil)), ofNobody)
		err := s.logOn(t, data, user, "wrong")
		s.logOn(t, logs, "local", "wrong")
		s.wantRefused(t, 2)
		for _, part := range []string{"server=filer", data, `C:\staging`, "1326"} {
			if !strings.Contains(log.String(), part) {
				t.Errorf("the log has no %s:\n%s", part, &log)
			}
		}
		if text := strings.ToLower(log.String() + fmt.Sprint(err)); strings.Contains(text, "app") ||
			strings.Contains(text, "wrong") || strings.Contains(text, "local") {
			t.Errorf("the log or error shows credentials:\n%s", text)
		}
	})
}

// Wrong passwords that follow each other are remembered up to a bound.
func TestManyPasswords(t *testing.T) {
	s := newServer()
	for i := range 1500 {
		s.logOn(t, data, user, fmt.Sprint("wrong ", i))
	}
	s.wantLogOns(t, "different ones", 1500)
	s.wantRefused(t, 1)
	s.logOn(t, data, user, "wrong 1499")
	s.wantLogOns(t, "the last one again", 0)
	s.logOn(t, data, user, "wrong 0")
	s.wantLogOns(t, "the first one again", 1)
}

// What is known of the credentials of a mapping, until it goes.
func TestCompare(t *testing.T) {
	s := newServer()
	compare := func(when, user, password string, want comparison) {
		t.Helper()
		c := csiproxy.SMBCredentials{Username: user, Password: csiproxy.NewSecret(password)}
		simtest.Want(t, when, s.memory.compare(path(t, data), c), want)
	}
	compare("before", user, "right", unknownCredentials)
	simtest.WantError(t, s.logOn(t, data, user, "right"), nil)
	compare("the same", `corp\APP`, "right", sameCredentials)
	compare("another password", user, "other", otherPassword)
	compare("another user", `LAB\app`, "right", otherUser)
	s.memory.unmapped(path(t, data))
	compare("after", user, "right", unknownCredentials)
}

// A refusal is remembered for a while after its window, and a share that others have unmapped and
// this process maps again isn't held back for what it was.
func TestProbeWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		probe := func(password string) { s.memory.probe(path(t, data), func() error { return s.answer(password) }) }
		probe("wrong")
		s.wantRefused(t, 1)
		time.Sleep(15 * time.Second)
		s.logOns, s.refusal = 0, winerr.ErrorBadNetPath
		probe("wrong")
		probe("wrong")
		s.wantLogOns(t, "while it is away", 2)
		s.refusal = winerr.ErrorLogonFailure
		probe("wrong")
		simtest.WantError(t, s.logOn(t, data, user, "right"), nil)
		s.logOns = 0
		probe("right")
		s.wantLogOns(t, "mapped again", 1)
		probe("wrong")
		time.Sleep(11 * time.Minute)
		s.wantRefused(t, 0)
	})
}

// What a server says at last of a mapping that was is nothing that holds back the new one.
func TestProbeOfAMappingThatWas(t *testing.T) {
	s := newServer()
	s.logOn(t, data, user, "right")
	s.memory.probe(path(t, data), func() error {
		s.memory.unmapped(path(t, data))
		s.logOn(t, data, user, "right")
		return winerr.ErrorLogonFailure
	})
	simtest.WantError(t, s.memory.probe(path(t, data), func() error { return nil }), nil)
}
