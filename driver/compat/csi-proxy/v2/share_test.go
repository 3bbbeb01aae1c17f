// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package library

import (
	"slices"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/simnode"

	"github.com/kubernetes-csi/csi-proxy/v2/pkg/filesystem"
	filesystemapi "github.com/kubernetes-csi/csi-proxy/v2/pkg/filesystem/hostapi"
	"github.com/kubernetes-csi/csi-proxy/v2/pkg/iscsi"
	iscsiapi "github.com/kubernetes-csi/csi-proxy/v2/pkg/iscsi/hostapi"
	"github.com/kubernetes-csi/csi-proxy/v2/pkg/smb"
	smbapi "github.com/kubernetes-csi/csi-proxy/v2/pkg/smb/hostapi"
	"github.com/kubernetes-csi/csi-proxy/v2/pkg/system"
	systemapi "github.com/kubernetes-csi/csi-proxy/v2/pkg/system/hostapi"
)

func TestShares(t *testing.T) {
	sim, ctx := start(t), t.Context()
	const share, other, password = `\\filer\data`, `\\filer\other`, "a password"
	sim.AddSMBShare(simnode.SMBShare{Server: "filer", Name: "data"})
	sim.AddSMBShare(simnode.SMBShare{Server: "filer", Name: "other"})
	sim.SetSMBUser("filer", "app", csiproxy.NewSecret(password))
	files := must[*filesystem.Filesystem](t)(filesystem.New(filesystemapi.New()))
	mappings := must[*smb.SMB](t)(smb.New(smbapi.New(), files))
	mapped := func(share string) bool {
		t.Helper()
		mapped := must[bool](t)(smbapi.New().IsSMBMapped(share))
		valid := must[*filesystem.PathValidResponse](t)(files.PathValid(ctx, &filesystem.PathValidRequest{Path: share})).Valid
		equal(t, "PathValid of "+share, valid, mapped)
		return mapped
	}
	equal(t, "a share is mapped before", mapped(share), false)
	_, err := mappings.NewSMBGlobalMapping(ctx, &smb.NewSMBGlobalMappingRequest{
		RemotePath: share, Username: "app", Password: "another"})
	is(t, err, csiproxy.ErrUnauthenticated)
	equal(t, "a refused share is mapped", mapped(share), false)

	for range 2 {
		must[*smb.NewSMBGlobalMappingResponse](t)(mappings.NewSMBGlobalMapping(ctx, &smb.NewSMBGlobalMappingRequest{
			RemotePath: share, LocalPath: staging, Username: "app", Password: password}))
	}
	equal(t, "the share is mapped", mapped(share), true)
	equal(t, "the other share is mapped", mapped(other), false)
	succeed(t, sim.WriteFile(staging+`\data`, []byte("kept")))
	data, err := sim.ReadFile(share + `\data`)
	equal(t, "what was written through the link", string(data), "kept")
	succeed(t, err)
	sim.SetSMBServer("filer", simnode.SMBServer{Unreachable: true})
	equal(t, "a share whose server is gone is mapped", mapped(share), false)
	sim.SetSMBServer("filer", simnode.SMBServer{})

	succeed(t, smbapi.New().NewSMBGlobalMapping(other, "app", password))
	equal(t, "the other share is mapped afterwards", mapped(other), true)
	is(t, smbapi.New().NewSMBLink(other, pods+`\link`), csiproxy.ErrUnimplemented)

	must[*filesystem.RmdirResponse](t)(files.Rmdir(ctx, &filesystem.RmdirRequest{Path: staging}))
	must[*smb.RemoveSMBGlobalMappingResponse](t)(mappings.RemoveSMBGlobalMapping(ctx,
		&smb.RemoveSMBGlobalMappingRequest{RemotePath: share}))
	equal(t, "the removed share is mapped", mapped(share), false)
	equal(t, "the other share is still mapped", mapped(other), true)
}

// driversSMB is a HostAPI of a driver's test.
type driversSMB struct {
	smbapi.HostAPI
	calls []string
}

func (d *driversSMB) NewSMBGlobalMapping(remotePath, username, password string) error {
	d.calls = append(d.calls, "map "+remotePath+" "+username+" "+password)
	return nil
}

func (d *driversSMB) NewSMBLink(remotePath, localPath string) error {
	d.calls = append(d.calls, "link "+remotePath+" "+localPath)
	return nil
}

func TestSharesOfAnotherHostAPI(t *testing.T) {
	for path, want := range map[string][]string{
		"": {`map \\s\d user secret`}, staging: {`map \\s\d user secret`, `link \\s\d ` + staging},
	} {
		calls := &driversSMB{}
		mappings := must[*smb.SMB](t)(smb.New(calls, nil))
		must[*smb.NewSMBGlobalMappingResponse](t)(mappings.NewSMBGlobalMapping(t.Context(), &smb.NewSMBGlobalMappingRequest{
			RemotePath: `\\s\d`, LocalPath: path, Username: "user", Password: "secret"}))
		if !slices.Equal(calls.calls, want) {
			t.Errorf("the calls are %q, want %q", calls.calls, want)
		}
	}
}

func TestISCSI(t *testing.T) {
	sim, ctx := start(t), t.Context()
	const iqn, mutual = "iqn.2001-04.com.example:a", "iqn.2001-04.com.example:b"
	const address, password, own = "192.0.2.1", "target's secret", "node's secret.."
	target := simnode.ISCSITarget{IQN: iqn, Portals: []csiproxy.ISCSIPortal{{Address: address, Port: 3260}},
		CHAPUser: "user", CHAPSecret: csiproxy.NewSecret(password), LUNs: []simnode.Disk{{SizeBytes: 1 << 30}, {SizeBytes: 2 << 30}}}
	sim.AddISCSITarget(target)
	target.IQN, target.MutualSecret, target.LUNs = mutual, csiproxy.NewSecret(own), []simnode.Disk{{SizeBytes: 3 << 30}}
	target.Portals = []csiproxy.ISCSIPortal{{Address: address, Port: 3261}}
	sim.AddISCSITarget(target)
	succeed(t, sim.Operations().System.StartService(ctx, "MSiSCSI"))
	initiator := must[*iscsi.ISCSI](t)(iscsi.New(iscsiapi.New()))
	portal, second := &iscsi.TargetPortal{TargetAddress: address}, &iscsi.TargetPortal{TargetAddress: address, TargetPort: 3261}

	portals := func() (addresses []string, ports []uint32) {
		t.Helper()
		for _, p := range must[*iscsi.ListTargetPortalsResponse](t)(
			initiator.ListTargetPortals(ctx, &iscsi.ListTargetPortalsRequest{})).TargetPortals {
			addresses, ports = append(addresses, p.TargetAddress), append(ports, p.TargetPort)
		}
		return addresses, ports
	}
	for _, p := range []*iscsi.TargetPortal{portal, second} {
		must[*iscsi.AddTargetPortalResponse](t)(initiator.AddTargetPortal(ctx, &iscsi.AddTargetPortalRequest{TargetPortal: p}))
	}
	addresses, ports := portals()
	if slices.Sort(ports); !slices.Equal(addresses, []string{address, address}) || !slices.Equal(ports, []uint32{3260, 3261}) {
		t.Errorf("the portals are %q, %d", addresses, ports)
	}
	found := must[*iscsi.DiscoverTargetPortalResponse](t)(initiator.DiscoverTargetPortal(ctx,
		&iscsi.DiscoverTargetPortalRequest{TargetPortal: portal}))
	if !slices.Equal(found.IQNs, []string{iqn}) {
		t.Errorf("the targets are %q", found.IQNs)
	}

	connect := func(p *iscsi.TargetPortal, iqn string, auth iscsi.AuthenticationType, user, password string) error {
		_, err := initiator.ConnectTarget(ctx, &iscsi.ConnectTargetRequest{TargetPortal: p, IQN: iqn, AuthType: auth,
			ChapUsername: user, ChapSecret: password})
		return err
	}
	disks := func(p *iscsi.TargetPortal, iqn string) []string {
		t.Helper()
		return must[*iscsi.GetTargetDisksResponse](t)(initiator.GetTargetDisks(ctx,
			&iscsi.GetTargetDisksRequest{TargetPortal: p, IQN: iqn})).DiskIDs
	}
	is(t, connect(portal, iqn, iscsi.NONE, "", ""), csiproxy.ErrUnauthenticated)
	is(t, connect(portal, iqn, iscsi.ONE_WAY_CHAP, "other", password), csiproxy.ErrUnauthenticated)
	is(t, connect(portal, iqn, iscsi.ONE_WAY_CHAP, "user", "another secret"), csiproxy.ErrUnauthenticated)
	if connect(portal, iqn, 3, "user", password) == nil {
		t.Error("there is an authentication type 3")
	}
	succeed(t, connect(portal, iqn, iscsi.ONE_WAY_CHAP, "user", password))
	if got := disks(portal, iqn); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("the target's disks are %q", got)
	}
	is(t, connect(second, mutual, iscsi.MUTUAL_CHAP, "user", password), csiproxy.ErrUnauthenticated)
	must[*iscsi.SetMutualChapSecretResponse](t)(initiator.SetMutualChapSecret(ctx,
		&iscsi.SetMutualChapSecretRequest{MutualChapSecret: own}))
	succeed(t, connect(second, mutual, iscsi.MUTUAL_CHAP, "user", password))
	if got := disks(second, mutual); !slices.Equal(got, []string{"3"}) {
		t.Errorf("the other target's disks are %q", got)
	}

	must[*iscsi.DisconnectTargetResponse](t)(initiator.DisconnectTarget(ctx,
		&iscsi.DisconnectTargetRequest{TargetPortal: portal, IQN: iqn}))
	equal(t, "the number of disks without a session", len(disks(portal, iqn)), 0)
	equal(t, "the number of disks of the other session", len(disks(second, mutual)), 1)
	must[*iscsi.RemoveTargetPortalResponse](t)(initiator.RemoveTargetPortal(ctx,
		&iscsi.RemoveTargetPortalRequest{TargetPortal: portal}))
	if _, ports = portals(); !slices.Equal(ports, []uint32{3261}) {
		t.Errorf("the ports are %d", ports)
	}

	_, err := initiator.AddTargetPortal(ctx, &iscsi.AddTargetPortalRequest{})
	is(t, err, csiproxy.ErrInvalidArgument)
	_, err = initiator.AddTargetPortal(ctx, &iscsi.AddTargetPortalRequest{
		TargetPortal: &iscsi.TargetPortal{TargetAddress: address, TargetPort: 65536 + 3260}})
	is(t, err, csiproxy.ErrInvalidArgument)
}

func TestSystem(t *testing.T) {
	sim, ctx := start(t), t.Context()
	machine := must[*system.System](t)(system.New(systemapi.New()))
	sim.SetBIOSSerial("VMware-42 0a")
	serial := must[*system.GetBIOSSerialNumberResponse](t)(machine.GetBIOSSerialNumber(ctx, &system.GetBIOSSerialNumberRequest{}))
	equal(t, "the machine's serial number", serial.SerialNumber, "VMware-42 0a")

	sim.AddService(simnode.Service{Name: "below", DisplayName: "the one below", Automatic: true, Running: true})
	sim.AddService(simnode.Service{Name: "above", DependsOn: []string{"below"}, Running: true})
	sim.AddService(simnode.Service{Name: "off", Disabled: true})
	check := func(name string, want system.GetServiceResponse) {
		t.Helper()
		equal(t, "service "+name, *must[*system.GetServiceResponse](t)(machine.GetService(ctx, &system.GetServiceRequest{Name: name})), want)
	}
	below := system.GetServiceResponse{DisplayName: "the one below", StartType: system.START_TYPE_AUTOMATIC, Status: system.SERVICE_STATUS_RUNNING}
	above := system.GetServiceResponse{DisplayName: "above", StartType: system.START_TYPE_MANUAL, Status: system.SERVICE_STATUS_RUNNING}
	check("below", below)
	check("above", above)
	check("off", system.GetServiceResponse{DisplayName: "off", StartType: system.START_TYPE_DISABLED, Status: system.SERVICE_STATUS_STOPPED})
	equal(t, "what the host side says", *must[*systemapi.ServiceInfo](t)(systemapi.New().GetService("below")),
		systemapi.ServiceInfo{DisplayName: "the one below", StartType: "Auto", Status: "Running"})

	_, err := machine.StopService(ctx, &system.StopServiceRequest{Name: "below"})
	is(t, err, csiproxy.ErrFailedPrecondition)
	check("below", below)
	must[*system.StopServiceResponse](t)(machine.StopService(ctx, &system.StopServiceRequest{Name: "below", Force: true}))
	below.Status, above.Status = system.SERVICE_STATUS_STOPPED, system.SERVICE_STATUS_STOPPED
	check("below", below)
	check("above", above)
	must[*system.StartServiceResponse](t)(machine.StartService(ctx, &system.StartServiceRequest{Name: "above"}))
	below.Status, above.Status = system.SERVICE_STATUS_RUNNING, system.SERVICE_STATUS_RUNNING
	check("below", below) // Windows starts it first
	check("above", above)
	_, err = machine.StartService(ctx, &system.StartServiceRequest{Name: "off"})
	is(t, err, csiproxy.ErrFailedPrecondition)
	_, err = machine.GetService(ctx, &system.GetServiceRequest{Name: "none"})
	is(t, err, csiproxy.ErrNotFound)
}
