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
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/registry"
	"golang.org/x/sys/windows/svc/mgr"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/winname"
)

// Settings returns the settings of a service. If it doesn't exist, the error is
// csiproxy.ErrNotFound.
func (Services) Settings(name string) (_ Settings, err error) {
	defer describe("QuerySettings", name, &err)
	s, err := open(name, windows.SERVICE_QUERY_CONFIG)
	if err != nil {
		return Settings{}, err
	}
	defer s.Close() // nothing depends on it
	config, err := queryConfig(s)
	if err != nil {
		return Settings{}, err
	}
	settings := Settings{CommandLine: config.BinaryPathName, DisplayName: config.DisplayName,
		Start: StartType(config.StartType)}
	if settings.Description, err = queryDescription(s); err != nil {
		return Settings{}, err
	}
	if settings.Wrapped, err = wrapped(name, settings.CommandLine); err != nil {
		return Settings{}, err
	}
	for _, query := range []func(*mgr.Service, *Settings) error{queryDelayedStart, queryRecovery, queryPreshutdown,
		queryPrivileges} {
		if err := query(s, &settings); err != nil && !errors.Is(err, windows.ERROR_INVALID_LEVEL) {
			return Settings{}, err
		}
	}
	return settings, nil
}

// config2 is a buffer for an answer of QueryServiceConfig2, which is at most 8 KiB,
// aligned for pointers.
type config2 [8 << 10 / 8]uint64

func (b *config2) query(s *mgr.Service, level uint32) error {
	var needed uint32
	if err := windows.QueryServiceConfig2(s.Handle, level, (*byte)(unsafe.Pointer(b)), uint32(unsafe.Sizeof(*b)),
		&needed); err != nil {
		return fmt.Errorf("query service configuration %d: %w", level, err)
	}
	return nil
}

func queryDescription(s *mgr.Service) (string, error) {
	var b config2
	if err := b.query(s, windows.SERVICE_CONFIG_DESCRIPTION); err != nil {
		return "", err
	}
	return windows.UTF16PtrToString((*windows.SERVICE_DESCRIPTION)(unsafe.Pointer(&b)).Description), nil
}

func queryDelayedStart(s *mgr.Service, settings *Settings) error {
	var b config2
	if err := b.query(s, windows.SERVICE_CONFIG_DELAYED_AUTO_START_INFO); err != nil {
		return err
	}
	delayed := (*windows.SERVICE_DELAYED_AUTO_START_INFO)(unsafe.Pointer(&b)).IsDelayedAutoStartUp != 0
	settings.DelayedStart = &delayed
	return nil
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

func queryPreshutdown(s *mgr.Service, settings *Settings) error {
	wait, err := preshutdown(s)
	if err != nil {
		return err
	}
	milliseconds := uint32(wait.Milliseconds())
	settings.StopMilliseconds = &milliseconds
	return nil
}

func queryPrivileges(s *mgr.Service, settings *Settings) error {
	var b config2
	if err := b.query(s, windows.SERVICE_CONFIG_REQUIRED_PRIVILEGES_INFO); err != nil {
		return err
	}
	list := *(**uint16)(unsafe.Pointer(&b)) // SERVICE_REQUIRED_PRIVILEGES_INFO
	for list != nil && *list != 0 {
		privilege := windows.UTF16PtrToString(list)
		settings.Privileges = append(settings.Privileges, privilege)
		list = (*uint16)(unsafe.Add(unsafe.Pointer(list), 2*(len(privilege)+1)))
	}
	return nil
}

// Restore gives an existing service settings that Settings returned earlier.
func (Services) Restore(name string, settings Settings) (err error) {
	defer describe("RestoreService", name, &err)
	s, err := open(name, installRights)
	if err != nil {
		return err
	}
	defer s.Close() // what is done is done
	if err := checkOurs(s); err != nil {
		return err
	}
	line, err1 := windows.UTF16PtrFromString(settings.CommandLine)
	display, err2 := windows.UTF16PtrFromString(settings.DisplayName)
	if err := errors.Join(err1, err2); err != nil {
		return invalid("text of the service: %w", err)
	}
	if err := windows.ChangeServiceConfig(s.Handle, windows.SERVICE_NO_CHANGE, uint32(settings.Start),
		windows.SERVICE_NO_CHANGE,
		line, nil, nil, nil, nil, nil, display); err != nil {
		return fmt.Errorf("change service: %w", err)
	}
	if err := setDescription(s, settings.Description); err != nil {
		return err
	}
	changes := []func() error{func() error { return setPrivileges(s, settings.Privileges) }}
	if settings.DelayedStart != nil { // Windows ignores it in a service that doesn't start by itself
		changes = append(changes, func() error { return setDelayedStart(s, *settings.DelayedStart) })
	}
	if settings.Recovery != nil {
		changes = append(changes, func() error { return setRecovery(s, *settings.Recovery) })
	}
	if settings.StopMilliseconds != nil {
		wait := time.Duration(*settings.StopMilliseconds) * time.Millisecond
		changes = append(changes, func() error { return setPreshutdown(s, wait) })
	}
	for _, change := range changes {
		if err := change(); err != nil && !errors.Is(err, windows.ERROR_INVALID_LEVEL) {
			return err
		}
	}
	return nil
}

func setDescription(s *mgr.Service, text string) error {
	description, err := windows.UTF16PtrFromString(text)
	if err != nil {
		return invalid("description: %w", err)
	}
	if err := windows.ChangeServiceConfig2(s.Handle, windows.SERVICE_CONFIG_DESCRIPTION,
		(*byte)(unsafe.Pointer(&windows.SERVICE_DESCRIPTION{Description: description}))); err != nil {
		return fmt.Errorf("set description: %w", err)
	}
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

// https://learn.microsoft.com/en-us/windows/win32/api/winsvc/ns-winsvc-service_delayed_auto_start_info
func setDelayedStart(s *mgr.Service, delayed bool) error {
	var info windows.SERVICE_DELAYED_AUTO_START_INFO
	if delayed {
		info.IsDelayedAutoStartUp = 1
	}
	return windows.ChangeServiceConfig2(s.Handle, windows.SERVICE_CONFIG_DELAYED_AUTO_START_INFO,
		(*byte)(unsafe.Pointer(&info)))
}

// setPrivileges limits the service to privileges; none for no limit. They apply from the
// next start.
//
// https://learn.microsoft.com/en-us/windows/win32/api/winsvc/ns-winsvc-service_required_privileges_infow
func setPrivileges(s *mgr.Service, privileges []string) error {
	var current Settings
	if err := queryPrivileges(s, &current); err != nil {
		return err
	}
	if slices.Equal(current.Privileges, privileges) {
		return nil // an empty list is written only to remove one
	}
	list, err := multiString(privileges)
	if err != nil {
		return invalid("privileges: %w", err)
	}
	info := &list[0] // SERVICE_REQUIRED_PRIVILEGES_INFO
	return windows.ChangeServiceConfig2(s.Handle, windows.SERVICE_CONFIG_REQUIRED_PRIVILEGES_INFO,
		(*byte)(unsafe.Pointer(&info)))
}

// multiString returns the texts, each with a NUL behind it, and another NUL at the end.
// Without texts there are two NULs.
func multiString(texts []string) ([]uint16, error) {
	if len(texts) == 0 {
		return []uint16{0, 0}, nil
	}
	var list []uint16
	for _, text := range texts {
		text16, err := windows.UTF16FromString(text)
		if err != nil {
			return nil, err
		}
		list = append(list, text16...)
	}
	return append(list, 0), nil
}

// The record is a value of the key that Windows gives a service for its parameters.
const (
	servicesKey = `SYSTEM\CurrentControlSet\Services\`
	recordValue = "BeforeCSIProxy"
)

// Record returns what SetRecord has stored with the service; nil if nothing is stored.
func (Services) Record(name string) (_ []byte, err error) {
	defer describe("ReadRecord", name, &err)
	if err := winname.CheckService(name); err != nil {
		return nil, err
	}
	key, err := registry.OpenKey(registry.LOCAL_MACHINE, servicesKey+name+`\Parameters`, registry.QUERY_VALUE)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer key.Close() // nothing depends on it
	text, _, err := key.GetStringValue(recordValue)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return []byte(text), nil
}

// SetRecord stores a record with the service, in its key in the registry, which is
// removed with the service. Nil removes the record.
func (Services) SetRecord(name string, record []byte) (err error) {
	defer describe("WriteRecord", name, &err)
	if err := winname.CheckService(name); err != nil {
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

// MakeLogDirectory makes a directory, and those above it, that only SYSTEM and the
// Administrators may use. A directory that exists is left as it is.
func (Services) MakeLogDirectory(dir string) (err error) {
	defer func() {
		if err != nil {
			err = &csiproxy.Error{Op: "make log directory", Object: dir, Err: err}
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

// PrepareLogDirectory makes a log directory that is missing, as MakeLogDirectory does, and returns what
// is wrong with one that is there; empty for nothing. It is no reason not to serve, nor to write no log:
// WMCO makes the directory so that all users can write to it.
func PrepareLogDirectory(dir string) (warning string) {
	if err := (Services{}).MakeLogDirectory(dir); err != nil {
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
