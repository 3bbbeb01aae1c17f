// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simcontrol

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
)

// TestSecretsAreMarked: what prints requests must know what to leave out.
func TestSecretsAreMarked(t *testing.T) {
	marked := func(field protoreflect.FieldDescriptor) bool {
		options, ok := field.Options().(*descriptorpb.FieldOptions)
		return ok && options.GetDebugRedact()
	}
	found := 0
	messages := simv1.File_csiproxy_sim_v1_sim_proto.Messages()
	for i := range messages.Len() {
		fields := messages.Get(i).Fields()
		for j := range fields.Len() {
			name := string(fields.Get(j).Name())
			if !strings.Contains(name, "password") && !strings.Contains(name, "secret") {
				continue
			}
			found++
			if !marked(fields.Get(j)) {
				t.Errorf("%s isn't marked", fields.Get(j).FullName())
			}
		}
	}
	if found == 0 {
		t.Error("there is no secret at all")
	}
}
