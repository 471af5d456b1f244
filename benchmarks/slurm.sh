#!/usr/bin/env bash
# Runs the script for Slurm of docs/guides/clusters.md on two nodes: they are network namespaces of this
# machine, each with a slurmd, an address and a name of its own. What happens to a run (SIGTERM at each moment,
# a lost task, a lost node) is a line: what Slurm says of the job, and whether the weights that it exports are
# those of two processes that were started by hand, bit for bit.
#
#     apt-get install slurm-wlm munge
#     bash benchmarks/slurm.sh        # as root, with bert_tf's python first on the PATH; ten minutes on idle cores
#     bash benchmarks/slurm.sh lost_task lost_node   # some of it
#
# All is in a temporary folder and in namespaces that end with this script. No CI runs it.
set -euo pipefail
repository=$(cd "$(dirname "$0")/.." && pwd)
if [ "${1:-}" != inside ]; then
  exec unshare --mount --net --uts --pid --fork --kill-child --mount-proc bash "$0" inside "$@"
fi
shift
work=$(mktemp -d)
chmod 711 "$work"
trap 'if [ -n "${KEPT:-}" ]; then cp "$work"/*.{out,log} "$KEPT"; fi; rm -rf "$work"' EXIT # KEPT: a folder for what was said

# === Two nodes ===

mount -t tmpfs none /run
mkdir /run/netns "$work/munge" "$work/state" "$work/n1" "$work/n2"
printf '127.0.0.1 localhost\n10.77.0.254 ctl\n10.77.0.1 n1\n10.77.0.2 n2\n' >"$work/hosts"
mount --bind "$work/hosts" /etc/hosts
hostname ctl
ip link set lo up
ip link add bridge type bridge
ip addr add 10.77.0.254/24 dev bridge
ip link set bridge up
for n in 1 2; do
  ip netns add "n$n"
  ip link add "port$n" type veth peer name eth0 netns "n$n"
  ip link set "port$n" master bridge up
  ip -n "n$n" addr add "10.77.0.$n/24" dev eth0
  ip -n "n$n" link set eth0 up
  ip -n "n$n" link set lo up
done
for gpu in 0 1 2 3 4 5 6 7; do mknod "$work/gpu$gpu" c 1 3; done # eight devices in name alone
echo "Name=gpu File=$work/gpu[0-7]" >"$work/gres.conf"
echo "CgroupPlugin=cgroup/v1" >"$work/cgroup.conf"
cat >"$work/slurm.conf" <<END
ClusterName=two
SlurmctldHost=ctl(10.77.0.254)
SlurmUser=root
AuthType=auth/munge
# A requeued job waits for as long as a credential is good, by default two minutes.
AuthInfo=socket=$work/munge/socket,cred_expire=5
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/%n
SlurmctldPidFile=$work/ctl.pid
SlurmdPidFile=$work/%n.pid
SlurmctldLogFile=$work/ctl.log
SlurmdLogFile=$work/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
ReturnToService=2
SlurmdTimeout=20
NodeName=n[1-2] CPUs=$(nproc) Gres=gpu:8 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES
END
export SLURM_CONF=$work/slurm.conf
dd if=/dev/urandom of="$work/munge/key" bs=1024 count=1 status=none
chmod 400 "$work/munge/key"
chmod 711 "$work/munge"
munged --force --key-file="$work/munge/key" --socket="$work/munge/socket" --pid-file="$work/munge/pid" \
  --log-file="$work/munge/log" --seed-file="$work/munge/seed"

start_node() { # its name
  nsenter --net="/run/netns/$1" unshare --uts bash -c "hostname $1; exec slurmd -D -N $1" &>>"$work/$1.out" &
}
slurmctld -D &>"$work/ctl.out" &
start_node n1
start_node n2
until_true() { # a command, for twenty minutes at most
  for _ in {1..12000}; do
    if "$@" &>/dev/null; then return; fi
    sleep 0.1
  done
  echo "In vain: $*" >&2
  exit 1
}
are_idle() { [ "$(sinfo -h -t idle -o %D)" = 2 ]; }
until_true are_idle
slurmctld -V

# === The run ===

export TF_CPP_MIN_LOG_LEVEL=2 TF_NUM_INTRAOP_THREADS=1 # so small a model has nothing to share among threads
cd "$repository"
python - "$work" <<'END'
import json, pathlib, sys

from tests.pretraining.commands import TINY, write_corpus

work = pathlib.Path(sys.argv[1])
write_corpus(work / "corpus.txt")
(work / "config.json").write_text(json.dumps(TINY))
END
cd "$work"
# Docs' script: the block with #SBATCH in it.
awk '/^```/ {inside = !inside; block = ""; next}
     inside {block = block $0 "\n"; if (/^exit/ && block ~ /#SBATCH/) printf "%s", block}' \
  "$repository/docs/guides/clusters.md" >pretrain.sh
cat pretrain.sh
flags=(--input="$work/corpus.txt" --vocab_file= --vocab_size=200 --bert_config="$work/config.json" --max_seq_length=32
  --train_batch_size=8 --eval_batch_size=8 --learning_rate=1e-2 --num_train_steps=60 --save_checkpoints_steps=10)

submit() { # the run's name: sets job
  name=$1
  job=$(sbatch --parsable --nodes=2 --output="$work/$name.out" pretrain.sh "${flags[@]}" --model_dir="$work/$name")
}
state() { scontrol show job "$job" | grep -oP "$1=\K\S+"; }
task_of() { ip netns pids "$1" | while read -r p; do grep -qz '^bert_tf.pretrain$' "/proc/$p/cmdline" && echo "$p"; done || true; }
has_ended() { [[ $(state JobState) =~ ^(COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL)$ ]]; }
is_not_running() { [ "$(state JobState)" != RUNNING ]; }
weights() { (cd "$1/export/1" && sha256sum variables/*); }
report() { # what happened
  until_true has_ended
  same="no export"
  if [ -e "$name/results.json" ]; then [ "$(weights "$name")" = "$(weights by_hand)" ] && same=same || same=OTHER; fi
  printf '%-34s %-10s restarts %s, exit code %-6s weights: %s\n' "$1" "$(state JobState)" "$(state Restarts)" \
    "$(state ExitCode)" "$same" | tee -a table
}

for task in 0 1; do
  setsid python -m bert_tf.pretrain "${flags[@]}" --model_dir="$work/by_hand" --worker_hosts=ctl:2222,ctl:2223 \
    --task_index="$task" &>"by_hand$task.out" &
  pids[task]=$!
done
wait "${pids[0]}"
wait "${pids[1]}"

saved() { until_true compgen -G "$work/$name/checkpoints/step-00000020/manifest.json"; }
unbroken() {
  submit unbroken
  report "start to end"
}
training() {
  submit training
  saved
  scancel --signal=TERM "$job"
  report "SIGTERM while it trains"
}
meeting() {
  submit meeting
  until_true grep "Waiting for all" "$name.out"
  scancel --signal=TERM "$job"
  report "SIGTERM while workers meet"
}
exporting() {
  submit exporting
  until_true compgen -G "$work/$name/export/*"
  scancel --signal=TERM "$job"
  report "SIGTERM while it exports"
}
requeued() {
  submit requeued
  saved
  scontrol requeue "$job"
  report "scontrol requeue"
}
lost_task() {
  submit lost_task
  saved
  kill -KILL "$(task_of n2)"
  report "a task is killed"
  submit lost_task
  report "the same script after it"
}
lost_node() {
  submit lost_node
  saved
  mapfile -t processes < <(ip netns pids n2)
  kill -KILL "${processes[@]}"
  until_true is_not_running
  start_node n2
  report "a node is lost"
}
lone() {
  srun --nodes=2 --ntasks-per-node=1 --output=lone.out python -m bert_tf.pretrain "${flags[@]}" \
    --model_dir="$work/lone" || true
  echo "Without --worker_hosts:"
  grep -h -e "trains alone" -e "in use" lone.out
}

all=(unbroken training meeting exporting requeued lost_task lost_node lone)
for what in "${@:-${all[@]}}"; do "$what"; done
printf '\n'
cat table
