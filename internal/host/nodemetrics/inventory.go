// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodemetrics

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/csi-proxy/csi-proxy/internal/ops/usage"
	"github.com/csi-proxy/csi-proxy/internal/serve/admin"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
)

const (
	// queryInterval is the least time between two queries: they ask each disk and volume, and
	// WMI. So scraping more often costs nothing.
	queryInterval = 30 * time.Second
	// linksInterval is that of the query for links, which lists all directories.
	linksInterval = 5 * time.Minute
	// useInterval is that of the query for how full volumes are, which lists the directories of volumes.
	useInterval = time.Minute
	// scrapeWait is how long a scrape waits for a query. After that it shows the last answer.
	scrapeWait = 2 * time.Second
	// queryTimeout is how long a query may take.
	queryTimeout = 20 * time.Second
)

var (
	disksDesc = prometheus.NewDesc("csi_proxy_disks",
		"Disks of the node that answer, by state.", []string{"state"}, nil)
	volumesDesc = prometheus.NewDesc("csi_proxy_staged_volumes",
		"Volumes that are mounted below the allowed directories.", nil, nil)
	sizeDesc = prometheus.NewDesc("csi_proxy_volume_size_bytes",
		"Size of the file system of a PersistentVolume that is staged and published.", []string{"persistentvolume", "driver"}, nil)
	usedDesc = prometheus.NewDesc("csi_proxy_volume_used_bytes",
		"Used bytes of that file system.", []string{"persistentvolume", "driver"}, nil)
	leftOutDesc = prometheus.NewDesc("csi_proxy_volumes_left_out",
		"PersistentVolumes without these two metrics, since they are too many or don't answer.", nil, nil)
	mappingsDesc = prometheus.NewDesc("csi_proxy_smb_mappings",
		"SMB global mappings of the node, by their state when they were used last.", []string{"state"}, nil)
	linksDesc = prometheus.NewDesc("csi_proxy_links_to_nothing",
		"Links below the allowed directories that lead to nothing, or to a directory whose volume was unmounted.", nil, nil)
	forgottenDesc = prometheus.NewDesc("csi_proxy_forgotten_links",
		"Links of pods whose volumes kubelet has lost track of, so that these can't be unstaged: 1 for each of the first 32 "+
			"paths, and the number of the others.", []string{"path"}, nil)
	recordsDesc = prometheus.NewDesc(admin.ForeignRecords,
		"Files in the directory of SMB mapping records that aren't records: damaged, or written by other programs.", nil, nil)
	protectedDesc = prometheus.NewDesc(admin.MissingVolume,
		"1 if no disk of the node has the volume of -protected-volume; else 0.", []string{"volume"}, nil)
	answeredDesc = prometheus.NewDesc(admin.InventoryTimestamp,
		"When the node last answered a query for what it has, as Unix time; 0 if it never did.", []string{"of"}, nil)
)

// inventory is a collector of what the node has.
type inventory struct {
	ctx    context.Context
	cancel context.CancelFunc
	all    sync.WaitGroup

	mu      sync.Mutex
	queries []*query
}

func newInventory() *inventory {
	i := new(inventory)
	i.ctx, i.cancel = context.WithCancel(context.Background())
	return i
}

// query is one part of the inventory.
type query struct {
	of    string
	every time.Duration
	ask   ask

	// The inventory's lock guards these.
	begun    time.Time           // the last one
	done     chan struct{}       // closed when it has ended; nil if none has begun
	answered time.Time           // when the last one succeeded
	metrics  []prometheus.Metric // what it answered
}

// ask asks the node for a part of the inventory.
type ask func(context.Context) ([]prometheus.Metric, error)

func gauge(desc *prometheus.Desc, value int, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(value), labels...)
}

// count asks for one number.
func count(desc *prometheus.Desc, number func(context.Context) (int, error)) ask {
	return func(ctx context.Context) ([]prometheus.Metric, error) {
		n, err := number(ctx)
		return []prometheus.Metric{gauge(desc, n)}, err
	}
}

// states asks for numbers by state. The program has its code once.
//
//go:noinline
func states(desc *prometheus.Desc, numbers func(context.Context) (map[string]int, error)) ask {
	return func(ctx context.Context) (all []prometheus.Metric, _ error) {
		byState, err := numbers(ctx)
		for state, n := range byState {
			all = append(all, gauge(desc, n, state))
		}
		return all, err
	}
}

// flags asks what is so, 1, and what isn't, 0.
func flags(desc *prometheus.Desc, named func(context.Context) (map[string]bool, error)) ask {
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

// links asks for the links to nothing, and those of forgotten pods.
func links(list func(context.Context) (toNothing int, forgotten []string, _ error)) ask {
	return func(ctx context.Context) ([]prometheus.Metric, error) {
		toNothing, forgotten, err := list(ctx)
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

// volumeUse asks how full the volumes of PersistentVolumes are.
func volumeUse(list func(context.Context) (use []usage.VolumeUse, leftOut int, _ error)) ask {
	return func(ctx context.Context) ([]prometheus.Metric, error) {
		use, leftOut, err := list(ctx)
		all := []prometheus.Metric{gauge(leftOutDesc, leftOut)}
		for _, v := range use {
			name, driver := quote.Text(v.PersistentVolume), quote.Text(v.Driver)
			all = append(all, gauge(sizeDesc, int(v.SizeBytes), name, driver), gauge(usedDesc, int(v.UsedBytes), name, driver))
		}
		return all, err
	}
}

// CloseInventory ends the queries. It waits until none is under way.
func (n *Node) CloseInventory() {
	n.inventory.mu.Lock()
	n.inventory.cancel()
	n.inventory.mu.Unlock()
	n.inventory.all.Wait()
}

// Describe implements prometheus.Collector.
func (i *inventory) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{disksDesc, volumesDesc, sizeDesc, usedDesc, leftOutDesc, mappingsDesc, linksDesc,
		forgottenDesc, recordsDesc, protectedDesc, answeredDesc} {
		ch <- desc
	}
}

// Collect implements prometheus.Collector.
func (i *inventory) Collect(ch chan<- prometheus.Metric) {
	timeout := time.NewTimer(scrapeWait)
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
	for _, q := range i.queries {
		answered := 0.0
		if !q.answered.IsZero() {
			answered = float64(q.answered.UnixMilli()) / 1000
		}
		ch <- prometheus.MustNewConstMetric(answeredDesc, prometheus.GaugeValue, answered, q.of)
		for _, metric := range q.metrics {
			ch <- metric
		}
	}
}

// begin begins the queries that are due. It returns a channel for each that is under way, which is
// closed when the query ends.
func (i *inventory) begin() (underWay []<-chan struct{}) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, q := range i.queries {
		running := q.done != nil && !closed(q.done)
		if !running && time.Since(q.begun) >= q.every && i.ctx.Err() == nil {
			q.begun, q.done = time.Now(), make(chan struct{})
			i.all.Go(func() { i.run(q) })
			running = true
		}
		if running {
			underWay = append(underWay, q.done)
		}
	}
	return underWay
}

func (i *inventory) run(q *query) {
	ctx, cancel := context.WithTimeout(i.ctx, queryTimeout)
	defer cancel()
	metrics, err := q.ask(ctx)
	i.mu.Lock()
	defer i.mu.Unlock()
	if err == nil {
		q.metrics, q.answered = metrics, time.Now()
	}
	close(q.done)
}

func closed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}
