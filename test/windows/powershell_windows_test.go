// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package windows

import (
	"bufio"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/Microsoft/go-winio"
)

// shellPatience bounds a command of PowerShell, and its start.
const shellPatience = 2 * time.Minute

// shellLoop is what PowerShell runs: it connects to a pipe, reads commands from it, each
// a line of base64, and answers each with a line of JSON. A pipe of its own, since
// programs that a command starts would share PowerShell's standard input and output.
// So secrets in commands never get to a command line. The answer to a command that
// fails leaves out where it failed, which would quote the command.
const shellLoop = `
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'
$WarningPreference = 'SilentlyContinue'
$pipe = New-Object System.IO.Pipes.NamedPipeClientStream('.', '%s', [System.IO.Pipes.PipeDirection]::InOut)
$pipe.Connect(60000)
$reader = New-Object System.IO.StreamReader($pipe)
$writer = New-Object System.IO.StreamWriter($pipe)
$writer.AutoFlush = $true
while ($null -ne ($line = $reader.ReadLine())) {
  $answer = @{ error = ''; output = '' }
  try {
    $command = [System.Text.Encoding]::UTF8.GetString([System.Convert]::FromBase64String($line))
    $answer.output = [string](ConvertTo-Json -Compress -InputObject @(& ([ScriptBlock]::Create($command))))
  } catch {
    $answer.error = [string]($_.FullyQualifiedErrorId + ': ' + $_.Exception.Message)
  }
  $writer.WriteLine((ConvertTo-Json -Compress -InputObject $answer))
}`

// shell is one PowerShell for all tests: starting one takes seconds.
var shell struct {
	sync.Mutex
	conn   net.Conn // nil until it is needed, and after it has failed
	lines  *bufio.Reader
	cmd    *exec.Cmd
	starts int
}

// startShell starts PowerShell, which connects to a pipe that is made for it.
func startShell() error {
	shell.starts++
	name := fmt.Sprintf("csi-proxy-wintest-%d-%d", os.Getpid(), shell.starts)
	l, err := winio.ListenPipe(`\\.\pipe\`+name, nil)
	if err != nil {
		return err
	}
	defer l.Close()
	cmd := exec.Command("powershell.exe", "-NoProfile", "-NonInteractive", "-EncodedCommand",
		encodedCommand(fmt.Sprintf(shellLoop, name)))
	var output strings.Builder
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	accepted := make(chan net.Conn, 1)
	go func() {
		if conn, err := l.Accept(); err == nil {
			accepted <- conn
		}
	}()
	select {
	case conn := <-accepted:
		shell.conn, shell.lines, shell.cmd = conn, bufio.NewReader(conn), cmd
		return nil
	case err := <-ended:
		return fmt.Errorf("PowerShell ended: %v: %s", err, &output)
	case <-time.After(shellPatience):
		return errors.Join(errors.New("PowerShell doesn't connect"), cmd.Process.Kill())
	}
}

// stopShell ends PowerShell. A command that hangs dies with it.
func stopShell() {
	if shell.conn == nil {
		return
	}
	shell.conn.Close() // the loop ends
	shell.cmd.Process.Kill()
	shell.conn = nil
}

// encodedCommand is a script as powershell.exe takes it.
func encodedCommand(script string) string {
	var b []byte
	for _, u := range utf16.Encode([]rune(script)) {
		b = binary.LittleEndian.AppendUint16(b, u)
	}
	return base64.StdEncoding.EncodeToString(b)
}

// runPowershell runs a command and returns the list of what comes out, in JSON.
func runPowershell(command string) ([]byte, error) {
	shell.Lock()
	defer shell.Unlock()
	if shell.conn == nil {
		if err := startShell(); err != nil {
			return nil, err
		}
	}
	output, err := ask(command)
	if refused := *new(*shellError); err != nil && !errors.As(err, &refused) {
		stopShell() // the next command gets another one
	}
	return output, err
}

// shellError is what PowerShell says of a command that failed.
type shellError struct{ text string }

func (e *shellError) Error() string { return strings.TrimSpace(e.text) }

func ask(command string) ([]byte, error) {
	if err := shell.conn.SetDeadline(time.Now().Add(shellPatience)); err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintln(shell.conn, base64.StdEncoding.EncodeToString([]byte(command))); err != nil {
		return nil, err
	}
	line, err := shell.lines.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	var answer struct{ Error, Output string }
	if err := json.Unmarshal(line, &answer); err != nil {
		return nil, err
	}
	if answer.Error != "" {
		return nil, &shellError{answer.Error}
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
