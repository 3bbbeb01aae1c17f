// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package windows

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// shellPatience bounds a command of PowerShell, with its start.
const shellPatience = 2 * time.Minute

// shellScript is what PowerShell runs. The command comes by the environment, so that secrets in it
// never get to a command line, and the answer is base64, whatever the console's code page is. The
// answer to a command that fails leaves out where it failed, which would quote the command.
const shellScript = `
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'
$WarningPreference = 'SilentlyContinue'
$answer = @{ error = ''; output = '' }
try {
  $command = [ScriptBlock]::Create($env:CSI_PROXY_TEST_COMMAND)
  $answer.output = [string](ConvertTo-Json -Compress -InputObject @(& $command))
} catch {
  $answer.error = [string]($_.FullyQualifiedErrorId + ': ' + $_.Exception.Message)
}
$json = [System.Text.Encoding]::UTF8.GetBytes((ConvertTo-Json -Compress -InputObject $answer))
[System.Console]::Out.Write([System.Convert]::ToBase64String($json))`

// runPowershell runs a command and returns the list of what comes out, in JSON.
func runPowershell(command string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), shellPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "powershell.exe", "-NoProfile", "-NonInteractive", "-Command", shellScript)
	cmd.Env = append(os.Environ(), "CSI_PROXY_TEST_COMMAND="+command)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, &stderr)
	}
	text, err := base64.StdEncoding.DecodeString(string(out))
	if err != nil {
		return nil, fmt.Errorf("it printed %q: %w", out, err)
	}
	var answer struct{ Error, Output string }
	if err := json.Unmarshal(text, &answer); err != nil {
		return nil, err
	}
	if answer.Error != "" {
		return nil, errors.New(strings.TrimSpace(answer.Error))
	}
	return []byte(answer.Output), nil
}

// powershell runs a pipeline and decodes the list of what comes out into v. With nil
// for v, it only has to succeed.
func powershell(t testing.TB, v any, format string, args ...any) {
	t.Helper()
	must(t, tryPowershell(v, format, args...))
}

// cleanUp runs a pipeline at the end of the test. That it fails doesn't keep what else
// there is to clean up.
func cleanUp(t testing.TB, format string, args ...any) {
	t.Helper()
	t.Cleanup(func() {
		if err := tryPowershell(nil, format, args...); err != nil {
			t.Error(err)
		}
	})
}

// tryPowershell is powershell with an error. A secret of the command isn't in it.
func tryPowershell(v any, format string, args ...any) error {
	pipeline := fmt.Sprintf(format, args...)
	if v == nil {
		pipeline = "& { " + pipeline + " } | Out-Null"
	}
	output, err := runPowershell(pipeline)
	if err != nil {
		return fmt.Errorf("PowerShell: %s: %w", masked(pipeline), err)
	}
	if v == nil {
		return nil
	}
	if err := json.Unmarshal(output, v); err != nil {
		return fmt.Errorf("PowerShell: %s printed %q: %w", masked(pipeline), output, err)
	}
	return nil
}

// masked is a command without what follows the first secret in it.
func masked(command string) string {
	for _, mark := range []string{passwordMark, strings.ReplaceAll(passwordMark, "'", "''"), secretMark} {
		if at := strings.Index(command, mark); at >= 0 {
			command = command[:at] + "…"
		}
	}
	return command
}
