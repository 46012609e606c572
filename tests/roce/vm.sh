#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# vm.sh COMMAND [ARG...]   Run COMMAND as root in a throw-away virtual machine that has soft-RoCE devices (guest.sh
#                          makes them), in the caller's directory, and exit with its code.
# vm.sh --ready            Only get what that needs; exit 77 and say why when it cannot be had here.
#
# The guest sees this machine's files; what it writes stays in its memory, but for OUT.  COMMAND's output comes out
# here, what its kernel says lands in OUT/console.  The kernel (Debian's package, unpacked) and the initramfs are kept
# in the user's cache.  Without KVM processors are emulated: everything takes some ten times as long.
#
# OUT       directory that the guest may write into, $OUT there too (a new one, removed at the end)
# VM_MEM    memory, MiB (3072)       VM_CPUS   processors (2)
# VM_LIMIT  seconds until the machine is ended, whatever it does (600); exit 124 then
# VM_NET    what qemu's -nic takes (none), for each network interface of the guest
# Exit 125: the machine ended without a code; its last lines are printed.
set -euo pipefail

cache=${XDG_CACHE_HOME:-$HOME/.cache}/weightbridge/roce
here=$(cd "$(dirname "$0")" && pwd)
limit=${VM_LIMIT:-600}
# Loaded in this order, with what they need, before anything else runs.
modules="virtio_pci virtio_console 9pnet_virtio 9p overlay crc32_generic rdma_rxe ib_uverbs rdma_ucm veth sch_netem
	virtio_net ib_umad bridge"
# Programs, and their packages.
tools="qemu-system-x86_64:qemu-system-x86 busybox:busybox-static cpio:cpio depmod:kmod xz:xz-utils ip:iproute2
	rdma:iproute2 tc:iproute2 setpriv:util-linux ibv_devinfo:ibverbs-utils ib_write_bw:perftest"
export PATH=$PATH:/usr/sbin:/sbin

cannot() {
	echo "no virtual machine with soft-RoCE: $*" >&2
	exit 77
}

missing() { # what of tools is not here, as packages
	local tool
	for tool in $tools; do command -v "${tool%%:*}" >/dev/null || echo "${tool#*:}"; done
	compgen -G '/usr/lib/*/libibverbs/librxe-rdmav*.so' >/dev/null || echo ibverbs-providers
}

need_tools() {
	local packages
	[ "$(uname -m)" = x86_64 ] || cannot "the guest is x86_64, this machine is $(uname -m)"
	packages=$(missing | sort -u)
	# shellcheck disable=SC2086  # a list
	[ -z "$packages" ] || "$here/../common/deps.sh" $packages >&2 || cannot "packages are missing:" $packages
}

# The package behind the newest kernel that Debian stable has for this; its name changes with each build.
kernel_package() {
	local meta package
	for meta in linux-image-6.12-amd64 linux-image-amd64; do
		package=$(apt-cache depends "$meta" 2>/dev/null | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -1)
		[ -z "$package" ] || break
	done
	echo "$package"
}

need_kernel() {
	local package tmp
	kernel=$cache/kernel
	if [ ! -d "$kernel" ]; then
		package=$(kernel_package)
		if [ -z "$package" ]; then
			apt-get -qq update >/dev/null 2>&1 || :
			package=$(kernel_package)
		fi
		[ -n "$package" ] || cannot "apt knows no linux-image-amd64 (apt-get update)"
		echo "vm.sh: fetching $package, once" >&2
		tmp=$(mktemp -d "$cache/new.XXXXXX")
		(cd "$tmp" && apt-get -qq -o APT::Sandbox::User=root download "$package" >&2) ||
			{ rm -rf "$tmp"; cannot "$package could not be fetched"; }
		dpkg-deb --fsys-tarfile "$tmp"/*.deb | tar -xC "$tmp" ./boot ./lib
		rm "$tmp"/*.deb
		depmod -b "$tmp" "$(ls "$tmp/lib/modules")"
		mv "$tmp" "$kernel"
	fi
	version=$(ls "$kernel/lib/modules")
}

# The initramfs: busybox, the modules, their order, and init.sh.
need_initramfs() {
	local tmp module file
	initramfs=$cache/initramfs-$(cat "$here/init.sh" - <<<"$version $modules" | cksum | cut -d' ' -f1)
	[ ! -e "$initramfs" ] || return 0
	tmp=$(mktemp -d "$cache/new.XXXXXX")
	mkdir -p "$tmp/root/bin" "$tmp/root/modules" "$tmp/root/dev"
	cp "$(command -v busybox)" "$tmp/root/bin/"
	for module in $modules; do
		modprobe -d "$kernel" -S "$version" --show-depends "$module"
	done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' | while read -r module; do
		file=$(basename "$module" .xz)
		case $module in *.xz) xz -dc "$module" ;; *) cat "$module" ;; esac >"$tmp/root/modules/$file"
		echo "$file" >>"$tmp/root/order"
	done
	install -m 755 "$here/init.sh" "$tmp/root/init"
	(cd "$tmp/root" && find . | cpio --quiet -o -H newc | gzip -1) >"$tmp/initramfs"
	mv "$tmp/initramfs" "$initramfs"
	rm -rf "$tmp"
}

ready() {
	need_tools
	mkdir -p "$cache"
	exec 9>"$cache/lock"
	flock 9
	need_kernel
	need_initramfs
	exec 9>&-
}

top=$(cd "$here/../.." && pwd)
# What the guest runs, with the variables that say where this user's things lie.
command_file() {
	local name
	for name in HOME PATH XDG_CACHE_HOME LANG STRICT; do
		[ -z "${!name:-}" ] || printf 'export %s=%q\n' "$name" "${!name}"
	done
	printf 'export TOP=%q\n' "$top"
	# The guest's /tmp is its own, and empty: a tree that lies there gets a layer of its own, too.
	cat <<-'EOF'
		[ -d "$TOP" ] || {
			mkdir -p "$TOP" /run/tree/upper /run/tree/work
			mount -t overlay -o "lowerdir=/run/below$TOP,upperdir=/run/tree/upper,workdir=/run/tree/work" none "$TOP"
		}
	EOF
	printf 'cd %q\n' "$PWD"
	printf '%q ' "$@"
	echo
}

# A /dev/kvm alone says nothing: some are there where processors cannot do it.
accel=tcg,thread=multi
if [ -w /dev/kvm ] && grep -qwE 'vmx|svm' /proc/cpuinfo; then accel=kvm; fi

# no_timer_check: on a loaded machine an emulated timer seems dead to the kernel, which then stops.
# Ends with its parent, also where that is killed; after $limit s at the latest.  qemu opens fd 3 again by name, so that it has
# to be a pipe, and it must not see the end of an input.
machine() {
	local nic nics=()
	for nic in ${VM_NET:-none}; do nics+=(-nic "$nic"); done
	setpriv --pdeathsig KILL timeout -k 5 "$limit" setpriv --pdeathsig KILL qemu-system-x86_64 \
		-M q35 -accel "$accel" -cpu max -smp "${VM_CPUS:-2}" -m "${VM_MEM:-3072}" \
		-nodefaults -no-user-config -display none -no-reboot \
		-kernel "$kernel"/boot/vmlinuz-* -initrd "$initramfs" \
		-append "console=ttyS0 quiet panic=-1 mitigations=off audit=0 no_timer_check" -serial "file:$out/console" \
		-device virtio-serial-pci -chardev file,id=said,path=/dev/fd/3,append=on -device virtserialport,chardev=said \
		-fsdev local,id=root,path=/,security_model=none,readonly=on,multidevs=remap \
		-device virtio-9p-pci,fsdev=root,mount_tag=root \
		-fsdev "local,id=out,path=$out,security_model=none,multidevs=remap" \
		-device virtio-9p-pci,fsdev=out,mount_tag=out \
		"${nics[@]}" </dev/null 2>"$out/qemu"
}

[ $# -gt 0 ] || { sed -n '3,/^set -/s/^# \{0,1\}//p' "$0"; exit 2; }
ready
[ "$1" != --ready ] || exit 0
if [ -n "${OUT:-}" ]; then
	mkdir -p "$OUT"
	out=$(cd "$OUT" && pwd)
else
	out=$(mktemp -d)
	trap 'rm -rf "$out"' EXIT
fi
rm -f "$out/code" "$out/console" "$out/qemu"
command_file "$@" >"$out/command"
cp "$here/guest.sh" "$out/guest"
ended=0
{ machine 3>&1 || echo $? >"$out/ended"; } | cat
[ ! -e "$out/ended" ] || ended=$(cat "$out/ended")
rm -f "$out/ended"
[ ! -e "$out/code" ] || exit "$(cat "$out/code")"
tail -n 20 "$out/console" "$out/qemu" >&2 || :
[ "$ended" != 124 ] || { echo "vm.sh: ended after $limit s" >&2; exit 124; }
echo "vm.sh: the machine ended without a code (qemu: $ended)" >&2
exit 125
