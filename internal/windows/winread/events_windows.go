// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winread

import (
	"context"
	"fmt"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

//sys	evtQuery(session windows.Handle, path *uint16, query *uint16, flags uint32) (results windows.Handle, err error) = wevtapi.EvtQuery
//sys	evtNext(results windows.Handle, size uint32, events *windows.Handle, timeout uint32, flags uint32, returned *uint32) (err error) = wevtapi.EvtNext
//sys	evtRender(context windows.Handle, event windows.Handle, flags uint32, size uint32, buffer *byte, used *uint32, properties *uint32) (err error) = wevtapi.EvtRender
//sys	evtClose(object windows.Handle) (err error) = wevtapi.EvtClose

// Flags of EvtQuery and EvtRender.
//
// Source: https://learn.microsoft.com/windows/win32/api/winevt/ne-winevt-evt_query_flags and
// https://learn.microsoft.com/windows/win32/api/winevt/ne-winevt-evt_render_flags
const (
	evtQueryChannelPath      = 0x1
	evtQueryReverseDirection = 0x200
	evtRenderEventXML        = 1
)

// eventsAtOnce is how many events one call of EvtNext asks for, and eventTimeout how long it waits, in
// milliseconds.
const (
	eventsAtOnce = 64
	eventTimeout = 5000
)

// Events returns the newest events of a channel of the event log, as XML, that an XPath query selects:
// most at most. What was read before an error is returned with it.
//
// Source: https://learn.microsoft.com/windows/win32/wes/querying-for-events
func Events(ctx context.Context, channel, query string, most int) (events []string, err error) {
	if err := errWevtapi(); err != nil {
		return nil, err
	}
	path, err := windows.UTF16PtrFromString(channel)
	if err != nil {
		return nil, err
	}
	xpath, err := windows.UTF16PtrFromString(query)
	if err != nil {
		return nil, err
	}
	results, err := evtQuery(0, path, xpath, evtQueryChannelPath|evtQueryReverseDirection)
	if err != nil {
		return nil, fmt.Errorf("query the event log's channel %s: %w", channel, errno(err))
	}
	defer evtClose(results)
	for len(events) < most {
		if err := ctx.Err(); err != nil {
			return events, err
		}
		var handles [eventsAtOnce]windows.Handle
		var n uint32
		err := evtNext(results, uint32(min(len(handles), most-len(events))), &handles[0], eventTimeout, 0, &n)
		if err == windows.ERROR_NO_MORE_ITEMS {
			return events, nil
		}
		if err != nil {
			return events, fmt.Errorf("read the event log's channel %s: %w", channel, errno(err))
		}
		for i, h := range handles[:min(int(n), len(handles))] {
			if err == nil {
				var text string
				if text, err = renderEvent(h); err == nil {
					events = append(events, text)
				}
			}
			evtClose(handles[i])
		}
		if err != nil {
			return events, fmt.Errorf("render an event of the channel %s: %w", channel, err)
		}
	}
	return events, nil
}

// renderEvent returns an event as XML.
func renderEvent(event windows.Handle) (string, error) {
	needed := uint32(8 << 10) // bytes, of a usual event
	for range growAttempts {
		buf := make([]uint16, needed/2+1)
		var properties uint32
		err := evtRender(0, event, evtRenderEventXML, uint32(2*len(buf)), (*byte)(unsafe.Pointer(&buf[0])), &needed, &properties)
		if err == nil {
			return windows.UTF16ToString(buf), nil
		}
		if err != windows.ERROR_INSUFFICIENT_BUFFER {
			return "", errno(err)
		}
	}
	return "", winerr.ErrorInsufficientBuffer
}

// errWevtapi returns why there is no event log, such as on Nano Server.
func errWevtapi() error {
	for _, p := range []*windows.LazyProc{procEvtQuery, procEvtNext, procEvtRender, procEvtClose} {
		if err := p.Find(); err != nil {
			return fmt.Errorf("%w: %w", winerr.ErrorProcNotFound, err)
		}
	}
	return nil
}
