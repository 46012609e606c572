#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# planner.sh OUTDIR   Plans of the deployments in tests/bench/deployments: one JSON object a line, a process each, so
# that rss_mib is of that plan alone.
set -eu
for f in "$(dirname "$0")"/deployments/*.yaml; do
	"$1/bin/wbctl" simulate --json "$f"
done
