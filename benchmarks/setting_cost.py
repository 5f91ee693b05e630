"""What a setting costs or gains: methods trained with two of its values, for the same seeds.

    python benchmarks/setting_cost.py --recipe digits-demo --epochs 10 --methods simclr ebclr \\
        --setting training.precision float32 bfloat16

Runs are those of benchmarks/methods.py, one thread each. Differences are paired over seeds and test images; all of the
table hold together. Seconds are a processor's.
"""

from __future__ import annotations

import statistics
from argparse import Namespace
from itertools import product

from methods import PROBES, Run, against, in_words, measured, parser_of_runs, trained
from page import write_page


def table(runs: dict[tuple[str, str], list[Run]], methods: list[str], values: list[str]) -> list[str]:
    """Return the lines of the table: each method with both values, and the differences between them."""
    before, after = values
    heads = [f"test {probe} %: {before} | {after} | difference, points" for probe in PROBES]
    cost = f"processor seconds: {before} | {after} | ratio"
    lines = [f"| method | {' | '.join([*heads, cost])} |", "|---" * (1 + 3 * (len(PROBES) + 1)) + "|"]
    for method in methods:
        cells = [method]
        for probe in PROBES:
            one_way, other_way = (measured(runs[method, value], method, probe) for value in values)
            cells += [in_words(one_way), in_words(other_way), against(other_way, one_way, len(PROBES) * len(methods))]
        first, second = (statistics.median(run.seconds for run in runs[method, value]) for value in values)
        cells += [f"{first:.0f}", f"{second:.0f}", f"{second / first:.2f}x"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def main() -> None:
    parser = parser_of_runs(__doc__, epochs=10, methods=["simclr", "ebclr", "vem-svgd"])
    parser.add_argument("--setting", nargs=3, default=["training.precision", "float32", "bfloat16"])
    parser.add_argument("--name", help="of the page; that of the setting when left out")
    asked = parser.parse_args()
    setting, *values = asked.setting
    tasks, keys = [], list(product(asked.seeds, asked.methods, values))
    for seed, method, value in keys:
        keep = asked.keep / value if asked.keep else None
        tasks.append(
            (method, seed, Namespace(**{**vars(asked), "set": [*asked.set, f"{setting}={value}"], "keep": keep}))
        )
    runs: dict[tuple[str, str], list[Run]] = {key: [] for key in product(asked.methods, values)}
    for (_, method, value), run in zip(keys, trained(tasks, asked.at_once), strict=True):
        runs[method, value].append(run)
    extra = "".join(f" --set {each}" for each in asked.set)
    command = f"`python benchmarks/setting_cost.py --recipe {asked.recipe} --epochs {asked.epochs}{extra}"
    command += f" --setting {' '.join(asked.setting)} --methods {' '.join(asked.methods)}`"
    title = f"{setting}: {values[0]} and {values[1]}, {asked.recipe}, {asked.epochs} epochs, {len(asked.seeds)} seeds"
    name = asked.name or f"setting_{setting.replace('.', '_')}"
    write_page(name, title, command, ("torch", "scikit-learn"), "\n".join(table(runs, asked.methods, values)))


if __name__ == "__main__":
    main()
