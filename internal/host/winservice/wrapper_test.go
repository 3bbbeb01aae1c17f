// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winservice

import (
	"errors"
	"strings"
	"testing"
)

func TestWrapper(t *testing.T) {
	for name, tt := range map[string]struct {
		program    string
		parameters map[string]string
		files      map[string]string
		want       string
	}{
		"the daemon": {program: `C:\k\csi-proxy.exe`},
		"nssm": {program: `C:\k\nssm.exe`, parameters: map[string]string{"Application": `C:\k\csi-proxy.exe`},
			want: `C:\k\csi-proxy.exe`},
		"nssm with arguments": {program: `C:\Program`, // of an unquoted path
			parameters: map[string]string{"Application": `C:\k\csi-proxy.exe`, "AppParameters": `-v=2 "-log_dir=C:\a b"`},
			want:       `C:\k\csi-proxy.exe -v=2 "-log_dir=C:\a b"`},
		"srvany": {program: `C:\srvany.exe`, parameters: map[string]string{"Application": `C:\kubelet.exe`},
			want: `C:\kubelet.exe`},
		"the daemon after nssm": {program: `C:\csi-proxy\csi-proxy.exe`,
			parameters: map[string]string{"Application": `C:\k\csi-proxy.exe`}},
		"WinSW": {program: `C:\k\csi-proxy-service.exe`, files: map[string]string{`C:\k\csi-proxy-service.xml`: `<service>
			<id>csi-proxy</id><executable>%BASE%\csi-proxy.exe</executable>
			<arguments> -v=2 -kubelet-path %KUBELET%</arguments></service>`},
			want: `C:\k\csi-proxy.exe -v=2 -kubelet-path C:\kubelet`},
		"WinSW with a list": {program: `C:\k\winsw.exe`, files: map[string]string{`C:\k\winsw.xml`: `<service>
			<executable>C:\csi-proxy.exe</executable><startargument>-v=2</startargument><argument>-x</argument></service>`},
			want: `C:\csi-proxy.exe -v=2 -x`},
		"WinSW of another program": {program: `C:\k\winsw.exe`, files: map[string]string{`C:\k\winsw.xml`: `<service>
			<executable>C:\kubelet.exe</executable></service>`}},
		"another file": {program: `C:\k\csi-proxy.exe`, files: map[string]string{`C:\k\csi-proxy.xml`: `<a/>`}},
		"no XML":       {program: `C:\k\csi-proxy.exe`, files: map[string]string{`C:\k\csi-proxy.xml`: `{`}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := wrapper{
				program:   tt.program,
				parameter: func(name string) (string, error) { return tt.parameters[name], nil },
				file: func(path string) ([]byte, error) {
					if content, ok := tt.files[path]; ok {
						return []byte(content), nil
					}
					return nil, nil
				},
				expand: func(text string) (string, error) { return strings.ReplaceAll(text, "%KUBELET%", `C:\kubelet`), nil },
				line:   func(args []string) string { return strings.Join(args, " ") },
			}.commandLine()
			if got != tt.want || err != nil {
				t.Errorf("%q, %v; want %q", got, err, tt.want)
			}
		})
	}
	denied := errors.New("denied")
	w := wrapper{program: `C:\nssm.exe`, file: func(string) ([]byte, error) { return nil, nil },
		parameter: func(string) (string, error) { return "", denied }}
	if _, err := w.commandLine(); !errors.Is(err, denied) {
		t.Errorf("%v", err)
	}
}

func TestOnDrive(t *testing.T) {
	for path, want := range map[string]string{
		`\etc\kubernetes\logs\csi-proxy.log`: `C:\etc\kubernetes\logs\csi-proxy.log`,
		`/etc/csi-proxy.log`:                 `C:/etc/csi-proxy.log`,
		`D:\log`:                             `D:\log`,
		`\\server\share\log`:                 `\\server\share\log`,
		`csi-proxy.log`:                      `csi-proxy.log`,
		"":                                   "",
	} {
		if got := onDrive("C:", path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}
