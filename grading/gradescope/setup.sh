#!/usr/bin/env bash
# Gradescope runs this once, as root, when it builds the image. AUTOGRADER is /autograder there, another folder in tests.
set -euo pipefail
base=${AUTOGRADER:-/autograder}
python=${PYTHON:-python3}
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11, 4))'; then
    echo "setup.sh: $python is older than 3.11.4; choose a newer base image, or set PYTHON" >&2
    exit 1
fi
if [ "$base" = /autograder ]; then
    apt-get update && apt-get install -y python3-venv
fi
"$python" -m venv "$base/venv"
"$base/venv/bin/pip" install --quiet -r "$base/source/grading/requirements.txt" -c "$base/source/setup/constraints.txt"
