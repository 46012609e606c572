#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# guest.sh   Runs in the guest: links and devices, the command, its code; then the machine ends.
#
# Two pairs of soft-RoCE devices, each joined by a veth pair: rxe_a0 on va0 (10.77.0.1) and rxe_b0 on vb0
# (10.77.0.2), rxe_a1 on va1 (10.77.1.1) and rxe_b1 on vb1 (10.77.1.2).  All are in one network namespace, since such a
# device cannot be in another, and Linux would carry what goes to an address of its own by itself.  So rules ask the
# table `local` last, and what one end sends to the other has a table of its own, that says: over the wire.
# tx_bytes of va0 and va1 tell whether that is so.
export OUT=/run/out
say() { echo "guest: $*" >/dev/console; }

# end DEVICE OWN PEER RXE: one end of a pair.  A local address as source is refused by default.
end() {
	local set
	ip addr add "$2/24" dev "$1"
	ip link set "$1" up
	for set in accept_local=1 rp_filter=0 arp_ignore=1; do echo "${set#*=}" >"/proc/sys/net/ipv4/conf/$1/${set%=*}"; done
	ip rule add pref 10 iif "$1" lookup local
	ip rule add pref 15 from "$2" to "$2" lookup local
	ip rule add pref 20 to "$2" iif lo lookup 77
	ip rule add pref 30 oif "$1" lookup 77
	ip route add "$3" dev "$1" src "$2" table 77
	rdma link add "$4" type rxe netdev "$1"
}
pair() { # NUMBER.  4500: the path MTU is then 4096
	ip link add "va$1" mtu 4500 type veth peer name "vb$1" mtu 4500
	end "va$1" "10.77.$1.1" "10.77.$1.2" "rxe_a$1"
	end "vb$1" "10.77.$1.2" "10.77.$1.1" "rxe_b$1"
}
links() {
	set -e
	echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter
	ip rule add pref 100 lookup local
	pair 0
	pair 1
	ip rule del pref 0
}

exec </dev/null >/dev/console 2>&1
ln -s /proc/self/fd /dev/fd
ip link set lo up
mountpoint -q /sys/fs/cgroup || mount -t cgroup2 none /sys/fs/cgroup
ulimit -l unlimited
ulimit -n 20000
(links) || say "the links could not be made"
said=$(compgen -G '/dev/vport*' | head -1)
say "ready at $(cut -d" " -f1 /proc/uptime) s"
bash "$OUT/command" >"${said:-/dev/null}" 2>&1
echo $? >"$OUT/code"
sync
echo 1 >/proc/sys/kernel/sysrq
echo o >/proc/sysrq-trigger
while :; do :; done # /bin/sleep lies on what goes first
