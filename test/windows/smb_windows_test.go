// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package windows

import (
	"crypto/rand"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
)

// The SMB group against Windows itself: shares of this machine, which the daemon, a
// service, maps, and which this process, another session, uses.
func TestNativeSMB(t *testing.T) {
	notOnWine(t, "it has no SMB")
	kubelet := kubeletDirectory(t)
	s := install(t, "-kubelet-path="+kubelet)
	s.start()
	t.Run("mapping", func(t *testing.T) { nativeMapping(t, kubelet) })
	t.Run("new password", func(t *testing.T) { nativePasswordChange(t, kubelet) })
	t.Run("log", func(t *testing.T) { wantNoSecrets(t, s) })
}

// Which errors the provider leaves is deduced from what PowerShell prints.
func TestGuessSMBErrors(t *testing.T) {
	notOnWine(t, "it has no SMB")
	s := install(t, "-kubelet-path="+kubeletDirectory(t))
	s.start()
	nativeMappingErrors(t)
	wantNoSecrets(t, s)
}

// nativeMapping maps a share twice, uses it and removes the mapping.
func nativeMapping(t *testing.T, kubelet string) {
	share := newShare(t)
	c := newest(t, "smb")
	staging := kubelet + `\staging`
	request := fields{
		"remote_path": share.path(), "local_path": staging, "username": share.domain + `\` + share.user, "password": share.password,
	}
	for range 2 { // the second time it is there already
		c.call("NewSmbGlobalMapping", request)
		want := []mapping{{Status: 0, RequirePrivacy: true}}
		if diff := cmp.Diff(want, mappingsOf(t, share.path())); diff != "" {
			t.Errorf("Get-SmbGlobalMapping (-want +got):\n%s", diff)
		}
	}
	// This process has no credentials for the share: the mapping is global.
	wantThere(t, staging+`\file`)
	if err := os.WriteFile(staging+`\written`, nil, 0o600); err != nil {
		t.Error(err)
	}
	wantThere(t, share.dir+`\written`)

	c.call("RemoveSmbGlobalMapping", fields{"remote_path": share.path()})
	wantThere(t, staging+`\file`) // the link keeps the mapping
	if err := os.Remove(staging); err != nil {
		t.Error(err)
	}
	c.call("RemoveSmbGlobalMapping", fields{"remote_path": share.path()})
	if got := mappingsOf(t, share.path()); len(got) != 0 {
		t.Errorf("Get-SmbGlobalMapping says %+v after the removal", got)
	}
	c.fail(codes.NotFound, "RemoveSmbGlobalMapping", fields{"remote_path": share.path()})
}

// nativePasswordChange breaks a mapping by a new password, and maps again.
func nativePasswordChange(t *testing.T, kubelet string) {
	share := newShare(t)
	c := newest(t, "smb")
	staging := kubelet + `\changed`
	request := fields{"remote_path": share.path(), "local_path": staging, "username": share.domain + `\` + share.user, "password": share.password}
	c.call("NewSmbGlobalMapping", request)
	request["password"] = share.changePassword()
	c.call("NewSmbGlobalMapping", request)
	wantThere(t, staging+`\file`)
	if err := os.Remove(staging); err != nil {
		t.Error(err)
	}
	c.call("RemoveSmbGlobalMapping", fields{"remote_path": share.path()})
}

func nativeMappingErrors(t *testing.T) {
	share := newShare(t)
	c := newest(t, "smb")
	fail := func(code codes.Code, remotePath, password string) {
		t.Helper()
		request := fields{"remote_path": remotePath, "username": share.domain + `\` + share.user, "password": password}
		_, err := c.try("NewSmbGlobalMapping", request)
		if err != nil && strings.Contains(err.Error(), passwordMark) {
			t.Errorf("the error of %s has a password", remotePath)
		}
		c.fail(code, "NewSmbGlobalMapping", request)
		if got := mappingsOf(t, remotePath); len(got) != 0 {
			t.Errorf("%s failed and left %+v", remotePath, got)
		}
	}
	fail(codes.Unauthenticated, share.path(), "not "+share.password)
	fail(codes.NotFound, share.path()+"-missing", share.password)
	fail(codes.Unavailable, `\\csi-proxy-no-such-server.invalid\share`, share.password)
}

// passwordMark is part of every password.
const passwordMark = `pass:w\ord"'`

// wantNoSecrets asserts that the daemon's log has none of the tests' secrets.
func wantNoSecrets(t testing.TB, s *service) {
	t.Helper()
	for _, mark := range []string{passwordMark, secretMark} {
		if strings.Contains(s.written(), mark) {
			t.Errorf("the daemon's log has a secret that begins with %s", mark)
		}
	}
}

// share is a share of this machine with a user of its own, for the time of a test.
// By the machine's name, not as localhost, for which Windows makes exceptions.
type share struct {
	t                            *testing.T
	domain, name, user, password string
	dir                          string // which has a file
}

func newShare(t *testing.T) *share {
	t.Helper()
	id := rand.Text()[:8]
	// A user's name has 20 characters at most.
	s := &share{t: t, domain: os.Getenv("COMPUTERNAME"), name: leftoverPrefix + id, user: "csi-wintest-" + id,
		dir: t.TempDir()}
	plant(t, s.dir+`\file`)
	s.password = passwordMark + rand.Text()
	powershell(t, nil, "New-LocalUser -Name %s -Password (%s)", s.user, secureString(s.password))
	cleanUp(t, "Remove-LocalUser -Name %s", s.user)
	powershell(t, nil, "New-SmbShare -Name %s -Path '%s' -FullAccess %s", s.name, s.dir, s.user)
	cleanUp(t, "Remove-SmbShare -Name %s -Force", s.name)
	cleanUp(t, "Get-SmbGlobalMapping | Where-Object RemotePath -eq '%s' | Remove-SmbGlobalMapping -Force", s.path())
	powershell(t, nil, "icacls.exe '%s' /grant '%s:(OI)(CI)F'; if ($LASTEXITCODE -ne 0) { throw \"icacls.exe ends "+
		"with $LASTEXITCODE\" }", s.dir, s.user)
	return s
}

func (s *share) path() string { return `\\` + strings.ToLower(s.domain) + `\` + s.name }

// changePassword gives the user another password, ends the sessions that were made
// with the old one, and returns the new one.
func (s *share) changePassword() string {
	s.t.Helper()
	s.password = passwordMark + rand.Text()
	powershell(s.t, nil, "Set-LocalUser -Name %s -Password (%s)", s.user, secureString(s.password))
	powershell(s.t, nil, `Get-SmbSession | Where-Object ClientUserName -like '*\%s' | Close-SmbSession -Force`, s.user)
	return s.password
}

// secureString is an expression of PowerShell.
func secureString(text string) string {
	return "ConvertTo-SecureString -AsPlainText -Force '" + strings.ReplaceAll(text, "'", "''") + "'"
}

// mapping is what Get-SmbGlobalMapping says.
type mapping struct {
	Status         int
	RequirePrivacy bool
}

func mappingsOf(t *testing.T, remotePath string) []mapping {
	t.Helper()
	var mappings []mapping
	powershell(t, &mappings, "Get-SmbGlobalMapping | Where-Object RemotePath -eq '%s' | Select-Object "+
		"RequirePrivacy,@{n='Status';e={[int]$_.Status}}", remotePath)
	return mappings
}
