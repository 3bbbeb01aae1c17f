// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
)

// metadata is what EC2's metadata service tells of an instance, as far as drivers ask for it:
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-categories.html
var metadata = map[string]string{
	"dynamic/instance-identity/document": `{"instanceId": "i-0123456789abcdef0", "instanceType": "m5.large",` +
		` "region": "us-east-1", "availabilityZone": "us-east-1a", "architecture": "x86_64"}`,
	"meta-data/network/interfaces/macs": "02:00:00:00:00:01/",
	"meta-data/block-device-mapping":    "ami\nroot",
	"meta-data/instance-id":             "i-0123456789abcdef0",
}

// serveMetadata serves it to programs that are started from now on, until stop is called. It asks for
// the token of version 2, as instances do on which version 1 is off.
func serveMetadata() (stop func() error, err error) {
	const token = "token-of-the-lab"
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /latest/api/token", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", r.Header.Get("X-Aws-Ec2-Metadata-Token-Ttl-Seconds"))
		_, _ = fmt.Fprint(w, token) // the client sees it if that fails
	})
	mux.HandleFunc("GET /latest/{path...}", func(w http.ResponseWriter, r *http.Request) {
		text, ok := metadata[r.PathValue("path")]
		switch {
		case r.Header.Get("X-Aws-Ec2-Metadata-Token") != token:
			http.Error(w, "the token of IMDSv2 is missing", http.StatusUnauthorized)
		case !ok:
			http.NotFound(w, r)
		default:
			_, _ = fmt.Fprint(w, text)
		}
	})
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(l) }() // until stop
	// A bundle of this machine isn't on the node, and AWS' library ends without the one that it names.
	return server.Close, errors.Join(os.Unsetenv("AWS_CA_BUNDLE"),
		os.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://"+l.Addr().String()))
}
