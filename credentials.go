// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csiproxy

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// SMBCredentials authenticate to an SMB server. The zero value stands for the node's own account,
// with which Windows logs in by Kerberos: node and server must be in one domain, or in domains with
// mutual trust. All users of the mapping act as the node's account.
type SMBCredentials struct {
	Username string // user, DOMAIN\user or user@domain
	Password Secret
}

// The longest credentials, in bytes: a user's and a domain's name, and a password,
// each of 256 UTF-16 units.
//
// Source: lmcons.h of the Windows SDK (UNLEN, PWLEN)
const (
	maxUsername = 3 * (2*256 + 1)
	maxPassword = 3 * 256
)

// AsNode reports whether the credentials stand for the node's own account.
func (c SMBCredentials) AsNode() bool { return c.Username == "" && c.Password.Reveal() == "" }

// Validate returns ErrInvalidArgument, with the reason, for credentials that Windows would misread.
func (c SMBCredentials) Validate() error {
	password := c.Password.Reveal()
	control := strings.IndexFunc(c.Username, unicode.IsControl)
	switch {
	case c.AsNode():
		return nil
	case c.Username == "":
		return Errorf(ErrInvalidArgument, "the user name is empty, and there is a password")
	case len(c.Username) > maxUsername:
		return Errorf(ErrInvalidArgument, "the user name is longer than %d bytes", maxUsername)
	case !utf8.ValidString(c.Username):
		return Errorf(ErrInvalidArgument, "the user name isn't valid UTF-8")
	case control >= 0:
		character, _ := utf8.DecodeRuneInString(c.Username[control:])
		return Errorf(ErrInvalidArgument, "the user name has the control character %U", character)
	case password == "":
		return Errorf(ErrInvalidArgument, "the password is empty")
	case len(password) > maxPassword:
		return Errorf(ErrInvalidArgument, "the password is longer than %d bytes", maxPassword)
	case !utf8.ValidString(password) || strings.Contains(password, "\x00"):
		return Errorf(ErrInvalidArgument, "the password isn't valid UTF-8 or has a null character")
	}
	return nil
}
