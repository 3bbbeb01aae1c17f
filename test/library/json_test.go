// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package library_test

import (
	"encoding/json"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// What isn't known of a disk that doesn't answer is null, whichever fields it gets: an empty serial
// number, or a revision that is "", would be an answer.
func TestUnknownIsNull(t *testing.T) {
	text, err := json.Marshal(csiproxy.Disk{Number: 3, Error: "no answer"})
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	for name, value := range fields {
		if name != "number" && name != "error" && value != nil {
			t.Errorf("%s is %v, want null: add it to MarshalJSON", name, value)
		}
	}
}
