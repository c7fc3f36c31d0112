from abomed.cli.main import run

run()
