// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "path/filepath"

// sidecars are the helpers of a driver's Controller.
var sidecars = []string{"csi-provisioner", "csi-attacher", "csi-resizer"}

// startSidecars starts them with the socket of a Controller. They use the API server as an account, if
// one is given. Their own limit of five requests a second would be what the scenarios measure.
func (c *cluster) startSidecars(bin, socket, account string) error {
	kubeconfig := filepath.Join(c.dir, "kubeconfig-sidecars")
	if err := c.Kubeconfig(kubeconfig, c.Config.BearerToken, account); err != nil {
		return err
	}
	for _, name := range sidecars {
		if err := c.start(name,
			filepath.Join(bin, name), "--csi-address="+socket, "--kubeconfig="+kubeconfig, "--timeout=2m",
			"--kube-api-qps=500", "--kube-api-burst=500", "--v=4"); err != nil {
			return err
		}
	}
	return nil
}
