# Copyright The CSI Proxy Authors.
# SPDX-License-Identifier: Apache-2.0

GO ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)

# The race detector needs a C compiler.
RACE ?= $(if $(shell command -v $${CC:-gcc} 2>/dev/null),-race)
LDFLAGS = -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)

# The time that released files give as theirs: that of the commit, in seconds since 1970.
SOURCE_DATE_EPOCH ?= $(or $(shell git log -1 --format=%ct 2>/dev/null),0)

# Git is asked once, for all programs of a run.
VERSION := $(VERSION)
COMMIT := $(COMMIT)
export SOURCE_DATE_EPOCH := $(SOURCE_DATE_EPOCH)
# No path and nothing of the working copy gets into a program: the same source and
# version make the same bytes.
#
# The caller's GOFLAGS (such as -mod=vendor), CGO_ENABLED and GOEXPERIMENT count.
#
# The tags leave code out of the programs that they don't use: of grpc golang.org/x/net/trace, whose
# templates keep the linker from removing unused methods; of net/http HTTP/2, which only TLS can negotiate.
TAGS := $(shell cat cmd/build-tags)
BUILD = CGO_ENABLED=$(or $(CGO_ENABLED),0) $(GO) build -trimpath -buildvcs=false -tags '$(TAGS)' -ldflags '$(LDFLAGS)'
# SIGN is a command that signs the files for Windows that it is called with, in place.
sign = $(if $(SIGN),$(SIGN) $(1))
WINRES = bin/winres -version '$(VERSION)' -commit '$(COMMIT)'

# Tools run on this machine, whatever system the programs are for. Their modules are
# their own: a vendor directory of the product doesn't have them.
FOR_TOOLS = GOOS= GOARCH= GOFLAGS=$(if $(wildcard tools/vendor),-mod=vendor) GOEXPERIMENT= CGO_ENABLED=0

# The modules in folders of their own.
MODULES_APART := $(patsubst ./%/go.mod,%,$(sort $(shell find . \( -name node_modules -o -name vendor -o -name .git -o -path ./bin -o -path ./dist \) \
	-prune -o -name go.mod -path './*/*' -print)))

WINDOWS_ARCHS = amd64 arm64
# Where the programs for Windows are.
BIN_windows-amd64 = bin
BIN_windows-arm64 = bin/windows-arm64
.DEFAULT_GOAL := help
# No target whose name is only letters and dashes is a file.
.PHONY: $(shell sed -n 's/^\([a-z-]*\):\( .*\)*$$/\1/p' Makefile deploy/packaging/release.mk)

help:
	@awk -F ':.*## ' '/^##@ / { print "\n" substr($$0, 5) } /^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' Makefile
	@printf '\nWhat CI runs is in .ci/, what only a release needs in deploy/packaging/release.mk. The comments in\nMakefile have more targets and variables.\n'

##@ See it

run: build-here ## start the daemon on a simulated Windows node, show a volume's life, keep serving
	@# At a terminal in a process group of its own, so that Ctrl-C is for it, and make ends with 0 as it does.
	@if [ -t 0 ]; then bash -mc 'test/demo --keep; exit $$?'; else test/demo --keep; fi

demo: build-here ## show a volume's life and exit; fails if a step has an unexpected result
	@test/demo

##@ Build it

ifeq ($(GOOS),windows)
BIN_windows-$(or $(GOARCH),amd64) = bin
build: build-windows-$(or $(GOARCH),amd64)
else
build: build-here build-windows-amd64 ## build csi-proxy and csi-proxyctl into bin/, for this system and Windows; GOOS=windows: only that
endif

build-here:
	@$(GO) list -deps ./cmd/... >/dev/null # says what it downloads
	@echo 'building csi-proxy and csi-proxyctl, which takes a minute or two the first time'
	@$(BUILD) -o bin/ ./cmd/...

# build-windows-arm64 builds into bin/windows-arm64/. What is linked for a system is in bin/.linked/<system>-<arch>/.
link-%: FORCE
	GOOS=$(word 1,$(subst -, ,$*)) GOARCH=$(word 2,$(subst -, ,$*)) $(BUILD) -o bin/.linked/$*/ ./cmd/...

build-windows-%: link-windows-% bin/winres
	$(WINRES) -description 'CSI Proxy: the storage operations of a node, for CSI drivers' \
		bin/.linked/windows-$*/csi-proxy.exe $(BIN_windows-$*)/csi-proxy.exe
	$(WINRES) -description 'CSI Proxy from the command line' \
		bin/.linked/windows-$*/csi-proxyctl.exe $(BIN_windows-$*)/csi-proxyctl.exe
	$(call sign,$(BIN_windows-$*)/csi-proxy.exe $(BIN_windows-$*)/csi-proxyctl.exe)

bin/winres bin/pack: bin/%: FORCE
	@$(FOR_TOOLS) $(GO) -C tools build -o ../bin/ ./$*

FORCE:

##@ Test it

# make test runs everything once without the race detector, which makes it 4 to 17 times slower,
# and with it what is concurrent. Tests that try very many cases try a sample.
#
# Of the modules apart from the product, only those that drivers import are tested here.
#
#
# The garbage collector takes a quarter of the processor time of tests that make a simulated node a thousand times,
# unless it waits for more garbage.
GO_TEST = $(GO) test -exec 'env GOGC=400'
CONCURRENT = ./internal/ops/operation ./internal/serve/server ./internal/serve/rpc
# Tests of what is concurrent in packages with many others have one of these words in their names.
CONCURRENT_TESTS = AtOneTime|Clients|Concurrently|Second|Together|Wait|Watch

DRIVER_MODULES = $(filter-out driver/examples/%,$(filter driver driver/%,$(MODULES_APART)))

test: ## run the tests, and those of concurrent code also with the race detector
	$(GO_TEST) -short ./...
	$(GO) -C test/windows test -short -count=1 ./...
	for module in $(DRIVER_MODULES); do $(GO) -C $$module test -short ./... || exit 1; done
	$(if $(RACE),$(MAKE) test-race,@echo 'nothing is run with the race detector, for lack of a C compiler')

# ALL=1: all tests, every night. The detector itself crashes with very many timers in a bubble of synctest
# (https://go.dev/issue/78156), such as those of TestDeadServers.
test-race: ## run the tests of concurrent code with the race detector
ifdef ALL
	$(GO_TEST) -race -short -timeout 20m -skip '^TestDeadServers$$' ./...
	$(GO) -C test/windows test -race -short -count=1 ./...
else
	$(GO_TEST) -race -short $(CONCURRENT)
	$(GO_TEST) -race -short -run '$(CONCURRENT_TESTS)' ./internal/serve/daemon ./internal/ops/...
endif

# Also the daemon with the published client, with what make test leaves out.
#
# PAIRS=all: each operation at each call of each other one instead, 17,792 pairs, half of them in one
# process, which take some 20 minutes of a processor. make test tries three calls of 40 pairs, and
# make test-resilience of 6,000, which takes a minute.
#
# SOAK=2m: each long, random test for so long instead; SOAK_SEED repeats one.
#
# PART=2/5: the second of five parts of the tests, as CI does: .ci/resilience chooses the part by the number of
# the commit, so five commits try all, and the same commit always the same.
PART_OF_TESTS = -run "^($$(grep -rhoE '^func Test\w+' --include='*_test.go' internal/ops internal/sim/winsim internal/lab/drivers internal/serve/daemon test/windows/published | \
	sort -u | awk 'NR % $(word 2,$(subst /, ,$(PART))) == $(word 1,$(subst /, ,$(PART))) - 1 { print $$2 }' | paste -sd '|'))$$"
test-resilience: ## test each operation with each mishap at each of its calls, of which make test tries samples
ifdef PAIRS
	$(GO_TEST) -timeout 0 -run '^TestPairs$$' ./internal/ops/nodeops
else ifdef SOAK
	$(GO_TEST) -count=1 -timeout 0 -run '^TestSoak' -v $(call packages_with,TestSoak)
else
	$(GO_TEST) -timeout 40m $(if $(PART),$(PART_OF_TESTS)) ./internal/ops/... ./internal/sim/winsim/... ./internal/lab/drivers
	$(GO_TEST) $(if $(PART),$(PART_OF_TESTS) -skip '^Test([^D]|D[^r])',-run '^TestDriver') ./internal/serve/daemon
	$(GO) -C test/windows test -count=1 -timeout 20m $(if $(PART),$(PART_OF_TESTS)) ./...
endif

# SAMPLES=1: also the samples of docs/go-authors.md. The first needs Node.js and npm, the second Python.
test-csi: build-here ## test the example driver: csi-sanity over the pipe and in process, and docs/test-your-driver.md
	$(GO) -C tools test -count=1 ./dropin
	$(GO) -C driver test $(RACE) -count=1 ./...
	$(GO) -C driver/examples/csi-driver test $(RACE) -count=1 -skip TestSanity ./...
	for via in pipe in-process; do \
		$(GO) -C driver/examples/csi-driver test $(RACE) -count=1 -run TestSanity -v . -via=$$via -ginkgo.no-color || exit 1; \
	done
	test/driver/quickstart
ifdef SAMPLES
	cd driver/examples/javascript && npm ci --ignore-scripts && npm test
	cd driver/examples/python && python3 -B sample_test.py
endif

# FROM=v1.2.2: also upgrades the chart of that commit (RELEASE.md). KUBEBUILDER_ASSETS: the folder of
# kube-apiserver and etcd that setup-envtest prints, in the place of those that are built.
test-cluster: build-here ## test deploy and the plugin for kubectl with Prometheus and a real kube-apiserver, which is built the first time
	$(if $(FROM),rm -rf bin/.before && mkdir -p bin/.before && git archive '$(FROM)' deploy/charts | tar -x -C bin/.before)
	bin=$${KUBEBUILDER_ASSETS:-$$(test/kubernetes/programs/setup kube-apiserver)} && CSI_PROXY_CLUSTER=$$bin \
		$(if $(FROM),CSI_PROXY_CHART_BEFORE=$(CURDIR)/bin/.before/deploy/charts/csi-proxy) \
		$(GO) -C test/kubernetes/cluster test -count=1 ./server ./monitoring

# The example driver under a real kubelet, with each fault that the test must notice. The first time
# it builds Kubernetes.
#
# WINE=1: all scenarios, with kubelet, the daemon and the driver as Windows programs, on named pipes,
# or one line if there is no Wine. Building kubelet takes ten minutes once.
#
# FULL=1: all scenarios and HISTORIES that the seed makes up, then with an older kubelet, with older
# Kubernetes, and WINE=1. Not in CI: it takes 30 minutes, and building these programs 40 more.
#
# DRIVER='smb ebs ebs-library', or one of these: drivers that others wrote, as Windows programs under Wine:
# SMB's and EBS' as they are published, from the Go module proxy or a clone of their repositories, as in
# SMB=master SMB_CLONE=../csi-driver-smb, and EBS' with our library in the place of the published one, and no
# CSI Proxy. Why some scenarios aren't for them is in docs/kubelet-lab.md. Every night (nightly.yml):
# building them takes ten minutes once, and they run for 30.
KUBELET_LAB = test/kubernetes/kubelet/run -manifests deploy/kustomize/example-driver/simulated -share type=smb,source=//files/data \
	-iscsi type=iscsi,targetPortal=192.0.2.1,iqn=iqn.2001-04.com.example:storage -writers volumeWriters=Users \
	-driver '$(KUBELET_DRIVER) -node-id $$NODE -state-dir $$STATE'
KUBELET_DRIVER = bin/csi-driver -endpoint unix://$$SOCKET -endpoint-dir $$ENDPOINTS
KUBELET_TABLE = -table driver/csinode/testdata/kubelet.jsonl
HISTORIES = 20
OLDER = life,number,expansion,two-pods,read-only,manifests,smb-secret,boot,kill,kill-kubelet,open-file,one-pod,in-doubt,refused
SMB = v1.20.3
EBS = v1.64.0
DRIVER_LAB = WINE_FOLDERS=$$(dirname "$$driver") test/kubernetes/kubelet/run -windows -full
EBS_LAB = $(DRIVER_LAB) -ec2 -cloud 'id=vol-0$$HASH,serial=vol0$$HASH,devicePath=/dev/xvdaa' \
	-cannot 'read-only=its volumes stay writable on Windows,stats=it asks Windows itself which is Wine here' \
	-cannot 'refused=it leaves the disk online when a format fails' \
	-cannot 'pulled=it does not unstage a volume whose disk is gone,attachment-deleted=as pulled,out-of-service=as pulled' \
	-cannot 'open-file=it unstages and its disk goes offline while a file is open' \
	-cannot 'directory-lost=it unstages a volume that is still published,volume-data-empty=as directory-lost' \
	-cannot 'block=it stages block devices and cannot publish them,ext4=it takes the volume as NTFS'
test-kubelet: ## test the example driver under a real kubelet, which is built the first time
ifdef DRIVER
test-kubelet: $(addprefix kubelet-with-,$(DRIVER))
else ifdef WINE
test-kubelet: KUBELET_DRIVER = bin/csi-driver.exe -endpoint tcp://$$SOCKET -simulated
test-kubelet:
	GOOS=windows GOARCH=amd64 CGO_ENABLED=0 $(GO) -C driver/examples/csi-driver build -trimpath -o ../../../bin/ .
	$(KUBELET_LAB) -windows -full -plant $(KUBELET_TABLE) || [ $$? = 77 ]
else
	CGO_ENABLED=0 $(GO) -C driver/examples/csi-driver build -trimpath -o ../../../bin/ .
	$(KUBELET_LAB) $(if $(FULL),-full) -plant $(KUBELET_TABLE)
ifdef FULL
	$(KUBELET_LAB) -seed 0 -histories $(HISTORIES)
	KUBELET=v1.35 $(KUBELET_LAB) $(KUBELET_TABLE) -only $(OLDER)
	KUBERNETES=v1.35 $(KUBELET_LAB) $(KUBELET_TABLE) -only $(OLDER)
	$(MAKE) test-kubelet WINE=1 FULL=
endif
endif

SOURCE_smb = $(SMB) $(SMB_CLONE)
RUN_smb = $(DRIVER_LAB) -share 'source=//files/$$VOLUME' -driver "$$driver --endpoint=tcp://\$$SOCKET --nodeid=\$$NODE"
SOURCE_ebs = $(EBS) $(EBS_CLONE)
RUN_ebs = $(EBS_LAB) -driver "$$driver node --endpoint=tcp://\$$SOCKET"
SOURCE_ebs-library = $(SOURCE_ebs)
RUN_ebs-library = $(EBS_LAB) -in-process -driver "$$driver node --windows-host-process --endpoint=tcp://\$$SOCKET"
kubelet-with-%: FORCE
	driver=$$(test/kubernetes/kubelet/drivers/build $* $(SOURCE_$*)) && $(RUN_$*) || [ $$? = 77 ]

# The programs, and the example driver's beside the daemon on a simulated node.
#
# ALL=1: also the tests of internal/ops and internal/sim, every night: they have no code of their own for
# Windows, take most of the time, and run on Linux at each change.
#
# OWN=1: instead SMB's and EBS' drivers, as for test-kubelet, side by side, each with endpoints of its own. Every
# night: building the drivers takes ten minutes once.
test-windows: ## test the Windows programs under Wine; says so and skips if there is no Wine
ifdef OWN
	ebs=$$(test/kubernetes/kubelet/drivers/build ebs $(SOURCE_ebs)) && smb=$$(test/kubernetes/kubelet/drivers/build smb $(SOURCE_smb)) && \
		test/driver/lab/own "$$ebs" "$$smb" || [ $$? = 77 ]
else
	test/wine/test-windows $(if $(ALL),--all)
	test/driver/lab/test
endif

# MODULES=1: the modules apart from the product instead: what they need must not become its own.
#
# That of Kubernetes' programs is vetted by .ci/kubelet, which has built them: they take minutes.
SIDE_MODULES = $(filter-out test/kubernetes/programs,$(MODULES_APART))
# Those that have a side for Windows.
WINDOWS_SIDE_MODULES = test/windows cmd/kubectl-csi_proxy $(filter driver driver/%,$(MODULES_APART))
# Those that are released, which drivers import or people install.
RELEASED_MODULES = cmd/kubectl-csi_proxy $(DRIVER_MODULES)

# For .ci/vulnerabilities.
list-modules:
	@printf '%s\n' $(RELEASED_MODULES)

lint: $(if $(MODULES),$(addprefix lint/,$(SIDE_MODULES)),bin/staticcheck) ## check formatting, vet for Linux and Windows, staticcheck
ifndef MODULES
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "not formatted: $$unformatted"; exit 1; }
	$(GO) vet ./...
	for arch in $(WINDOWS_ARCHS); do \
		CGO_ENABLED=0 GOOS=windows GOARCH=$$arch $(GO) vet ./... && \
		CGO_ENABLED=0 GOOS=windows GOARCH=$$arch $(GO) vet -tags '$(TAGS),simulated' ./cmd/... || exit 1; \
	done
	@# Together, so that what only one system uses isn't taken as unused.
	printf 'linux: GOOS=linux\nwindows: GOOS=windows\nsimulated: GOOS=windows -tags=$(TAGS),simulated\n' | CGO_ENABLED=0 bin/staticcheck -matrix ./...
endif

# Its cache has the names of files; with -trimpath, another checkout's would be taken for this one's.
lint lint/%: export STATICCHECK_CACHE = $(CURDIR)/bin/staticcheck-cache

# lint/driver is for that module.
lint/%: bin/staticcheck FORCE
	$(GO) -C $* vet ./...
	$(if $(filter $*,tools $(WINDOWS_SIDE_MODULES)),for arch in $(WINDOWS_ARCHS); do CGO_ENABLED=0 GOOS=windows GOARCH=$$arch $(GO) -C $* vet $(if $(filter $*,tools),./dropin,./...) || exit 1; done)
	cd $* && printf 'linux: GOOS=linux\n$(if $(filter $*,$(WINDOWS_SIDE_MODULES)),windows: GOOS=windows\n)' | CGO_ENABLED=0 $(CURDIR)/bin/staticcheck -matrix ./...

bin/staticcheck: tools/go.mod
	$(FOR_TOOLS) $(GO) -C tools build -o ../bin/staticcheck honnef.co/go/tools/cmd/staticcheck

# How long each fuzz target runs.
FUZZTIME ?= 20s
# The packages of the product that have functions of a kind in their tests.
packages_with = $(shell grep -rlE '^func $(1)' --include='*_test.go' --exclude-dir=test --exclude-dir=tools --exclude-dir=driver . | \
	xargs -r -n1 dirname | sort -u)

# In whichever module a target is. A target that fails doesn't keep the others from running.
fuzz: ## fuzz each decoder for FUZZTIME, 20s unless given
	@failed=; \
	for package in $$(grep -rlE '^func Fuzz' --include='*_test.go' . | xargs -r -n1 dirname | sort -u); do \
		listed=$$($(GO) -C $$package test -list '^Fuzz' .) || { echo "$$listed"; exit 1; }; \
		for target in $$(echo "$$listed" | grep '^Fuzz'); do \
			echo "$$package $$target" && \
			$(GO) -C $$package test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x . || \
				failed="$$failed $$target"; \
		done; \
	done; \
	[ -z "$$failed" ] || { echo "FAIL:$$failed"; exit 1; }

# How often each is measured: benchstat wants six samples.
SAMPLES_OF_EACH = 6
# PEERS='v1.2.1.exe v1.3.0.exe': also other daemons, under Wine.
bench: ## measure times, memory and size; benchstat compares the output. Only ratios within one run are comparable
	@echo 'commit: $(VERSION)'; date -u '+date: %Y-%m-%d'
	$(GO) test -run '^$$' -bench . -benchtime 1s -count $(SAMPLES_OF_EACH) ./internal/lab/bench
	test/wine/compare-windows $(PEERS)

##@ Write it

figures: build-windows-amd64 ## write what operations cost on every machine as it is now: internal/lab/bench/figures.txt
	$(GO) test -count=1 -run '^TestFigures$$' ./internal/lab/bench -update
	deploy/packaging/check-size -update bin/csi-proxy.exe bin/csi-proxyctl.exe

generate: build-here ## regenerate the generated code and pages; the C side needs gcc-mingw-w64-x86-64
	$(FOR_TOOLS) $(GO) -C tools run ./protogen
	bin/csi-proxy -help 2>&1 | $(GO) run -tags reference ./cmd/csi-proxy
	$(GO) run -tags reference ./cmd/csi-proxyctl
	$(GO) run ./internal/lab/errorspage
	$(FOR_TOOLS) $(GO) -C tools run ./facts
	$(GO) test -count=1 -run '^TestGoAPI$$' ./test/repository -update
	$(GO) -C test/kubernetes/cluster run ./chartreadme <deploy/charts/csi-proxy/values.yaml >bin/chart-readme.md && \
		mv bin/chart-readme.md deploy/charts/csi-proxy/README.md
	$(GO) -C test/kubernetes/cluster run ./kustomize ../../../deploy
	cp NOTICE driver/compat/csi-proxy/v2/
	$(GO) generate ./internal/...
	@if command -v x86_64-w64-mingw32-gcc >/dev/null; then $(GO) -C internal/windows/win/testdata/abi run print.go; \
		else echo 'skipped: internal/windows/win/testdata/abi, for lack of x86_64-w64-mingw32-gcc'; fi

# BASE=/csi-proxy/: for a server that has the site at this path.
docs: ## build docs/ as a site with a search, into bin/docs/; needs Node.js and npm
	cd tools/site && npm ci --ignore-scripts && npm run build

# What follows is for CI, and for those who work on the part that it tests.

# Fails if there are any, every night (nightly.yml).
list-old-facts:
	@$(FOR_TOOLS) $(GO) -C tools run ./facts -weeks 8

# The tools that builds and releases use.
#
# PUBLISH=1: publish to a registry of the test instead, and run the simulated node's image from there. As root.
# DIST=1: install from the files in dist/ instead, as installers of Windows nodes do.
test-tools:
ifdef DIST
	CSI_PROXY_DIST='$(CURDIR)/dist' $(FOR_TOOLS) $(GO) -C tools test -count=1 -run '^TestInstallers$$' -v ./release
else
	$(if $(PUBLISH),CSI_PROXY_PUBLISH='$(CURDIR)') $(FOR_TOOLS) $(GO) -C tools test \
		$(if $(PUBLISH),-count=1 -run '^TestPublish$$' -v ./release/image,./...)
	@# Go doesn't see a change of the pages, which are outside of that module, and would print the last result.
	$(if $(PUBLISH),,$(FOR_TOOLS) $(GO) -C tools test -count=1 ./facts)
endif

# The manifests and the chart in deploy, and the plugin for kubectl, without a server.
test-deploy:
	$(GO) -C test/kubernetes/cluster test -count=1 .
	$(GO) -C cmd/kubectl-csi_proxy test ./...

include deploy/packaging/release.mk
