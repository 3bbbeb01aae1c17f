module github.com/csi-proxy/csi-proxy/csinode

go 1.26.0

replace github.com/csi-proxy/csi-proxy => ../

require (
	github.com/container-storage-interface/spec v1.13.0
	github.com/csi-proxy/csi-proxy v0.0.0-00010101000000-000000000000
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
)

require (
	github.com/Microsoft/go-winio v0.6.4 // indirect
	go.etcd.io/bbolt v1.5.0 // indirect
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261019180522-ce908d29299b // indirect
)
