#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# build.sh  Print a folder that holds etcd, kube-apiserver and kubectl; build them there when they are missing.
# Sources come from the Go module proxy: needs Go 1.26 and about 4 GB of disk while it builds (10 minutes
# on two cores).  The folder is in the user's cache, so this happens once; an interrupted build resumes.
# KUBE_VERSION and ETCD_VERSION choose others.  Exit 77: no Go, or no way to the proxy.
set -euo pipefail

kube=${KUBE_VERSION:-1.36.3}
etcd=${ETCD_VERSION:-3.6.16}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/weightbridge
dir=$cache/kube-$kube-etcd-$etcd
go=$(command -v go || echo /usr/local/go/bin/go)

have() { [ -x "$dir/etcd" ] && [ -x "$dir/kube-apiserver" ] && [ -x "$dir/kubectl" ]; }
if have; then
	echo "$dir"
	exit 0
fi
[ -x "$go" ] || { echo "build.sh: no Go compiler to build kube-apiserver with" >&2; exit 77; }

mkdir -p "$dir/work"
exec 9>"$dir/lock"
flock 9
export GOFLAGS='-mod=mod -buildvcs=false' GOTOOLCHAIN=local GOWORK=off CGO_ENABLED=0 GOCACHE=$dir/work/objects
have && { echo "$dir"; exit 0; }

# module NAME MODULE VERSION: enter a main module that requires the wanted one, because
# `go install package@version` refuses modules that carry replaces.
module() {
	mkdir -p "$dir/work/$1"
	cd "$dir/work/$1"
	[ -f go.sum ] && return
	printf 'module build.invalid/%s\n\ngo 1.26.0\n\nrequire %s v%s\n\n' "$1" "$2" "$3" >go.mod
}

if [ ! -x "$dir/etcd" ]; then
	module etcd go.etcd.io/etcd/server/v3 "$etcd"
	"$go" build -trimpath -ldflags '-s -w' -o etcd go.etcd.io/etcd/server/v3 >&2 || exit 77
	mv etcd "$dir/etcd"
fi

# Kubernetes requires its staging modules at v0.0.0 with replaces that point into its own tree, which
# the proxy's archive lacks; each is published as k8s.io/NAME v0.MINOR.PATCH.
module kube k8s.io/kubernetes "$kube"
if ! grep -q '^replace' go.mod; then
	gomod=$(cd / && "$go" mod download -json "k8s.io/kubernetes@v$kube" | sed -n 's/.*"GoMod": "\(.*\)",/\1/p')
	[ -n "$gomod" ] || exit 77
	sed -n "s|^[[:space:]]*\(k8s.io/[a-z-]*\) => \./staging.*|replace \1 => \1 v0.${kube#1.}|p" "$gomod" >>go.mod
fi
minor=${kube#1.}
v=k8s.io/component-base/version
flags="-s -w -X $v.gitVersion=v$kube -X $v.gitMajor=1 -X $v.gitMinor=${minor%%.*} -X $v.gitTreeState=clean"
for program in kube-apiserver kubectl; do
	[ -x "$dir/$program" ] && continue
	"$go" build -trimpath -ldflags "$flags" -o "$program" "k8s.io/kubernetes/cmd/$program" >&2
	mv "$program" "$dir/$program"
done
cd "$dir"
rm -rf "$dir/work"
echo "$dir"
