// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package mappings

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"sync"

	"github.com/csi-proxy/csi-proxy/smb"

	"github.com/csi-proxy/csi-proxy/internal/unc"
	"github.com/csi-proxy/csi-proxy/internal/winname"
)

// users knows with which credentials this process has made mappings, without keeping
// them: of each it has hashes with a key that nobody else has. After a restart of the
// process it knows none.
type users struct {
	key [sha256.Size]byte

	mu    sync.Mutex          // guards known
	known map[string]identity // by root share
}

// identity is the hashes of credentials.
type identity struct{ user, password [sha256.Size]byte }

func newUsers() *users {
	u := &users{known: make(map[string]identity)}
	rand.Read(u.key[:]) // never fails
	return u
}

func (u *users) identity(c smb.Credentials) identity {
	hash := func(text string) (sum [sha256.Size]byte) {
		h := hmac.New(sha256.New, u.key[:])
		h.Write([]byte(text))
		h.Sum(sum[:0])
		return sum
	}
	return identity{hash("user " + winname.Upper(c.Username)), hash("password " + c.Password.Reveal())}
}

// made notes that the share of remote was mapped with c.
func (u *users) made(remote unc.Path, c smb.Credentials) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.known[remote.Root()] = u.identity(c)
}

// compare reports whether the share of remote is known to be mapped with the user of c,
// and with the password of c as well.
func (u *users) compare(remote unc.Path, c smb.Credentials) (sameUser, samePassword bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	known, ok := u.known[remote.Root()]
	given := u.identity(c)
	sameUser = ok && known.user == given.user
	return sameUser, sameUser && known.password == given.password
}

// knows is compare, and reports whether anything is known of the mapping of the share.
func (u *users) knows(remote unc.Path, c smb.Credentials) (known, sameUser, samePassword bool) {
	u.mu.Lock()
	_, known = u.known[remote.Root()]
	u.mu.Unlock()
	sameUser, samePassword = u.compare(remote, c)
	return known, sameUser, samePassword
}

// removed forgets the mapping of the share of remote.
func (u *users) removed(remote unc.Path) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.known, remote.Root())
}
