"""`abomed figure`: one figure from data or results, as PNG and PDF. Each lies in a module of its own."""

from cyclopts import App

app = App(name="figure", help="One figure from your data or your results.")
app.command(
    "abomed.cli.augmentations:augmentations",
    name="augmentations",
    help="Images of each set as every augmentation shows them.",
)
app.command(
    "abomed.cli.augmentations:policy",
    name="policy",
    help="Every operation of a policy at five magnitudes, to be looked at and vetoed.",
)
app.command("abomed.cli.figures:framework", name="framework", help="The method as one picture.")
app.command("abomed.cli.figures:curves", name="curves", help="Learning curves of runs, side by side.")
app.command("abomed.cli.figures:pareto", name="pareto", help="Accuracy against training time of all methods.")
app.command(
    "abomed.cli.figures:hypergradients",
    name="hypergradients",
    help="Error of the hypergradient against its cost.",
)
app.command("abomed.cli.figures:triples", name="triples", help="Accuracy over all sets of novel classes.")
app.command("abomed.cli.figures:patients", name="patients", help="Images apart against patients apart.")
app.command(
    "abomed.cli.gradcam:gradcam",
    name="gradcam",
    help="Heat maps of several models on a task of each set, side by side.",
)
