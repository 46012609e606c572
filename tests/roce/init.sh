#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=dash
# init.sh   The first process of the guest, in its initramfs: modules, then this machine's files under a layer in
# memory, then guest.sh in them.
b=/bin/busybox
$b mkdir -p /proc /sys /dev /below /layer /root
$b mount -t proc none /proc
$b mount -t sysfs none /sys
$b mount -t devtmpfs none /dev
for module in $($b cat /order); do
	$b insmod "/modules/$module" || echo "init: module $module failed"
done
# Each file is looked at once: nobody changes what the guest reads while it runs.
$b mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=262144,cache=loose root /below
$b mount -t tmpfs -o mode=755,size=80% none /layer
$b mkdir -p /layer/upper /layer/work
$b mount -t overlay -o lowerdir=/below,upperdir=/layer/upper,workdir=/layer/work,xino=off none /root || $b poweroff -f
for dir in proc sys dev run tmp; do $b mkdir -p /root/$dir; done
for dir in proc sys dev; do $b mount --move /$dir /root/$dir; done
$b mount -t tmpfs -o mode=755 none /root/run
$b mount -t tmpfs -o mode=1777 none /root/tmp
$b mkdir -p /root/dev/pts /root/dev/shm /root/run/out /root/run/below
$b mount --bind /below /root/run/below # what lies under /tmp there is found here
$b mount -t devpts none /root/dev/pts
$b mount -t tmpfs -o mode=1777 none /root/dev/shm
$b mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=none out /root/run/out
exec $b switch_root -c /dev/console /root /bin/bash /run/out/guest
