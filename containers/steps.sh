#!/bin/bash
# What the two recipes beside it, Dockerfile and labs.def, do inside an image. tests/setup/test_containers.py runs the
# second and third step in a folder.
#
#   steps.sh packages          install the distribution's packages (root; Debian or Ubuntu)
#   steps.sh environment ENV   make the Python environment ENV with Horovod; GPU=1: with CUDA and NCCL
#   steps.sh try ENV           train on two workers, as a user who may write only to LABS_RESULTS and LABS_DATA
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

packages() {
    apt-get update
    # ssh: mpirun reaches other nodes with it.
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends g++ make openssh-client
    rm -rf /var/lib/apt/lists/*
}

environment() {
    make env "VENV=$1"
    if [[ ${GPU:-} == 1 ]]; then
        "$1/bin/python" -m pip install -q -c constraints.txt -e '.[gpu,nvcc]'
        make horovod "PYTHON=$1/bin/python"
        # Horovod links CUDA's runtime statically: at run time the compiler is not needed.
        "$1/bin/python" -m pip uninstall -q -y nvidia-cuda-{nvcc,crt,cccl,runtime} nvidia-nvvm
    fi
    # Nobody can compile Python code in a read-only image, so every start would compile it again (12 s).
    "$1/bin/python" -m compileall -q -j 0 "$1/lib" labs setup || true  # Some packages ship templates that do not compile.
}

try() {
    cd /
    "$1/bin/labs" run lab02_horovod --workers 2 --epochs 2
    "$1/bin/labs" results
}

case "${1:-}" in
    packages) packages ;;
    environment | try) "$1" "$(realpath -m "${2:?the folder of the environment}")" ;;
    *) sed -n '2,8s/^# \?//p' "$0" >&2; exit 2 ;;
esac
