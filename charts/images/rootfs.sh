#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# rootfs.sh agent|operator BUILD ROOT  Make the files of an image in folder ROOT, from the programs in
# BUILD/bin: the daemon and wbctl, stripped, the shared libraries that they load (those that speak to RDMA
# devices among them), certificates of public authorities, the user they run as, licences.  Dockerfile and image.sh both call it, so an
# image has the same files however it was made.  Same input, same bytes.
set -euo pipefail
umask 022
case ${1:-} in agent | operator) ;; *) echo "usage: rootfs.sh agent|operator BUILD ROOT" >&2; exit 2 ;; esac
PATH=$PATH:/usr/sbin:/sbin
daemon=weightbridge-$1 bin=${2:?BUILD}/bin root=${3:?ROOT}
top=$(cd "$(dirname "$0")/../.." && pwd)

mkdir -p "$root"/{usr/bin,etc/ssl/certs,usr/share/doc/weightbridge,run/weightbridge,proc,sys,dev,tmp}
chmod 1777 "$root/tmp"
for program in "$daemon" wbctl; do
	install -m 755 "$bin/$program" "$root/usr/bin/$program"
	strip "$root/usr/bin/$program"
done
# For the profile IPCLock: who is not root has a capability only by the program's file. Apart, since a
# file that asks for what a pod must not have is not executed at all.
if [ "$daemon" = weightbridge-agent ]; then
	cp "$root/usr/bin/$daemon" "$root/usr/bin/$daemon-ipclock"
	setcap cap_ipc_lock=ep "$root/usr/bin/$daemon-ipclock" ||
		echo "rootfs.sh: not root, or no setcap: profile IPCLock will not lock memory with this image" >&2
fi
# Where the loader looks without a cache file: its own path, and the folders it has built in.
linked() { ldd "$@" | awk '$2 == "=>" { print $3 } $1 ~ "^/" && $2 ~ "^[(]" { print $1 }'; }
# What is opened while running and not linked: libibverbs, and its providers, one for each kind of RDMA device.
opened=()
if [ "$daemon" = weightbridge-agent ]; then
	verbs=$(linked "$root/usr/bin/$daemon" | sed -n 's,/libuv\.so.*,/libibverbs.so.1,p')
	opened=("$verbs" "$(dirname "$(readlink -f "$verbs")")"/libibverbs/*.so)
	for library in "${opened[@]}"; do
		[ -f "$library" ] || { echo "rootfs.sh: no $library: install libibverbs1 ibverbs-providers" >&2; exit 1; }
	done
	install -D -m 644 -t "$root/etc/libibverbs.d" /etc/libibverbs.d/*.driver
fi
mapfile -t libraries < <({
	linked "$root/usr/bin/$daemon" "$root/usr/bin/wbctl" "${opened[@]}"
	printf '%s\n' "${opened[@]}"
} | sed '/^$/d' | sort -u)
owned=()
for library in "${libraries[@]}"; do
	case $library in
	/lib64/* | /lib/* | /usr/lib/*) install -D -m 755 "$(readlink -f "$library")" "$root$library" ;;
	*) echo "rootfs.sh: $library is not from the system: build with the libraries of the distribution" >&2; exit 1 ;;
	esac
	real=$(readlink -f "$library")
	owned+=("$real" "${real#/usr}")
done
# Packages own their files with or without /usr in front, so half of the names are not found.
{ dpkg -S "${owned[@]}" 2>/dev/null || true; } | sed 's/:.*//' | sort -u | while read -r package; do
	install -D -m 644 "$(readlink -f "/usr/share/doc/$package/copyright")" "$root/usr/share/doc/$package/copyright"
done
install -m 644 /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
printf 'root:x:0:0::/:/sbin/nologin\nweightbridge:x:65532:65532::/:/sbin/nologin\n' >"$root/etc/passwd"
printf 'root:x:0:\nweightbridge:x:65532:\n' >"$root/etc/group"
printf 'hosts: files dns\n' >"$root/etc/nsswitch.conf"
install -m 644 "$top/LICENSE" "$root/usr/share/doc/weightbridge/LICENSE"
