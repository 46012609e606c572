#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# layering.sh [ROOT]   Which folder may include what.  A folder may always include itself.
# One line a folder: FOLDER  allowed first parts of "..." includes; the longest folder name wins.
set -u
cd "${1:-$(dirname "$0")/../..}" || exit 1
table='
agent/base
agent/include       weightbridge
kernels
agent/page          base
agent/proto         base
planner             base kernels proto
planner/deploy      base planner
agent/mem           base
agent/net           base
agent/xport         base mem proto net
agent/xport/tcp     base mem proto net xport
agent/xport/shm     base mem proto net xport
agent/xport/verbs   base mem proto net xport
agent/extract       weightbridge base mem planner kernels
agent/lane          base mem planner kernels
agent/flow          base mem planner kernels xport proto lane
agent/transfer      base mem planner kernels net proto xport lane flow
agent/predict       base mem planner kernels proto xport lane flow
agent/client        weightbridge base proto mem extract lane planner kernels
agent/daemon        weightbridge base proto mem net planner kernels xport lane extract flow transfer
agent/ctl           weightbridge base proto mem net planner kernels xport lane extract flow predict transfer page operator-shim/spec
operator-shim/spec       base proto
operator-shim/reconcile  base proto planner operator-shim/spec
operator-shim/serve      weightbridge base net proto planner operator-shim/spec operator-shim/reconcile
operator-shim/kube       weightbridge base net operator-shim/spec
operator-shim            weightbridge base mem net page proto planner operator-shim/spec operator-shim/reconcile operator-shim/serve operator-shim/kube
'
# Folders where a header of the system is not welcome: FOLDER REGEXP REASON
system='
agent/base     <(uv|jansson|openssl|curl|yaml|microhttpd)  base_is_libc_alone
agent/client   <(uv|jansson|openssl|curl|yaml|microhttpd)  the_client_links_libc_alone
agent/proto/[^j].*  <(uv|jansson|openssl|curl|yaml|sys/socket)  proto_does_no_io
planner        <(time|pthread|unistd|fcntl|sys/socket|uv|jansson)  the_planner_is_pure
operator-shim/reconcile  <(pthread|unistd|fcntl|sys/socket|uv|curl)  reconcile_is_pure
agent/flow     <(uv|sys/socket|openssl|pthread)  flow_sees_no_socket_and_no_thread
agent/transfer <(uv|sys/socket|openssl|pthread)  transfer_sees_no_socket_and_no_thread
'
bad=0
allowed() { # FOLDER -> allowed list of the longest matching row; fails when there is none
	local d=$1
	while :; do
		while read -r folder rest; do
			[ "$folder" = "$d" ] && { echo "$folder $rest"; return 0; }
		done <<<"$table"
		[ "$d" = "${d%/*}" ] && return 1
		d=${d%/*}
	done
}
declare -A cache
while IFS=: read -r file line text; do
	dir=${file%/*}
	inc=${text#*\"}
	inc=${inc%%\"*}
	row=${cache[$dir]-}
	if [ -z "$row" ]; then
		row=$(allowed "$dir") || { echo "$file: folder $dir has no row in tests/lint/layering.sh"; bad=1; cache[$dir]="?"; continue; }
		cache[$dir]=$row
	fi
	[ "$row" = "?" ] && continue
	own=${row%% *}
	own=${own#agent/}
	ok=0
	for a in $own ${row#* }; do
		case $inc in "$a"/*) ok=1 ;; esac
	done
	case $inc in */*) ;; *) [ -f "$dir/$inc" ] && ok=1 ;; esac
	# One transport never sees another, only their parent names them.
	case $dir:$inc in agent/xport/*:xport/*/*) [ "xport/${dir#agent/xport/}" = "${inc%/*}" ] || ok=0 ;; esac
	[ $ok = 1 ] || { echo "$file:$line: ${row%% *} must not include $inc"; bad=1; }
done < <(grep -rnE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' agent kernels planner operator-shim --include='*.c' --include='*.h' --include='*.cu')
while read -r folder regexp reason; do
	[ -n "$folder" ] || continue
	hits=$(grep -rnE "^[[:space:]]*#[[:space:]]*include[[:space:]]*$regexp" agent kernels planner operator-shim --include='*.[ch]' 2>/dev/null | grep -E "^$folder(/|:|$)") || continue
	echo "$hits" | sed "s/$/   (${reason//_/ })/"
	bad=1
done <<<"$system"
hits=$(grep -rnE '^[[:space:]]*#[[:space:]]*include[[:space:]]*<(infiniband|cuda)' agent operator-shim planner --include='*.[ch]' 2>/dev/null | grep -vE '^agent/(mem|xport/verbs)/') && { echo "$hits"; echo "only mem, kernels and xport/verbs know verbs and CUDA"; bad=1; }
hits=$(grep -rnE 'struct wb_msg_peer([^_[:alnum:]]|$)' agent operator-shim planner --include='*.[ch]' | grep -vE 'const struct wb_msg_peer|^agent/proto/') && { echo "$hits"; echo "a message to a peer is made by WB_PEER() of proto/peers.h, and is const"; bad=1; }
hits=$(grep -rnE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"tests/' agent kernels planner operator-shim --include='*.[ch]') && { echo "$hits"; echo "nothing includes tests"; bad=1; }
exit $bad
