// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package drivers_test

import (
	"context"
	"io/fs"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/lab/drivers"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
)

// linkRecorder is a node with nothing on it but one disk. It has the paths at which drivers make
// links, also those to shares.
type linkRecorder struct{ links []string }

func (n *linkRecorder) Call(_ context.Context, method string, request drivers.Fields) ([]byte, error) {
	switch method {
	case "CreateSymlink":
		n.links = append(n.links, request["target_path"].(string))
	case "NewSmbGlobalMapping":
		n.links = append(n.links, request["local_path"].(string))
	}
	answers := map[string]string{
		"PathExists":                `{"exists": false}`,
		"IsSymlink":                 `{"is_symlink": false}`,
		"ListDiskIDs":               `{"diskIDs": {"1": {}}}`,
		"ListDiskLocations":         `{"disk_locations": {"1": {"LUNID": "0"}}}`,
		"GetTargetDisks":            `{"diskIDs": ["1"]}`,
		"DiscoverTargetPortal":      `{"iqns": ["iqn.a:b"]}`,
		"ListVolumesOnDisk":         `{"volume_ids": ["v"]}`,
		"GetDiskStats":              `{"total_bytes": "1"}`,
		"GetVolumeStats":            `{"total_bytes": "1"}`,
		"IsVolumeFormatted":         `{"formatted": true}`,
		"GetDiskNumberFromVolumeID": `{"disk_number": 1}`,
		"GetVolumeIDFromTargetPath": `{"volume_id": "v"}`,
	}
	return []byte(answers[method]), nil
}

// container is what csi-driver-smb sees of that node.
type container struct{}

func (container) Sees(string) error               { return fs.ErrNotExist }
func (container) MakeDirectory(string) error      { return nil }
func (container) ReadLink(string) (string, error) { return "", fs.ErrNotExist }

// stager is what of a driver makes links.
type stager interface {
	Stage(staging string) error
	Publish(staging, target string) error
}

// With the paths that kubelet gives them, shipped drivers make links only where links are searched
// for. So it hits none of them that links to shares are refused elsewhere.
func TestDriversLinkWhereLinksAreSearched(t *testing.T) {
	const (
		staging = simtest.Kubelet + `\plugins\kubernetes.io\csi\driver.example.com\0123456789abcdef\globalmount`
		target  = simtest.Kubelet + `\pods\6a1c2d3e\volumes\kubernetes.io~csi\pvc-1\mount`
	)
	anyDisk := func(drivers.DiskIDs) bool { return true }
	for name, newDriver := range map[string]func(n drivers.Node) stager{
		"EBS":    func(n drivers.Node) stager { return drivers.NewEBS(n, anyDisk) },
		"GCE PD": func(n drivers.Node) stager { return drivers.NewGCEPD(n, anyDisk) },
		"Azure Disk": func(n drivers.Node) stager {
			return drivers.NewAzureDisk(n, func(uint32, string) bool { return true }, true)
		},
		"iSCSI": func(n drivers.Node) stager { return drivers.NewLocalISCSI(n, "127.0.0.1", 3260, "iqn.a:b") },
		"SMB": func(n drivers.Node) stager {
			return drivers.NewSMB(n, drivers.SMBVolume{Source: "//server/share/dir", ID: "pvc-1", Container: container{},
				Credentials: func() (username, password string) { return "user", "password" }})
		},
	} {
		t.Run(name, func(t *testing.T) {
			sys, made := simtest.Open(t, winsim.Delays{}), new(linkRecorder)
			paths, err := pathpolicy.New(pathpolicy.Options{KubeletPath: simtest.Kubelet})
			simtest.Must(t, err)
			driver := newDriver(made)
			simtest.Must(t, driver.Stage(staging))
			simtest.Must(t, driver.Publish(staging, target))
			if len(made.links) == 0 {
				t.Error("the driver makes no link")
			}
			for _, link := range made.links {
				path, err := paths.Parse(link, pathpolicy.MaxPath)
				simtest.Must(t, err)
				walk := paths.Walk(sys)
				e, err := walk.ReachOrMake(t.Context(), path)
				simtest.Must(t, err)
				simtest.Must(t, e.CheckSearched())
				simtest.Must(t, walk.Close())
			}
		})
	}
}
