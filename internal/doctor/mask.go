// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"regexp"
	"strings"
)

const mask = "***"

// secretName is in the name of whatever is a secret.
const secretName = `(?:password|passwd|passphrase|secret|credential|token)`

// secretValues are a secret's name and its value, as programs write them: password="x",
// password: x, and "password": "x", also within a quoted text.
var secretValues = regexp.MustCompile(`(?i)([a-z0-9_.-]*` + secretName + `[a-z0-9_.-]*(\\?["'])?\s*[:=]\s*)` +
	`(\\"(?:[^"\\]|\\[^"])*\\"|"(?:[^"\\]|\\.)*"|'[^']*'|[^\s,;}\])"']+)`)

// credentialsInURL are a user's name and password before the host.
var credentialsInURL = regexp.MustCompile(`([a-z][a-z0-9+.-]*://)[^\s/@"']+:[^\s/@"']*@`)

// masked masks what looks like a secret in a text.
func masked(text string) string {
	text = credentialsInURL.ReplaceAllString(text, "${1}"+mask+"@")
	return secretValues.ReplaceAllStringFunc(text, func(found string) string {
		parts := secretValues.FindStringSubmatch(found)
		quote := parts[2] // of the name; JSON stays JSON
		for _, q := range []string{`\"`, `"`, `'`} {
			if strings.HasPrefix(parts[3], q) {
				quote = q
				break
			}
		}
		return parts[1] + quote + mask + quote
	})
}

var secretFlag = regexp.MustCompile(`(?i)` + secretName)

// maskedFlags masks the values of flags that are secrets by their names.
func maskedFlags(args []string) []string {
	var shown []string
	next := false // is a secret
	for _, arg := range args {
		name, _, given := strings.Cut(arg, "=")
		isFlag := strings.HasPrefix(arg, "-")
		switch {
		case next && !isFlag:
			shown = append(shown, mask)
		case isFlag && given && secretFlag.MatchString(name):
			shown = append(shown, name+"="+mask)
		default:
			shown = append(shown, masked(arg))
		}
		next = isFlag && !given && secretFlag.MatchString(name)
	}
	return shown
}
