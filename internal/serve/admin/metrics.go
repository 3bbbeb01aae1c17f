// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

// Names of metrics, on the page [Metrics], that csi-proxyctl doctor reads.
const (
	MissingVolume      = "csi_proxy_protected_volume_missing"
	ForeignRecords     = "csi_proxy_foreign_mapping_records"
	InventoryTimestamp = "csi_proxy_inventory_timestamp_seconds"
	// OfVolumes is the label of InventoryTimestamp for MissingVolume.
	OfVolumes = "protected-volumes"
)
