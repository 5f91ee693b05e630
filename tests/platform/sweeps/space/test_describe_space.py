from ebclab.config import compose
from ebclab.sweeps.space.check import describe_space
from ebclab.sweeps.space.space import parse_space


def test_a_space_is_described_by_setting_range_and_the_runs_own_value():
    given = {
        "optimizer.learning_rate": {"loguniform": [1e-3, 0.1]},
        "optimizer.name": {"choice": ["sgd", "adam"]},
        "training.batch_size": {"choice": [64, 256]},
        "training.compile": {"choice": [True, False]},
    }
    config = compose("simclr", "fashion-mnist-small")
    assert describe_space(parse_space({"parameters": given}, "s.yaml"), config) == [
        ("optimizer.learning_rate", "0.001 to 0.1, log scale", "0.004"),
        ("optimizer.name", "sgd or adam", "adam"),
        ("training.batch_size", "64 or 256", "256"),
        ("training.compile", "true or false", "false"),
    ]
