// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Command errorspage writes the classes of Windows' error numbers into the table of
// docs/troubleshooting.md, and fails if that lacks a number that has a class.
package main

import (
	"errors"
	"fmt"
	"log"
	"os"
	"regexp"
	"strconv"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

const page = "docs/troubleshooting.md"

var row = regexp.MustCompile(`(?m)^\| ([0-9A-Fx, ]+) \| \w+ \|`)

func main() {
	text, err := os.ReadFile(page)
	if err != nil {
		log.Fatal(err)
	}
	listed := make(map[winerr.Errno]bool)
	out := row.ReplaceAllStringFunc(string(text), func(found string) string {
		numbers := row.FindStringSubmatch(found)[1]
		var class string
		for text := range strings.SplitSeq(numbers, ", ") {
			number, err := strconv.ParseUint(text, 0, 32)
			if err != nil {
				log.Fatal(err)
			}
			errno := winerr.Errno(number)
			if listed[errno] || class != "" && class != classOf(errno) {
				log.Fatalf("%s: %s is there twice, or of another class than the numbers beside it: %s", page, text, classOf(errno))
			}
			listed[errno], class = true, classOf(errno)
		}
		return fmt.Sprintf("| %s | %s |", numbers, class)
	})
	for errno := range winerr.Errno(1 << 16) { // Win32's, BitLocker's, WMI's, statuses, and those of the iSCSI initiator
		for _, errno := range []winerr.Errno{errno, 0x80310000 | errno, 0x80040000 | errno, 0xC0000000 | errno, 0xAFFF0000 | errno,
			0xEFFF0000 | errno} {
			if !listed[errno] && !errors.Is(csiproxy.KindOf(errno), csiproxy.ErrInternal) {
				log.Fatalf("%s lacks the error %#x, %s", page, uint32(errno), classOf(errno))
			}
		}
	}
	if err := os.WriteFile(page, []byte(out), 0o644); err != nil {
		log.Fatal(err)
	}
}

// classOf returns the class of an error number as the page has it: NotFound.
func classOf(errno winerr.Errno) string {
	var class strings.Builder
	for word := range strings.FieldsSeq(csiproxy.KindOf(errno).Error()) {
		class.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return class.String()
}
