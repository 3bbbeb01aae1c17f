// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import "google.golang.org/protobuf/reflect/protoreflect"

// oneWayCHAP is the authentication type, as both versions number it.
const oneWayCHAP = protoreflect.EnumNumber(1)

// portal is where the tests' targets are, at the default port.
var portal = fields{"target_address": "10.0.0.1"}

// addTarget puts a target without disks on the network. more are other fields of it;
// the secrets are of its user, and its own.
func addTarget(n *node, iqn string, more fields, secret, own string) {
	n.t.Helper()
	target := more.With("iqn", iqn)
	if target["portals"] == nil {
		target["portals"] = []fields{{"address": portal["target_address"]}}
	}
	n.simCall("AddIscsiTarget", target.With("chap_secret", secret).With("mutual_chap_secret", own))
}

// addLUN gives a target a disk.
func addLUN(n *node, iqn string, lun fields) {
	n.t.Helper()
	n.simCall("AddIscsiLun", fields{"iqn": iqn, "lun": lun})
}
