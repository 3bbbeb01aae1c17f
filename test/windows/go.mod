module github.com/csi-proxy/csi-proxy/test/windows

go 1.26.0

// The published client has the libraries that it had when it was released, whatever is required below: doc.go.
replace (
	github.com/Microsoft/go-winio => github.com/Microsoft/go-winio v0.4.16
	github.com/csi-proxy/csi-proxy => ../..
	github.com/golang/protobuf => github.com/golang/protobuf v1.4.3
	golang.org/x/net => golang.org/x/net v0.0.0-20190311183353-d8887717615a
	golang.org/x/text => golang.org/x/text v0.3.0
	google.golang.org/genproto => google.golang.org/genproto v0.0.0-20200526211855-cb27e3aa2013
	google.golang.org/grpc => google.golang.org/grpc v1.38.0
	google.golang.org/protobuf => google.golang.org/protobuf v1.25.0
)

require (
	github.com/Microsoft/go-winio v0.6.4
	github.com/csi-proxy/csi-proxy v0.0.0-00010101000000-000000000000
	github.com/golang/protobuf v1.4.3
	github.com/google/go-cmp v0.7.0
	github.com/kubernetes-csi/csi-proxy/client v1.3.0
	golang.org/x/sys v0.50.0
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
)

require (
	github.com/pkg/errors v0.9.1 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	google.golang.org/genproto v0.0.0-20200526211855-cb27e3aa2013 // indirect
)
