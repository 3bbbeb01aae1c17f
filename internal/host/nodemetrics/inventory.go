// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodemetrics

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/csi-proxy/csi-proxy/internal/text/quote"
)

const (
	// lookInterval is the least time between two looks: they ask each disk and volume, and
	// WMI, so that scraping more often costs nothing.
	lookInterval = 30 * time.Second
	// linksInterval is that of a look at the links, for which all directories are listed.
	linksInterval = 5 * time.Minute
	// lookPatience is how long a scrape waits for a look. After that it shows what was
	// seen last.
	lookPatience = 2 * time.Second
	// lookTimeout is how long a look may take.
	lookTimeout = 20 * time.Second
)

// Names of metrics that csi-proxyctl doctor reads.
const (
	MissingVolume      = "csi_proxy_protected_volume_missing"
	InventoryTimestamp = "csi_proxy_inventory_timestamp_seconds"
	// OfVolumes is the label of InventoryTimestamp for MissingVolume.
	OfVolumes = "protected-volumes"
)

var (
	disksDesc = prometheus.NewDesc("csi_proxy_disks",
		"Disks of the node that answer, by state.", []string{"state"}, nil)
	volumesDesc = prometheus.NewDesc("csi_proxy_staged_volumes",
		"Volumes that are mounted below the allowed directories.", nil, nil)
	mappingsDesc = prometheus.NewDesc("csi_proxy_smb_mappings",
		"SMB global mappings of the node, by their state when they were used last.", []string{"state"}, nil)
	linksDesc = prometheus.NewDesc("csi_proxy_links_to_nothing",
		"Links below the allowed directories that lead to nothing, or to a directory whose volume was unmounted.", nil, nil)
	forgottenDesc = prometheus.NewDesc("csi_proxy_forgotten_links",
		"Links of pods whose volumes kubelet has lost track of, so that these can't be unstaged: 1 for each of the first 32 "+
			"paths, and the number of the others.", []string{"path"}, nil)
	recordsDesc = prometheus.NewDesc("csi_proxy_foreign_mapping_records",
		"Files among the records of SMB mappings that are none: they are damaged, or of others.", nil, nil)
	protectedDesc = prometheus.NewDesc(MissingVolume,
		"1 if no volume of the node is that of -protected-volume, so that it protects nothing; else 0.", []string{"volume"}, nil)
	lookedDesc = prometheus.NewDesc(InventoryTimestamp,
		"When the node last told what it has, as Unix time; 0 if it never did.", []string{"of"}, nil)
)

// inventory is a collector of what the node has.
type inventory struct {
	ctx    context.Context
	cancel context.CancelFunc
	all    sync.WaitGroup

	mu    sync.Mutex
	looks []*look
}

func newInventory() *inventory {
	i := new(inventory)
	i.ctx, i.cancel = context.WithCancel(context.Background())
	return i
}

// look is one part of the inventory.
type look struct {
	of    string
	every time.Duration
	see   see

	// The inventory's lock guards these.
	begun time.Time           // the last one
	done  chan struct{}       // closed when it has ended; nil if none has begun
	saw   time.Time           // when the last one that succeeded has ended
	seen  []prometheus.Metric // what it saw
}

// see is what a look does.
type see func(context.Context) ([]prometheus.Metric, error)

func gauge(desc *prometheus.Desc, value int, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(value), labels...)
}

// count sees one number.
func count(desc *prometheus.Desc, number func(context.Context) (int, error)) see {
	return func(ctx context.Context) ([]prometheus.Metric, error) {
		n, err := number(ctx)
		return []prometheus.Metric{gauge(desc, n)}, err
	}
}

// states sees numbers by state.
func states(desc *prometheus.Desc, numbers func(context.Context) (map[string]int, error)) see {
	return func(ctx context.Context) (all []prometheus.Metric, _ error) {
		byState, err := numbers(ctx)
		for state, n := range byState {
			all = append(all, gauge(desc, n, state))
		}
		return all, err
	}
}

// flags sees what is so, 1, and what isn't, 0.
func flags(desc *prometheus.Desc, named func(context.Context) (map[string]bool, error)) see {
	return states(desc, func(ctx context.Context) (map[string]int, error) {
		seen, err := named(ctx)
		numbers := make(map[string]int)
		for name, is := range seen {
			numbers[name] = 0
			if is {
				numbers[name] = 1
			}
		}
		return numbers, err
	})
}

const (
	// mostPaths is how many links have a series of their own.
	mostPaths = 32
	// otherPaths is the label of the other links.
	otherPaths = "others"
)

// links sees the links to nothing, and those of forgotten pods.
func links(look func(context.Context) (toNothing int, forgotten []string, _ error)) see {
	return func(ctx context.Context) ([]prometheus.Metric, error) {
		toNothing, forgotten, err := look(ctx)
		all := []prometheus.Metric{gauge(linksDesc, toNothing)}
		named := make(map[string]bool) // labels, of which each may come once: they are cut
		for _, path := range forgotten {
			if label := quote.Text(path); len(named) < mostPaths && !named[label] {
				named[label] = true
				all = append(all, gauge(forgottenDesc, 1, label))
			}
		}
		return append(all, gauge(forgottenDesc, len(forgotten)-len(named), otherPaths)), err
	}
}

// CloseInventory ends looking at the node. It waits until no look is under way.
func (n *Node) CloseInventory() {
	n.inventory.mu.Lock()
	n.inventory.cancel()
	n.inventory.mu.Unlock()
	n.inventory.all.Wait()
}

// Describe implements prometheus.Collector.
func (i *inventory) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{disksDesc, volumesDesc, mappingsDesc, linksDesc, forgottenDesc, recordsDesc,
		protectedDesc, lookedDesc} {
		ch <- desc
	}
}

// Collect implements prometheus.Collector.
func (i *inventory) Collect(ch chan<- prometheus.Metric) {
	timeout := time.NewTimer(lookPatience)
	defer timeout.Stop()
	for _, done := range i.begin() {
		select {
		case <-done:
		case <-timeout.C:
			timeout.Reset(0) // for the next ones
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, l := range i.looks {
		looked := 0.0
		if !l.saw.IsZero() {
			looked = float64(l.saw.UnixMilli()) / 1000
		}
		ch <- prometheus.MustNewConstMetric(lookedDesc, prometheus.GaugeValue, looked, l.of)
		for _, metric := range l.seen {
			ch <- metric
		}
	}
}

// begin begins the looks that are due, and returns what tells that those under way have
// ended.
func (i *inventory) begin() (underWay []<-chan struct{}) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, l := range i.looks {
		running := l.done != nil && !closed(l.done)
		if !running && time.Since(l.begun) >= l.every && i.ctx.Err() == nil {
			l.begun, l.done = time.Now(), make(chan struct{})
			i.all.Go(func() { i.look(l) })
			running = true
		}
		if running {
			underWay = append(underWay, l.done)
		}
	}
	return underWay
}

func (i *inventory) look(l *look) {
	ctx, cancel := context.WithTimeout(i.ctx, lookTimeout)
	defer cancel()
	seen, err := l.see(ctx)
	i.mu.Lock()
	defer i.mu.Unlock()
	if err == nil {
		l.seen, l.saw = seen, time.Now()
	}
	close(l.done)
}

func closed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}
