// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

// Names of metrics, on the page [Metrics], that csi-proxyctl doctor reads.
const (
	MissingVolume      = "csi_proxy_protected_volume_missing"
	ForeignRecords     = "csi_proxy_foreign_mapping_records"
	InventoryTimestamp = "csi_proxy_inventory_timestamp_seconds"
	DriversFile        = "csi_proxy_drivers_file_changed"
	// OfVolumes is the label of InventoryTimestamp for MissingVolume.
	OfVolumes = "protected-volumes"
)

// Values of DriversFile.
const (
	DriversFileAsRead  = 0 // when the daemon started
	DriversFileChanged = 1
	DriversFileWrong   = 2 // so that the daemon couldn't start again
)
