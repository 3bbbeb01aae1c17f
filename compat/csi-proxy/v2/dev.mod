// The packages of the published library, over CSI Proxy's operations: a driver puts this module
// in the place of the published one, by a replace in its go.mod. See docs/library.md.
module github.com/kubernetes-csi/csi-proxy/v2

go 1.26.0

require (
	github.com/csi-proxy/csi-proxy v0.0.0
	golang.org/x/sys v0.49.0
)

require (
	github.com/Microsoft/go-winio v0.6.4 // indirect
	go.etcd.io/bbolt v1.5.0 // indirect
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261019180522-ce908d29299b // indirect
	google.golang.org/grpc v1.85.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)

replace github.com/csi-proxy/csi-proxy => ../../../
