"""`abomed figure`: one figure from data or results, as PNG and PDF. Each lies in a module of its own."""

from cyclopts import App

app = App(name="figure", help="One figure from your data or your results.")
