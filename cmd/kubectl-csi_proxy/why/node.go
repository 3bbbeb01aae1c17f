// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package why

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-proxy/csi-proxy/cmd/kubectl-csi_proxy/cluster"
)

// checkDrivers adds the drivers on the pod's node, and what they need there.
func (c *chain) checkDrivers(ctx context.Context, drivers []string) {
	if len(drivers) == 0 {
		return
	}
	pods, err := cluster.PodsOn(ctx, c.Client, []*core.Node{c.node})
	if err != nil {
		c.unread(KindDriver, c.node.Name, err)
	}
	needDaemon := false
	for _, driver := range drivers {
		isRegistered := c.checkRegistration(ctx, driver)
		if err == nil && c.checkDriver(pods[c.node.Name], driver, isRegistered) {
			needDaemon = true
		}
	}
	if c.node.Labels[core.LabelOSStable] != "windows" {
		c.add(KindDaemon, c.node.Name, OK, "the node doesn't run Windows, and needs no CSI Proxy", "")
		return
	}
	pod := c.checkDaemon(ctx, needDaemon || err != nil)
	if c.Doctor != nil && pod != nil {
		c.checkDoctor(ctx, pod)
	}
}

// checkRegistration adds whether a driver is registered with the node's kubelet, and reports it. What
// can't be read counts as registered, so that nothing is called broken for it.
func (c *chain) checkRegistration(ctx context.Context, driver string) bool {
	registered, err := c.Client.StorageV1().CSINodes().Get(ctx, c.node.Name, meta.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		c.unread(KindRegistration, driver, err)
		return true
	}
	if err == nil {
		for _, d := range registered.Spec.Drivers {
			if d.Name == driver {
				c.add(KindRegistration, driver, OK, "kubelet has the driver", "")
				return true
			}
		}
	}
	c.add(KindRegistration, driver, Broken, fmt.Sprintf("the driver isn't registered with kubelet on %s", c.node.Name),
		"deploy the driver's node plugin for Windows; if its pod runs, read the log of its node-driver-registrar")
	return false
}

// checkDriver adds the driver's pod, and reports whether the driver calls CSI Proxy, as far as its pod
// shows that.
func (c *chain) checkDriver(pods []core.Pod, driver string, isRegistered bool) (callsDaemon bool) {
	pod := driverPod(pods, driver)
	if pod == nil {
		if isRegistered {
			c.add(KindDriver, driver, Unknown, `no pod of the node has the directory plugins\`+driver+
				", so which pod is the driver's isn't known", "")
			return true
		}
		c.add(KindDriver, driver, Broken, fmt.Sprintf("the node %s has no pod of the driver", c.node.Name),
			"deploy the driver's node plugin for Windows, and let its DaemonSet tolerate the node's taints")
		return true
	}
	object := podName(pod)
	if !cluster.PodIsReady(pod) {
		c.add(KindDriver, object, Broken, "it isn't ready: "+oneLine(cluster.WhyNotReady(pod)),
			fmt.Sprintf("kubectl -n %s logs %s --all-containers --previous", pod.Namespace, pod.Name))
		return mountsPipe(pod) || !isHostProcess(pod)
	}
	switch {
	case mountsPipe(pod):
		c.add(KindDriver, object, OK, "ready; it calls CSI Proxy", "")
	case isHostProcess(pod):
		c.add(KindDriver, object, OK, "ready; a HostProcess container that mounts no pipe of CSI Proxy", "")
		return false
	default:
		c.add(KindDriver, object, OK, "ready", "")
	}
	return true
}

// driverPod returns the pod of a driver: the one that names the driver's directory below kubelet's,
// where its socket is, in a host path, an argument or a variable.
func driverPod(pods []core.Pod, driver string) *core.Pod {
	isDirectory := func(text string) bool {
		text = strings.ToLower(strings.ReplaceAll(text, `\`, "/")) + "/"
		return strings.Contains(text, "/plugins/"+strings.ToLower(driver)+"/")
	}
	i := slices.IndexFunc(pods, func(p core.Pod) bool {
		for _, v := range p.Spec.Volumes {
			if v.HostPath != nil && isDirectory(v.HostPath.Path) {
				return true
			}
		}
		for _, container := range p.Spec.Containers {
			if slices.ContainsFunc(slices.Concat(container.Command, container.Args), isDirectory) ||
				slices.ContainsFunc(container.Env, func(e core.EnvVar) bool { return isDirectory(e.Value) }) {
				return true
			}
		}
		return false
	})
	if i < 0 {
		return nil
	}
	return &pods[i]
}

// MountsPipe reports whether the driver's pod of a node, one of these, mounts a pipe of CSI Proxy.
func MountsPipe(pods []core.Pod, driver string) bool {
	pod := driverPod(pods, driver)
	return pod != nil && mountsPipe(pod)
}

func mountsPipe(pod *core.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v core.Volume) bool {
		return v.HostPath != nil && strings.HasPrefix(strings.ToLower(v.HostPath.Path), `\\.\pipe\csi-proxy-`)
	})
}

func isHostProcess(pod *core.Pod) bool {
	hostProcess := func(w *core.WindowsSecurityContextOptions) bool {
		return w != nil && w.HostProcess != nil && *w.HostProcess
	}
	if s := pod.Spec.SecurityContext; s != nil && hostProcess(s.WindowsOptions) {
		return true
	}
	return slices.ContainsFunc(pod.Spec.Containers, func(container core.Container) bool {
		return container.SecurityContext != nil && hostProcess(container.SecurityContext.WindowsOptions)
	})
}

// checkDaemon adds CSI Proxy on the node, and what Windows does for it. It returns CSI Proxy's pod; nil
// if there is none, or it can't be read.
func (c *chain) checkDaemon(ctx context.Context, isNeeded bool) *core.Pod {
	pods, err := cluster.DaemonPods(ctx, c.Client, c.Namespace)
	if err != nil {
		c.unread(KindDaemon, c.node.Name, err)
		return nil
	}
	pod := pods[c.node.Name]
	version := c.node.Annotations[cluster.VersionAnnotation]
	broken := func(object, finding, advice string) {
		if isNeeded {
			c.add(KindDaemon, object, Broken, finding, advice)
		} else {
			c.add(KindDaemon, object, OK, finding+", and the driver doesn't seem to need it", "")
		}
	}
	switch {
	case pod == nil && version != "":
		c.add(KindDaemon, c.node.Name, Unknown, fmt.Sprintf("something else than a pod has installed CSI Proxy %s, so its "+
			"state isn't seen from here", version), "csi-proxyctl status on the node says whether it is ready")
		return nil
	case pod == nil:
		broken(c.node.Name, fmt.Sprintf("the namespace %s has no pod of CSI Proxy on the node", c.Namespace),
			"install CSI Proxy (docs/install.md), or name its namespace with --csi-proxy-namespace; another's daemon "+
				"may still serve the node")
		return nil
	case !cluster.PodIsReady(pod):
		broken(podName(pod), "it isn't ready: "+oneLine(cluster.WhyNotReady(pod)),
			"its log and csi-proxyctl doctor say more; a daemon that is drained takes no calls until it is started again")
		return pod
	}
	metrics, err := cluster.ReadMetrics(ctx, c.Client, pod)
	switch {
	case errors.Is(err, cluster.ErrLocal):
		c.add(KindDaemon, podName(pod), OK, "ready", "")
		c.add(KindWindows, c.node.Name, Unknown, "the daemon serves its metrics on its node only, so which calls hang isn't seen",
			"serve them to the cluster (docs/monitoring.md), or run this command with --exec, as an administrator of the nodes")
		return pod
	case err != nil:
		c.add(KindDaemon, podName(pod), OK, "ready", "")
		c.unread(KindWindows, c.node.Name, err)
		return pod
	}
	if ready, ok := metrics.Value("csi_proxy_ready", "", ""); ok && ready == 0 {
		broken(podName(pod), "it takes no calls: it is drained, or another process holds its pipes",
			"its log says which; a new pod of CSI Proxy takes calls again")
	} else {
		c.add(KindDaemon, podName(pod), OK, "ready", "")
	}
	c.checkWindows(metrics)
	return pod
}

// usualTime is how long Windows may work on a call without anything being wrong, for the calls that
// take minutes on a disk that is well.
var usualTime = map[string]time.Duration{"MSFT_Volume.Format": 10 * time.Minute, "MSFT_Volume.Repair": 24 * time.Hour}

// checkWindows adds what Windows does for the daemon.
func (c *chain) checkWindows(metrics cluster.Metrics) {
	hangs := metrics.Series("csi_proxy_windows_hanging_call_start_time_seconds")
	slices.SortFunc(hangs, func(a, b cluster.Series) int {
		if a.Value < b.Value {
			return -1
		}
		return 1
	})
	for _, hang := range hangs {
		call, object := hang.Labels["call"], hang.Labels["object"]
		since := c.age(time.UnixMilli(int64(hang.Value * 1000)))
		switch usual, isSlow := usualTime[call]; {
		case isSlow && since < usual && call == "MSFT_Volume.Format":
			c.add(KindWindows, object, Waiting, fmt.Sprintf("Windows has been formatting for %v, which can take minutes", since), "")
		case isSlow && since < usual:
			c.add(KindWindows, object, Waiting, fmt.Sprintf("Windows has been checking the volume for %v", since), "")
		default:
			c.add(KindWindows, object, Broken, fmt.Sprintf("Windows hasn't answered %s for %v", call, since),
				"look at the storage behind the object. Whether it is this pod's isn't seen from here. A restart of the daemon "+
					"doesn't help: Windows keeps the call; if the storage is well, drain the node and restart it")
		}
	}
	if len(hangs) == 0 {
		c.add(KindWindows, c.node.Name, OK, "no call hangs", "")
	}
}

// checkDoctor adds the problems that csi-proxyctl doctor finds on the node.
func (c *chain) checkDoctor(ctx context.Context, pod *core.Pod) {
	problems, err := c.Doctor(ctx, pod)
	for _, problem := range problems {
		c.add(KindDoctor, c.node.Name, Broken, oneLine(problem), cluster.Command(pod, "doctor")+" has the details")
	}
	switch {
	case err != nil:
		c.unread(KindDoctor, c.node.Name, err)
	case len(problems) == 0:
		c.add(KindDoctor, c.node.Name, OK, "csi-proxyctl doctor has found no problem", "")
	}
}

// checkLastErrors adds kubelet's last errors about mounts, unless the pod has its volumes.
func (c *chain) checkLastErrors() {
	if c.hasVolumes() {
		return
	}
	failed := newest(slices.DeleteFunc(slices.Clone(c.events), isSummary), "FailedMount", "FailedMapVolume")
	if failed == nil {
		if c.Overdue && !slices.ContainsFunc(c.links, func(l Link) bool { return l.State == Broken }) {
			c.add(KindLastError, podName(c.pod), Broken, "none, but kubelet still waits for the volumes",
				"the log of the driver's pod on the node says what it waits for")
		}
		return
	}
	c.add(KindLastError, podName(c.pod), Broken, fmt.Sprintf("%v ago: %s", c.age(lastSeen(failed)), oneLine(failed.Message)),
		"docs/troubleshooting.md explains CSI Proxy's errors by class; csi-proxyctl doctor looks at the node")
}

// isSummary reports whether an event only says that some volume isn't mounted yet.
func isSummary(e *core.Event) bool {
	return strings.Contains(e.Message, "Unable to attach or mount volumes")
}

// hasVolumes reports whether kubelet has mounted the pod's volumes, which it does before anything else
// of the pod is made.
func (c *chain) hasVolumes() bool {
	for _, condition := range c.pod.Status.Conditions {
		if condition.Type == core.PodReadyToStartContainers && condition.Status == core.ConditionTrue {
			return true
		}
	}
	statuses := slices.Concat(c.pod.Status.InitContainerStatuses, c.pod.Status.ContainerStatuses)
	return slices.ContainsFunc(statuses, func(s core.ContainerStatus) bool {
		return s.State.Waiting == nil || s.State.Waiting.Reason != "ContainerCreating" && s.State.Waiting.Reason != "PodInitializing"
	})
}

// checkContainers adds what the pod waits for if it isn't a volume.
func (c *chain) checkContainers() {
	switch {
	case c.pod.Spec.NodeName == "" || c.pod.DeletionTimestamp != nil:
	case !c.hasVolumes():
		if !slices.ContainsFunc(c.links, func(l Link) bool { return l.State != OK }) {
			c.add(KindContainers, podName(c.pod), Waiting, fmt.Sprintf("kubelet hasn't mounted the volumes yet, and has reported no "+
				"error; the pod is %v old", c.age(c.pod.CreationTimestamp.Time)), "")
		}
	case cluster.PodIsReady(c.pod):
		c.add(KindContainers, podName(c.pod), OK, "the volumes are mounted, and the pod is ready", "")
	default:
		c.add(KindContainers, podName(c.pod), Broken, "the volumes are mounted; what isn't ready is something else: "+
			oneLine(cluster.WhyNotReady(c.pod)), "kubectl describe pod, and the container's log")
	}
}
