// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package quote

import (
	"encoding/json"
	"testing"
)

// What turns or hides a text where it is shown: a C0 and two C1 controls, marks of direction,
// a blank that nobody sees, and a character that two units of UTF-16 make.
var hides = []string{"\x1b", "\u009b", "\u0085", "\u202e", "\u2066", "\ufeff", "\U000e0001", "\xff"}

func TestNothingHides(t *testing.T) {
	for _, s := range hides {
		asJSON, err := json.Marshal("a" + s + "ü")
		if err != nil {
			t.Fatal(err)
		}
		for how, got := range map[string]string{"Text": Text("a" + s + "ü"), "Terminal": Terminal("a" + s + "ü"),
			"JSON": string(JSON(asJSON))} {
			for _, r := range got {
				if hidden(r) {
					t.Errorf("%s of %+q is %+q", how, s, got)
				}
			}
		}
		var back, want string
		if err := json.Unmarshal(JSON(asJSON), &back); err != nil {
			t.Error(err)
		}
		if err := json.Unmarshal(asJSON, &want); err != nil || back != want {
			t.Errorf("%+q becomes %+q, %v", want, back, err)
		}
	}
}

func TestList(t *testing.T) {
	for want, texts := range map[string][]string{
		"":                 nil,
		"1, 2, 3, 4, 5":    {"1", "2", "3", "4", "5"},
		"1, 2, 3, 4, 5, …": {"1", "2", "3", "4", "5", "6"},
		`"a, \x1b"`:        {"a", "\x1b"},
	} {
		if got := List(texts); got != want {
			t.Errorf("%q: %q, want %q", texts, got, want)
		}
	}
}
