// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/serve/admin"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
)

// knownFor is how old what the daemon knows of the protected volumes may be: it looks at them
// when its metrics are read, at most every 30 seconds.
const knownFor = time.Minute

// checkProtectedVolumes looks for a -protected-volume that isn't there. The daemon is asked,
// by its metrics: a container's flags stand in no service.
func checkProtectedVolumes(_ context.Context, _ *Node, metrics string) (string, []Finding, error) {
	var faults []Finding
	var known float64
	volumes := 0
	for line := range strings.Lines(metrics) {
		if volume, value, ok := metric(line, admin.MissingVolume, "volume"); ok {
			volumes++
			if value != 0 {
				faults = append(faults, warning("look up the drive letter or the id with mountvol, and start the daemon with that, in "+
					"the Helm chart protectedVolumes. If the volume's disk isn't attached yet, or this kind of machine has "+
					"none, do nothing; docs/drivers.md#lun-0 has more",
					"-protected-volume names %s, and no disk has that: until it comes, only data disks of Azure are partitioned and "+
						"formatted", quote.Text(volume)))
			}
		}
		if inventory, value, ok := metric(line, admin.InventoryTimestamp, "of"); ok && inventory == admin.OfVolumes {
			known = value
		}
	}
	if time.Since(time.UnixMilli(int64(known*1000))) > knownFor {
		return "", nil, csiproxy.Errorf(csiproxy.ErrUnavailable,
			"the daemon doesn't know whether the volumes of -protected-volume are there: Windows doesn't answer that, or it is older "+
				"than this csi-proxyctl; its log has more")
	}
	if volumes == 0 {
		return "no -protected-volume is set", nil, nil
	}
	return fmt.Sprintf("all volumes of -protected-volume are there: %d", volumes), faults, nil
}

// checkDriversFile looks whether the daemon has read the file of -drivers as it is now.
func checkDriversFile(_ context.Context, _ *Node, metrics string) (string, []Finding, error) {
	fine := "no -drivers is set"
	var faults []Finding
	for line := range strings.Lines(metrics) {
		file, value, ok := metric(line, admin.DriversFile, "file")
		if !ok {
			continue
		}
		fine = "the daemon has read " + quote.Text(file) + " as it is"
		switch value {
		case admin.DriversFileChanged:
			faults = append(faults, warning("run csi-proxyctl service restart; the Helm chart exchanges the pods when its drivers change",
				"%s has changed since the daemon has read it: the drivers have what it said before", quote.Text(file)))
		case admin.DriversFileWrong:
			faults = append(faults, problem("csi-proxyctl status says what is wrong. Put it right before the node restarts",
				"%s is missing or wrong: the daemon can't start again with it", quote.Text(file)))
		}
	}
	return fine, faults, nil
}

// metric reads a line of metrics if it is of the name and has that label alone.
func metric(line, name, label string) (labelled string, value float64, ok bool) {
	rest, ok := strings.CutPrefix(line, name+"{"+label+"=")
	if !ok {
		return "", 0, false
	}
	quoted, err := strconv.QuotedPrefix(rest)
	if err != nil {
		return "", 0, false
	}
	if labelled, err = strconv.Unquote(quoted); err != nil {
		return "", 0, false
	}
	value, err = strconv.ParseFloat(strings.TrimSpace(strings.TrimPrefix(rest[len(quoted):], "}")), 64)
	return labelled, value, err == nil
}
