// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package mappings

import (
	"hash/maphash"
	"strings"
	"sync"

	"github.com/csi-proxy/csi-proxy/smb"

	"github.com/csi-proxy/csi-proxy/internal/unc"
)

// users knows which mappings of this process are of the same user, without keeping
// names: of each it has a hash that means nothing outside of the process. After a
// restart it knows none.
type users struct {
	seed maphash.Seed

	mu     sync.Mutex        // guards hashes
	hashes map[string]uint64 // by root share
}

func newUsers() users { return users{seed: maphash.MakeSeed(), hashes: make(map[string]uint64)} }

func (u *users) hash(c smb.Credentials) uint64 {
	return maphash.String(u.seed, strings.ToLower(c.Username))
}

// made notes that the share of remote was mapped with c.
func (u *users) made(remote unc.Path, c smb.Credentials) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.hashes[remote.Root()] = u.hash(c)
}

// same reports whether the share of remote was mapped last by the user of c.
func (u *users) same(remote unc.Path, c smb.Credentials) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	hash, ok := u.hashes[remote.Root()]
	return ok && hash == u.hash(c)
}

// removed forgets the mapping of the share of remote.
func (u *users) removed(remote unc.Path) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.hashes, remote.Root())
}
