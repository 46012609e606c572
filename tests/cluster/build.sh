#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# build.sh [PART...]  Print a folder that holds the programs of the parts; build there what is missing.
#   api   etcd, kube-apiserver, kubectl (the default)
#   helm  helm
#   node  kube-controller-manager, kube-scheduler, kubelet, kube-proxy, containerd with its shim and ctr,
#         runc, CNI plugins (cni/), coredns
#   controllers  kube-controller-manager, and in controllers/ those of JobSet, LeaderWorkerSet, TrainJob and KubeRay,
#         each with its kinds (crds/) and its chart (chart/)
#   rdma  k8s-rdma-shared-dev-plugin, with its DaemonSet and ConfigMap (rdma/)
# Sources come from the Go module proxy (GOPROXY), and where there is no Go 1.26 the compiler, too.  Needs about
# 6 GB of disk while it builds (api 10 minutes on two cores, helm 2, node 10, controllers 8); runc also a C compiler and
# libseccomp-dev.  The folder is in the user's cache, so this happens once; an interrupted build resumes.
# KUBE_VERSION and ETCD_VERSION choose others.  Exit 77: no way to the proxy.  Says on stderr which program of
# which part it is at, how many there are, and about how many minutes are left.
set -euo pipefail

kube=${KUBE_VERSION:-1.36.3}
etcd=${ETCD_VERSION:-3.6.16}
helm=3.21.4 containerd=2.2.9 runc=1.4.3 cni=1.9.1 coredns=1.15.0
jobset=0.11.1 lws=0.8.0 trainer=2.2.0 ray=1.6.0 rdma=1.5.3
[ $# -gt 0 ] || set -- api
cache=${XDG_CACHE_HOME:-$HOME/.cache}/weightbridge
dir=$cache/kube-$kube-etcd-$etcd
here=$(cd "$(dirname "$0")" && pwd)

programs() { # PART
	case $1 in
	api) echo etcd kube-apiserver kubectl ;;
	helm) echo "helm-$helm" ;;
	rdma) echo "rdma-$rdma/k8s-rdma-shared-dp" ;;
	node)
		echo kube-controller-manager kube-scheduler kubelet kube-proxy "containerd-$containerd/containerd" \
			"containerd-$containerd/containerd-shim-runc-v2" "containerd-$containerd/ctr" "runc-$runc" \
			"cni-$cni/bridge" "cni-$cni/loopback" "cni-$cni/host-local" "cni-$cni/portmap" "coredns-$coredns"
		;;
	controllers)
		echo kube-controller-manager "controllers/jobset-$jobset/jobset" "controllers/lws-$lws/lws" \
			"controllers/trainer-$trainer/trainer" "controllers/ray-operator-$ray/ray-operator"
		;;
	*) echo "build.sh: no part $1" >&2; exit 2 ;;
	esac
}
have() { # PROGRAM...
	local program
	for program; do [ -x "$dir/$program" ] || return 1; done
}
wanted=()
for part; do
	read -ra list <<<"$(programs "$part")"
	wanted+=("${list[@]}")
done
# Names without a version, for those who use them.
finish() {
	for p in "helm:helm-$helm" "containerd:containerd-$containerd/containerd" "ctr:containerd-$containerd/ctr" \
		"containerd-shim-runc-v2:containerd-$containerd/containerd-shim-runc-v2" "runc:runc-$runc" \
		"cni:cni-$cni" "coredns:coredns-$coredns" "rdma:rdma-$rdma"; do
		[ ! -e "$dir/${p#*:}" ] || [ "$(readlink "$dir/${p%%:*}")" = "${p#*:}" ] || ln -sfn "${p#*:}" "$dir/${p%%:*}"
	done
	echo "$dir"
	exit 0
}
if have "${wanted[@]}"; then finish; fi

# The compiler that is here, if it is new enough, else the proxy's, checked against the sum database's word.
go_version=1.26.8
declare -A go_sha256=([amd64]=30c2b1bf7dcc88d3eb0a1364e47ddd9128edb3110a30e8a0ef61cd5856b31de7
	[arm64]=02b36b6787b3ac767668f630e2998df45a3b1f9ffee08d1bf3ef6487cd658d99)
find_go() {
	local arch zip top=$cache/go-$go_version name proxy=${GOPROXY:-https://proxy.golang.org}
	for go in "$(command -v go || true)" /usr/local/go/bin/go "$top/bin/go"; do
		[ ! -x "$go" ] || [ "$(printf '%s\n' go1.26 "$(GOTOOLCHAIN=local "$go" env GOVERSION)" | sort -V | head -1)" \
			!= go1.26 ] || return 0
	done
	arch=$(uname -m | sed 's/x86_64/amd64/; s/aarch64/arm64/') proxy=${proxy%%[,|]*}
	name=golang.org/toolchain@v0.0.1-go$go_version.linux-$arch zip=$cache/go-$go_version.zip
	[ -n "${go_sha256[$arch]:-}" ] || { echo "build.sh: no Go $go_version for $arch" >&2; exit 77; }
	echo "build.sh: fetching Go $go_version" >&2
	curl -fsSL --connect-timeout 20 -o "$zip" "$proxy/${name/@/\/@v\/}.zip" ||
		{ echo "build.sh: no Go $go_version here, and none from $proxy" >&2; exit 77; }
	echo "${go_sha256[$arch]}  $zip" | sha256sum --check --quiet >&2
	rm -rf "$top" "$top.new"
	python3 -m zipfile -e "$zip" "$top.new"
	chmod -R +x "$top.new/$name/bin" "$top.new/$name/pkg/tool"
	mv "$top.new/$name" "$top"
	rm -rf "$top.new" "$zip"
	go=$top/bin/go
}

mkdir -p "$dir/work"
exec 9>"$dir/lock"
flock 9
if have "${wanted[@]}"; then finish; fi
find_go

# About how many seconds a program takes on two cores, after those before it: they share packages.
declare -A seconds=([etcd]=60 [kube-apiserver]=240 [kubectl]=30 [helm]=120 [containerd]=120
	[containerd-shim-runc-v2]=20 [ctr]=20 [bridge]=20 [loopback]=5 [host-local]=5 [portmap]=5 [runc]=30
	[jobset]=150 [lws]=30 [trainer]=60 [ray-operator]=90 [k8s-rdma-shared-dp]=40
	[kube-controller-manager]=120 [kube-scheduler]=30 [kubelet]=90 [kube-proxy]=30 [coredns]=120)
part='' started=$SECONDS missing=() # programs, when this began
for program in "${wanted[@]}"; do have "$program" || missing+=("$program"); done
# seconds_of PROGRAM...: of all together; a version in a name, and its folder, do not count.
seconds_of() {
	local program sum=0
	for program; do
		program=${program##*/}
		sum=$((sum + ${seconds[$program]:-${seconds[${program%-[0-9]*}]:-60}}))
	done
	echo "$sum"
}
# tell PROGRAM: which one is built now.  What is left is scaled by how fast those before it were.
tell() {
	local program built=() left=() all took=$((SECONDS - started)) minutes
	for program in "${missing[@]}"; do
		if have "$program"; then built+=("$program"); else left+=("$program"); fi
	done
	all=$(seconds_of "${left[@]}")
	[ ${#built[@]} = 0 ] || all=$((all * took / $(seconds_of "${built[@]}")))
	minutes=$(((all + 59) / 60))
	[ "$minutes" -gt 0 ] || minutes=1
	echo "build.sh: part $part, program $((${#built[@]} + 1)) of ${#missing[@]}: ${1##*/}, about $minutes min left" >&2
}
export GOFLAGS='-mod=mod -buildvcs=false' GOTOOLCHAIN=local GOWORK=off CGO_ENABLED=0 GOCACHE=$dir/work/objects

# module NAME MODULE VERSION: enter a main module that requires the wanted one, because
# `go install package@version` refuses modules that carry replaces.
module() {
	mkdir -p "$dir/work/$1"
	cd "$dir/work/$1"
	[ -f go.sum ] && return
	printf 'module build.invalid/%s\n\ngo 1.26.0\n\nrequire %s v%s\n\n' "$1" "$2" "$3" >go.mod
}
# build NAME PACKAGE [FLAG...]: build a program of the module that was entered.
build() {
	local name=$1 package=$2
	shift 2
	have "$name" && return
	tell "$name"
	"$go" build -trimpath "$@" -o out "$package" >&2 || exit 77
	mkdir -p "$(dirname "$dir/$name")"
	mv out "$dir/$name"
}

build_etcd() {
	have etcd && return
	module etcd go.etcd.io/etcd/server/v3 "$etcd"
	build etcd go.etcd.io/etcd/server/v3 -ldflags '-s -w'
}

# Kubernetes requires its staging modules at v0.0.0 with replaces that point into its own tree, which
# the proxy's archive lacks; each is published as k8s.io/NAME v0.MINOR.PATCH.
minor=${kube#1.}
build_kube() { # PROGRAM...
	have "$@" && return
	module kube k8s.io/kubernetes "$kube"
	if ! grep -q '^replace' go.mod; then
		gomod=$(cd / && "$go" mod download -json "k8s.io/kubernetes@v$kube" | sed -n 's/.*"GoMod": "\(.*\)",/\1/p')
		[ -n "$gomod" ] || exit 77
		sed -n "s|^[[:space:]]*\(k8s.io/[a-z-]*\) => \./staging.*|replace \1 => \1 v0.${kube#1.}|p" "$gomod" >>go.mod
	fi
	local v=k8s.io/component-base/version
	local flags="-s -w -X $v.gitVersion=v$kube -X $v.gitMajor=1 -X $v.gitMinor=${minor%%.*} -X $v.gitTreeState=clean"
	for program; do build "$program" "k8s.io/kubernetes/cmd/$program" -ldflags "$flags"; done
}

build_helm() {
	have "helm-$helm" && return
	module helm helm.sh/helm/v3 "$helm"
	local h=helm.sh/helm/v3 m=${minor%%.*}
	build "helm-$helm" $h/cmd/helm -ldflags "-s -w -X $h/internal/version.version=v$helm \
		-X $h/pkg/chartutil.k8sVersionMinor=$m -X $h/pkg/lint/rules.k8sVersionMinor=$m"
}

build_node() {
	local c=github.com/containerd/containerd/v2 plugins=github.com/containernetworking/plugins name
	module containerd $c "$containerd"
	for name in containerd containerd-shim-runc-v2 ctr; do
		build "containerd-$containerd/$name" $c/cmd/$name -ldflags "-s -w -X $c/version.Version=v$containerd"
	done
	module cni $plugins "$cni"
	for name in main/bridge main/loopback ipam/host-local meta/portmap; do
		build "cni-$cni/${name#*/}" $plugins/plugins/$name -ldflags '-s -w'
	done
	if ! [ -f /usr/include/seccomp.h ]; then "$here/../common/deps.sh" libseccomp-dev >&2 || exit 77; fi
	# runc enters namespaces in C, so it alone is built with cgo, and linked statically.
	module runc github.com/opencontainers/runc "$runc"
	CGO_ENABLED=1 build "runc-$runc" github.com/opencontainers/runc -tags 'seccomp netgo osusergo' \
		-ldflags '-s -w -extldflags -static'
	build_kube kube-controller-manager kube-scheduler kubelet kube-proxy
	module coredns github.com/coredns/coredns "$coredns"
	build "coredns-$coredns" github.com/coredns/coredns -ldflags '-s -w'
}

# Needs the replacements that its own go.mod names, which hold in a main module alone.
build_rdma() {
	have "rdma-$rdma/k8s-rdma-shared-dp" && return
	local p=github.com/Mellanox/k8s-rdma-shared-dev-plugin gomod from
	module rdma $p "$rdma"
	gomod=$(cd / && "$go" mod download -json "$p@v$rdma" | sed -n 's/.*"GoMod": "\(.*\)",/\1/p')
	[ -n "$gomod" ] || exit 77
	grep -q '^replace' go.mod || sed -n '/^replace (/,/^)/p' "$gomod" >>go.mod
	from=$("$go" list -m -f '{{.Dir}}' $p)
	mkdir -p "$dir/rdma-$rdma"
	cp "$from"/deployment/k8s/base/{daemonset,configmap}.yaml "$dir/rdma-$rdma"
	build "rdma-$rdma/k8s-rdma-shared-dp" $p/cmd/k8s-rdma-shared-dp -ldflags "-s -w -X main.version=$rdma"
}

# files_of NAME MODULE CHART KINDS: the chart and the kinds of a controller, from folders of its module.
files_of() {
	local from to=$dir/controllers/$1
	"$go" mod download "$2" >&2 || exit 77
	from=$("$go" list -m -f '{{.Dir}}' "$2")
	[ -n "$from" ] || { echo "build.sh: no folder of $2" >&2; exit 1; }
	rm -rf "$to"
	mkdir -p "$to/crds"
	find "$from/$4" -maxdepth 1 -name '*.yaml' ! -name 'kustom*' -exec cp -t "$to/crds" {} +
	if [ -n "$3" ]; then cp -r "$from/$3" "$to/chart"; fi
	chmod -R u+w "$to"
	# A chart that comes with others is used without them.
	[ -z "$3" ] || sed -i '/^dependencies:/,/^$/d' "$to/chart/Chart.yaml"
}
build_controllers() {
	local k=github.com/kubeflow/trainer/v2 r=github.com/ray-project/kuberay/ray-operator
	build_kube kube-controller-manager
	controller "jobset-$jobset" sigs.k8s.io/jobset . charts/jobset charts/jobset/crds
	controller "lws-$lws" sigs.k8s.io/lws ./cmd charts/lws charts/lws/crds
	controller "trainer-$trainer" $k ./cmd/trainer-controller-manager charts/kubeflow-trainer charts/kubeflow-trainer/crds
	controller "ray-operator-$ray" $r . '' config/crd/bases
}
# controller NAME-VERSION MODULE PACKAGE CHART KINDS.  Each by itself: they do not agree on their dependencies.
controller() {
	have "controllers/$1/${1%-*}" && return
	module "${1%-*}" "$2" "${1##*-}"
	files_of "$1" "$2" "$4" "$5"
	build "controllers/$1/${1%-*}" "$2${3#.}" -ldflags '-s -w'
}

for part; do
	case $part in
	api)
		build_etcd
		build_kube kube-apiserver kubectl
		;;
	helm) build_helm ;;
	node) build_node ;;
	rdma) build_rdma ;;
	controllers) build_controllers ;;
	esac
done
cd "$dir"
rm -rf "$dir/work"
finish
