#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run.sh [TEST...]  The case files of tests/cluster on kind, for who has Docker: makes a cluster of two nodes,
# runs the tests (test_pods test_grace test_scale test_upgrade test_packages test_faults), and removes it.
# Needs docker, kind, kubectl, helm, and what `make` needs.  NODE=kindest/node:vX chooses the Kubernetes:
# 1.33 or later; injection by policy (test_packages) needs 1.36.
# RDMA=rdma/NAME PLUGIN=FILE: RDMA in pods, too (rdma.py), where this machine has devices; FILE: a device plugin's
# objects, which hand them out by that name.  Nodes of kind see all devices that were there when they began.
set -euo pipefail
cd "$(dirname "$0")/../.."
for tool in docker kind kubectl helm busybox; do
	command -v "$tool" >/dev/null || { echo "run.sh: no $tool" >&2; exit 77; }
done
[ $# -gt 0 ] || set -- test_pods test_grace test_scale test_upgrade test_packages test_faults
make -j"$(nproc)" all build/release/tools/toy_worker
name=weightbridge-$$
config=$(mktemp)
trap 'kind delete cluster --name "$name" >/dev/null 2>&1; rm -f "$config"' EXIT
kind create cluster --name "$name" --config tests/kind/kind.yaml --kubeconfig "$config" --wait 180s ${NODE:+--image "$NODE"}
export EXTERNAL=1 KUBECONFIG=$config WB_IMPORT="kind load image-archive --name $name" T_LIMIT=${T_LIMIT:-900}
failed=0
for test; do
	TESTS="tests/cluster/test_*.py" tests/run.sh build/release "$test" || failed=1
done
if [ -n "${RDMA:-}" ]; then
	KUBECONFIG=$config kubectl apply -f "${PLUGIN:?the objects of a device plugin}"
	python3 -B tests/kind/rdma.py || failed=1
fi
exit $failed
