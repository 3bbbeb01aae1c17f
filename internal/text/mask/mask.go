// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mask masks what looks like a secret in texts of other programs. Texts of ours have no
// secrets.
package mask

import (
	"regexp"
	"strings"
)

// Mask stands in a secret's place.
const Mask = "***"

// secretName is in the name of whatever is a secret.
const secretName = `(?:password|passwd|passphrase|secret|credential|token)`

// secretValues are a secret's name and its value, as programs write them: password="x",
// password: x, and "password": "x", also within a quoted text.
var secretValues = regexp.MustCompile(`(?i)([a-z0-9_.-]*` + secretName + `[a-z0-9_.-]*(\\?["'])?\s*[:=]\s*)` +
	`(\\"(?:[^"\\]|\\[^"])*\\"|"(?:[^"\\]|\\.)*"|'[^']*'|[^\s,;}\])"']+)`)

// credentialsInURL are a user's name and password before the host.
var credentialsInURL = regexp.MustCompile(`([a-z][a-z0-9+.-]*://)[^\s/@"']+:[^\s/@"']*@`)

// Text masks what looks like a secret in a text.
func Text(text string) string {
	text = credentialsInURL.ReplaceAllString(text, "${1}"+Mask+"@")
	return secretValues.ReplaceAllStringFunc(text, func(found string) string {
		parts := secretValues.FindStringSubmatch(found)
		quote := parts[2] // of the name; JSON stays JSON
		for _, q := range []string{`\"`, `"`, `'`} {
			if strings.HasPrefix(parts[3], q) {
				quote = q
				break
			}
		}
		return parts[1] + quote + Mask + quote
	})
}

var secretNames = regexp.MustCompile(`(?i)` + secretName)

// IsSecret reports whether what has this name is a secret, and not the name of one.
func IsSecret(name string) bool {
	lower := strings.ToLower(name)
	return secretNames.MatchString(name) && !strings.HasSuffix(lower, "name") && !strings.HasSuffix(lower, "namespace")
}

// Flags masks the values of flags that are secrets by their names.
func Flags(args []string) []string {
	var shown []string
	next := false // is a secret
	for _, arg := range args {
		name, _, given := strings.Cut(arg, "=")
		isFlag := strings.HasPrefix(arg, "-")
		switch {
		case next && !isFlag:
			shown = append(shown, Mask)
		case isFlag && given && secretNames.MatchString(name):
			shown = append(shown, name+"="+Mask)
		default:
			shown = append(shown, Text(arg))
		}
		next = isFlag && !given && secretNames.MatchString(name)
	}
	return shown
}
