// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winservice

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/registry"
	"golang.org/x/sys/windows/svc/mgr"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// wrapped returns the command line that nssm or srvany starts for a service with this command line: both
// keep it in the service's parameters. It is empty if the service's own program is a CSI Proxy, since
// parameters of an earlier wrapper stay when the service gets another program.
func wrapped(name, commandLine string) (string, error) {
	program, _, err := Services{}.SplitCommandLine(commandLine)
	if err != nil || IsOurProgram(program) {
		return "", nil // or it has no program at all
	}
	program, err = parameter(name, "Application")
	if err != nil || program == "" {
		return "", err
	}
	arguments, err := parameter(name, "AppParameters")
	return strings.TrimSpace(windows.ComposeCommandLine([]string{program}) + " " + arguments), err
}

// parameter returns a text of a service's parameters, with variables expanded; empty if it isn't there.
func parameter(service, name string) (string, error) {
	key, err := registry.OpenKey(registry.LOCAL_MACHINE, servicesKey+service+`\Parameters`, registry.QUERY_VALUE)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer key.Close() // nothing depends on it
	text, kind, err := key.GetStringValue(name)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, registry.ErrUnexpectedType):
		return "", nil
	case err != nil || kind != registry.EXPAND_SZ:
		return text, err
	}
	return registry.ExpandString(text)
}

func queryRecovery(s *mgr.Service, settings *Settings) error {
	actions, err := s.RecoveryActions()
	if err != nil {
		return fmt.Errorf("query recovery actions: %w", err)
	}
	var r Recovery
	for _, a := range actions {
		r.Actions = append(r.Actions, RecoveryAction{a.Type, uint32(a.Delay.Milliseconds())})
	}
	if r.ResetSeconds, err = s.ResetPeriod(); err != nil {
		return fmt.Errorf("query reset period of failures: %w", err)
	}
	if r.Always, err = s.RecoveryActionsOnNonCrashFailures(); err != nil {
		return fmt.Errorf("query when recovery actions are taken: %w", err)
	}
	settings.Recovery = &r
	return nil
}

func setRecovery(s *mgr.Service, r Recovery) error {
	var actions []mgr.RecoveryAction
	for _, a := range r.Actions {
		actions = append(actions, mgr.RecoveryAction{Type: a.Type, Delay: time.Duration(a.Milliseconds) * time.Millisecond})
	}
	set := func() error { return s.SetRecoveryActions(actions, r.ResetSeconds) }
	if len(actions) == 0 {
		set = s.ResetRecoveryActions
	}
	return errors.Join(set(), s.SetRecoveryActionsOnNonCrashFailures(r.Always))
}

// The record is a value of the key that Windows gives a service for its parameters.
const (
	servicesKey = `SYSTEM\CurrentControlSet\Services\`
	recordValue = "BeforeCSIProxy"
)

// Record returns what SetRecord has stored with the service; nil if nothing is stored.
func (Services) Record(name string) (_ []byte, err error) {
	defer describe("ReadRecord", name, &err)
	if err := win.CheckServiceName(name); err != nil {
		return nil, err
	}
	text, err := parameter(name, recordValue)
	if err != nil || text == "" {
		return nil, err
	}
	return []byte(text), nil
}

// SetRecord stores a record with the service, in its key in the registry, which is
// removed with the service. Nil removes the record.
func (Services) SetRecord(name string, record []byte) (err error) {
	defer describe("WriteRecord", name, &err)
	if err := win.CheckServiceName(name); err != nil {
		return err
	}
	service, err := registry.OpenKey(registry.LOCAL_MACHINE, servicesKey+name, registry.CREATE_SUB_KEY)
	if err != nil {
		return err
	}
	defer service.Close() // nothing depends on it
	key, _, err := registry.CreateKey(service, "Parameters", registry.SET_VALUE)
	if err != nil {
		return err
	}
	defer key.Close() // values are stored when they are set
	if record == nil {
		if err := key.DeleteValue(recordValue); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	return key.SetStringValue(recordValue, string(record))
}

// adminsOnly lets SYSTEM and the Administrators in, and nobody else, also to what is made
// below, whatever the directory above says (P, protected). The Administrators own it.
//
// https://learn.microsoft.com/en-us/windows/win32/secauthz/security-descriptor-string-format
const adminsOnly = "O:BAD:P(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)"

// MakeDirectory makes a directory that only SYSTEM and the Administrators may use, and those above it. A
// directory that exists is left as it is.
func (Services) MakeDirectory(dir string) (err error) {
	defer func() {
		if err != nil {
			err = &csiproxy.Error{Op: "make directory", Object: dir, Err: err}
		}
	}()
	if !filepath.IsAbs(dir) {
		return invalid("it must be a full path")
	}
	if info, err := os.Stat(dir); err == nil {
		if !info.IsDir() {
			return invalid("it is a file")
		}
		return nil
	}
	// Those above are made as everywhere on the drive: other programs' may come there.
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	descriptor, err := windows.SecurityDescriptorFromString(adminsOnly)
	if err != nil {
		return err
	}
	path, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return invalid("%w", err)
	}
	attributes := windows.SecurityAttributes{SecurityDescriptor: descriptor}
	attributes.Length = uint32(unsafe.Sizeof(attributes))
	if err := windows.CreateDirectory(path, &attributes); err != nil && !errors.Is(err, windows.ERROR_ALREADY_EXISTS) {
		return err
	}
	return nil
}

// PrepareLogDirectory makes a missing log directory, as MakeDirectory does. The warning says who else can write to an existing
// directory; it is empty for a safe one. The daemon serves and logs in spite of a warning, since WMCO makes a directory to which all
// users can write.
func PrepareLogDirectory(dir string) (warning string) {
	if err := (Services{}).MakeDirectory(dir); err != nil {
		return err.Error()
	}
	names, err := Services{}.Writers(dir)
	switch {
	case err != nil:
		return err.Error()
	case len(names) > 0:
		return WritableText("the log", dir, names) + "; " + WritableAdvice(dir)
	}
	return ""
}

// mayWrite are the rights with which one can change what a directory has, or get the right to:
// add files and directories, remove what is in it (FILE_DELETE_CHILD), remove it, and change its
// access list or owner.
const mayWrite = windows.FILE_WRITE_DATA | windows.FILE_APPEND_DATA | 0x40 | windows.DELETE |
	windows.WRITE_DAC | windows.WRITE_OWNER | windows.GENERIC_WRITE | windows.GENERIC_ALL

// trustedInstaller is the account of Windows' own installer.
const trustedInstaller = "S-1-5-80-956008885-3418522649-1831038044-1853292631-2271478464"

// Writers implements deployment.Services: it returns who can write to a directory, beside SYSTEM,
// the Administrators, Windows' installer and the user who runs this. A directory that isn't there
// has no writers. Entries that deny don't count, so somebody may be named who can't.
func (Services) Writers(dir string) (names []string, err error) {
	descriptor, err := windows.GetNamedSecurityInfo(dir, windows.SE_FILE_OBJECT,
		windows.OWNER_SECURITY_INFORMATION|windows.DACL_SECURITY_INFORMATION)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the access list of %s: %w", dir, err)
	}
	sids, err := writers(descriptor)
	if err != nil {
		return nil, fmt.Errorf("access list of %s: %w", dir, err)
	}
	user, err := windows.GetCurrentProcessToken().GetTokenUser()
	if err != nil {
		return nil, err
	}
	for _, sid := range sids {
		if sid.Equals(user.User.Sid) {
			continue
		}
		name, domain, _, err := sid.LookupAccount("")
		switch {
		case err != nil: // nobody knows it any more
			name = sid.String()
		case domain != "":
			name = domain + `\` + name
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// writers returns the owner in a security descriptor and those whom its access list lets write, but
// for SYSTEM, the Administrators and Windows' installer.
func writers(descriptor *windows.SECURITY_DESCRIPTOR) (sids []*windows.SID, err error) {
	trusted := func(sid *windows.SID) bool {
		return sid.IsWellKnown(windows.WinLocalSystemSid) || sid.IsWellKnown(windows.WinBuiltinAdministratorsSid) ||
			sid.String() == trustedInstaller
	}
	owner, _, err := descriptor.Owner()
	if err != nil {
		return nil, err
	}
	if owner != nil && !trusted(owner) {
		sids = append(sids, owner)
	}
	list, _, err := descriptor.DACL()
	if errors.Is(err, windows.ERROR_OBJECT_NOT_FOUND) || err == nil && list == nil {
		everybody, err := windows.CreateWellKnownSid(windows.WinWorldSid)
		return append(sids, everybody), err
	}
	if err != nil {
		return nil, err
	}
	for i := range uint32(list.AceCount) {
		var entry *windows.ACCESS_ALLOWED_ACE
		if err := windows.GetAce(list, i, &entry); err != nil {
			return nil, err
		}
		// CREATOR OWNER and the like are for what is made below, by who may.
		if entry.Header.AceType != windows.ACCESS_ALLOWED_ACE_TYPE || entry.Header.AceFlags&windows.INHERIT_ONLY_ACE != 0 ||
			entry.Mask&mayWrite == 0 {
			continue
		}
		if sid := (*windows.SID)(unsafe.Pointer(&entry.SidStart)); !trusted(sid) {
			sid, err := sid.Copy()
			if err != nil {
				return nil, err
			}
			sids = append(sids, sid)
		}
	}
	return sids, nil
}

// SplitCommandLine returns the program and the arguments of a command line. A program without a drive
// is on that of Windows.
func (Services) SplitCommandLine(commandLine string) (program string, args []string, err error) {
	args, err = windows.DecomposeCommandLine(commandLine)
	if err == nil && len(args) == 0 {
		err = errors.New("the command line is empty")
	}
	if err != nil {
		return "", nil, invalid("command line %s: %w", commandLine, err)
	}
	return OnSystemDrive(args[0]), args[1:], nil
}

// Lock keeps others from changing services of CSI Proxy until unlock is called or the
// process ends. If another process has the lock, the error is csiproxy.ErrUnavailable.
//
// It opens a file without sharing, which Windows closes when the process ends. The file
// stays: removing it could take it away from the next process.
func Lock() (unlock func() error, err error) {
	directory, err := windows.GetSystemWindowsDirectory()
	if err != nil {
		return nil, err
	}
	file := directory + `\csi-proxy-service.lock`
	path, err := windows.UTF16PtrFromString(file)
	if err != nil {
		return nil, err
	}
	handle, err := windows.CreateFile(path, windows.GENERIC_READ|windows.GENERIC_WRITE, 0, nil, windows.OPEN_ALWAYS,
		windows.FILE_ATTRIBUTE_NORMAL|windows.FILE_FLAG_OPEN_REPARSE_POINT, 0)
	switch {
	case errors.Is(err, windows.ERROR_SHARING_VIOLATION):
		return nil, &csiproxy.Error{Op: "change services", Kind: csiproxy.ErrUnavailable,
			Detail: "another csi-proxyctl service command is under way; wait until it has ended", Err: err}
	case errors.Is(err, windows.ERROR_ACCESS_DENIED):
		return nil, &csiproxy.Error{Op: "change services", Kind: csiproxy.ErrPermissionDenied,
			Detail: "run csi-proxyctl as an administrator", Err: err}
	case err != nil:
		return nil, fmt.Errorf("lock %s: %w", file, err)
	}
	return func() error { return windows.CloseHandle(handle) }, nil
}

// OnSystemDrive takes a path without a drive against the drive of Windows, where the services'
// working directory is.
func OnSystemDrive(path string) string {
	windowsDirectory, err := windows.GetSystemWindowsDirectory()
	if err != nil || len(windowsDirectory) < 2 {
		return path
	}
	return onDrive(windowsDirectory[:2], path)
}
