module github.com/csi-proxy/csi-proxy/test/driver/dropin

go 1.26.0

require (
	github.com/csi-proxy/csi-proxy v0.0.0
	github.com/kubernetes-csi/csi-proxy/v2 v2.0.0-00010101000000-000000000000
)

require (
	github.com/Microsoft/go-winio v0.6.3 // indirect
	go.etcd.io/bbolt v1.5.0 // indirect
	golang.org/x/mod v0.41.0
	golang.org/x/net v0.59.0 // indirect
	golang.org/x/sync v0.23.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.42.0 // indirect
	golang.org/x/tools v0.51.0
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260526163538-3dc84a4a5aaa // indirect
	google.golang.org/grpc v1.83.2 // indirect
	google.golang.org/protobuf v1.36.11 // indirect
)

replace (
	github.com/csi-proxy/csi-proxy => ../../..
	github.com/kubernetes-csi/csi-proxy/v2 => ../../../driver/compat/csi-proxy/v2
)
