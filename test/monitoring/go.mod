module github.com/csi-proxy/csi-proxy/test/monitoring

go 1.26.0

replace github.com/csi-proxy/csi-proxy => ../..

require (
	github.com/csi-proxy/csi-proxy v0.0.0-00010101000000-000000000000
	github.com/google/go-jsonnet v0.22.0
	go.yaml.in/yaml/v2 v2.4.4
	google.golang.org/grpc v1.84.0
)

require (
	github.com/Microsoft/go-winio v0.6.2 // indirect
	golang.org/x/crypto v0.54.0 // indirect
	golang.org/x/net v0.57.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/text v0.40.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260706201446-f0a921348800 // indirect
	google.golang.org/protobuf v1.36.11 // indirect
	sigs.k8s.io/yaml v1.4.0 // indirect
)
