// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package shares

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

const (
	// shortestWindow follows the first refusal. Each further refusal doubles the window.
	shortestWindow = 15 * time.Second
	longestWindow  = 2 * time.Minute
	// keptAfter is how long a window is kept after its end. A refusal within keptAfter doubles the
	// window; a later refusal begins with the shortest window.
	keptAfter = 10 * time.Minute
	// maxWindows limits the windows for a driver's servers, or for servers without a driver. Beyond
	// the limit, all windows of the driver are dropped.
	maxWindows = 1024
)

// logOns throttles log-ons to SMB servers, and remembers the credentials of this process' mappings.
// Credentials are kept as hashes with a random key, in memory. A restart of the process forgets
// them. All methods are safe for concurrent use.
//
// Domains lock an account after a few refused log-ons, for all users of the account, and kubelet
// repeats a call for each pod until the call succeeds. After a refusal, the node makes at most one
// log-on with the same credentials in a window, which grows from 15 seconds to 2 minutes. Calls in
// between get the server's last answer at once. Another password has its own windows. A successful
// log-on ends all windows of its account. Servers of different drivers have separate windows, even
// for one account. Otherwise the server of one driver would hold back another driver's log-ons, and
// tell which password was used there.
type logOns struct {
	logger  *slog.Logger
	ownerOf func(path string) (driver string) // of the server of a UNC path
	key     [sha256.Size]byte

	mu       sync.Mutex           // guards the fields below
	mapped   map[string]*identity // credentials of the mappings, by root; each new mapping has a new value
	windows  map[hash]*window     // by credentials, or by share
	heldBack uint64
}

type hash [sha256.Size]byte

// identity is the hashes of credentials.
type identity struct{ account, credentials hash }

// window is a time without repetitions of a refused log-on.
type window struct {
	owner   string
	account hash  // the refused account, or the share if the account is unknown
	err     error // the last refusal
	length  time.Duration
	next    time.Time // when the next log-on may be made
}

// newLogOns returns logOns without windows and mappings. The logger gets each refusal.
func newLogOns(logger *slog.Logger, ownerOf func(path string) (driver string)) *logOns {
	l := &logOns{logger: logger, ownerOf: ownerOf, mapped: make(map[string]*identity), windows: make(map[hash]*window)}
	rand.Read(l.key[:]) // never fails
	return l
}

// logOn calls logOn, which maps the share of remote with c. While the credentials are in a window,
// logOn is skipped, and the server's last answer is returned. path is the local path for the log,
// and may be empty.
func (l *logOns) logOn(remote win.UNCPath, c csiproxy.SMBCredentials, path string, logOn func() error) error {
	id := l.identity(remote, c)
	if err := l.admit(id.credentials); err != nil {
		return explained(err)
	}
	err := logOn()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case csiproxy.KindOf(err) == csiproxy.ErrUnauthenticated:
		l.refuse(remote, path, err, id.account, id.credentials)
		return explained(err)
	case err == nil:
		l.mapped[remote.Root()] = id
		delete(l.windows, l.share(remote)) // the window of an earlier mapping
		l.accept(id.account)
	default:
		l.end(id.credentials)
	}
	return err
}

// probe calls probe, which queries a path on a mapped share. If the session of the mapping has
// gone, the query makes Windows log on. While the share is in a window, probe is skipped, and the
// last answer is returned. Windows of other shares with the same credentials are ignored: the
// session of this share may still work. A directory is always queried: a pod's link may lead from
// there to another server, whose answer would be unrelated to the share.
func (l *logOns) probe(path win.UNCPath, probe func() error) error {
	if !path.IsShare() {
		return probe()
	}
	share := l.share(path)
	account, keys := share, []hash{share}
	l.mu.Lock()
	id := l.mapped[path.Root()]
	l.mu.Unlock()
	if id != nil {
		account, keys = id.account, []hash{share, id.credentials}
	}
	if err := l.admit(share); err != nil {
		return err
	}
	err := probe()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.mapped[path.Root()] != id: // the answer is about an earlier mapping
	case csiproxy.KindOf(err) == csiproxy.ErrUnauthenticated:
		l.refuse(path, "", err, account, keys...)
	case err == nil && l.windows[share] != nil: // the session had gone, and Windows has logged on again
		l.accept(account)
	default:
		l.end(share)
	}
	return err
}

// admit returns the last refusal while a window lasts. If admit returns nil, the caller makes the
// log-on. An ended window is extended to hold back other callers meanwhile.
func (l *logOns) admit(key hash) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	w, now := l.windows[key], time.Now()
	if w == nil {
		return nil
	}
	if w.isOld(now) {
		delete(l.windows, key)
		return nil
	}
	if now.Before(w.next) {
		l.heldBack++
		return w.err
	}
	w.next = now.Add(longestWindow)
	return nil
}

// accept drops the windows of an account. The caller holds l.mu.
func (l *logOns) accept(account hash) {
	maps.DeleteFunc(l.windows, func(_ hash, w *window) bool { return w.account == account })
}

// end ends a window after a log-on without a verdict of the server. The caller holds l.mu.
func (l *logOns) end(key hash) {
	if w := l.windows[key]; w != nil {
		w.next = time.Now()
	}
}

// refuse begins windows for an account that a server has refused. The caller holds l.mu.
func (l *logOns) refuse(remote win.UNCPath, path string, err error, account hash, keys ...hash) {
	now, owner := time.Now(), l.ownerOf(remote.Root())
	l.makeRoom(owner)
	var longest time.Duration
	for _, key := range keys {
		w := l.windows[key]
		if w == nil {
			w = &window{owner: owner, account: account, length: shortestWindow / 2}
			l.windows[key] = w
		}
		w.length = min(2*w.length, longestWindow)
		w.next, w.err = now.Add(w.length), err
		longest = max(longest, w.length)
	}
	l.logger.Warn("a server has refused a log-on; waiting before the same credentials are sent again",
		"server", remote.Server(), "remotePath", remote.String(), "for", path, "heldBackFor", longest.String(), "err", err)
}

// makeRoom drops all windows of an owner with maxWindows. The caller holds l.mu.
func (l *logOns) makeRoom(owner string) {
	isOwn := func(_ hash, w *window) bool { return w.owner == owner }
	count := 0
	for key, w := range l.windows {
		if isOwn(key, w) {
			count++
		}
	}
	if count >= maxWindows {
		maps.DeleteFunc(l.windows, isOwn)
	}
}

func (w *window) isOld(now time.Time) bool { return now.Sub(w.next) > keptAfter }

// compare compares the credentials with which the share of remote is mapped to c.
func (l *logOns) compare(remote win.UNCPath, c csiproxy.SMBCredentials) comparison {
	l.mu.Lock()
	id := l.mapped[remote.Root()]
	l.mu.Unlock()
	if id == nil {
		return unknownCredentials
	}
	given := l.identity(remote, c)
	if *id == *given {
		return sameCredentials
	}
	if id.account == given.account {
		return otherPassword
	}
	return otherUser
}

// knows reports whether this process has mapped the share of remote.
func (l *logOns) knows(remote win.UNCPath) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mapped[remote.Root()] != nil
}

// unmapped forgets the mapping of the share of remote.
func (l *logOns) unmapped(remote win.UNCPath) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.mapped, remote.Root())
	delete(l.windows, l.share(remote))
}

// refused returns how many accounts have windows, and how many calls were held back so far.
func (l *logOns) refused() (accounts int, heldBack uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	refused := make(map[hash]bool)
	for _, w := range l.windows {
		if !w.isOld(time.Now()) {
			refused[w.account] = true
		}
	}
	return len(refused), l.heldBack
}

// explained adds the throttling of log-ons to a refusal. Made and throttled log-ons get the same
// text because Kubernetes makes an event of each new text.
func explained(err error) error {
	return &csiproxy.Error{
		Detail: "the server refuses the credentials; to keep the account from being locked, " +
			"the same ones are tried again after 2 minutes at the latest, and others at once",
		Err: err,
	}
}

func (l *logOns) hash(text string) (sum hash) {
	h := hmac.New(sha256.New, l.key[:])
	h.Write([]byte(text))
	h.Sum(sum[:0])
	return sum
}

func (l *logOns) share(path win.UNCPath) hash { return l.hash("share " + path.Root()) }

func (l *logOns) identity(remote win.UNCPath, c csiproxy.SMBCredentials) *identity {
	name := l.ownerOf(remote.Root()) + "\x00" + account(remote, c.Username)
	return &identity{
		account:     l.hash("account " + name),
		credentials: l.hash("credentials " + name + "\x00" + c.Password.Reveal()),
	}
}

// account names the account that a server may lock: an account of a domain, or of the server
// itself.
func account(remote win.UNCPath, username string) string {
	domain, name, qualified := strings.Cut(username, `\`)
	switch {
	case !qualified && strings.Contains(username, "@"):
		return win.UpperName(username)
	case !qualified:
		name = username
	case domain != "" && domain != ".":
		return win.UpperName(username)
	}
	return win.UpperName(remote.Server() + `\` + name)
}
