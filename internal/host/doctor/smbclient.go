// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// checkSMBClient looks at the services and settings without which no share is mapped, or no volume formatted.
func checkSMBClient(ctx context.Context, n *asked) (string, []Finding, error) {
	if n.Windows == nil {
		return "", nil, n.needsWindows()
	}
	var faults []Finding
	for _, needed := range []struct {
		name, purpose string
		mustRun       bool // else Windows starts it when it is needed
	}{
		{"LanmanWorkstation", "no share can be mapped", true},
		{"Winmgmt", "no share can be mapped, and no volume formatted", true},
		{"smphost", "no volume can be formatted", false},
	} {
		service, err := n.Windows.QueryService(ctx, needed.name)
		switch {
		case errors.Is(err, winerr.ErrorServiceDoesNotExist) && !needed.mustRun:
		case err != nil:
			return "", faults, fmt.Errorf("query service %s: %w", needed.name, err)
		case service.StartType == win.ServiceDisabled:
			faults = append(faults, problem("Set-Service "+needed.name+" -StartupType Manual, then Start-Service "+needed.name,
				"the service %s is disabled: %s", needed.name, needed.purpose))
		case needed.mustRun && service.State != win.ServiceRunning:
			faults = append(faults, problem("Start-Service "+needed.name, "the service %s doesn't run: %s", needed.name,
				needed.purpose))
		}
	}
	settings := make(map[string]uint32)
	for value, keys := range map[string][]string{
		win.RegistryRequireSigning: {win.RegistrySMBClient},
		win.RegistryAllowGuests:    {win.RegistrySMBClient, win.RegistrySMBClientPolicy},
		win.RegistryBlockNTLM:      {win.RegistrySMBClientPolicy},
	} {
		for _, key := range keys {
			set, err := number(ctx, n, key, value)
			if err != nil {
				return "", faults, err
			}
			settings[value] = max(settings[value], set)
		}
	}
	if settings[win.RegistryBlockNTLM] != 0 {
		faults = append(faults, warning("name SMB servers by the names that their domain knows, not by addresses, and give no local "+
			"users of servers", "a group policy blocks NTLM, so servers outside of the node's domain refuse every user"))
	}
	return fmt.Sprintf("the services for shares and formats can run (signing set as required: %t; guests allowed: %t)",
		settings[win.RegistryRequireSigning] != 0, settings[win.RegistryAllowGuests] != 0), faults, nil
}
