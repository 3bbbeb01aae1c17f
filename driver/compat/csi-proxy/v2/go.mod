// The packages of the published library, over CSI Proxy's operations: a driver puts this module
// in the place of the published one, by a replace in its go.mod. See docs/go-authors.md.
// It lacks names of package cim that are about objects of WMI, and that no driver uses.
module github.com/kubernetes-csi/csi-proxy/v2

go 1.26.0

replace github.com/csi-proxy/csi-proxy => ../../../..

require (
	github.com/csi-proxy/csi-proxy v0.0.0-00010101000000-000000000000
	golang.org/x/sys v0.50.0
)

require (
	github.com/Microsoft/go-winio v0.6.4 // indirect
	go.etcd.io/bbolt v1.5.0 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261110000943-09e21b237f2c // indirect
	google.golang.org/grpc v1.85.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)
