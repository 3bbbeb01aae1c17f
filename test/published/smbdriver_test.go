// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/csi-proxy/csi-proxy/test/published/drivers"
)

// smbVolume is a directory of a share. Many may be on one share.
type smbVolume struct {
	node *node
	// source is the volume as its storage class writes it, with slashes.
	source string
	id     string
	// credentials are kubelet's: it reads them anew for each call.
	credentials *credentials
	// volumes is the driver's count of those on a share; nil if it lets mappings be.
	volumes *drivers.VolumesOnShares
}

type credentials struct {
	mu                 sync.Mutex
	username, password string
}

func (c *credentials) get() (username, password string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.username, c.password
}

func (c *credentials) change(password string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.password = password
}

// newSMBVolume makes a directory of a share, as the controller of the SMB driver does
// for each volume.
func newSMBVolume(n *node, i int) storage {
	s := share{server: fmt.Sprintf("nas-%d.example.com", i), name: "Exports", user: `CORP\svc-smb`, password: newSecret(i)}
	s.add(n)
	return s.volume(n, fmt.Sprintf("pvc-%d", i), new(drivers.VolumesOnShares))
}

// newAzureFile makes a share of a storage account, as Azure File's driver has one for
// each volume.
func newAzureFile(n *node, i int) storage {
	account := fmt.Sprintf("account%d", i)
	s := share{server: account + ".file.core.windows.net", name: fmt.Sprintf("pvc-%d", i), user: `AZURE\` + account, password: newSecret(i) + "/+=="}
	s.add(n)
	return s.volume(n, "", nil)
}

// volume makes a volume of a directory of the share, or of all of it.
func (s share) volume(n *node, dir string, volumes *drivers.VolumesOnShares) *smbVolume {
	n.t.Helper()
	v := &smbVolume{
		node: n, source: "//" + s.server + "/" + s.name, id: s.path() + "#" + dir,
		credentials: &credentials{username: s.user, password: s.password}, volumes: volumes,
	}
	if dir == "" {
		return v
	}
	v.source += "/" + dir
	// The controller makes the directory from elsewhere; here that takes a mapping.
	o := n.operator()
	ctx := context.Background()
	mapped := n.sees(s.path()) == nil
	if !mapped {
		_, err := o.Call(ctx, "NewSmbGlobalMapping",
			drivers.Fields{"remote_path": s.path(), "username": s.user, "password": s.password})
		o.must(err)
	}
	n.mkdir(s.path() + `\` + dir)
	if !mapped {
		_, err := o.Call(ctx, "RemoveSmbGlobalMapping", drivers.Fields{"remote_path": s.path()})
		o.must(err)
	}
	return v
}

func (v *smbVolume) driver(c drivers.Calls) drivers.Driver {
	return drivers.NewSMB(c, drivers.SMBVolume{
		Source: v.source, ID: v.id, Credentials: v.credentials.get, Volumes: v.volumes, Container: container{v.node},
	})
}

// container is that of the SMB driver on a node.
type container struct{ node *node }

func (c container) Sees(path string) error { return c.node.sees(path) }

func (c container) MakeDirectory(path string) error {
	_, err := c.node.simTry("MakeDirectory", fields{"path": path})
	return err
}

func (c container) ReadLink(path string) (string, error) {
	link, err := c.node.simTry("ReadLink", fields{"path": path})
	if err != nil {
		return "", err
	}
	return link.text("target"), nil
}

func (v *smbVolume) grow(*node, int64) {} // a share has the size that it has

// root is the share of the volume, as a pod of the node would name it.
func (v *smbVolume) root() string {
	names := strings.Split(strings.TrimPrefix(v.source, "//"), "/")
	return `\\` + strings.ToLower(names[0]+`\`+names[1])
}

func (v *smbVolume) wantReleased(n *node) {
	n.t.Helper()
	if mapped := n.sees(v.root()) == nil; mapped != (v.volumes == nil) {
		n.t.Errorf("after unstaging the share is mapped: %t", mapped)
	}
}

func (v *smbVolume) remove(n *node) {
	n.t.Helper()
	server, name, _ := strings.Cut(strings.TrimPrefix(v.root(), `\\`), `\`)
	n.simCall("RemoveSmbShare", fields{"server": server, "name": name})
}

// sees lists a directory of the node as the driver's own container does: it has
// kubelet's directory, and the node's mappings.
func (n *node) sees(path string) error {
	_, err := n.simTry("ListDirectory", fields{"path": path})
	return err
}

// Several pods use one share, through volumes of their own and through one that they
// have in common. Whoever leaves takes nothing from the others.
func TestPodsOnOneShare(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	driver := shipped{name: "SMB", drive: `c:`}
	s := share{server: "nas.example.com", name: "Exports", user: `CORP\svc-smb`, password: newSecret(0)}
	s.add(n)
	volumes := new(drivers.VolumesOnShares)
	first, second, whole := s.volume(n, "pvc-1", volumes), s.volume(n, "pvc-2", volumes), s.volume(n, "", volumes)
	pods := []claim{
		driver.publication(n, first, 1, 1, nil), driver.publication(n, first, 1, 2, nil),
		driver.publication(n, second, 2, 3, nil), driver.publication(n, whole, 3, 4, nil),
	}
	must := n.operator().must
	for i, pod := range pods {
		must(pod.Stage(pod.staging))
		must(pod.Publish(pod.staging, pod.target))
		n.write(fmt.Sprintf(`%s-%d`, pod.data, i), fmt.Sprintf("of pod %d", i))
	}
	seen := func(from int) {
		t.Helper()
		for i := from; i < len(pods); i++ {
			n.wantText(fmt.Sprintf(`%s-%d`, pods[i].data, i), fmt.Sprintf("of pod %d", i))
		}
	}
	seen(0)
	n.wantText(pods[0].nodeTarget+`\data-1`, "of pod 1")       // one volume
	n.wantText(pods[3].nodeTarget+`\pvc-2\data-2`, "of pod 2") // one share
	if _, err := n.simTry("ReadFile", fields{"path": pods[2].nodeTarget + `\data-0`}); err == nil {
		t.Error("a volume has the file of another")
	}

	must(pods[0].Unpublish(pods[0].target))
	seen(1)
	must(pods[1].Unpublish(pods[1].target))
	must(pods[1].Unstage(pods[1].staging))
	seen(2)
	must(pods[2].Unpublish(pods[2].target))
	must(pods[2].Unstage(pods[2].staging))
	seen(3)
	must(pods[3].Unpublish(pods[3].target))
	must(pods[3].Unstage(pods[3].staging))
	whole.wantReleased(n)
}

// The password is changed while pods use the share. They can go on when the driver
// has staged the volume with the new one, also those of other shares of the server.
func TestCredentialsRotated(t *testing.T) {
	t.Parallel()
	for _, volumes := range []*drivers.VolumesOnShares{nil, new(drivers.VolumesOnShares)} {
		t.Run(fmt.Sprintf("counts volumes=%t", volumes != nil), func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			driver := shipped{name: "SMB", drive: `c:`}
			one := share{server: "nas.example.com", name: "one", user: `CORP\svc-smb`, password: newSecret(0)}
			two := one
			two.name = "two"
			one.add(n)
			two.add(n)
			volume, other := one.volume(n, "pvc-1", volumes), two.volume(n, "pvc-2", volumes)
			a, b := driver.publication(n, volume, 1, 1, nil), driver.publication(n, other, 2, 2, nil)
			must := n.operator().must
			for _, c := range []claim{a, b} {
				must(c.Stage(c.staging))
				must(c.Publish(c.staging, c.target))
				n.write(c.data, "of "+c.target)
			}

			n.setPassword(one.server, one.user, newSecret(1))
			for _, c := range []claim{a, b} {
				if _, err := n.simTry("ReadFile", fields{"path": c.data}); err == nil {
					t.Fatal("the old password still does: the test proves nothing")
				}
			}
			if err := a.Stage(a.staging); err == nil {
				t.Error("staging succeeds with the old password")
			}
			volume.credentials.change(newSecret(1))
			other.credentials.change(newSecret(1))
			for range 2 {
				must(a.Stage(a.staging))
				must(a.Publish(a.staging, a.target))
				n.wantText(a.data, "of "+a.target)
			}
			for range 2 {
				must(b.Stage(b.staging))
				must(b.Publish(b.staging, b.target))
				n.wantText(b.data, "of "+b.target)
			}
			n.wantText(a.data, "of "+a.target)
			for _, c := range []claim{a, b} {
				must(c.Unpublish(c.target))
				must(c.Unstage(c.staging))
			}
			volume.wantReleased(n)
			other.wantReleased(n)
		})
	}
}

// While its server is away a volume can be staged and published neither, but be
// unpublished; pods see their files again when it is back.
func TestServerAway(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	driver := shipped{name: "Azure File", drive: `c:`}
	files.add(n)
	volume := files.volume(n, "pvc-1", nil)
	a, b := driver.publication(n, volume, 1, 1, nil), driver.publication(n, volume, 1, 2, nil)
	must := n.operator().must
	for _, c := range []claim{a, b} {
		must(c.Stage(c.staging))
		must(c.Publish(c.staging, c.target))
	}
	n.write(a.data, "of a pod")
	n.simCall("SetSmbServer", fields{"name": files.server, "unreachable": true})
	if err := a.Stage(a.staging); err == nil {
		t.Error("staging succeeds without the server")
	}
	must(b.Unpublish(b.target))
	n.simCall("SetSmbServer", fields{"name": files.server})
	for range 2 {
		must(a.Stage(a.staging))
		n.wantText(a.data, "of a pod")
	}
}
