#!/usr/bin/env bash
# Measures on one GPU, in at most 6 minutes and without a network, and prints a table with date and card. The Python is
# $PYTHON, or the first of .venv's and the system's whose torch sees a GPU; it needs torch, transformers, torchvision,
# scipy and safetensors. `benchmarks/gpu.sh --smoke` shows on a CPU, in seconds, that it runs.
set -euo pipefail
cd "$(dirname "$0")/.."
python="${PYTHON:-}"
for candidate in .venv/bin/python python3; do
  [ -n "$python" ] && break
  "$candidate" -c 'import torch, transformers; assert torch.cuda.is_available()' 2>/dev/null && python="$candidate"
done
[ -n "$python" ] || python=$([ -x .venv/bin/python ] && echo .venv/bin/python || echo python3)
PYTHONPATH=src HF_HUB_OFFLINE=1 PYTHONUNBUFFERED=1 exec timeout 360 "$python" benchmarks/gpu.py "$@"
