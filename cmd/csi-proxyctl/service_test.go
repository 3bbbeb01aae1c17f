package main

import (
	"strings"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/host/deployment"
	"github.com/csi-proxy/csi-proxy/internal/host/winservice"
)

// oneService is a service manager that has one service, and no record of a change.
type oneService struct {
	deployment.Services
	status winservice.Status
}

func (s oneService) Query(string) (winservice.Status, error) { return s.status, nil }

func (oneService) Record(string) ([]byte, error) { return nil, nil }

// TestStatusOfWrappedService tests that the status of a service of nssm, as on AKS, tells which daemon nssm
// starts.
func TestStatusOfWrappedService(t *testing.T) {
	before := services
	t.Cleanup(func() { services = before })
	services = oneService{status: winservice.Status{Settings: winservice.Settings{
		CommandLine: `C:\k\nssm.exe`, Wrapped: `C:\k\csi-proxy.exe -v=4`,
	}}}
	deployer := &deployment.Deployer{Services: services}
	r, err := serviceStatusOf(deployer, "csi-proxy")
	if err != nil {
		t.Fatal(err)
	}
	if row := strings.Join(r.rows[0], "|"); !strings.HasSuffix(row, `|C:\k\csi-proxy.exe -v=4`) {
		t.Errorf("The row doesn't end with the daemon's command line: %s", row)
	}
}
