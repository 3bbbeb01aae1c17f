// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kubelet-lab runs a CSI driver under a real kubelet, without Windows and without
// containers: etcd, kube-apiserver, the controllers for volumes, the external provisioner, attacher and
// resizer, and kubelet, all as Kubernetes has them, CSI Proxy on a simulated Windows node, and the
// driver. It plays the pods that use files.
//
// It runs scenarios, checks after each what must always be so, and prints a table. It exits with 1
// if anything was wrong.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type options struct {
	check      bool     // only the flags
	kubernetes string   // the folder of Kubernetes' programs, those of the sidecars, and etcd
	kubelet    string   // the program
	control    string   // the version of kube-apiserver and kube-controller-manager, if it isn't the newest
	csiProxy   string   // the program
	windows    bool     // whether these two and the driver are Windows programs
	wine       string   // the directory of the Windows that they run on; "" if it is the first node's
	driver     []string // the command
	inProcess  bool     // whether CSI Proxy's code is in the driver, with the simulated node
	dir        string   // for logs and data
	seed       uint64
	only       string
	full       bool
	histories  int
	planted    string
	cannot     map[string]string // why a scenario isn't for the driver
	sync       time.Duration
	verbose    bool
	table      string
	update     bool
	junit      string
	cloud      []string          // the command
	parameters map[string]string // of volumes on disks
	share      map[string]string // of the volume on a share; nil: the driver has none
	secretKeys []string          // of the user and the password in a secret
	ec2        bool              // whether the driver finds EC2's metadata service
	iscsi      map[string]string // of the volume on an iSCSI target; nil: the driver has none
	writers    map[string]string // of a volume to which all Users may write; nil: the driver has none
	manifests  *manifests        // nil: none are tried
}

// The iSCSI target of -iscsi.
const (
	iscsiTarget = "iqn.2001-04.com.example:storage"
	iscsiPortal = "192.0.2.1"
)

func parseFlags(args []string) (o options, err error) {
	flags := flag.NewFlagSet("kubelet-lab", flag.ContinueOnError)
	flags.BoolVar(&o.check, "check", false, "only look at the flags, before there are the programs of Kubernetes")
	flags.StringVar(&o.kubernetes, "kubernetes", "", "the `folder` of kube-apiserver, kube-controller-manager, kubelet, etcd, csi-provisioner, csi-attacher\n"+
		"and csi-resizer, which test/kubernetes/programs/setup prints")
	flags.StringVar(&o.kubelet, "kubelet", "", "the `program` kubelet; by default that of -kubernetes")
	flags.StringVar(&o.control, "control-plane", "", "the `version` of kube-apiserver and kube-controller-manager, as in v1.35; by default the newest")
	flags.StringVar(&o.csiProxy, "csi-proxy", "csi-proxy", "the `program` csi-proxy, with the simulated node")
	flags.BoolVar(&o.windows, "windows", false, "kubelet, csi-proxy and the driver are Windows programs, which test/kubernetes/kubelet/run runs under Wine;\n"+
		"$SOCKET is an address of TCP, such as 127.0.0.1:10000")
	driver := flags.String("driver", "", "the `command` that starts the driver, in which $SOCKET, $ENDPOINTS, $STATE and $NODE are\n"+
		"the socket to serve at, the directory of CSI Proxy's sockets, one of the driver's own, and the node's name")
	flags.BoolVar(&o.inProcess, "in-process", false, "the driver has the library that is in the place of the published one, with package simulated,\n"+
		"and no csi-proxy is started")
	flags.StringVar(&o.dir, "dir", "", "the `directory` for logs and data; it must be short; by default a new one, removed if all is well")
	flags.Uint64Var(&o.seed, "seed", 1, "what the order of the scenarios, sizes, contents and so on are made from; 0 for another one each time")
	flags.StringVar(&o.only, "only", "", "the `names` of scenarios, separated by commas, or "+allHistories+"; by default all that are short")
	flags.BoolVar(&o.full, "full", false, "run the long scenarios, too")
	flags.IntVar(&o.histories, "histories", 0, "run so many scenarios, too, which the seed makes up")
	flags.StringVar(&o.planted, "plant", "", "the `name` of a fault that the run must notice, or all: "+plantNames())
	flags.DurationVar(&o.sync, "sync", time.Second, "how often kubelet looks at each pod and reports what the node has")
	flags.BoolVar(&o.verbose, "calls", false, "print each call")
	cloud := flags.String("cloud", "", "the `command` that creates, attaches, grows, detaches and deletes volumes; by default the driver's Controller")
	flags.Func("parameters", "the `parameters` of the StorageClass, as in key=value,key=value", pairs(&o.parameters))
	flags.Func("share", "the `parameters` of a volume on the share //files/data, or in the place of data\n"+
		volumeWord+" for a share of its own; by default no share is tried", pairs(&o.share))
	secretKeys := flags.String("secret-keys", "username,password", "the `keys` in the secret for staging under which the driver finds the user and the password")
	flags.BoolVar(&o.ec2, "ec2", false, "give the driver EC2's metadata service, at the address in AWS_EC2_METADATA_SERVICE_ENDPOINT")
	flags.Func("iscsi", "the `parameters` of a volume on the iSCSI target "+iscsiTarget+" at "+iscsiPortal+"; by default none is tried", pairs(&o.iscsi))
	flags.Func("writers", "the `parameters` of a volume to which the Users may write, beside -parameters; by default none is tried", pairs(&o.writers))
	flags.Func("manifests", "the `folder` of a StorageClass, a claim and a pod to try as they are; a ClusterRole and its\n"+
		"binding there say what the sidecars may do", func(folder string) (err error) {
		o.manifests, err = readManifests(folder)
		return err
	})
	flags.Func("cannot", "`scenarios` that the driver can't pass, and why, as in read-only=reason,stats=reason: they aren't run", pairs(&o.cannot))
	flags.StringVar(&o.junit, "junit", "", "the `file` to write the results to, in JUnit's form")
	flags.StringVar(&o.table, "table", "", "the `file` with what kubelet sent before, which it must send again")
	flags.BoolVar(&o.update, "update", false, "write the file of -table anew")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.secretKeys = strings.Split(*secretKeys, ",")
	o.driver, o.cloud = strings.Fields(*driver), strings.Fields(*cloud)
	if o.kubelet == "" {
		o.kubelet = filepath.Join(o.kubernetes, "kubelet")
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unknown argument %q", flags.Arg(0))
	case o.kubernetes == "" && !o.check:
		return o, errors.New("-kubernetes is missing: the folder that test/kubernetes/programs/setup prints")
	case len(o.driver) == 0:
		return o, errors.New("-driver is missing: the command that starts the driver")
	case len(o.secretKeys) != 2:
		return o, fmt.Errorf("-secret-keys: %q must be two, as in username,password", *secretKeys)
	}
	for _, command := range [][]string{o.driver, o.cloud} {
		if len(command) > 0 {
			if _, err := os.Stat(command[0]); err != nil {
				if _, notInPath := exec.LookPath(command[0]); notInPath != nil {
					return o, fmt.Errorf("-driver, -cloud: there is no program %s", command[0])
				}
			}
		}
	}
	for _, name := range slices.Concat(o.names(), slices.Sorted(maps.Keys(o.cannot))) {
		if name != allHistories && !slices.ContainsFunc(o.scenarios(), func(d definition) bool { return d.name == name }) {
			return o, fmt.Errorf("-only, -cannot: there is no scenario %q", name)
		}
	}
	if o.planted != "" && o.planted != "all" && !slices.ContainsFunc(plants, func(p plant) bool { return p.name == o.planted }) {
		return o, fmt.Errorf("-plant: there is no fault %q", o.planted)
	}
	for o.seed == 0 {
		o.seed = rand.Uint64() >> 1
	}
	return o, nil
}

// allHistories means all histories, in -only.
const allHistories = "histories"

// scenarios returns all that there are.
func (o options) scenarios() []definition {
	return append(slices.Clone(scenarios), histories(o.histories)...)
}

// wants reports whether a scenario is to be run as it is.
func (o options) wants(d definition) bool {
	switch names := o.names(); {
	case o.planted != "" && o.planted != "all", !o.applies(d):
		return false
	case len(names) > 0:
		return slices.Contains(names, d.name) || d.history && slices.Contains(names, allHistories)
	default:
		return !d.long || o.full
	}
}

// applies reports whether a scenario can be run with the driver and its programs.
func (o options) applies(d definition) bool {
	switch {
	case d.name == "smb-secret" && o.share == nil, d.name == "chap" && o.iscsi == nil,
		d.name == "container-user" && o.writers == nil, d.name == "manifests" && o.manifests == nil, d.name == "upgrade" && o.windows:
		return false
	default:
		return true
	}
}

// pairs returns what reads key=value,key=value into a map, which stays nil if there is none.
func pairs(all *map[string]string) func(string) error {
	return func(text string) error {
		if text == "" {
			return nil
		}
		if *all == nil {
			*all = map[string]string{}
		}
		for _, pair := range strings.Split(text, ",") {
			key, value, ok := strings.Cut(pair, "=")
			if !ok {
				return fmt.Errorf("%q must have the form key=value", pair)
			}
			(*all)[key] = value
		}
		return nil
	}
}

// names returns the scenarios of -only.
func (o options) names() []string {
	return slices.DeleteFunc(strings.Split(o.only, ","), func(s string) bool { return s == "" })
}

func plantNames() string {
	var names []string
	for _, p := range plants {
		names = append(names, p.name)
	}
	return strings.Join(names, ", ")
}

func main() {
	o, err := parseFlags(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		if o.check {
			os.Exit(2)
		}
		return
	}
	if err == nil && !o.check {
		err = run(o)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "kubelet-lab: %v\n", err)
		os.Exit(1)
	}
}

func run(o options) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if o.dir == "" {
		if o.dir, err = os.MkdirTemp("", "kubelet"); err != nil {
			return err
		}
		defer func() {
			if err == nil {
				err = os.RemoveAll(o.dir)
			}
		}()
	} else if err := os.MkdirAll(o.dir, 0o700); err != nil {
		return err
	}
	fmt.Printf("seed %d, logs in %s\n", o.seed, o.dir)
	l := &lab{options: o}
	defer l.stop()
	if err := l.start(ctx); err != nil {
		return err
	}
	var results []result
	all := o.scenarios()
	for _, i := range shuffled(o.seed, len(all)) {
		if !o.wants(all[i]) {
			continue
		}
		if why := l.cannot(all[i]); why != "" {
			r := result{definition: all[i], cannot: why}
			r.print(os.Stdout, false)
			results = append(results, r)
			continue
		}
		results = append(results, l.run(ctx, all[i], plant{}))
	}
	for _, p := range plants {
		i := slices.IndexFunc(scenarios, func(d definition) bool { return d.name == p.scenario })
		if o.planted == p.name || o.planted == "all" && o.applies(scenarios[i]) && (o.full || !scenarios[i].long) {
			results = append(results, l.run(ctx, scenarios[i], p))
		}
	}
	if o.junit != "" {
		if err := writeJUnit(o.junit, results); err != nil {
			return err
		}
	}
	if err := report(os.Stdout, results, o); err != nil || o.table == "" {
		return err
	}
	return compareTable(results, o.table, o.update)
}

// hash makes a number from a name, so that what a scenario chooses doesn't depend on the others.
func hash(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // never fails
	return h.Sum64()
}

// lab is the cluster, with the wire to the driver.
type lab struct {
	options
	cluster *cluster
	wire    *wire
	driver  string // its name
	abilities
	at       addresses // of the first node's programs
	stopWire func()
	nodes    int // that there have been
	current  *node
}

// start starts the cluster, asks the driver for its name, and registers it.
func (l *lab) start(ctx context.Context) (err error) {
	began := time.Now()
	if l.cluster, err = startCluster(ctx, l.options); err != nil {
		return err
	}
	l.at.driver = "unix://" + filepath.Join(l.dir, "csi.sock")
	if l.windows {
		var relay *exec.Cmd
		if relay, l.at, err = l.relay(); err == nil {
			err = l.cluster.Start("relay", relay)
		}
		if err != nil {
			return err
		}
	}
	l.wire = &wire{
		record: new(record), name: nodeName, node: func() *node { return l.current },
		driver: l.at.driver, socket: filepath.Join(l.dir, "controller.sock"),
		root: l.cluster.root, windows: l.windows,
	}
	if len(l.options.cloud) > 0 {
		l.wire.controller = &cloud{
			command: l.options.cloud, share: l.options.share, node: l.wire.node, serials: map[string]string{},
		}
	}
	n, err := l.newNode(ctx)
	if n != nil {
		defer func() { err = errors.Join(err, n.stop()) }()
	}
	if err != nil {
		return err
	}
	if l.driver, err = l.wire.driverName(ctx); err != nil {
		return err
	}
	if err := l.askAbilities(ctx); err != nil {
		return err
	}
	if _, err := l.cluster.StorageV1().CSIDrivers().Create(ctx, &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: l.driver}, Spec: storagev1.CSIDriverSpec{AttachRequired: &l.attaches},
	}, metav1.CreateOptions{}); err != nil {
		return err
	}
	if l.stopWire, err = l.wire.serve(l.driver); err != nil {
		return err
	}
	if err := l.cluster.awaitDriver(ctx, nodeName, l.driver); err != nil {
		return err
	}
	if l.attaches { // or there is nothing that they could do for the driver
		if err := l.startSidecars(ctx); err != nil {
			return err
		}
	}
	registered, err := l.cluster.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	version, err := l.cluster.Discovery().ServerVersion()
	if err != nil {
		return err
	}
	fmt.Printf("the cluster is ready after %.1f s, with Kubernetes %s and kubelet %s; the driver is %s\n",
		time.Since(began).Seconds(), version.GitVersion, registered.Status.NodeInfo.KubeletVersion, l.driver)
	return nil
}

// startSidecars returns when they have asked the driver all that they want to know first: they end
// if it doesn't answer then.
func (l *lab) startSidecars(ctx context.Context) error {
	account, err := l.manifests.allow(ctx, l.cluster)
	if err != nil {
		return err
	}
	if err := l.cluster.startSidecars(l.kubernetes, l.wire.socket, account); err != nil {
		return err
	}
	return l.cluster.await(ctx, "the sidecars have started", func() (bool, error) {
		for _, name := range sidecars {
			log, err := os.ReadFile(filepath.Join(l.dir, name+".log"))
			if err != nil || !bytes.Contains(log, []byte("Starting reflector")) { // what each does next
				return false, err
			}
		}
		return true, nil
	})
}

func (l *lab) stop() {
	if l.stopWire != nil {
		l.stopWire()
	}
	l.cluster.stop()
}

// newNode returns a node with CSI Proxy and the driver, in a directory of its own.
func (l *lab) newNode(ctx context.Context) (*node, error) {
	l.nodes++
	n, err := newNode(nodeName, filepath.Join(l.dir, fmt.Sprintf("node-%d", l.nodes)), l.at, l.options)
	if err != nil {
		return nil, err
	}
	l.current = n
	return n, n.begin(ctx)
}

// run runs a scenario on a node of its own.
func (l *lab) run(ctx context.Context, d definition, planted plant) result {
	s := &scenario{
		name: d.name, abilities: l.abilities, cluster: l.cluster, wire: l.wire, driverName: l.driver, expected: d.expected, planted: planted,
		random: rand.New(rand.NewPCG(l.seed, hash(d.name))), began: time.Now(), first: len(l.wire.list()),
	}
	if planted.name != "" {
		s.name = "plant-" + planted.name
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.ctx = ctx
	done := make(chan struct{})
	go func() {
		defer close(done)
		var err error
		s.node, err = l.newNode(ctx)
		s.must(err)
		if l.cluster.stopped() { // with a scenario that went wrong
			s.must(l.cluster.startKubelet())
			s.must(l.cluster.awaitDriver(ctx, nodeName, l.driver))
		}
		_, err = l.cluster.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name}}, metav1.CreateOptions{})
		s.must(err)
		l.wire.watch(s.mounted)
		s.expected.repeated = append(slices.Clone(s.expected.repeated), attach, detach) // as the attacher is known to
		s.plant()
		if d.nodes == 2 {
			s.second, err = l.secondNode(ctx, s)
			s.must(err)
		}
		d.run(s)
		s.finish()
	}()
	<-done
	if s.second != nil {
		if err := s.second.stop(); err != nil {
			s.wrong("%v", err)
		}
	}
	l.wire.interpose(nil)
	l.wire.watch(nil)
	r := s.result(d)
	if len(s.found) > 0 {
		s.abandon()
	}
	cancel()
	if s.node != nil {
		if err := s.node.stop(); err != nil {
			r.found = append(r.found, err.Error())
		}
	}
	r.print(os.Stdout, l.verbose)
	return r
}
