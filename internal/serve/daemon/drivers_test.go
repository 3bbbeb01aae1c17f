// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon_test

import (
	"context"
	"fmt"
	"math"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/ops/scope"
	"github.com/csi-proxy/csi-proxy/internal/serve/daemon"
	"github.com/csi-proxy/csi-proxy/internal/serve/rpc"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/iscsitarget"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/services"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/smbserver"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// tenant is a driver with endpoints of its own, and what is its.
type tenant struct {
	*target // its endpoints, on a node with other drivers'; its volume and blank disk
	ops     nodeops.Operations

	color           string                // is in the names of all that is its
	numbers         []csiproxy.DiskNumber // of the disk with its volume, a blank one and that of its target
	serials, page83 []string              // of the first two
	vendor          string

	staging, published          string // of its volume
	stagedShare, publishedShare string
	share, leftShare            string // the second is mapped and nowhere linked
	portal                      csiproxy.ISCSIPortal
	iqn                         csiproxy.IQN
	service                     string
	directory                   string // that kubelet has for it
}

// tenants are two drivers on a node, with the whole node.
type tenants struct {
	red, blue *tenant
	node      *nodeops.Node
	admin     *target // has the published endpoints
}

// newTenants serves two drivers, each with all that a driver may have. configure may be nil.
func newTenants(t testing.TB, configure func(driver string, c *daemon.Config)) *tenants {
	t.Helper()
	sys := simtest.Open(t, winsim.Delays{})
	w := &tenants{red: newTenant(t, sys, "red", 4100, "10.11.0.1"), blue: newTenant(t, sys, "blue", 4200, "10.22.0.1")}
	var err error
	w.node, err = nodeops.New(sys, nodeops.Options{}, w.red.scope(), w.blue.scope())
	simtest.Must(t, err)
	w.admin = &target{t: t, sys: sys, conns: map[string]*grpc.ClientConn{}}
	serve := func(g *target, operations nodeops.Operations) {
		listeners := map[string]*bufconn.Listener{}
		g.dial = func(ctx context.Context, name string) (net.Conn, error) { return listeners[name].DialContext(ctx) }
		c := daemon.Config{Driver: g.driver, Operations: rpc.Operations(operations),
			Listen: func(name string) (net.Listener, error) {
				listeners[name] = bufconn.Listen(64 << 10)
				return listeners[name], nil
			}}
		if configure != nil {
			configure(g.driver, &c)
		}
		g.serve(c)
	}
	for _, d := range []*tenant{w.red, w.blue} {
		d.ops = w.node.Driver(d.driver)
		d.begin()
		serve(d.target, d.ops)
	}
	serve(w.admin, w.node.Operations)
	return w
}

func newTenant(t testing.TB, sys *winsim.System, color string, number csiproxy.DiskNumber, address string) *tenant {
	t.Helper()
	name := color + ".csi.example.com"
	d := &tenant{target: &target{t: t, sys: sys, driver: name}, color: color,
		vendor:         strings.ToUpper(color) + "INC",
		directory:      kubelet + `\plugins\` + name,
		staging:        kubelet + `\plugins\kubernetes.io\csi\` + name + `\1\globalmount`,
		published:      kubelet + `\pods\` + color + `\volumes\kubernetes.io~csi\pv-1\mount`,
		stagedShare:    kubelet + `\plugins\` + name + `\share`,
		publishedShare: kubelet + `\pods\` + color + `\volumes\kubernetes.io~csi\pv-2\mount`,
		share:          `\\` + color + `-files\data`, leftShare: `\\` + color + `-files\left`,
		portal: csiproxy.ISCSIPortal{Address: address, Port: 3260}, iqn: csiproxy.IQN("iqn.2026-01.com.example:" + color),
		service: color + "-service",
	}
	d.conns = map[string]*grpc.ClientConn{}
	for i := range csiproxy.DiskNumber(2) {
		at := number + i
		serial := fmt.Sprintf("%s-serial-%d", color, i)
		d.numbers = append(d.numbers, simtest.Attach(t, sys, winsim.DiskSpec{SizeBytes: 64 << 20 << i, Number: &at,
			VendorID: d.vendor, ProductID: "Disk " + color, Serial: serial}))
		d.serials = append(d.serials, serial)
	}
	d.raw = d.numbers[1]
	for _, path := range []string{d.published, d.publishedShare} {
		directory := strings.TrimSuffix(path, `\mount`)
		simtest.Must(t, sys.MkdirAll(directory))
		simtest.Must(t, sys.WriteFile(directory+`\vol_data.json`, fmt.Appendf(nil, `{"driverName":%q}`, name)))
	}
	for _, share := range []string{"data", "left"} {
		simtest.Must(t, sys.SMB().AddShare(smbserver.Share{Server: color + "-files", Name: share}))
	}
	simtest.Must(t, sys.SMB().SetUser(color+"-files", "user", csiproxy.NewSecret("password")))
	ofTarget := number + 2
	simtest.Must(t, sys.ISCSI().AddTarget(iscsitarget.Target{IQN: string(d.iqn), Portals: []win.ISCSIPortal{win.ISCSIPortal(d.portal)}},
		winsim.DiskSpec{SizeBytes: 64 << 20, Number: &ofTarget}))
	simtest.Must(t, sys.Services().Add(services.Spec{Name: d.service, DisplayName: "Displayed " + d.service}))
	return d
}

// scope is what of the node is the driver's.
func (d *tenant) scope() nodeops.Driver {
	return nodeops.Driver{Driver: scope.Driver{Name: d.driver, Disks: []scope.DiskPattern{{Vendor: d.vendor}},
		Servers: []string{d.color + "-files"}, Portals: []csiproxy.ISCSIPortal{d.portal}, Services: []string{d.service}}}
}

// begin has the driver stage and publish all that it has.
func (d *tenant) begin() {
	d.t.Helper()
	ctx := d.t.Context()
	user := csiproxy.SMBCredentials{Username: "user", Password: csiproxy.NewSecret("password")}
	staged, err := d.ops.Storage.StageVolume(ctx, csiproxy.StageVolumeRequest{
		Disk: csiproxy.Selector{SerialNumber: d.serials[0]}, StagingPath: d.staging})
	simtest.Must(d.t, err)
	d.volume = string(staged.VolumeID)
	simtest.Must(d.t, d.ops.Storage.PublishVolume(ctx, d.staging, d.published))
	simtest.Must(d.t, d.sys.MkdirAll(d.staging+`\directory`))
	simtest.Must(d.t, d.sys.WriteFile(d.staging+`\data`, []byte("precious")))
	simtest.Must(d.t, d.ops.Storage.StageShare(ctx, csiproxy.StageShareRequest{RemotePath: d.share, StagingPath: d.stagedShare,
		Credentials: user}))
	simtest.Must(d.t, d.ops.Storage.PublishVolume(ctx, d.stagedShare, d.publishedShare))
	simtest.Must(d.t, d.ops.Storage.StageShare(ctx, csiproxy.StageShareRequest{RemotePath: d.leftShare, StagingPath: d.directory + `\left`,
		Credentials: user}))
	simtest.Must(d.t, d.sys.Remove(d.directory+`\left`))
	simtest.Must(d.t, d.ops.ISCSI.AddTargetPortal(ctx, d.portal))
	simtest.Must(d.t, d.ops.ISCSI.ConnectTarget(ctx, d.portal, d.iqn, csiproxy.ISCSIAuthentication{}))
	simtest.Must(d.t, d.ops.System.StartService(ctx, d.service))
	d.sys.Settle()
	numbers, err := d.ops.ISCSI.GetTargetDisks(ctx, d.portal, d.iqn)
	simtest.Must(d.t, err)
	d.numbers = append(d.numbers, numbers...)
	ids, err := d.ops.Disk.ListDiskIDs(ctx)
	simtest.Must(d.t, err)
	for _, n := range d.numbers[:2] {
		d.page83 = append(d.page83, ids[n].Page83)
	}
}

// names are the driver's objects, by the field of a request that may name them.
func (d *tenant) names() map[protoreflect.Name][]any {
	var numbers, numberTexts, page83, selectors []any
	portal := slices.Concat(fieldOf(1, d.portal.Address), fieldOf(2, uint64(d.portal.Port)))
	for _, n := range d.numbers {
		numbers, numberTexts = append(numbers, uint64(n)), append(numberTexts, n.String())
		selectors = append(selectors, fieldOf(1, uint64(n)))
	}
	for i, id := range d.page83 {
		page83 = append(page83, id)
		selectors = append(selectors, fieldOf(2, d.serials[i]), fieldOf(3, id))
	}
	selectors = append(selectors, slices.Concat(fieldOf(5, d.vendor), fieldOf(6, "Disk "+d.color)),
		fieldOf(8, slices.Concat(fieldOf(1, portal), fieldOf(2, string(d.iqn)))))
	paths := []any{d.staging, d.published, strings.ToUpper(d.staging), strings.TrimPrefix(d.staging, "C:"), d.staging + `\directory`,
		d.published + `\directory`, d.directory, d.directory + `\new`, d.stagedShare, d.publishedShare, kubelet + `\pods\` + d.color}
	volumes := []any{d.volume, `\\?\Volume` + strings.ToUpper(strings.TrimPrefix(d.volume, `\\?\Volume`))}
	return map[protoreflect.Name][]any{
		"disk_number": numbers, "diskID": numberTexts, "disk_id": numberTexts, "disk_name": page83, "disk": selectors,
		"volume_id": volumes,
		// Paths may be those of shares, too.
		"path": append(slices.Clone(paths), d.share), "source_path": append(slices.Clone(paths), d.share), "target_path": paths,
		"staging_path": paths, "mount": paths, "local_path": paths,
		"remote_path":   {d.share, strings.ToUpper(d.share) + `\`, d.share + `\below`, d.leftShare},
		"target_portal": {portal, fieldOf(1, d.portal.Address)}, "iqn": {string(d.iqn)},
		"name": {d.service, strings.ToUpper(d.service)},
	}
}

// nameless are the fields that name no object of a driver.
var nameless = []protoreflect.Name{"auth_type", "chap_secret", "chap_username", "credentials", "disk_size_bytes", "format",
	"login", "MutualChapSecret", "partition", "partition_number", "password", "privacy", "size", "size_bytes", "username",
	"wait_milliseconds", "context"}

// own is what the driver itself has in a field of a request that names another's object in another field. The
// call would succeed with it, if the other field were good, too.
func (d *tenant) own(m method, field protoreflect.Name) any {
	switch name := string(m.Name()); {
	case field == "disk":
		return fieldOf(1, uint64(d.numbers[0])) // staged already, so that no call formats it
	case field == "source_path" || field == "staging_path" && name == "PublishVolume",
		field == "target_path" && strings.HasPrefix(name, "Unmount"), field == "path" && strings.HasPrefix(name, "Dismount"):
		return d.staging
	case strings.HasSuffix(string(field), "path"):
		return d.directory + `\none`
	}
	return d.names()[field][0]
}

// request is a request by which a driver names what is another's.
type request struct {
	what   string
	data   []byte
	atPods bool // where all drivers publish: that something is there may be seen
}

// requests are the requests to a method of a driver that name objects of another one.
func requests(t *testing.T, m method, d, other *tenant) (all []request) {
	names := other.names()
	seen := make(map[string]bool)
	for i := range m.Input().Fields().Len() {
		f := m.Input().Fields().Get(i)
		if _, isName := names[f.Name()]; !isName && f.Kind() != protoreflect.BoolKind && !slices.Contains(nameless, f.Name()) {
			t.Errorf("%s: can the field %s name what is a driver's?", m.path(), f.Name())
		}
		for _, value := range names[f.Name()] {
			for _, flags := range []uint64{0, 1} {
				for whose, rest := range map[string]*tenant{"own": d, "another's": other} {
					text, _ := value.(string)
					data := slices.Concat(fieldOf(f.Number(), value), rest.rest(m, f, flags))
					if !seen[string(data)] {
						all = append(all, request{fmt.Sprintf("%s %q with %s, flags %d", f.Name(), value, whose, flags), data,
							strings.HasPrefix(text, other.published) || strings.HasPrefix(text, other.publishedShare) ||
								whose != "own"})
					}
					seen[string(data)] = true
				}
			}
		}
	}
	slices.SortStableFunc(all, func(a, b request) int { return strings.Compare(a.what, b.what) }) // maps have no order
	return all
}

// rest returns the fields of a request but one, with the driver's objects.
func (d *tenant) rest(m method, but protoreflect.FieldDescriptor, flags uint64) (all []byte) {
	values := map[protoreflect.Name]any{"username": "user", "password": "password", "wait_milliseconds": uint64(math.MaxUint64),
		"credentials": slices.Concat(fieldOf(1, "user"), fieldOf(2, "password")), "context": flags}
	names := d.names()
	for i := range m.Input().Fields().Len() {
		f := m.Input().Fields().Get(i)
		value, ok := values[f.Name()]
		if _, isName := names[f.Name()]; isName {
			value, ok = d.own(m, f.Name()), true
		}
		if f.Kind() == protoreflect.BoolKind && flags != 0 {
			value, ok = flags, true
		}
		if ok && f.Number() != but.Number() {
			all = append(all, fieldOf(f.Number(), value)...)
		}
	}
	return all
}

// secrets are texts that tell of what is the driver's.
func (d *tenant) secrets() []string {
	all := []string{d.driver, d.vendor, d.volume, d.staging, d.published, d.stagedShare, d.publishedShare, d.color + "-files",
		d.portal.Address, string(d.iqn), d.service, kubelet + `\pods\` + d.color}
	return slices.Concat(all, d.serials, d.page83)
}

// leaves are all values in a message, as texts.
func leaves(m protoreflect.Message) (all []string) {
	add := func(f protoreflect.FieldDescriptor, v protoreflect.Value) {
		if f.Message() != nil {
			all = append(all, leaves(v.Message())...)
		} else {
			all = append(all, v.String())
		}
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			v.Map().Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
				all = append(all, key.String())
				add(f.MapValue(), value)
				return true
			})
		case f.IsList():
			for i := range v.List().Len() {
				add(f, v.List().Get(i))
			}
		default:
			add(f, v)
		}
		return true
	})
	return all
}

// ask makes a call of the driver, and checks that the answer tells nothing of another one's beyond the request.
func (d *tenant) ask(m method, r request, other *tenant) (values []string, code codes.Code) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), time.Minute)
	defer cancel()
	data, err := d.call(ctx, m, r.data)
	response := dynamicpb.NewMessage(m.Output())
	simtest.Must(d.t, proto.Unmarshal(data, response))
	values = leaves(response)
	asked := strings.ToLower(string(r.data))
	for _, told := range append(slices.Clone(values), status.Convert(err).Message()) {
		for _, text := range other.secrets() {
			if text = strings.ToLower(text); strings.Contains(strings.ToLower(told), text) && !strings.Contains(asked, text) {
				d.t.Errorf("%s: %s: the answer tells %q: %q, %v", m.path(), r.what, text, values, err)
			}
		}
		for _, n := range other.numbers {
			if told == n.String() {
				d.t.Errorf("%s: %s: the answer tells the disk %v: %q", m.path(), r.what, n, values)
			}
		}
	}
	return values, status.Code(err)
}

// endsNothing are the methods that have nothing to do where there is nothing.
var endsNothing = []protoreflect.Name{"UnstageShare", "UnstageVolume", "DisconnectTarget"}

// check checks the answer to a request that names what is another's.
func (d *tenant) check(m method, r request, values []string, code codes.Code) {
	d.t.Helper()
	switch code {
	case codes.NotFound, codes.PermissionDenied, codes.InvalidArgument: // the last where a request is wrong for all drivers
		return
	case codes.FailedPrecondition, codes.AlreadyExists:
		// The second answer is about the driver's own target, which is connected by another portal; the third about its own
		// volume, which is mounted where another's, like a missing one, would be unmounted.
		if r.atPods || m.group == "iscsi" && strings.HasPrefix(r.what, "target_portal") ||
			strings.HasPrefix(r.what, "volume_id") && slices.Contains([]protoreflect.Name{"UnmountVolume", "DismountVolume"}, m.Name()) {
			return
		}
	case codes.OK:
		isList := slices.Contains([]protoreflect.Name{"ListDisks", "WatchDisks", "GetTargetDisks"}, m.Name())
		// A share that isn't mapped may be asked for by anybody.
		if m.Name() == "GetVolume" && slices.Contains(values, "ShareNotMapped") && len(values) == 4 {
			return
		}
		if len(values) == 0 && (isList || slices.Contains(endsNothing, m.Name())) || m.Name() == "PathExists" && r.atPods {
			return
		}
	}
	d.t.Errorf("%s: %s: %v, %q", m.path(), r.what, code, values)
}

// Whatever field of whatever method names what is another driver's: the answer is that of what isn't there or
// isn't allowed, tells nothing, and changes nothing.
func TestDriverRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTenants(t, nil)
		before := w.admin.state()
		count, tried := 0, 0
		for version, methods := range byVersion(allMethods()) {
			for _, m := range methods {
				for _, r := range requests(t, m, w.blue, w.red) {
					if count++; simtest.Sampled() && count%5 != 0 {
						continue
					}
					tried++
					values, code := w.blue.ask(m, r, w.red)
					w.blue.check(m, r, values, code)
				}
				if simtest.Sampled() {
					continue
				}
				if diff := cmp.Diff(before, w.admin.state()); diff != "" {
					t.Fatalf("%s: requests of a driver changed the node (-before +after):\n%.4000s", m.path(), diff)
				}
			}
			if diff := cmp.Diff(before, w.admin.state()); diff != "" {
				t.Fatalf("%s: requests of a driver changed the node (-before +after):\n%.4000s", version, diff)
			}
		}
		t.Logf("%d of %d requests to %d methods", tried, count, len(allMethods()))
	})
}

// Lists have what is the driver's, and nothing of another one's.
func TestDriverLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTenants(t, nil)
		cleanable, err := w.node.Storage.CleanUp(t.Context(), false)
		simtest.Must(t, err)
		if len(cleanable.Mounts) < 2 {
			t.Errorf("the node's leftovers are %+v, want one of each driver", cleanable)
		}
		before := w.admin.state()
		lists := 0
		for _, m := range allMethods() {
			var has []string
			switch d := w.blue; m.Name() {
			case "ListDiskIDs":
				has = []string{d.numbers[0].String(), d.numbers[1].String(), d.numbers[2].String(), d.serials[0]}
			case "ListDiskLocations":
				has = []string{d.numbers[0].String(), d.numbers[1].String(), d.numbers[2].String()}
			case "ListDisks", "WatchDisks":
				has = []string{d.numbers[0].String(), d.serials[0], d.serials[1], string(d.iqn), d.volume}
			case "ListVolumes":
				has = []string{d.staging, d.published, d.stagedShare, d.publishedShare, d.volume}
			case "CleanUp":
				has = []string{d.leftShare}
			case "ListTargetPortals":
				has = []string{d.portal.Address}
			}
			if has == nil && m.Input().Fields().Len() > 0 {
				continue
			}
			values, code := w.blue.ask(m, request{what: "list"}, w.red)
			if code != codes.OK {
				t.Errorf("%s: %v", m.path(), code)
			}
			for _, want := range has {
				if !slices.Contains(values, want) {
					t.Errorf("%s: %q isn't in the list %q", m.path(), want, values)
				}
			}
			lists++
		}
		if diff := cmp.Diff(before, w.admin.state()); diff != "" {
			t.Errorf("lists changed the node (-before +after):\n%.4000s", diff)
		}
		// A driver removes its own leftovers only.
		for _, m := range allMethods() {
			if m.Name() != "CleanUp" {
				continue
			}
			w.blue.ask(m, request{"remove", fieldOf(1, uint64(1)), false}, w.red)
		}
		mapped, err := w.admin.sys.SMBGlobalMappings(t.Context())
		simtest.Must(t, err)
		paths := []string{}
		for _, one := range mapped {
			paths = append(paths, strings.ToLower(one.RemotePath))
		}
		if !slices.Contains(paths, w.red.leftShare) || slices.Contains(paths, w.blue.leftShare) {
			t.Errorf("after %s's CleanUp, mapped are %q", w.blue.driver, paths)
		}
		t.Logf("%d lists", lists)
	})
}

// methodOf returns a method of the newest version of a group.
func methodOf(t testing.TB, group string, name protoreflect.Name) method {
	t.Helper()
	for _, m := range allMethods() {
		if m.group == group && m.Name() == name {
			return m
		}
	}
	t.Fatalf("there is no method %s in group %s", name, group)
	return method{}
}

// A driver whose disk hangs, and who calls again and again, takes no calls of others, neither at the endpoints
// nor to Windows.
func TestDriversWaitAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTenants(t, func(driver string, c *daemon.Config) {
			if strings.HasPrefix(driver, "red") {
				c.MaxCalls = 2
			}
		})
		call := func(g *target, limit time.Duration, group string, name protoreflect.Name, request ...[]byte) (codes.Code, time.Duration) {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			begun := time.Now()
			_, err := g.call(ctx, methodOf(t, group, name), slices.Concat(request...))
			return status.Code(err), time.Since(begun)
		}
		othersGoOn := func(when string) {
			t.Helper()
			number, volume := fieldOf(1, uint64(w.blue.numbers[0])), fieldOf(1, w.blue.volume)
			for who, g := range map[string]*target{"the other driver": w.blue.target, "the administrator": w.admin} {
				for _, one := range []struct {
					group   string
					method  protoreflect.Name
					request []byte
					limit   time.Duration
				}{
					{"disk", "GetDiskStats", number, time.Millisecond},
					{"volume", "GetVolumeStats", volume, time.Millisecond},
					{"volume", "ListVolumesOnDisk", number, time.Millisecond},
					{"filesystem", "PathExists", fieldOf(1, w.blue.staging), time.Millisecond},
					{"storage", "GetVolume", fieldOf(1, w.blue.staging), time.Millisecond},
					// These ask all disks, and wait once for those that don't answer.
					{"disk", "ListDiskIDs", nil, nodeops.DefaultSilentDiskTimeout + time.Second},
					{"storage", "ListDisks", nil, nodeops.DefaultSilentDiskTimeout + time.Second},
				} {
					if code, took := call(g, one.limit, one.group, one.method, one.request); code != codes.OK {
						t.Errorf("%s: %s of %s is %v after %v", when, one.method, who, code, took)
					}
				}
			}
		}
		othersGoOn("before")
		for _, path := range []string{fmt.Sprintf("PhysicalDrive%d", w.red.numbers[0]), w.red.volume} {
			for _, hangs := range []string{"IOCTL_STORAGE_QUERY_PROPERTY", "IOCTL_VOLUME_GET_VOLUME_DISK_EXTENTS"} {
				simtest.Must(t, w.red.sys.DelayUncancellable(winsim.Match{Call: hangs, Object: strings.TrimSuffix(path, `\`), Fires: winsim.MayFire}, 3*time.Hour))
			}
		}
		number, volume := fieldOf(1, uint64(w.red.numbers[0])), fieldOf(1, w.red.volume)
		hung := make(chan codes.Code, 2)
		for range 2 {
			go func() {
				code, _ := call(w.red.target, time.Minute, "disk", "GetDiskStats", number)
				hung <- code
			}()
		}
		synctest.Wait()
		if code, took := call(w.red.target, time.Second, "disk", "GetDiskStats", number); code != codes.ResourceExhausted || took != 0 {
			t.Errorf("a third call of the driver is %v after %v", code, took)
		}
		othersGoOn("while the driver's two calls hang")
		for range 2 {
			if code := <-hung; code != codes.DeadlineExceeded {
				t.Errorf("a call that hangs ends as %v", code)
			}
		}
		// Each of these leaves calls to Windows behind, which hang still.
		for range 300 {
			call(w.red.target, time.Second, "disk", "GetDiskStats", number)
			call(w.red.target, time.Second, "volume", "GetVolumeStats", volume)
			call(w.red.target, time.Second, "storage", "ListDisks")
		}
		othersGoOn("after the driver's calls")
		w.red.sys.ResetRules()
		synctest.Wait()
		if code, took := call(w.red.target, time.Second, "disk", "GetDiskStats", number); code != codes.OK {
			t.Errorf("when nothing hangs any more, the driver's call is %v after %v", code, took)
		}
	})
}

// Lists at the shared endpoints end within ten seconds beside more hanging volumes of a driver than a list asks at once.
func TestListsBesideManyHangingVolumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTenants(t, nil)
		for i := range 20 {
			serial := fmt.Sprintf("hanging-%d", i)
			simtest.Attach(t, w.blue.sys, winsim.DiskSpec{SizeBytes: 64 << 20, VendorID: w.blue.vendor, Serial: serial})
			staged, err := w.blue.ops.Storage.StageVolume(t.Context(), csiproxy.StageVolumeRequest{
				Disk:        csiproxy.Selector{SerialNumber: serial},
				StagingPath: fmt.Sprintf(`%s\plugins\kubernetes.io\csi\%s\hanging-%d\globalmount`, kubelet, w.blue.driver, i)})
			simtest.Must(t, err)
			simtest.Must(t, w.blue.sys.DelayUncancellable(winsim.Match{Call: winsim.EachCall,
				Object: strings.TrimSuffix(string(staged.VolumeID), `\`)}, time.Hour))
		}
		for _, name := range []protoreflect.Name{"ListVolumes", "CleanUp", "ListVolumes"} {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			begun := time.Now()
			_, err := w.admin.call(ctx, methodOf(t, "storage", name), nil)
			cancel()
			if took := time.Since(begun); err != nil || took > 10*time.Second {
				t.Errorf("%s ends after %v: %v", name, took, err)
			}
		}
		w.blue.sys.ResetRules()
		time.Sleep(2 * time.Hour)
	})
}
