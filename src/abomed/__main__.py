from abomed.cli.main import run

if __name__ == "__main__":  # worker processes import this file again
    run()
