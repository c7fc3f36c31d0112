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
