module github.com/csi-proxy/csi-proxy/driver

go 1.26.0

replace github.com/csi-proxy/csi-proxy => ..

require (
	github.com/container-storage-interface/spec v1.13.0
	github.com/csi-proxy/csi-proxy v0.0.0-00010101000000-000000000000
	golang.org/x/sys v0.50.0
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
	k8s.io/mount-utils v0.37.2
)

require (
	github.com/Microsoft/go-winio v0.6.4 // indirect
	github.com/go-logr/logr v1.4.4 // indirect
	github.com/moby/sys/mountinfo v0.7.2 // indirect
	go.etcd.io/bbolt v1.5.0 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261110000943-09e21b237f2c // indirect
	k8s.io/klog/v2 v2.140.0 // indirect
	k8s.io/utils v0.0.0-20260626114624-be93311217bd // indirect
)
