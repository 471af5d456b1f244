"""Plots the accuracies of a pre-training run over its steps, from the logs in its model directory.

    python examples/plot_pretraining.py runs/pretrain pretraining.png

Requires matplotlib: pip install -e '.[examples]'. The error bars of held-out accuracies are 95%
Wilson intervals, which assume independent predictions. The masked tokens of a row are not quite
independent, so the intervals of the masked LM are slightly too narrow.
"""

import json
import pathlib
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util import tensor_util

BLUE, PALE, RED, GREY = "#2b5fa0", "#b8c4d4", "#c8492d", "#666666"
SMOOTHED = 15  # number of points in the running mean
PANELS = (
    ("Masked LM", "masked_lm", "masked_lm/predictions"),
    ("Next sentence", "next_sentence", "next_sentence/rows"),
)


def read_logs(folder):
    """Returns the steps and values of each curve in a log directory."""
    events = EventAccumulator(str(folder), size_guidance={"tensors": 0}).Reload()
    return {
        tag: np.array(
            [(e.step, float(tensor_util.make_ndarray(e.tensor_proto))) for e in events.Tensors(tag)]
        ).T
        for tag in events.Tags()["tensors"]
    }


def phase_lengths(flags):
    """Returns the first step and the row length of each phase."""
    if not flags["phases"]:
        return [(0, flags["max_seq_length"])]
    begins, done = [], 0.0
    for phase in flags["phases"].split(","):
        length, share = phase.split(":")[:2]  # the maximum number of predictions may follow
        begins.append((round(done * flags["num_train_steps"]), int(length)))
        done += float(share)
    return begins


def wilson(share, count, z=1.96):
    """Returns the 95% interval of a fraction of ``count`` draws."""
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * np.sqrt(share * (1 - share) / count + (z / (2 * count)) ** 2) / (1 + z * z / count)
    return middle - half, middle + half


def smooth(steps, values, begins):
    """Returns running means over neighboring points of the same phase."""
    phase = np.searchsorted([begin for begin, _ in begins[1:]], steps)
    half = SMOOTHED // 2
    windows = [slice(max(at - half, 0), at + half + 1) for at in range(len(values))]
    return np.array(
        [values[window][phase[window] == phase[at]].mean() for at, window in enumerate(windows)]
    )


def main(model_dir, output):
    """Writes the plot, in the format that the suffix of ``output`` specifies."""
    folder = pathlib.Path(model_dir)
    train, held_out = read_logs(folder / "logs" / "train"), read_logs(folder / "logs" / "eval")
    begins = phase_lengths(json.loads((folder / "flags.json").read_text()))
    plt.rcParams.update({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False})
    figure, panels = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for axes, (title, key, counted) in zip(panels, PANELS, strict=True):
        steps, accuracy = train[f"{key}/accuracy"]
        axes.plot(steps, 100 * accuracy, color=PALE, linewidth=1, label="training")
        means = smooth(steps, accuracy, begins)
        for begin, end in zip(begins, [*begins[1:], (np.inf, 0)], strict=True):
            of = (steps > begin[0]) & (steps <= end[0])
            label = "training, running mean" if begin is begins[0] else None
            axes.plot(steps[of], 100 * means[of], color=BLUE, linewidth=2.2, label=label)
        at, shares = held_out[f"{key}/accuracy"]
        low, high = wilson(shares, held_out[counted][1])
        axes.errorbar(
            at,
            100 * shares,
            yerr=100 * np.array([shares - low, high - shares]),
            fmt="o",
            color=RED,
            capsize=3,
            label="held out, 95% interval",
        )
        guess = 100 * held_out[f"{key}/baseline"][1][-1]
        axes.axhline(guess, color=GREY, linestyle="--", linewidth=1.2, label="guessing, held out")
        axes.set(title=f"{title} accuracy", xlabel="step", ylim=(0, None))
        axes.yaxis.set_major_formatter("{x:.0f}%")
        top = axes.get_ylim()[1]
        axes.set_ylim(0, top * 1.08)
        for number, (begin, length) in enumerate(begins):
            if begin:
                axes.axvline(begin, color=PALE, linewidth=1, zorder=0)
            name = f"rows of {length}" if number == len(begins) - 1 else str(length)
            axes.text(begin + steps[-1] / 100, top * 1.02, name, color=GREY, fontsize=9)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(output, dpi=110, facecolor="white")


if __name__ == "__main__":
    main(*sys.argv[1:])
