"""Settings that would couple teachers are refused on the command line: one line, exit code 2, nothing written."""

from __future__ import annotations

import pytest

from teacher_student.app import dispatch

RUN = [
    "run",
    "experiment=blobs",
    "data.num_private=60",
    "data.num_public=20",
    "teachers.number=5",
    "console=quiet",
    "run_folder=here",
]
STOPPING = "+trainer.callbacks=[{_target_:lightning.pytorch.callbacks.EarlyStopping,monitor:loss}]"
AVERAGING = "+trainer.callbacks=[{_target_:lightning.pytorch.callbacks.StochasticWeightAveraging,swa_lrs:0.1}]"


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["trainer.gradient_clip_val=1"], "trainer.gradient_clip_val is not a setting"),
        (["+trainer.gradient_clip_val=1"], "use the setting clip_norm"),
        ([STOPPING], "must not hold EarlyStopping, which would couple teachers"),
        *(
            pytest.param(overrides, says, marks=pytest.mark.slow)
            for overrides, says in [
                (["+trainer.gradient_clip_algorithm=norm"], "use the setting clip_norm"),
                (["+trainer.accumulate_grad_batches=2"], "use the setting batch_size"),
                (["+trainer.sync_batchnorm=true"], "statistics must not cross teachers"),
                (["+trainer.precision=16-mixed"], "loss scaling couples teachers"),
                (["+trainer.detect_anomaly=true"], "must not stop the others"),
                (["+trainer.strategy=fsdp"], "share teachers' parameters"),
                (["+trainer.max_epochs=3"], "use the setting steps"),
                ([AVERAGING], "must not hold StochasticWeightAveraging"),
                (["+teachers.training.schedule=plateau"], "would couple teachers"),
                (["+teachers.training.precision=16-mixed"], "loss scaling couples teachers"),
                (["learner._target_=torch.nn.BatchNorm1d", "+teachers.training.engine=vmap"], "batch normalisation"),
                (["+teachers.training.weight_decay=[0.1,0.2]"], "weight_decay must be one number or 5, got 2"),
                (["+trainer.speed=3"], "trainer must be options of Lightning's Trainer"),
                (["trainer.devices=0"], "trainer must be options of Lightning's Trainer"),
                (["learner=sklearn", "learner.estimator._target_=builtins.dict"], "learner must build"),
            ]
        ),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_what_couples_teachers_is_refused_before_anything_is_written(overrides, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:  # inside Hydra's job; outside, dispatch returns the code
        raise SystemExit(dispatch([*RUN, *overrides]))
    complaint = capsys.readouterr().err
    assert stop.value.code == 2, complaint
    assert says in complaint
    assert len(complaint.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
