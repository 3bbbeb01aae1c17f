// The packages of the published library, over CSI Proxy's operations: a driver puts this module
// in the place of the published one, by a replace in its go.mod. See docs/library.md.
// It lacks names of packages cim and utils that no driver uses.
module github.com/kubernetes-csi/csi-proxy/v2

go 1.25.0

require (
	github.com/csi-proxy/csi-proxy v0.0.0
	golang.org/x/sys v0.47.0
)
