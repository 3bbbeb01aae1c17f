// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ec2 is what a driver sees of the cloud EC2 on a node that isn't there.
package ec2

import (
	"fmt"
	"net/http"
)

// metadataOf is what EC2's metadata service tells an instance, as far as drivers ask for it:
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-categories.html
func metadataOf(instance string) map[string]string {
	return map[string]string{
		"dynamic/instance-identity/document": `{"instanceId": "` + instance + `", "instanceType": "m5.large",` +
			` "region": "us-east-1", "availabilityZone": "us-east-1a", "architecture": "x86_64"}`,
		"meta-data/network/interfaces/macs": "02:00:00:00:00:01/",
		"meta-data/block-device-mapping":    "ami\nroot",
		"meta-data/instance-id":             instance,
	}
}

// Metadata is the metadata service of an instance. It asks for the token of version 2, as instances do on which
// version 1 is off.
func Metadata(instance string) http.Handler {
	const token = "token-of-the-lab"
	metadata := metadataOf(instance)
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
	return mux
}
