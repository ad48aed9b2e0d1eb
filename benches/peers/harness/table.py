"""Figures as Markdown. A peer without a figure has its error in the place."""

MARK_BEGIN = "<!-- figures: written by benches/peers/run -->"
MARK_END = "<!-- end of figures -->"
OURS = "deedbook"


def document(report):
    """All tables of a report."""
    rows = report["peers"]
    parts = [facts(report), "### Steps", steps(rows), "### Replay", replays(rows)]
    parts += ["### Kills in the middle", kills(rows), "### Versions and settings", settings(rows)]
    failed = errors(rows)
    if failed:
        parts += ["### What failed", failed]
    return "\n\n".join(parts)


def into(text, tables):
    """The text of a page with the tables between its marks."""
    before, begin, rest = text.partition(MARK_BEGIN)
    _, end, after = rest.partition(MARK_END)
    if not begin or not end:
        raise ValueError(f"the page has no {MARK_BEGIN} … {MARK_END}")
    return f"{before}{begin}\n\n{tables}\n\n{end}{after}"


def facts(report):
    about = [f"{name} {value}" for name, value in report["machine"].items()]
    return f"{report['date']}; {'; '.join(about)}.\nCommand: `{report['command']}`."


def steps(rows):
    head = [""]
    for of in ("1 workflow", "64 workflows"):
        head += [f"{of}: × floor", "× Deedbook", "steps/s", "floor, µs", "syncs/step"]
    lines = []
    for row in rows:
        line = [row["label"]]
        for workflows in ("1", "64"):
            rate = figure(row, "rates", workflows)
            if rate:
                line += [number(rate["ratio"]), ours(rows, row, "rates", workflows, "ratio")]
                line += [f"{rate['steps_per_s']:,.0f}", number(rate["floor_us"])]
            else:
                line += ["failed", "", "", ""]
            line.append(number(figure(row, "syncs", workflows)))
        lines.append(line)
    return table(head, lines)


def replays(rows):
    sizes = sorted({size for row in rows for size in row.get("replay", {})}, key=int)
    head = [""]
    for size in sizes:
        head += [f"{int(size):,} recorded: ms", "× Deedbook"]
    lines = []
    for row in rows:
        line = [row["label"]]
        for size in sizes:
            one = figure(row, "replay", size)
            if not one:
                line += ["failed", ""]
                continue
            again = f" ({one['again']} run again)" if one["again"] else ""
            line += [number(one["ms"]) + again, ours(rows, row, "replay", size, "ms")]
        lines.append(line)
    return table(head, lines)


def kills(rows):
    head = ["", "kills", "finished steps at the kills", "of them executed again"]
    head += ["of 100", "the next body had begun", "of 100", "bodies executed twice", "a kill"]
    head += ["never ended"]
    lines = []
    for row in rows:
        one = next(iter(row.get("kills", {}).values()), None)
        if not one:
            lines.append([row["label"], "failed", *[""] * (len(head) - 2)])
            continue
        line = [row["label"], one["kills"], f"{one['finished']:,}"]
        for again in (one["finished_again"], one["built_on_again"]):
            line += [again, number(100 * again / max(one["finished"], 1))]
        line += [one["bodies_again"], number(one["bodies_again"] / one["kills"])]
        lines.append([*line, one["stopped"]])
    return table(head, lines)


def settings(rows):
    head = ["", "versions", "settings", "a step whose process is killed"]
    lines = []
    for row in rows:
        versions = ", ".join(f"{name} {version}" for name, version in row["versions"].items())
        lines.append([row["label"], versions, row["settings"], row["promise"]])
    return table(head, lines, left=True)


def errors(rows):
    lines = []
    for row in rows:
        for what, why in row.get("errors", {}).items():
            lines.append(f"- {row['label']}, {what}: `{why}`")
        for kills in row.get("kills", {}).values():
            if kills["stopped"]:
                lines.append(f"- {row['label']}, {kills['stopped']} kills: `{kills['why']}`")
            if kills["never"]:
                lines.append(f"- {row['label']}, steps without any body: {kills['never']}")
    return "\n".join(lines)


def figure(row, *path):
    """A figure of a row, or nothing."""
    for name in path:
        row = row.get(name) if isinstance(row, dict) else None
    return row


def ours(rows, row, *path):
    """How many times the figure of Deedbook in the same run."""
    mine = next((one for one in rows if one["name"] == OURS), None)
    base = figure(mine, *path) if mine else None
    return number(figure(row, *path) / base) if base else ""


def number(value):
    """Three digits at most, no more than are meant."""
    if value is None:
        return ""
    if value == 0:
        return "0"
    if value >= 100:
        return f"{value:,.0f}"
    if value >= 10:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def table(head, lines, left=False):
    rule = ["---"] + ["---" if left else "--:"] * (len(head) - 1)
    rows = [head, rule, *lines]
    return "\n".join(f"| {' | '.join(str(cell) for cell in row)} |" for row in rows)
