// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csiproxy

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ParseIQN checks that s is the name of a target; any other text is ErrInvalidArgument.
func ParseIQN(s string) (IQN, error) {
	if err := IQN(s).Validate(); err != nil {
		return "", &Error{Op: "ParseIQN", Object: strconv.Quote(s), Err: err}
	}
	return IQN(s), nil
}

// Equal reports whether two names belong to the same target.
func (n IQN) Equal(other IQN) bool { return strings.EqualFold(string(n), string(other)) }

// maxIQN is the length of a name in bytes.
const maxIQN = 223

// Validate returns ErrInvalidArgument, with the reason, for an invalid name of a target. The form
// of the date and the domain after "iqn." is left unchecked: targets in use ignore the rules.
func (n IQN) Validate() error {
	s := strings.ToLower(string(n))
	switch {
	case len(n) > maxIQN:
		return Errorf(ErrInvalidArgument, "the name of the target is longer than %d bytes", maxIQN)
	case !utf8.ValidString(string(n)):
		return Errorf(ErrInvalidArgument, "the name of the target is not valid UTF-8")
	case strings.HasPrefix(s, "eui."):
		return checkHex(s[len("eui."):], 16)
	case strings.HasPrefix(s, "naa."):
		return checkHex(s[len("naa."):], 16, 32)
	case !strings.HasPrefix(s, "iqn.") || len(s) == len("iqn."):
		return Errorf(ErrInvalidArgument,
			"the name of the target must start with iqn., eui. or naa., followed by a name")
	}
	for _, r := range s {
		if !strings.ContainsRune("-.:", r) && !('0' <= r && r <= '9' || 'a' <= r && r <= 'z') &&
			!(r >= utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.IsMark(r))) {
			return Errorf(ErrInvalidArgument, "the name of the target has the character %q", r)
		}
	}
	return nil
}

// checkHex checks that digits are hex digits of an allowed length.
func checkHex(digits string, lengths ...int) error {
	var wanted []string
	for _, n := range lengths {
		wanted = append(wanted, strconv.Itoa(n))
		if len(digits) == n && strings.Trim(digits, "0123456789abcdef") == "" {
			return nil
		}
	}
	return Errorf(ErrInvalidArgument,
		"the name of the target must have %s hex digits after its first four characters", strings.Join(wanted, " or "))
}
