// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"math"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
)

// sizeFlag is a flag for a number of bytes: 20GiB, 512MiB, 10GB, 1.5GiB, 1048576.
type sizeFlag int64

// String, Set and Type are pflag.Value.
func (f *sizeFlag) String() string { return strconv.FormatInt(int64(*f), 10) }

func (f *sizeFlag) Type() string { return "size" }

func (f *sizeFlag) Set(s string) error {
	n, err := humanize.ParseBytes(s)
	if err != nil || strings.Contains(s, ",") { // humanize takes 1,5GiB for 15GiB
		return errors.New("must be a number of bytes, 0 or more, with or without a unit such as MiB, GiB or GB")
	}
	if n > math.MaxInt64 {
		return errors.New("it is too large")
	}
	*f = sizeFlag(n)
	return nil
}
