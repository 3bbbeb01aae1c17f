// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package repository tests what holds for the repository as a whole: who imports what, what the public
// packages export, which versions drivers get, and where the pages' links lead.
package repository

import (
	"log"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil {
		log.Fatal(err)
	}
	m.Run()
}
