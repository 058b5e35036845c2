#!/bin/bash
# Runs a job of ranks that have an address each: a network namespace and a host name for every rank,
# joined by a bridge, with Open MPI over TCP, as on machines of their own.
#
#   run_in_namespaces.sh [--delay=1ms] RANKS PROGRAM [ARGUMENT...]
#
# --delay, of each message on each rank's link (needs the kernel's sch_netem). The job's status is
# the script's; 77: namespaces cannot be made here, for the reason that is printed. Nothing of the
# machine's own network changes, and what is made goes at the end.
set -u

skip() {
  echo "skipped: $1" >&2
  exit 77
}

delay=""
if [[ "${1:-}" == --delay=* ]]; then
  delay="${1#--delay=}"
  shift
fi
if [[ $# -lt 2 || ! "$1" =~ ^[0-9]+$ || "$1" -lt 1 || "$1" -gt 200 ]]; then
  echo "usage: $0 [--delay=TIME] RANKS PROGRAM [ARGUMENT...], of 1 to 200 ranks" >&2
  exit 2
fi
ranks="$1"
shift
program="$(type -P "$1")" || { echo "$0: $1: not found" >&2; exit 2; }
program="$(readlink -f "$program")"
shift

for tool in ip mpirun nsenter unshare; do
  command -v "$tool" > /dev/null || skip "no $tool (packages iproute2, openmpi-bin, util-linux)"
done
# Names of namespaces are files below /run, of which this job has its own: all goes with its last
# process.
if [[ -z "${TIDEPOOL_RUN_IN_NAMESPACES:-}" ]]; then
  own=(unshare --mount --net)
  [[ "$(id -u)" == 0 ]] || own+=(--user --map-root-user)
  said="$("${own[@]}" mount -t tmpfs tmpfs /run 2>&1)" || skip "${own[*]}: $said"
  export TIDEPOOL_RUN_IN_NAMESPACES=1
  exec "${own[@]}" bash "$0" ${delay:+--delay="$delay"} "$ranks" "$program" "$@"
fi
unset TIDEPOOL_RUN_IN_NAMESPACES
mount -t tmpfs tmpfs /run || exit 1

job="rank"
folder="$(mktemp -d /tmp/tidepool.XXXXXX)"
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM

said="$(ip link add ranks type bridge 2>&1)" || skip "ip link add type bridge: $said"
ip link set ranks up
hosts=""
for ((i = 0; i < ranks; ++i)); do
  said="$(ip netns add "$job-$i" 2>&1)" || skip "ip netns add: $said"
  said="$(ip link add "rank$i" type veth peer name eth0 netns "$job-$i" 2>&1)" ||
    skip "ip link add type veth: $said"
  ip -n "$job-$i" addr add "10.77.0.$((i + 1))/24" dev eth0
  ip -n "$job-$i" link set lo up
  ip -n "$job-$i" link set eth0 up
  ip link set "rank$i" master ranks
  ip link set "rank$i" up
  if [[ -n "$delay" ]]; then
    said="$(tc -n "$job-$i" qdisc add dev eth0 root netem delay "$delay" 2>&1)" ||
      skip "tc qdisc add netem: $said"
  fi
  hosts+="${hosts:+,}10.77.0.$((i + 1)):1"
done

# What mpirun starts its daemons by, in the place of ssh: AGENT HOST COMMAND...
cat > "$folder/agent" << AGENT
#!/bin/bash
while [[ "\$1" == -* ]]; do shift; done
name="$job-\$((\${1##*.} - 1))"
shift
exec nsenter --net="/run/netns/\$name" unshare --uts bash -c 'hostname "\$1"; shift; eval "\$*"' bash "\$name" "\$@"
AGENT
chmod +x "$folder/agent"

# Ranks see one another by TCP alone.
"$folder/agent" 10.77.0.1 "$(printf '%q ' mpirun --allow-run-as-root \
  --mca plm rsh --mca plm_rsh_agent "$folder/agent" --mca orte_tmpdir_base "$folder" \
  --mca oob_tcp_if_include 10.77.0.0/24 --mca btl tcp,self --mca btl_tcp_if_include 10.77.0.0/24 \
  --mca mpi_yield_when_idle 1 --host "$hosts" -n "$ranks" --map-by node \
  "$program" "$@")" < /dev/null
