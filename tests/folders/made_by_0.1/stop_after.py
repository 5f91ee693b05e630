"""Press Ctrl-C after the n-th optimizer step of an ebclab command line: python stop_after.py N pretrain ..."""

import signal
import sys

import torch

from ebclab.cli import main

steps, plain = 0, torch.optim.Adam.step


def step(self, closure=None):
    global steps
    steps += 1
    if steps == last:
        signal.raise_signal(signal.SIGINT)
    return plain(self, closure)


last = int(sys.argv.pop(1))
torch.optim.Adam.step = step
sys.exit(main())
