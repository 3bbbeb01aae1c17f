// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package privilege

import "golang.org/x/sys/windows"

// Enable enables a privilege that the token of this process has.
func Enable(name string) error {
	var token windows.Token
	if err := windows.OpenProcessToken(windows.CurrentProcess(), windows.TOKEN_QUERY|windows.TOKEN_ADJUST_PRIVILEGES,
		&token); err != nil {
		return err
	}
	defer token.Close()
	name16, err := windows.UTF16PtrFromString(name)
	if err != nil {
		return err
	}
	privileges := windows.Tokenprivileges{PrivilegeCount: 1}
	privileges.Privileges[0].Attributes = windows.SE_PRIVILEGE_ENABLED
	if err := windows.LookupPrivilegeValue(nil, name16, &privileges.Privileges[0].Luid); err != nil {
		return err
	}
	return windows.AdjustTokenPrivileges(token, false, &privileges, 0, nil, nil)
}
