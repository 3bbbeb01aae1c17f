// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package smblogon remembers how log-ons to SMB servers went, without keeping credentials: of
// each user, account and password it has a hash with a key that nobody else has. After a
// restart of the process it knows nothing.
//
// It knows with which credentials this process has mapped a share, and which credentials
// servers have refused. Domains lock an account after a few refused log-ons, for everybody who
// uses it, and kubelet repeats a call for each pod until it succeeds. So refused credentials
// are held back: the node makes one log-on with them in a window, which grows from 15 seconds
// to 2 minutes, and calls in between get the answer of the server at once. Another password
// isn't held back. A log-on with the account that succeeds ends the window, and so does
// [Memory.Forget].
package smblogon

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/csi-proxy/csi-proxy/smb"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/quote"
	"github.com/csi-proxy/csi-proxy/internal/unc"
	"github.com/csi-proxy/csi-proxy/internal/winname"
)

const (
	// shortestWindow follows the first refusal. Each further one doubles it.
	shortestWindow = 15 * time.Second
	longestWindow  = 2 * time.Minute
	// keptAfter is how long a refusal is remembered after its window, so that the next one
	// finds the window as long as it was.
	keptAfter = 10 * time.Minute
	// maxSecrets bounds how many refused passwords of an account are remembered.
	maxSecrets = 64
	// firstPatience is how long a log-on waits for another one with the same credentials,
	// which may be refused. A server that doesn't answer keeps nobody for longer.
	firstPatience = 2 * time.Second
)

// Memory is what is known of log-ons. All methods may be called concurrently.
type Memory struct {
	logger *slog.Logger
	key    [sha256.Size]byte

	mu       sync.Mutex // guards the fields below
	mapped   map[string]identity
	changes  map[string]int    // of mapped, by root
	refused  map[hash]*refusal // by account
	firsts   map[identity]chan struct{}
	heldBack uint64
}

type hash [sha256.Size]byte

// identity is the hashes of credentials.
type identity struct{ account, user, password hash }

// refusal is what is known of an account whose credentials a server has refused.
type refusal struct {
	remote  string // the share of the last refusal
	err     error  // the last refusal
	since   time.Time
	window  time.Duration
	next    time.Time         // when the next log-on may be made
	secrets map[hash]struct{} // the refused passwords
	probes  map[string]error  // the mapped paths, folded, that can't be used because of it
}

// Refusal is an account whose log-on was refused, without its name.
type Refusal struct {
	RemotePath  string // the share of the last refusal
	Err         error
	Since       time.Time
	NextAttempt time.Time // calls before it get Err
}

// New returns a memory that knows nothing. The logger, if it isn't nil, gets each refusal.
func New(logger *slog.Logger) *Memory {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	m := &Memory{
		logger: logger, mapped: make(map[string]identity), changes: make(map[string]int), refused: make(map[hash]*refusal),
		firsts: make(map[identity]chan struct{}),
	}
	rand.Read(m.key[:]) // never fails
	return m
}

// LogOn calls logOn, which maps the share of remote with c, unless these credentials are held
// back: then it returns the server's last answer. asker is the path for which the share is
// wanted; it may be empty. The call waits a moment for others with the same credentials.
func (m *Memory) LogOn(ctx context.Context, remote unc.Path, c smb.Credentials, asker string,
	logOn func() error) error {
	id := m.identity(remote, c)
	end, err := m.beginFirst(ctx, id)
	if err != nil {
		return err
	}
	defer end()
	known := func(r *refusal) bool { _, known := r.secrets[id.password]; return known }
	if err := m.admit(id.account, known, func(r *refusal) error { return r.err }); err != nil {
		return explained(err)
	}
	err = logOn()
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case err == nil:
		m.mapped[remote.Root()] = id
		m.changes[remote.Root()]++
		delete(m.refused, id.account)
	case isRefusal(err):
		m.refuse(id.account, remote, asker, err).add(id.password)
		return explained(err)
	default: // no answer of the server to the credentials
		m.release(id.account, known)
	}
	return err
}

// Probe calls probe, which looks at a path that is mapped, unless that was refused a moment
// ago: then it returns the same answer. Windows logs on for a probe if its session has gone.
func (m *Memory) Probe(path unc.Path, probe func() error) error {
	folded := path.Folded()
	m.mu.Lock()
	id, mapped := m.mapped[path.Root()]
	changes := m.changes[path.Root()]
	m.mu.Unlock()
	if !mapped || !path.IsShare() {
		// A directory may be a pod's link to another server: what that says is of no account.
		id = identity{account: m.hash("path " + folded)}
	}
	known := func(r *refusal) bool { return r.probes[folded] != nil }
	if err := m.admit(id.account, known, func(r *refusal) error { return r.probes[folded] }); err != nil {
		return err
	}
	err := probe()
	m.mu.Lock()
	defer m.mu.Unlock()
	switch r := m.refused[id.account]; {
	case changes != m.changes[path.Root()]: // it was about the mapping that was
	case isRefusal(err):
		r = m.refuse(id.account, path, "", err)
		r.probes[folded] = err
		if id.password != (hash{}) {
			r.add(id.password)
		}
	case r == nil || !known(r):
	case err == nil:
		delete(m.refused, id.account)
	default:
		m.release(id.account, known)
	}
	return err
}

// Look calls probe, which is Probe for the share of path, for who only tells what is wrong with
// it. It waits a moment for others that look at shares of the same session, and returns the answer
// of refusedBeside, if there is one.
func (m *Memory) Look(ctx context.Context, path unc.Path, probe func() error) error {
	id, _ := m.session(path)
	end, err := m.beginFirst(ctx, id)
	if err != nil {
		return err
	}
	defer end()
	if err := m.refusedBeside(path); err != nil {
		return err
	}
	return probe()
}

// refusedBeside returns the answer of the server to a probe of another share that was refused a
// moment ago, if the share of path is mapped with the same credentials: Windows has one session
// with a server for them. It is no proof for who would remove or use the mapping of path: behind a
// name of DFS there are several servers.
func (m *Memory) refusedBeside(path unc.Path) error {
	id, prefix := m.session(path)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.refused {
		if !time.Now().Before(r.next) {
			continue
		}
		for _, other := range slices.Sorted(maps.Keys(r.probes)) {
			root, _, below := strings.Cut(strings.TrimPrefix(other, prefix), `\`)
			if strings.HasPrefix(other, prefix) && !below && prefix+root != path.Root() &&
				m.mapped[other].user == id.user && m.mapped[other].password == id.password {
				m.heldBack++
				return &csiproxy.Error{Detail: "it isn't asked, to keep the account from being locked, since its server refuses " +
					"the same credentials for " + quote.Text(other), Err: r.probes[other]}
			}
		}
	}
	return nil
}

// session is what the mappings of a server with the same credentials share, and what their roots
// begin with. Which credentials those of an earlier process have isn't known, but they are the same.
func (m *Memory) session(path unc.Path) (id identity, prefix string) {
	m.mu.Lock()
	id = m.mapped[path.Root()]
	m.mu.Unlock()
	id.account = m.hash("server " + path.Server())
	return id, `\\` + path.Server() + `\`
}

// beginFirst waits while another log-on with the same credentials is under way, unless they are
// known to be good. Otherwise many shares would be tried at once with a wrong password.
func (m *Memory) beginFirst(ctx context.Context, id identity) (end func(), _ error) {
	deadline := time.NewTimer(firstPatience)
	defer deadline.Stop()
	for patient := true; patient; {
		m.mu.Lock()
		other, busy := m.firsts[id]
		good := slices.ContainsFunc(slices.Collect(maps.Values(m.mapped)), func(i identity) bool { return i == id })
		if good || !busy {
			done := make(chan struct{})
			if !good {
				m.firsts[id] = done
			}
			m.mu.Unlock()
			return func() {
				m.mu.Lock()
				defer m.mu.Unlock()
				if m.firsts[id] == done {
					delete(m.firsts, id)
				}
				close(done)
			}, nil
		}
		m.mu.Unlock()
		select {
		case <-other:
		case <-deadline.C:
			patient = false
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return func() {}, nil
}

// admit returns the answer that is known of an account, or nil if a log-on may be made. In the
// second case it holds others back until the result is noted.
func (m *Memory) admit(account hash, known func(*refusal) bool, answer func(*refusal) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.refused[account]
	if r == nil || !known(r) {
		return nil
	}
	now := time.Now()
	switch {
	case now.Before(r.next):
		m.heldBack++
		return answer(r)
	case r.isOld(now):
		delete(m.refused, account)
	default:
		r.next = now.Add(longestWindow)
	}
	return nil
}

// release lets the next log-on be made, after one that the server hasn't judged. The caller
// has m.mu.
func (m *Memory) release(account hash, known func(*refusal) bool) {
	if r := m.refused[account]; r != nil && known(r) {
		r.next = time.Now()
	}
}

// refuse notes that a server has refused an account. The caller has m.mu.
func (m *Memory) refuse(account hash, remote unc.Path, asker string, err error) *refusal {
	now := time.Now()
	maps.DeleteFunc(m.refused, func(_ hash, r *refusal) bool { return r.isOld(now) })
	r := m.refused[account]
	if r == nil {
		r = &refusal{since: now, window: shortestWindow / 2, secrets: make(map[hash]struct{}), probes: make(map[string]error)}
		m.refused[account] = r
	}
	r.window = min(2*r.window, longestWindow)
	r.next, r.err, r.remote = now.Add(r.window), err, remote.Root()
	m.logger.Warn("a server has refused a log-on; the same credentials are held back for a while",
		"server", remote.Server(), "remotePath", remote.String(), "for", asker, "heldBackFor", r.window.String(), "err", err)
	return r
}

func (r *refusal) isOld(now time.Time) bool { return now.Sub(r.next) > keptAfter }

// add remembers a refused password.
func (r *refusal) add(password hash) {
	if len(r.secrets) >= maxSecrets {
		clear(r.secrets)
	}
	r.secrets[password] = struct{}{}
}

// Compare reports whether it is known with which credentials the share of remote is mapped,
// whether the user is that of c, and whether the password is that of c as well.
func (m *Memory) Compare(remote unc.Path, c smb.Credentials) (known, sameUser, samePassword bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	id, known := m.mapped[remote.Root()]
	given := m.identity(remote, c)
	sameUser = known && id.user == given.user
	return known, sameUser, sameUser && id.password == given.password
}

// Changes returns how often this process has changed the mapping of the share of remote. What was
// learned before a change is about another mapping.
func (m *Memory) Changes(remote unc.Path) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changes[remote.Root()]
}

// Unmapped notes that the share of remote isn't mapped any more.
func (m *Memory) Unmapped(remote unc.Path) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.mapped, remote.Root())
	m.changes[remote.Root()]++
	for account, r := range m.refused {
		maps.DeleteFunc(r.probes, func(path string, _ error) bool {
			return path == remote.Root() || strings.HasPrefix(path, remote.Root()+`\`)
		})
		if len(r.probes) == 0 && len(r.secrets) == 0 {
			delete(m.refused, account)
		}
	}
}

// Refused returns the accounts whose log-on was refused lately, by share.
func (m *Memory) Refused() (refused []Refusal) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.refused {
		if !r.isOld(time.Now()) {
			refused = append(refused, Refusal{r.remote, r.err, r.since, r.next})
		}
	}
	slices.SortFunc(refused, func(a, b Refusal) int { return strings.Compare(a.RemotePath, b.RemotePath) })
	return refused
}

// Forget forgets which log-ons were refused, so that the next ones are made, and returns them.
func (m *Memory) Forget() []Refusal {
	refused := m.Refused()
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.refused)
	return refused
}

// HeldBack returns how many calls got the answer of an earlier log-on.
func (m *Memory) HeldBack() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.heldBack
}

// isRefusal reports whether a server refuses the credentials of a log-on.
func isRefusal(err error) bool { return csiproxy.KindOf(err) == csiproxy.ErrUnauthenticated }

// explained says what becomes of a log-on that was refused. The text is the same for a log-on
// that was made and one that was held back: each new text is a new event in Kubernetes.
func explained(err error) error {
	return &csiproxy.Error{
		Detail: "the server refuses the credentials; to keep the account from being locked, " +
			"the same ones are tried again after 2 minutes at the latest, and others at once",
		Err: err,
	}
}

func (m *Memory) hash(text string) (sum hash) {
	h := hmac.New(sha256.New, m.key[:])
	h.Write([]byte(text))
	h.Sum(sum[:0])
	return sum
}

func (m *Memory) identity(remote unc.Path, c smb.Credentials) identity {
	return identity{
		account:  m.hash("account " + account(remote, c.Username)),
		user:     m.hash("user " + winname.Upper(c.Username)),
		password: m.hash("password " + c.Password.Reveal()),
	}
}

// account names the account that a server may lock: that of a domain, or the server's own.
func account(remote unc.Path, username string) string {
	domain, name, qualified := strings.Cut(username, `\`)
	switch {
	case !qualified && strings.Contains(username, "@"):
		return winname.Upper(username)
	case !qualified:
		name = username
	case domain != "" && domain != ".":
		return winname.Upper(username)
	}
	return winname.Upper(remote.Server() + `\` + name)
}
