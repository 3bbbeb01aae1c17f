// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	volumev1 "github.com/kubernetes-csi/csi-proxy/client/api/volume/v1"
)

const stormSize = 64

// storm makes the same call from many clients at once, each with connections of
// its own, and returns how often each code was the answer.
func (n *node) storm(call func(clients) error) map[codes.Code]int {
	n.t.Helper()
	answers := map[codes.Code]int{}
	var mu sync.Mutex // guards answers
	var done sync.WaitGroup
	begin := make(chan struct{})
	for range stormSize {
		c := n.clients(nil)
		done.Go(func() {
			<-begin
			err := call(c)
			mu.Lock()
			defer mu.Unlock()
			answers[status.Code(err)]++
		})
	}
	close(begin)
	done.Wait()
	return answers
}

// The same call at the same time, as kubelet makes it when it has lost patience
// with the first: all get the success that one would, or are told that they came
// too late.
func TestStormsOfOneCall(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	o := n.operator()
	ctx := context.Background()
	data := n.attach(hardware{size: gib, offline: true})
	var volume string
	const path, link = kubeletPath + `\storm\deep\path`, kubeletPath + `\storm\link`

	// In this order: each needs the one before.
	for _, storm := range []struct {
		name   string
		call   func(clients) error
		loses  codes.Code // what others may get than the one that succeeds; OK: all succeed
		effect func() error
	}{
		{"Rescan", func(c clients) error { return c.Rescan(ctx) }, codes.OK, nil},
		{"PartitionDisk", func(c clients) error { return c.PartitionDisk(ctx, data) }, codes.OK, func() error {
			volumes := o.volumes(data)
			if len(volumes) != 1 {
				return fmt.Errorf("the disk has the volumes %q", volumes)
			}
			volume = volumes[0]
			return nil
		}},
		{"SetDiskState", func(c clients) error { return c.SetDiskState(ctx, data, true) }, codes.OK, nil},
		{"FormatVolume", func(c clients) error {
			_, err := c.volume.FormatVolume(ctx, &volumev1.FormatVolumeRequest{VolumeId: volume})
			return err
		}, codes.FailedPrecondition, nil},
		{"Mkdir", func(c clients) error { return c.Mkdir(ctx, path) }, codes.OK, nil},
		{"MountVolume", func(c clients) error { return c.MountVolume(ctx, volume, path) }, codes.OK, func() error {
			n.write(path+`\data`, "data")
			return nil
		}},
		{"CreateSymlink", func(c clients) error { return c.CreateSymlink(ctx, path, link) }, codes.OK, func() error {
			n.wantText(link+`\data`, "data")
			return nil
		}},
		{"ResizeVolume", func(c clients) error { return c.ResizeVolume(ctx, volume, 0) }, codes.OK, nil},
		{"Rmdir of the link", func(c clients) error { return c.Rmdir(ctx, link, true) }, codes.OK, func() error {
			n.wantGone(link)
			n.wantText(path+`\data`, "data")
			return nil
		}},
		{"UnmountVolume", func(c clients) error { return c.UnmountVolume(ctx, volume, path) }, codes.OK, nil},
		{"Rmdir", func(c clients) error { return c.Rmdir(ctx, kubeletPath+`\storm`, true) }, codes.OK, func() error {
			n.wantGone(kubeletPath + `\storm`)
			o.mount(volume, path)
			n.wantText(path+`\data`, "data")
			return nil
		}},
	} {
		answers := n.storm(storm.call)
		if answers[codes.OK] == 0 || answers[codes.OK]+answers[storm.loses] < stormSize {
			t.Fatalf("%s: the answers are %v", storm.name, answers)
		}
		if storm.loses != codes.OK && answers[codes.OK] != 1 {
			t.Errorf("%s succeeds %d times", storm.name, answers[codes.OK])
		}
		if storm.effect != nil {
			if err := storm.effect(); err != nil {
				t.Fatalf("%s: %v", storm.name, err)
			}
		}
	}
}

// Many stage the same volume at once, with whole sequences of calls. One may spoil
// another's, but together they leave nothing that the next doesn't get over.
func TestStormsOfStaging(t *testing.T) {
	t.Parallel()
	for _, s := range shippedDrivers {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			c := s.claim(n, 1, false, nil)
			answers := n.storm(func(cl clients) error { return c.storage.driver(cl).Stage(c.staging) })
			for code := range answers {
				switch code {
				case codes.OK, codes.FailedPrecondition, codes.AlreadyExists, codes.Unavailable:
				case codes.NotFound: // asking about what another has just removed, as SMB drivers do first
					if _, smb := c.storage.(*smbVolume); !smb {
						t.Errorf("%d of the drivers get %v", answers[code], code)
					}
				default:
					t.Errorf("%d of the drivers get %v", answers[code], code)
				}
			}
			live(n, s, c, "after a storm")
			if err := c.Stage(c.staging); err != nil {
				t.Fatal(err)
			}
			if a, ok := c.storage.(attached); ok {
				if volumes := n.operator().volumes(a.disk); len(volumes) != 1 {
					t.Errorf("the disk has the volumes %q", volumes)
				}
			}
		})
	}
}
