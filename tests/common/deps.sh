#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# deps.sh PACKAGE...  Install Debian packages where we may; else print the one command to run.
set -u
cmd="apt-get install -y --no-install-recommends $*"
run=
if [ "$(id -u)" = 0 ]; then
	run="env"
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
	run=sudo
fi
if [ -z "$run" ] || ! command -v apt-get >/dev/null 2>&1; then
	echo "Packages are missing.  Run: sudo $cmd"
	exit 1
fi
echo "installing: $*"
log=$(mktemp)
# A fresh machine has no package list: the first try may fail only for that.
$run sh -c "DEBIAN_FRONTEND=noninteractive $cmd || { apt-get update && DEBIAN_FRONTEND=noninteractive $cmd; }" >"$log" 2>&1 || {
	tail -5 "$log"
	rm -f "$log"
	echo "could not install.  Run: sudo $cmd"
	exit 1
}
rm -f "$log"
