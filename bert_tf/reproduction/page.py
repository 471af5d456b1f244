"""The page of a reproduction: tables next to the paper's, what they show, and pictures."""

import html
import math
import os
import shlex
from collections.abc import Mapping, Sequence

from bert_tf.cli.flag_fields import as_words
from bert_tf.files import check_marked, write_marked
from bert_tf.metrics.resampling import Mean, mean_over_seeds
from bert_tf.reports.means import means_svg
from bert_tf.training.progress import duration
from bert_tf.untrusted import one_line

from .plan import Key, Place, Plan
from .score_table import Score
from .settings import CAVEAT, INTRODUCTIONS, TABLES, Column, Settings, Table

MARK = "<!-- Written by python -m bert_tf.reproduce: changes are lost. -->\n"


class Found:
    """What is known of a table: the means of its places, and which seeds learned nothing."""

    def __init__(self, table: Table, places: Mapping[Key, Place], scores: Sequence[Score]) -> None:
        self.table, self.places = table, places
        self.means: dict[Column, dict[int, Mean]] = {}
        self.points: dict[Column, dict[int, list[float]]] = {}
        self.collapsed: dict[Key, tuple[int, int]] = {}  # of how many seeds
        self.commonest: dict[Column, float] = {}
        for (number, column), place in places.items():
            own = [s for s in scores if s.cell == place.cell and s.metric in (column[1], "")]
            alone = (place.cell, f"commonest_class_{column[1]}")
            self.commonest.update((column, s.score) for s in scores if s[:2] == alone)
            self.collapsed[number, column] = sum(bool(score.collapsed) for score in own), len(own)
            if values := [score.score for score in own if not math.isnan(score.score)]:
                self.means.setdefault(column, {})[number] = mean_over_seeds(values)
                self.points.setdefault(column, {})[number] = values

    @property
    def shown(self) -> dict[int, str]:
        """The rows that were run, or all where other models' are beside them: names by number."""
        run = {number for (number, _), (_, seeds) in self.collapsed.items() if seeds}
        rows = enumerate(self.table.rows)
        return {n: row.name for n, row in rows if n in run or self.table.published}

    def mean(self, key: Key) -> Mean | None:
        """The mean of a place."""
        return self.means.get(key[1], {}).get(key[0])

    def paper(self, key: Key) -> float | None:
        """The paper's figure, where the task is the same."""
        figures, place = self.table.rows[key[0]].paper, self.table.columns.index(key[1])
        return None if place >= len(figures) or self.places[key].other_task else figures[place]

    def differs(self, key: Key) -> bool | None:
        """Whether the first row is beyond noise; ``None`` where nothing is to be compared."""
        own, first = self.mean(key), self.mean((0, key[1]))
        return own.differs(first) if key[0] and own and first and own.seeds > 1 else None


def check(settings: Settings, plan: Plan) -> None:
    """Raises a ``ValueError`` where the page, or a picture, would take a person's file's place."""
    for path in (str(settings.page), *(_picture(settings, name) for name in plan.places)):
        check_marked(path, MARK)


def _picture(settings: Settings, table: str) -> str:
    return f"{str(settings.page).removesuffix('.md')}_{table}.svg"


def write(
    settings: Settings, plan: Plan, scores: Sequence[Score], failed: Mapping[str, str]
) -> None:
    """Writes the page, and a picture of each table next to it."""
    cells = {place.cell for places in plan.places.values() for place in places.values()}
    cells |= {*plan.trained.values()}
    own = [score for score in scores if score.cell in cells]
    seconds = {(score.cell, score.seed): score.seconds for score in own}
    examples = f"{settings.max_examples:,}" if settings.max_examples else "all"
    command = f"python -m bert_tf.reproduce {shlex.join(as_words(settings.words))}"
    flags = {k: v and f" (`{v}`)" for k, v in vars(settings).items() if k.endswith("_flags")}
    machines = {html.escape(one_line(each.machine)) for each in own}
    introduction = INTRODUCTIONS["text" if plan.reads_text else "checkpoint"]
    parts = [
        f"{MARK}# Reproduction\n",
        introduction.format(**{**vars(settings), **flags, "max_examples": examples}),
        "The command writes this page. Started again, it computes what is missing:\n\n"
        f"```\n{command}\n```\n",
        f"Machine: {'; '.join(sorted(machines)) or 'none yet'}. The "
        f"runs took {duration(sum(seconds.values()))}, with other work on it.\n",
    ]
    for name, places in plan.places.items():
        found = Found(table := TABLES[name], places, own)
        parts.append(f"## {table.title}\n")
        if found.means:
            picture = means_svg(found.shown, found.means, found.points)
            path = _picture(settings, name)
            write_marked(path, picture + MARK, MARK)
            parts.append(f"{_markdown(found)}\n![Means]({os.path.basename(path)})\n")
        elif table.published:
            parts.append(_markdown(found))
        if table.uses_checkpoint and settings.checkpoint:
            parts.append(f"The rows start from `{settings.checkpoint}`.\n")
        parts += _sentences(found, failed)
    write_marked(str(settings.page), "\n".join(parts), MARK)


def _markdown(found: Found) -> str:
    table = found.table
    columns = [c for c in table.columns if c in found.means or table.published]
    averages = ["average"] * table.average
    lines = [
        f"| run | {' | '.join([*map(', '.join, columns), *averages])} |",
        "|:--|" + "--:|" * (len(columns) + len(averages)),
    ]
    for number, name in found.shown.items():
        line = f"| {name} |"
        for key in ((number, column) for column in columns):
            own, paper = found.mean(key), found.paper(key)
            line += f" {own.mean:.1f}" if own else " -"
            line += f" ± {own.error:.1f}" if own and own.seeds > 1 else ""
            line += " ≈" * (found.differs(key) is False)
            line += " |" if paper is None else f" ({paper:g}) |"
        means = [mean.mean for c in table.columns if (mean := found.mean((number, c)))]
        complete = len(means) == len(table.columns)
        if table.average:
            line += f" {math.fsum(means) / len(means):.1f} |" if complete else " - |"
        lines.append(line)
    for name, figures in table.published.items():
        shown = [*figures, round(math.fsum(figures) / len(figures), 1)]
        lines.append(f"| {name}, published | {' | '.join(f'{each:.1f}' for each in shown)} |")
    return "\n".join(lines) + "\n"


def _sentences(found: Found, failed: Mapping[str, str]) -> list[str]:
    """What the table is of, which of the paper's signs it has, what learned nothing, what lacks."""
    said: dict[str, list[str]] = {}
    if any(seeds > 1 for _, seeds in found.collapsed.values()):
        said["Learned nothing, or one answer only"] = [
            f"{found.table.rows[number].name} ({column[0]}) {count} of {seeds} seeds"
            for (number, column), (count, seeds) in found.collapsed.items()
            if count
        ] or ["none"]
    for key, place in found.places.items():
        row, differs = found.table.rows[key[0]].name, found.differs(key)
        where = f"{row} ({key[1][0]})"
        if (own := found.mean(key)) is None:
            if found.collapsed[key][1]:  # every seed diverged
                continue
            why = place.note if place.cell is None else failed.get(place.run, "not run yet")
            of = said.setdefault(f"Missing, {why}", [])
            if key[0] in found.shown:
                of.append(where if place.cell else key[1][0])
            elif place.cell:
                of.append(row)
            continue
        if place.note:
            said.setdefault(f"{key[1][0]} here means {place.note}", [])
        if key[1] in found.commonest:
            score = f"{key[1][1]} {found.commonest[key[1]]:.1f}"
            guess = f"Always predicting the most frequent class of {key[1][0]}"
            said.setdefault(f"{guess} gives {score}", [])
        if differs is not None:
            change = own.mean - found.means[key[1]][0].mean
            ours, first = found.paper(key), found.paper((0, key[1]))
            verdict = "Within the noise of seeds"
            if differs and (ours is None or first is None):
                verdict = "Not in the paper, and beyond the noise of seeds"
            elif differs and ours is not None and first is not None:
                holds = (ours > first) == (change > 0)
                verdict = f"Signs of the paper that {'hold' if holds else 'do not hold'} here"
            said.setdefault(verdict, []).append(f"{where} {change:+.1f}")
    return [
        f"{found.table.note}\n",
        *(f"- {what}{': ' * bool(of)}{'; '.join(dict.fromkeys(of))}." for what, of in said.items()),
        "",
        (found.table.caveat or CAVEAT) * any(len(each) > 1 for each in found.means.values()),
    ]
