#!/bin/bash
# One command of ebclab on whole nodes of Slurm: a Ray cluster starts and ends with the job. Submit it in a clone of the
# repository that all nodes see, after `make install`; what follows the file's name is an ordinary command line:
#   sbatch --nodes=4 --gpus-per-node=8 cluster/slurm.sh sweep simclr --recipe cifar10-resnet18 --trials 64 --name first
# Repeat the command after the time limit: it continues. A job that Slurm queues again continues by itself.
# Whole nodes, as the job ends with `ray stop`, which ends all your processes of Ray on a node.
#SBATCH --job-name=ebclab
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --requeue
#SBATCH --open-mode=append
set -euo pipefail
source .venv/bin/activate
ulimit -n "$(ulimit -Hn)"

# Every node of a cluster asks for the token; the nodes read it in your home folder.
export RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0 RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT=300
[ -s ~/.ray/auth_token ] || (umask 077 && ray get-auth-token --generate >/dev/null)
chmod 700 ~/.ray && chmod 600 ~/.ray/auth_token

# The command runs on the first node, the head, and finds the cluster by RAY_ADDRESS. A failure of one node ends all.
# `ray symmetric-run` ends with 0 where Ray did not start, so the command leaves a file when it begins.
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
address=${nodes[0]}:6379 began=$PWD/.began-$SLURM_JOB_ID
trap 'rm -f "$began"' EXIT
rm -f "$began" # of the same job, before its node failed and Slurm queued it again
srun --kill-on-bad-exit=1 --cpu-bind=none \
    ray symmetric-run --address="$address" --min-nodes="$SLURM_JOB_NUM_NODES" \
    --num-cpus="$SLURM_CPUS_ON_NODE" --num-gpus="${SLURM_GPUS_ON_NODE:-0}" \
    -- bash -c 'touch "$0" && exec "$@"' "$began" env RAY_ADDRESS="$address" ebclab "$@"
[ -e "$began" ] || { echo "error: Ray did not start; see above" >&2; exit 1; }
