// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package shares

import (
	"errors"
	"slices"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// action is what becomes of a mapping.
type action string

const (
	makeIt       action = "make"
	useIt        action = "use"
	refuseCaller action = "refuse"
	replaceIt    action = "replace"
	replaceIdle  action = "idle" // replace the mapping unless something uses it
)

var (
	wrongCredentials = []winerr.Errno{winerr.ErrorInvalidPassword, winerr.ErrorLogonFailure, winerr.ErrorPasswordExpired,
		winerr.ErrorPasswordMustChange, winerr.ErrorBadUsername}
	refusedUser = []winerr.Errno{winerr.ErrorAccountRestriction, winerr.ErrorAccountDisabled, winerr.ErrorLogonTypeNotGranted}
)

// decide implements the first table of the package comment. The error explains a refusal, or why a
// mapping in use cannot serve the caller.
func decide(f facts) (action, error) {
	if f.isFull {
		return refuseCaller, csiproxy.Errorf(csiproxy.ErrResourceExhausted,
			"the driver has %d mappings, which is the most: unstage other shares first", maxMappings)
	}
	if f.name == "" {
		return makeIt, nil
	}
	if f.answer == nil {
		return decideWorking(f)
	}
	var answer winerr.Errno
	if !errors.As(f.answer, &answer) { // Windows hasn't answered
		return refuseCaller, f.answer
	}
	isGone := answer == winerr.ErrorNoSuchLogonSession ||
		answer == winerr.ErrorAccessDenied && f.disconnected && f.credentials == unknownCredentials
	mayHelp := f.credentials != sameCredentials && slices.Contains(wrongCredentials, answer)
	isAnother := f.credentials == otherUser || f.credentials == unknownCredentials
	isRefusedUser := isAnother && slices.Contains(refusedUser, answer)
	if isGone || mayHelp || isRefusedUser {
		return replaceIt, f.answer
	}
	return refuseCaller, unusable(f.answer)
}

// decideWorking is decide for a working mapping. Only StageShare compares credentials.
func decideWorking(f facts) (action, error) {
	if f.lacksPrivacy {
		return replaceIdle, csiproxy.Errorf(csiproxy.ErrFailedPrecondition,
			"the share is mapped without encryption, which the request requires: unstage the share everywhere first")
	}
	if !f.staging || f.credentials == sameCredentials {
		return useIt, nil
	}
	switch f.credentials {
	case otherPassword:
		return replaceIdle, csiproxy.Errorf(csiproxy.ErrFailedPrecondition,
			"the share is mapped with another password than the one given, which works: if the password was changed, "+
				"unstage the share everywhere first")
	case otherUser:
		return replaceIdle, csiproxy.Errorf(csiproxy.ErrFailedPrecondition,
			"the share is mapped for another user than the one given, and all pods of the node share a mapping: use the "+
				"same user, or unstage the share everywhere first")
	}
	return replaceIdle, nil
}

// denied is the reason for error 5. A session keeps the user's groups from the beginning of the
// session (https://github.com/kubernetes-csi/csi-driver-smb/issues/762).
const denied = "its server denies the access. If the user has been given the rights only lately: all mappings of the " +
	"server must be removed, or the node restarted, before they count"

// unusable returns the error for a mapping that stays while Windows refuses the share's root with
// err.
func unusable(err error) error {
	var answer winerr.Errno
	errors.As(err, &answer)
	switch {
	case answer == winerr.ErrorBadNetName:
		return unusableFor(err, "its server has no such share now, or can't be reached")
	case answer == winerr.ErrorAccountLockedOut:
		return unusableFor(err, "its server has locked its user out for now")
	case answer == winerr.ErrorAccessDenied:
		return unusableFor(err, denied)
	case slices.Contains(wrongCredentials, answer):
		return unusableFor(err, "its server refuses its credentials, which are the ones given")
	case slices.Contains(refusedUser, answer):
		return unusableFor(err, "its server refuses its user, who is the one given")
	}
	if remedy := remedyOf(err); remedy != "" {
		return unusableFor(err, "it can't be used now: "+remedy)
	}
	return unusableFor(err, "it can't be used now")
}

func unusableFor(err error, reason string) error {
	kind := csiproxy.KindOf(err)
	switch kind {
	case csiproxy.ErrPermissionDenied, csiproxy.ErrUnauthenticated, csiproxy.ErrFailedPrecondition:
	default:
		kind = csiproxy.ErrUnavailable
	}
	return &csiproxy.Error{Kind: kind, Detail: "the share is mapped, but " + reason, Err: err}
}
