#!/usr/bin/env bash
# Measure the standard set of collectives of an Atlas 800 A3 752T DIE (grid 48 x 8 x 2).
#
#   run_comm_bench.sh [OUT [ARGUMENT ...]]
#
# One node (NNODES unset or 1): groups of 16, 8, 4 and 2 dies, twelve sessions; OUT is ./hccl_bench_data by default.
# Several nodes: start it on each with
#   NNODES       number of nodes
#   NODE_RANK    0 on the node that MASTER_ADDR names, 1, 2 ... on the others
#   MASTER_ADDR  address of node 0
#   MASTER_PORT  the sessions use the three ports after this one (29700)
#   NPROC        dies of each node (16)
# Groups of 32, 64 ... and of 384 and 768 dies, three sessions; OUT is ./hccl_bench_inter_pod_v8.5 by default.
# QUICK=1 measures 5 sizes instead of 23. TIMEOUT_S (300) is the longest wait for a collective or another process.
# RESUME=1 leaves out rows that OUT has already. TORCHRUN names the launcher (torchrun). Arguments after OUT go to
# generate_comm_microbench.py as they are.
#
# Exit status: 0 all sessions measured all rows; 1 some did not, or no group fits; 2 a wrong request.
set -uo pipefail

bench="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/generate_comm_microbench.py"
nnodes="${NNODES:-1}"
timeout_s="${TIMEOUT_S:-300}"
failed=()

wrong() { echo "error: $*" >&2; exit 2; }

case "${1:-}" in
  -h | --help)
    sed -n '2,/^[^#]/ s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
    exit 0
    ;;
  -*) wrong "the first argument is the directory OUT, not '$1'; what follows it goes to generate_comm_microbench.py." ;;
esac

for variable in NNODES NODE_RANK MASTER_PORT NPROC TIMEOUT_S; do
  [[ "${!variable:-0}" =~ ^[0-9]+$ ]] || wrong "$variable must be a whole number, not '${!variable}'."
done

if [[ "${QUICK:-0}" == 1 ]]; then
  bytes=(1024 65536 1048576 16777216 268435456)
else
  bytes=()
  for ((size = 128; size <= 512 * 1024 * 1024; size *= 2)); do bytes+=("$size"); done
fi

# session NAME LAUNCHER_ARGUMENTS -- BENCH_ARGUMENTS: run one torchrun; a failure is kept for the end.
session() {
  local name="$1" launcher=() log status
  shift
  while [[ "$1" != -- ]]; do launcher+=("$1"); shift; done
  shift
  echo "== $name"
  log="$(mktemp)"
  "${TORCHRUN:-torchrun}" "${launcher[@]}" "$bench" --database-path "$out" --grid-shape 48 8 2 \
    --bytes-grid "${bytes[@]}" --timeout-s "$timeout_s" "$@" ${extra[@]+"${extra[@]}"} 2>&1 | tee "$log"
  status="${PIPESTATUS[0]}"
  # A driver that crashes while the processes end (139) has lost nothing when rank 0 had already reported its rows.
  if [[ "$status" == 139 ]] && grep -q ' rows measured, written to ' "$log" && ! grep -q '^failed: ' "$log"; then
    echo "note: $name: torchrun crashed while closing (exit status 139); all rows had been written."
    status=0
  fi
  if [[ "$status" != 0 ]] && ((nnodes > 1)) && grep -qE 'clients joined|socket has timed out' "$log"; then
    echo "error: not all $nnodes nodes met at $MASTER_ADDR within $timeout_s s: start this script on every node, with the" \
      "same NNODES, NPROC, MASTER_ADDR and MASTER_PORT and a NODE_RANK of its own, and check that its ports are open." >&2
  fi
  rm -f "$log"
  if [[ "$status" != 0 ]]; then
    echo "error: $name failed with exit status $status; the next session follows." >&2
    failed+=("$name")
  fi
}

one_node() {
  local port=29700 devices ops
  for ops in "all_reduce" "all_gather reduce_scatter" "all_to_all"; do
    for devices in 16 8 4 2; do
      # shellcheck disable=SC2086 # ops are words
      session "$ops over $devices" --nproc_per_node="$devices" --master_port="$port" -- \
        --ops $ops --num-devices "$devices"
      ((port++))
    done
  done
}

several_nodes() {
  local nproc="${NPROC:-16}" port="${MASTER_PORT:-29700}" ops devices groups=()
  [[ -n "${NODE_RANK:-}" ]] || wrong "NODE_RANK is not set: 0 on the node that MASTER_ADDR names, 1, 2 ... on the others."
  [[ -n "${MASTER_ADDR:-}" ]] || wrong "MASTER_ADDR is not set: the address of the node with NODE_RANK 0."
  ((NODE_RANK < nnodes)) || wrong "NODE_RANK $NODE_RANK is not below NNODES $nnodes."
  for ((devices = 32; devices <= nnodes * nproc; devices *= 2)); do groups+=("$devices"); done
  for devices in 384 768; do
    ((devices <= nnodes * nproc)) && groups+=("$devices")
  done
  if ((${#groups[@]} == 0)); then
    echo "error: $nnodes nodes of $nproc dies are fewer than the 32 that the smallest group between pods has." >&2
    exit 1
  fi
  for ops in "all_reduce" "all_gather reduce_scatter" "all_to_all"; do
    ((port++))
    # shellcheck disable=SC2086 # ops are words
    session "$ops over ${groups[*]}" --nnodes="$nnodes" --node_rank="$NODE_RANK" --nproc_per_node="$nproc" \
      --master_addr="$MASTER_ADDR" --master_port="$port" --rdzv_conf="timeout=$timeout_s" -- \
      --ops $ops --num-devices "${groups[@]}" --topology-tier 0
  done
}

if ((nnodes < 2)); then default_out=./hccl_bench_data; else default_out=./hccl_bench_inter_pod_v8.5; fi
out="${1:-$default_out}"
shift || true
extra=("$@")
[[ "${RESUME:-0}" == 1 ]] && extra+=(--resume)
command -v "${TORCHRUN:-torchrun}" > /dev/null ||
  wrong "${TORCHRUN:-torchrun} is not there: pip install 'msmodeling[torch]', or name the launcher with TORCHRUN."
mkdir -p "$out" || wrong "the directory $out cannot be made."

if ((nnodes < 2)); then one_node; else several_nodes; fi

if ((${#failed[@]})); then
  printf 'error: %d sessions failed:\n' "${#failed[@]}" >&2
  printf '  %s\n' "${failed[@]}" >&2
  exit 1
fi
echo "All sessions measured all rows; they are in $out."
