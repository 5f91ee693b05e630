# Makes the folders beside this file anew: sh make.sh, with the ebclab that shall have made them on the path.
set -e
small="--recipe digits-demo --set encoder.width=2 --set method.projection_size=16 --set data.train_limit=128
  --set data.holdout_rate=0.3 --set training.batch_size=32 --set training.log_every=2 --set resources.threads=1"
chains="--set method.buffer_size=64 --set method.num_steps=3"

# A finished run, measured.
python -m ebclab pretrain simclr $small --epochs 2 --name finished --runs runs
python -m ebclab evaluate runs/finished --references
python -m ebclab export runs/finished --to expected/run

# A run that was stopped within its second epoch, and the same run left alone: its weights are what a resume must end in.
python stop_after.py 3 pretrain ebclr $small $chains --epochs 4 --name unfinished --runs runs || test $? = 130
python -m ebclab pretrain ebclr $small $chains --epochs 4 --name undisturbed --runs expected

# A finished sweep, its report and its export.
python -m ebclab sweep flatclr $small --space space.yaml --trials 4 --epochs 2 --set training.epochs=2 --top 2 --seeds 2 \
  --concurrent 1 --name sweep --sweeps sweeps
python -m ebclab report sweeps/sweep --to expected/report.html
python -m ebclab export sweeps/sweep --to expected/sweep

# Only what is read stays: of each run its best and its newest checkpoint, of the sweep the checkpoint that is exported.
rm -r runs/*/tensorboard runs/*/checkpoints/last-0000000002
rm -r sweeps/sweep/.ray sweeps/sweep/tensorboard sweeps/sweep/trials/*/tensorboard
exported=sweeps/sweep/trials/confirm-0001-seed1/checkpoints
mv $exported/last-0000000004 kept
rm -r sweeps/sweep/trials/*/checkpoints
mkdir $exported
mv kept $exported/last-0000000004
mv expected/undisturbed/checkpoints/last-0000000008/model.safetensors expected/undisturbed.safetensors
rm -r expected/undisturbed expected/report.html expected/*/README.md expected/*/*/README.md
find . -name .lock -delete
