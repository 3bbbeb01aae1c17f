# Copyright The CSI Proxy Authors.
# SPDX-License-Identifier: Apache-2.0
#
# What the scripts beside it share. Sourced first; the working directory is the repository's root then.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# What a machine can't run is skipped elsewhere, with exit code 77. Here that is a failure.
export SKIPPED=1

# -trimpath: what is compiled in one folder isn't compiled again in another. -tags and CGO_ENABLED: tests have the
# code that the programs have, and share the compiled packages with them. -vet=off: .ci/change and .ci/generated run
# go vet, which has all that go test would vet again.
GOFLAGS="${GOFLAGS-} -trimpath -vet=off -tags=$(cat cmd/build-tags)"
export GOFLAGS CGO_ENABLED=0

# need PACKAGE... installs Debian's packages that aren't there. Root only. The lanes of .ci/run take turns.
need() {
	local missing=() package lock
	exec {lock}>/tmp/csi-proxy-need.lock
	flock "$lock"
	for package in "$@"; do
		[ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
	done
	[ ${#missing[@]} = 0 ] || {
		apt-get update -qq
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
	}
	exec {lock}>&-
}

# step COMMAND... says what it runs, how long it took, and how much time of the processors. What fails, or leaves a
# file among the sources, ends the script.
step() {
	printf '\n== %s\n' "$*"
	local before TIMEFORMAT="== $*: %0R s; processor time %0U s user, %0S s system"
	before=$(git status --porcelain)
	time "$@"
	[ "$before" = "$(git status --porcelain)" ] || {
		git --no-pager diff
		printf '%s has changed these files:\n' "$*"
		git status --porcelain
		return 1
	}
}

# as_plain_user COMMAND... runs it as a user without rights, with nothing in its home directory, in a copy of the
# repository. TMPDIR is so long that no socket's path fits below it. What root has compiled isn't compiled again:
# the files of root's build cache, which nobody changes, are linked into one of the user's own. Results of
# tests there don't count.
as_plain_user() {
	id csi-proxy-ci >/dev/null 2>&1 || useradd --create-home csi-proxy-ci
	local scratch
	scratch=$(mktemp -d)
	mkdir -p "$scratch/temporary files/$(printf '%0100d' 0)"
	cp -r . "$scratch/copy"
	chown -R csi-proxy-ci: "$scratch"
	cp -rlT "$(go env GOCACHE)" "$scratch/go-build" 2>/dev/null || cp -rT "$(go env GOCACHE)" "$scratch/go-build"
	rm -f "$scratch/go-build/trim.txt"
	find "$scratch/go-build" -type d -exec chown csi-proxy-ci: {} +
	setpriv --reuid csi-proxy-ci --regid csi-proxy-ci --init-groups env -i -C "$scratch/copy" PATH="$PATH" \
		HOME="$(getent passwd csi-proxy-ci | cut -d: -f6)" GOFLAGS="$GOFLAGS -count=1" CGO_ENABLED=$CGO_ENABLED \
		GOCACHE="$scratch/go-build" TMPDIR="$(echo "$scratch"/temporary*/0*)" "$@" || return
	rm -rf "$scratch"
}
