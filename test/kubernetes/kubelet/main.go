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

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type options struct {
	kubernetes string   // the folder of Kubernetes' programs, those of the sidecars, and etcd; "": only the flags are looked at
	kubelet    string   // the program
	control    string   // the version of kube-apiserver and kube-controller-manager, if it isn't the newest
	csiProxy   string   // the program
	plugin     string   // the program kubectl-csi_proxy; "" for none
	windows    bool     // whether these two and the driver are Windows programs
	wine       string   // the directory of the Windows that they run on; "" if it is the first node's
	driver     []string // the command
	inProcess  bool     // whether CSI Proxy's code is in the driver, with the simulated node
	dir        string   // for logs and data
	seed       uint64
	only       string
	full       bool
	histories  int
	plant      bool
	cannot     map[string]string // why a scenario isn't for the driver
	table      string
	update     bool
	cloud      map[string]string // how volumes of the lab's cloud look; nil: the driver's Controller has its own
	share      map[string]string // of the volume on a share; nil: the driver has none
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
	flags.StringVar(&o.kubernetes, "kubernetes", "", "the `folder` of kube-apiserver, kube-controller-manager, kubelet, etcd, csi-provisioner, csi-attacher\n"+
		"and csi-resizer, which test/kubernetes/programs/setup prints; without it, only the flags are looked at")
	flags.StringVar(&o.kubelet, "kubelet", "", "the `program` kubelet; by default that of -kubernetes")
	flags.StringVar(&o.control, "control-plane", "", "the `version` of kube-apiserver and kube-controller-manager, as in v1.35; by default the newest")
	flags.StringVar(&o.csiProxy, "csi-proxy", "csi-proxy", "the `program` csi-proxy, with the simulated node")
	flags.StringVar(&o.plugin, "plugin", "", "the `program` kubectl-csi_proxy; by default its test isn't tried")
	flags.BoolVar(&o.windows, "windows", false, "kubelet, csi-proxy and the driver are Windows programs, which test/kubernetes/kubelet/run runs under Wine;\n"+
		"$SOCKET is an address of TCP, such as 127.0.0.1:10000")
	driver := flags.String("driver", "", "the `command` that starts the driver, in which $SOCKET, $ENDPOINTS, $STATE and $NODE are\n"+
		"the socket to serve at, the directory of CSI Proxy's sockets, one of the driver's own, and the node's name")
	flags.BoolVar(&o.inProcess, "in-process", false, "the driver has the library that is in the place of the published one, with package simulated,\n"+
		"and no csi-proxy is started")
	flags.Uint64Var(&o.seed, "seed", 1, "what the order of the scenarios, sizes, contents and so on are made from; 0 for another one each time")
	flags.StringVar(&o.only, "only", "", "the `names` of scenarios, separated by commas; by default all that are short")
	flags.BoolVar(&o.full, "full", false, "run the long scenarios, too")
	flags.IntVar(&o.histories, "histories", 0, "run so many scenarios that the seed makes up, in the place of the others")
	flags.BoolVar(&o.plant, "plant", false, "run the scenarios again with faults that must be noticed")
	flags.Func("cloud", "have the lab make and attach volumes, in the place of the driver's Controller: their `form`, as in\n"+
		"id=vol-0"+hashWord+",serial=vol0"+hashWord+",key=value; what is neither id nor the disk's serial number is in the publish context", pairs(&o.cloud))
	flags.Func("share", "the `parameters` of a volume on the share //files/data, or in the place of data\n"+
		volumeWord+" for a share of its own; by default no share is tried", pairs(&o.share))
	flags.BoolVar(&o.ec2, "ec2", false, "give the driver EC2's metadata service, at the address in AWS_EC2_METADATA_SERVICE_ENDPOINT")
	flags.Func("iscsi", "the `parameters` of a volume on the iSCSI target "+iscsiTarget+" at "+iscsiPortal+"; by default none is tried", pairs(&o.iscsi))
	flags.Func("writers", "the `parameters` of a volume to which the Users may write; by default none is tried", pairs(&o.writers))
	flags.Func("manifests", "the `folder` of a StorageClass, a claim and a pod to try as they are; a ClusterRole and its\n"+
		"binding there say what the sidecars may do", func(folder string) (err error) {
		o.manifests, err = readManifests(folder)
		return err
	})
	flags.Func("cannot", "`scenarios` that the driver can't pass, and why, as in read-only=reason,stats=reason: they aren't run", pairs(&o.cannot))
	flags.StringVar(&o.table, "table", "", "the `file` with what kubelet sent before, which it must send again")
	flags.BoolVar(&o.update, "update", false, "write the file of -table anew")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.driver = strings.Fields(*driver)
	if o.kubelet == "" {
		o.kubelet = filepath.Join(o.kubernetes, "kubelet")
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unknown argument %q", flags.Arg(0))
	case len(o.driver) == 0:
		return o, errors.New("-driver is missing: the command that starts the driver")
	case o.cloud != nil && o.share != nil:
		return o, errors.New("-share can't be with -cloud, which makes disks only")
	}
	if _, err := exec.LookPath(o.driver[0]); err != nil {
		return o, fmt.Errorf("-driver: %w", err)
	}
	for _, name := range slices.Concat(o.names(), slices.Sorted(maps.Keys(o.cannot))) {
		if !slices.ContainsFunc(o.scenarios(), func(d definition) bool { return d.name == name }) {
			return o, fmt.Errorf("-only, -cannot: there is no scenario %q", name)
		}
	}
	for o.seed == 0 {
		o.seed = rand.Uint64() >> 1
	}
	return o, nil
}

// scenarios returns all that there are.
func (o options) scenarios() []definition {
	return append(slices.Clone(scenarios), histories(o.histories)...)
}

// wants reports whether a scenario is to be run as it is.
func (o options) wants(d definition) bool {
	switch names := o.names(); {
	case !o.applies(d):
		return false
	case len(names) > 0:
		return slices.Contains(names, d.name)
	case o.histories > 0:
		return d.history
	default:
		return !d.long || o.full
	}
}

// applies reports whether a scenario can be run with the driver and its programs.
func (o options) applies(d definition) bool {
	has, optional := map[string]bool{
		"smb-secret": o.share != nil, "chap": o.iscsi != nil, "container-user": o.writers != nil, "manifests": o.manifests != nil,
		"test": o.plugin != "" && !o.windows, "upgrade": !o.windows,
	}[d.name]
	return has || !optional
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

func main() {
	o, err := parseFlags(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	if err == nil && o.kubernetes != "" {
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
	if o.dir, err = os.MkdirTemp("", "kubelet"); err != nil { // short: sockets are in it
		return err
	}
	defer func() {
		if err == nil {
			err = os.RemoveAll(o.dir)
		}
	}()
	fmt.Printf("seed %d, logs in %s\n", o.seed, o.dir)
	l := &lab{options: o}
	defer l.stop()
	if err := l.start(ctx); err != nil {
		return err
	}
	var results []result
	all := o.scenarios()
	for _, i := range rand.New(rand.NewPCG(o.seed, 0)).Perm(len(all)) {
		if o.wants(all[i]) {
			results = append(results, l.run(ctx, all[i], plant{}))
		}
	}
	for _, p := range plants {
		i := slices.IndexFunc(scenarios, func(d definition) bool { return d.name == p.scenario })
		if o.plant && o.wants(scenarios[i]) {
			results = append(results, l.run(ctx, scenarios[i], p))
		}
	}
	if err := report(results, o); err != nil || o.table == "" {
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
		record: &record{}, name: nodeName, node: func() *node { return l.current },
		driver: l.at.driver, socket: filepath.Join(l.dir, "controller.sock"),
		root: l.cluster.root, windows: l.windows,
	}
	l.wire.cloud = &cloud{like: l.options.cloud, nodeOf: l.wire.nodeOf}
	l.wire.instead.Store(l.options.cloud != nil)
	n, err := l.newNode(ctx)
	if n != nil {
		defer func() { err = errors.Join(err, n.stop()) }()
	}
	if err != nil {
		return err
	}
	var info csi.GetPluginInfoResponse
	if err := invoke(ctx, l.wire.driver, csi.Identity_GetPluginInfo_FullMethodName, &csi.GetPluginInfoRequest{}, &info); err != nil {
		return err
	}
	l.driver = info.Name
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

// sidecars are the helpers of a driver's Controller.
var sidecars = []string{"csi-provisioner", "csi-attacher", "csi-resizer"}

// startSidecars returns when they have asked the driver all that they want to know first: they end
// if it doesn't answer then.
func (l *lab) startSidecars(ctx context.Context) error {
	account, err := l.manifests.allow(ctx, l.cluster)
	if err != nil {
		return err
	}
	kubeconfig := filepath.Join(l.dir, "kubeconfig-sidecars")
	if err := l.cluster.Kubeconfig(kubeconfig, l.cluster.Config.BearerToken, account); err != nil {
		return err
	}
	for _, name := range sidecars { // their own limit of five requests a second would be what the scenarios measure
		if err := l.cluster.Start(name, exec.Command(
			filepath.Join(l.kubernetes, name), "--csi-address="+l.wire.socket, "--kubeconfig="+kubeconfig, "--timeout=2m",
			"--kube-api-qps=500", "--kube-api-burst=500", "--v=4")); err != nil {
			return err
		}
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
	if why := l.cannot(d); why != "" {
		r := result{definition: d, planted: planted, cannot: why}
		r.print()
		return r
	}
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
	inOrder(func() {
		var err error
		s.node, err = l.newNode(ctx)
		s.must(err)
		if l.cluster.stopped() { // with a scenario that went wrong
			s.must(l.cluster.startKubelet())
			s.must(l.cluster.awaitDriver(ctx, nodeName, l.driver))
		}
		s.succeeds(l.cluster.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name}}, metav1.CreateOptions{}))
		l.wire.watch(s.mounted)
		s.expected.repeated = append(slices.Clone(s.expected.repeated), attach, detach) // as the attacher is known to
		s.plant()
		if d.nodes == 2 {
			l.startSecond(s)
		}
		l.wire.cloud.begin(s)
		l.wire.instead.Store(s.second != nil || l.options.cloud != nil)
		d.run(s)
		s.finish()
	})
	if s.second != nil {
		if err := s.second.stop(); err != nil {
			s.wrong("%v", err)
		}
	}
	l.wire.interpose(nil)
	l.wire.watch(nil)
	r := s.result(d)
	if len(s.found) > 0 {
		inOrder(s.abandon)
	}
	l.wire.instead.Store(l.options.cloud != nil)
	cancel()
	if s.node != nil {
		if err := s.node.stop(); err != nil {
			r.found = append(r.found, err.Error())
		}
	}
	r.print()
	return r
}

// inOrder returns when a part of a scenario has ended, which [scenario.must] may end.
func inOrder(part func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		part()
	}()
	<-ended
}
