"""Workers of Ray Train and trials of Ray Tune find a method in the folder where the command was given."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

CODE = """
from energy_contrast.contrastive.simclr import Simclr


class Mine(Simclr):
    def contrast(self, projection, positive, negatives):
        return super().contrast(projection, positive, negatives.topk(4).values)
"""
SPACE = "parameters:\n  method.temperature: {loguniform: [0.1, 1.0]}\n"
BOTH_ON_ONE_RAY = """
import sys
from ebclab.cluster.switches import set_ray_switches
set_ray_switches()
from ebclab.cli import main
from ebclab.cluster.join import cluster_session
from ebclab.training.display import Listener
tiny = ["--epochs", "1"]
for setting in ("data.train_limit=96", "training.batch_size=32", "training.epochs=1", "encoder.width=4"):
    tiny += ["--set", setting]
sweep = "--space space.yaml --trials 2 --concurrent 1 --top 0 --name two"
with cluster_session("local", Listener()):
    codes = [
        main(["pretrain", "own_folder:Mine", "--workers", "1", "--name", "one", *tiny]),
        main(["sweep", "own_folder:Mine", *sweep.split(), *tiny]),
    ]
sys.exit(max(codes))
"""


def test_workers_and_trials_find_a_method_of_the_current_folder(tmp_path: Path) -> None:
    (tmp_path / "own_folder.py").write_text(CODE)
    (tmp_path / "space.yaml").write_text(SPACE)
    command = [sys.executable, "-P", "-c", BOTH_ON_ONE_RAY]  # -P: as the installed command, which has no current folder
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    runs = [tmp_path / "runs" / "one", *(tmp_path / "sweeps" / "two" / "trials").iterdir()]
    assert len(runs) == 3
    for run in runs:
        assert json.loads((run / "result.json").read_text())["steps"] == 2
        assert "  name: own_folder:Mine\n  digest: " in (run / "config.yaml").read_text()
