// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winservice

import (
	"errors"
	"io/fs"
	"log/slog"

	"golang.org/x/sys/windows/registry"
	"golang.org/x/sys/windows/svc/eventlog"
)

// Event identifiers. eventMessages has those from 1 to 1000.
const (
	eventStarted = 1 + iota
	eventStopped
	eventFailed
	eventWarning
)

// maxEventText limits the text of an event, in bytes. Windows accepts 31,839
// characters.
//
// https://learn.microsoft.com/en-us/windows/win32/api/winbase/nf-winbase-reporteventw
const maxEventText = 8 << 10

// A source of the Application log is a registry key with the file of its message
// texts. Those of eventMessages consist only of the text that each entry carries.
//
// https://learn.microsoft.com/en-us/windows/win32/eventlog/event-sources
const (
	sourcesKey    = `SYSTEM\CurrentControlSet\Services\EventLog\Application`
	eventMessages = `%SystemRoot%\System32\EventCreate.exe`
)

// events writes entries to the Event Log, if it has the service as a source.
type events struct {
	log  *eventlog.Log // nil for no entries
	note *slog.Logger
}

func openEvents(source string, note *slog.Logger) *events {
	e := &events{note: note}
	key, err := registry.OpenKey(registry.LOCAL_MACHINE, sourcesKey+`\`+source, registry.QUERY_VALUE)
	if errors.Is(err, fs.ErrNotExist) {
		note.Info("nothing is written to the Event Log, since the service isn't one of its sources; csi-proxyctl service "+
			"install makes it one", "service", source)
		return e
	}
	if err == nil {
		key.Close() // nothing depends on it
		e.log, err = eventlog.Open(source)
	}
	e.check(err)
	return e
}

func (e *events) info(id uint32, text string) {
	if e.log != nil {
		e.check(e.log.Info(id, text))
	}
}

// warn writes a warning; none if it is empty.
func (e *events) warn(text string) {
	if e.log != nil && text != "" {
		e.check(e.log.Warning(eventWarning, text[:min(len(text), maxEventText)]))
	}
}

// failed reports the error that ends the service.
func (e *events) failed(err error) {
	if e.log == nil {
		return
	}
	text := "The service has failed: " + err.Error()
	e.check(e.log.Error(eventFailed, text[:min(len(text), maxEventText)]))
}

func (e *events) close() {
	if e.log != nil {
		e.check(e.log.Close())
	}
}

func (e *events) check(err error) {
	if err != nil {
		e.note.Warn("an entry can't be written to the Event Log", "err", err)
	}
}

// installSource makes the service a source of the Event Log, unless another
// program's source has the name.
func installSource(name string) error {
	sources, err := registry.OpenKey(registry.LOCAL_MACHINE, sourcesKey, registry.CREATE_SUB_KEY)
	if err != nil {
		return err
	}
	defer sources.Close() // nothing depends on it
	source, _, err := registry.CreateKey(sources, name, registry.QUERY_VALUE|registry.SET_VALUE)
	if err != nil {
		return err
	}
	defer source.Close() // values are stored when they are set
	if ours, err := isOurs(source); err != nil || !ours {
		return err
	}
	return errors.Join(
		source.SetDWordValue("CustomSource", 1),
		source.SetExpandStringValue("EventMessageFile", eventMessages),
		source.SetDWordValue("TypesSupported", eventlog.Error|eventlog.Warning|eventlog.Info),
	)
}

// uninstallSource undoes installSource.
func uninstallSource(name string) error {
	sources, err := registry.OpenKey(registry.LOCAL_MACHINE, sourcesKey, registry.CREATE_SUB_KEY)
	if err != nil {
		return err
	}
	defer sources.Close() // nothing depends on it
	source, err := registry.OpenKey(sources, name, registry.QUERY_VALUE)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	ours, err := isOurs(source)
	if err = errors.Join(err, source.Close()); err != nil || !ours {
		return err
	}
	return registry.DeleteKey(sources, name)
}

// isOurs reports whether installSource made the source, wholly or in part.
func isOurs(source registry.Key) (bool, error) {
	file, _, err := source.GetStringValue("EventMessageFile")
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return file == eventMessages, err
}
