#!/bin/bash
# The steps of both recipes, Dockerfile and labs.def, inside an image. tests/setup/test_containers.py runs the second
# and third step in a folder.
#
#   steps.sh packages          install the distribution's packages (root; Debian or Ubuntu)
#   steps.sh environment ENV   make the Python environment ENV with Horovod; GPU=1: with CUDA and NCCL
#   steps.sh try ENV           train on two workers; write only to LABS_RESULTS and LABS_DATA
set -euo pipefail
env=$(realpath -m "${2:-.}")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

packages() {
    apt-get update
    # mpirun needs ssh to reach other nodes; `labs cluster` needs iproute2; a dev container needs git.
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends g++ make openssh-client \
        iproute2 git
    rm -rf /var/lib/apt/lists/*
}

environment() {
    make env "VENV=$env"
    if [[ ${GPU:-} == 1 ]]; then
        "$env/bin/python" -m pip install -q -c setup/constraints.txt -e '.[gpu,nvcc]'
        make horovod "PYTHON=$env/bin/python"
        # Horovod links CUDA's runtime statically, so the compiler and its runtime are not needed any more.
        "$env/bin/python" -m pip uninstall -q -y nvidia-cuda-{nvcc,crt,cccl,runtime} nvidia-nvvm
    fi
    # A read-only image cannot store compiled Python code, so every start would compile it again (12 s). Some packages
    # have files that are not meant to compile, hence `|| true`.
    "$env/bin/python" -m compileall -q -j 0 "$env/lib" labs horovod_keras3 setup || true
}

try() {
    cd /
    "$env/bin/labs" run lab02_horovod --workers 2 --epochs 2
    "$env/bin/labs" results
}

case "${1:-} $#" in
    "packages 1" | "environment 2" | "try 2") "$1" ;;
    *) sed -n '2,8s/^# \?//p' "$0" >&2; exit 2 ;;
esac
