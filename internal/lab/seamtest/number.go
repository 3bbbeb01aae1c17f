// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package seamtest

import (
	"strings"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/win"
)

var numberRows = []row{
	{
		method: "Registry.RegistryNumber", name: "of none",
		promise: "REG_DWORD. Errors: 2 no such key or value",
		test: func(t *testing.T, f *Fixture) {
			for _, key := range []string{`SYSTEM\csi-proxy-none`, win.RegistrySetup} {
				wantErrno(t, key, errorOf(f.System.RegistryNumber(t.Context(), key, "csi-proxy-none")), win.ErrorFileNotFound)
			}
		},
	},
	{
		method: "Registry.RegistryNumber", name: "in any case", needs: []need{aNumber},
		promise: "RegistryNumber is RegGetValueW for a value below HKEY_LOCAL_MACHINE",
		test: func(t *testing.T, f *Fixture) {
			key, value := f.NumberValue[0], f.NumberValue[1]
			want, err := f.System.RegistryNumber(t.Context(), key, value)
			if err != nil || want == 0 {
				t.Errorf("%d, %v", want, err)
			}
			got, err := f.System.RegistryNumber(t.Context(), strings.ToLower(key), strings.ToUpper(value))
			if err != nil || got != want {
				t.Errorf("in another case %d, %v", got, err)
			}
		},
	},
	{
		method: "Registry.RegistryNumber", name: "of strings", needs: []need{aValue},
		promise: "1630 a value of another type",
		test: func(t *testing.T, f *Fixture) {
			_, err := f.System.RegistryNumber(t.Context(), f.StringsValue[0], f.StringsValue[1])
			wantErrno(t, "strings", err, win.ErrorUnsupportedType)
		},
	},
	{
		method: "Registry.RegistryStrings", name: "of a number", needs: []need{aNumber},
		promise: "1630 a value of another type",
		test: func(t *testing.T, f *Fixture) {
			_, err := f.System.RegistryStrings(t.Context(), f.NumberValue[0], f.NumberValue[1])
			wantErrno(t, "a number", err, win.ErrorUnsupportedType)
		},
	},
}
