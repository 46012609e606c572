#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# machine.sh DIR PREFIX ADDRESS FIRST IMAGE...   Runs in the guest of tests/roce/vm.sh: be the node that machine.py
# configured in DIR, with the programs in PREFIX, ADDRESS on the pods' bridge, and FIRST, the cluster's first node, at
# the other end of eth0.  Ends with the kubelet; what it and containerd say lands in OUT.
set -eu
dir=$1 prefix=$2 address=$3 first=$4
shift 4
cluster=$(dirname "$dir") bus=/run/pci
export PATH=$prefix:$PATH CONTAINERD_SUPPRESS_DEPRECATION_WARNINGS=1

# What the cluster wrote lies here too where it says, and nobody writes to it from here; what is this node's own is in
# memory.  The kubelet's folder is the one that device plugins have built in.
files() {
	mkdir -p "$cluster"
	mount --bind "/run/below$cluster" "$cluster"
	cp -r "$dir" /run/node
	mount -t tmpfs -o mode=755,size=80% none "$dir"
	cp -r /run/node/. "$dir"
	mkdir -p /var/lib/kubelet
	mount -t tmpfs -o mode=755 none /var/lib/kubelet
}

# Services are reached through the first node, whose kube-proxy knows them.
network() {
	echo 1 >/proc/sys/net/ipv4/ip_forward
	ip link set eth0 up
	ip link add kube type bridge
	ip addr add "$address/24" dev kube
	ip link set kube up
	ip route add "$first" dev eth0 src "$address"
	ip route add default via "$first" dev eth0 onlink
}

# The plugin finds RDMA devices as parts of PCI devices, and a soft-RoCE device is part of none.  So it is shown a folder
# in place of the bus where a network interface has one: the rest of what it reads there is the kernel's.
show() { # INTERFACE DEVICE
	local pci name file
	pci=$(readlink -f "/sys/class/net/$1/device/..") # of virtio, the device on the bus is one above
	name=$bus/${pci##*/}
	rm "$name"
	mkdir -p "$name/infiniband/$2"
	for file in "$pci"/*; do
		if [ -L "$file" ]; then cp -d "$file" "$name"; else ln -s "$file" "$name"; fi
	done
	ln -s "$pci"/virtio*/net "$name/net"
}

files
network
mkdir "$bus"
cp -d /sys/bus/pci/devices/* "$bus"
show eth0 rxe_a0
show eth1 rxe_b0
# What containers may lock is as little as where nobody raised it.
(ulimit -l 64 && exec containerd --config "$dir/containerd.toml" >"$OUT/containerd.log" 2>&1) &
until ctr -a "$dir/containerd.sock" version >/dev/null 2>&1; do sleep 0.2; done
imports=()
for image; do
	ctr -a "$dir/containerd.sock" -n k8s.io images import "$image" &
	imports+=($!)
done
for import in "${imports[@]}"; do wait "$import"; done
kubelet --config "$dir/kubelet.yaml" --kubeconfig "$cluster/${dir##*/}.kubeconfig" --cert-dir /var/lib/kubelet/pki \
	--hostname-override "${dir##*/}" --node-ip "$address" >"$OUT/kubelet.log" 2>&1
