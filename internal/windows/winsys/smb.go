// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/csi-proxy/csi-proxy/internal/windows/winsys/wmi"
)

// The global mappings are objects of MSFT_SmbGlobalMapping. Microsoft documents the related class
// MSFT_SmbMapping, and the commands of PowerShell that call it.
//
// Source: https://learn.microsoft.com/previous-versions/windows/desktop/smb/msft-smbmapping
// and https://learn.microsoft.com/powershell/module/smbshare/new-smbglobalmapping
const (
	smbNamespace = `root\Microsoft\Windows\SMB`
	smbClass     = "MSFT_SmbGlobalMapping"
	// smbQuery selects all properties, because an object without its keys has no path.
	smbQuery = "SELECT * FROM " + smbClass

	smbConnectionQuery = "SELECT * FROM MSFT_SmbConnection"
)

func listSMBConnections(ctx context.Context, c classes) (connections []win.SMBConnection, err error) {
	err = c.find(ctx, smbConnectionQuery, func(o object) (err error) {
		var found win.SMBConnection
		for property, value := range map[string]*string{
			"ServerName": &found.Server, "ShareName": &found.Share, "UserName": &found.UserName, "Credential": &found.Credential,
		} {
			if *value, err = o.String(property); err != nil {
				return err
			}
		}
		opens, err := o.Get("NumOpens")
		if err == nil && opens != nil { // NULL is none
			found.Opens, err = o.Uint64("NumOpens")
		}
		if err != nil {
			return err
		}
		connections = append(connections, found)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return connections, nil
}

func listSMBMappings(ctx context.Context, c classes) (mappings []win.SMBMapping, err error) {
	err = c.find(ctx, smbQuery, func(o object) error {
		mapping, err := smbMapping(o)
		mappings = append(mappings, mapping)
		return err
	})
	if err != nil {
		return nil, err
	}
	return mappings, nil
}

// smbMapping reads a mapping from its object. A missing drive letter is empty or NULL.
//
// Source: https://github.com/microsoft/wmi, server2019/root/microsoft/windows/smb/MSFT_SmbGlobalMapping.go
func smbMapping(o object) (m win.SMBMapping, err error) {
	if m.LocalPath, err = o.String("LocalPath"); err != nil {
		return m, err
	}
	if m.RemotePath, err = o.String("RemotePath"); err != nil {
		return m, err
	}
	private, err := o.Get("RequirePrivacy")
	if err != nil {
		return m, err
	}
	m.RequirePrivacy, _ = private.(bool) // NULL is false
	m.Status = win.SMBMappingUnknown
	status, err := o.Get("Status")
	if err != nil || status == nil {
		return m, err
	}
	known, err := o.Uint32("Status")
	m.Status = win.SMBMappingStatus(known)
	return m, err
}

// createSMBMapping omits LocalPath and Persistent. With an empty user name, Windows uses the node's
// own account, as in the published daemon.
func createSMBMapping(c classes, remotePath string, o win.SMBMappingOptions) error {
	in := map[string]any{"RemotePath": remotePath, "RequirePrivacy": o.RequirePrivacy}
	if o.Username != "" {
		credential, err := smbCredential(o)
		if err != nil {
			return err
		}
		defer clear(credential)
		in["Credential"] = credential
	}
	result, err := execute(c, smbClass, smbClass, "Create", in)
	if err != nil {
		return err
	}
	return smbResult("Create", result)
}

// smbCredential returns user name and password in the form of PowerShell's New-SmbGlobalMapping for
// a PSCredential: joined by a colon, with a backslash before each backslash and colon of the user
// name. The password isn't escaped. The caller must clear the text.
//
// Source: cimConverter.cs of PowerShell, which the published daemon follows too
func smbCredential(o win.SMBMappingOptions) (wmi.Secret, error) {
	password := o.Password.Reveal()
	for _, text := range []string{o.Username, password} {
		if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
			return nil, fmt.Errorf("a credential that isn't text: %w", winerr.ErrorInvalidParameter)
		}
	}
	// The full capacity is allocated at the start: growing would leave a copy behind.
	credential := make(wmi.Secret, 0, 2*len(o.Username)+1+len(password))
	for _, r := range o.Username {
		if r == '\\' || r == ':' {
			credential = append(credential, '\\')
		}
		credential = utf16.AppendRune(credential, r)
	}
	credential = append(credential, ':')
	for _, r := range password {
		credential = utf16.AppendRune(credential, r)
	}
	return credential, nil
}

// removeSMBMapping removes the mapping with a name, by the path of its object.
func removeSMBMapping(ctx context.Context, c classes, name string) error {
	var paths []string
	err := c.find(ctx, smbQuery, func(o object) error {
		mapping, err := smbMapping(o)
		if err != nil || !strings.EqualFold(mapping.Name(), name) {
			return err
		}
		path, err := o.String("__PATH")
		if err != nil {
			return err
		}
		if path == "" {
			return fmt.Errorf("%s: an object without path: %w", smbClass, winerr.ErrorGenFailure)
		}
		paths = append(paths, path)
		return nil
	})
	if err != nil {
		return err
	}
	if len(paths) == 0 {
		return winerr.ErrorNotConnected
	}
	for _, path := range paths {
		result, err := execute(c, smbClass, path, "Remove", map[string]any{"Force": true})
		if err != nil {
			return err
		}
		if err := smbResult("Remove", result); err != nil {
			return err
		}
	}
	return nil
}

// smbResult turns a method's result into an error. Results of this class are undocumented; so far,
// errors were seen only as errors of the call, with Windows error numbers. Therefore a result is
// taken as a Windows error number or an HRESULT.
func smbResult(method string, result uint32) error {
	switch {
	case result == 0:
		return nil
	case int32(result) < 0:
		return fmt.Errorf("%s.%s: result: %w", smbClass, method, wmi.HRESULT(result))
	}
	return fmt.Errorf("%s.%s: result: %w", smbClass, method, winerr.Errno(result))
}
